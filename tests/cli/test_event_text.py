"""Events as lines: each names its unit, and says how it ended."""

from zoneinfo import ZoneInfo

import pytest

from paceline.cli.event_text import line_of
from paceline.events import Event

UTC = ZoneInfo("UTC")
PLACE: dict[str, object] = {"path": "/w/a", "branch": "paceline/docs/a"}


@pytest.mark.parametrize(
    ("name", "fields", "line"),
    [
        ("unit.checked", {"exit_code": 0, "seconds": 2.5, "reason": None}, "checked docs/a: passed after 2.5 s"),
        ("unit.checked", {"exit_code": 2, "seconds": 1.0}, "checked docs/a: failed with exit code 2 after 1 s"),
        ("unit.checked", {"exit_code": None, "seconds": 60.0, "reason": "lost"}, "checked docs/a: lost after 60 s"),
        ("unit.delivered", {"branch": "b", "commit": "c", "patch": None}, "delivered docs/a: branch b"),
        ("workspace.created", PLACE, "workspace created docs/a: path /w/a, branch paceline/docs/a"),
    ],
)  # fmt: skip
def test_a_line_says_how_the_work_of_a_unit_fared(name: str, fields: dict[str, object], line: str) -> None:
    assert line_of(Event(name, 0.0, None, "docs/a", fields), UTC) == f"00:00:00 {line}"

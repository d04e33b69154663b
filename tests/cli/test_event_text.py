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


@pytest.mark.parametrize(
    ("name", "spent", "resumes_at", "line"),
    [
        ("budget.warning", 4.02, 3600.0, "budget warning key:team: $4.02 of $5/day"),
        ("budget.reached", 5.1, 3600.0, "budget reached key:team: $5.10 of $5/day, continues 01:00:00 (in 60 min)"),
        ("budget.reached", 5.1, None, "budget reached key:team: $5.10 of $5/day"),
    ],
)
def test_a_line_says_what_is_spent_of_a_budget(name: str, spent: float, resumes_at: float | None, line: str) -> None:
    fields: dict[str, object] = {"budget": "$5/day", "spent": spent, "share": 1.0, "resumes_at": resumes_at}

    assert line_of(Event(name, 0.0, "key:team", None, fields), UTC) == f"00:00:00 {line}"

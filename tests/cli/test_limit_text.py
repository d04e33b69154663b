"""What a person reads about a limit, learnt or not."""

import msgspec
import pytest

from paceline.cli.limit_text import learnt_text, open_text
from paceline.core.values.status import LearntLimit
from paceline.views.capacity import ScopeCapacity, ScopeKind

NOW = 10_000.0
LEARNT = LearntLimit(
    held=18,
    of=24,
    refused_level=19,
    refused_at=NOW - 1200.0,
    next_level=19,
    next_try_at=NOW + 600.0,
    reason="nothing was refused since",
)


REFUSED = "refused at 19 20 min ago"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, f"held 18 of 24: {REFUSED}; 19 is tried in 10 min if nothing is refused until then"),
        ({"next_try_at": NOW - 1.0}, f"held 18 of 24: {REFUSED}; 19 is tried next because nothing was refused since"),
        ({"next_try_at": None, "reason": "19 is being tried"}, f"held 18 of 24: {REFUSED}; 19 is being tried"),
        ({"of": None, "refused_at": None, "next_try_at": None, "reason": "it stays"}, "held 18: after a 429; it stays"),
    ],
)
def test_a_learnt_limit_is_one_sentence(changes: dict[str, object], text: str) -> None:
    assert learnt_text(msgspec.structs.replace(LEARNT, **changes), NOW) == text


@pytest.mark.parametrize(
    ("kind", "queued", "text"),
    [
        ("account", 38, "open"),
        ("key", 0, "open"),
        ("key", 38, "open; its calls wait for the limits of their account"),
    ],
)
def test_a_key_that_holds_nothing_back_says_what_its_calls_wait_for(kind: ScopeKind, queued: int, text: str) -> None:
    row = ScopeCapacity(
        scope="key:docs",
        kind=kind,
        in_flight=2,
        cooling=0,
        limit=None,
        configured=None,
        configured_source="",
        configured_by=None,
        platform=None,
        adaptive=None,
        queued=queued,
        cooldown=0.0,
        paused_until=None,
        auto_reduced=False,
        auto_reduced_from=None,
        notice=None,
        held=None,
        windows=(),
    )

    assert open_text(row) == text

"""Values as words: limits, calls of the gateway, events."""

from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec
import pytest

from paceline.cli.output import (
    activity_text,
    call_counts_text,
    call_tokens_text,
    count_text,
    event_line,
    failure_text,
    learnt_text,
    limit_line,
    open_text,
)
from paceline.core.values.session_output import Tokens
from paceline.core.values.status import LearntLimit
from paceline.events import Event
from paceline.settings import Settings
from paceline.store import Cost
from paceline.views.capacity import ScopeCapacity, ScopeKind
from paceline.views.gateway_calls import GatewayActivity, GatewayCounts, MemberFailure

LIMITS_READ_AT = 10_000.0
LEARNT = LearntLimit(
    held=18,
    of=24,
    refused_level=19,
    refused_at=LIMITS_READ_AT - 1200.0,
    next_level=19,
    next_try_at=LIMITS_READ_AT + 600.0,
    reason="nothing was refused since",
)


REFUSED = "refused at 19 20 min ago"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, f"held 18 of 24: {REFUSED}; 19 is tried in 10 min if nothing is refused until then"),
        (
            {"next_try_at": LIMITS_READ_AT - 1.0},
            f"held 18 of 24: {REFUSED}; 19 is tried next because nothing was refused since",
        ),
        ({"next_try_at": None, "reason": "19 is being tried"}, f"held 18 of 24: {REFUSED}; 19 is being tried"),
        ({"of": None, "refused_at": None, "next_try_at": None, "reason": "it stays"}, "held 18: after a 429; it stays"),
    ],
)
def test_a_learnt_limit_is_one_sentence(changes: dict[str, object], text: str) -> None:
    assert learnt_text(msgspec.structs.replace(LEARNT, **changes), LIMITS_READ_AT) == text


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
    assert limit_line(row, Settings(home=Path("home"), store_url="sqlite:///unused"), LIMITS_READ_AT).queued == queued


NOW = 1_700_000_000.0
UTC = ZoneInfo("UTC")


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (999, "999"), (1000, "1.00k"), (12_400, "12.4k"), (812_000, "812k"), (3_050_000, "3.05M")],
)
def test_large_counts_have_three_digits(count: int, text: str) -> None:
    assert count_text(count) == text


def test_the_calls_of_now_and_of_the_day() -> None:
    busy = GatewayActivity(
        in_flight=4,
        waiting=56,
        per_minute=120,
        refused_per_minute=3,
        requests_today=900,
        tokens_today=Tokens(input=1_000_000, output=200_000),
        cost_today=Cost(billed=4.0, imputed=0.1),
    )

    assert activity_text(busy) == "4 in flight, 56 wait, 120/min, 3 refused, 1.20M tokens, $4.10 today"
    assert call_counts_text(busy.counts) == "4 calls in flight, 56 waiting; 120 in the last minute, 3 refused"
    unpriced = GatewayActivity(requests_today=1, tokens_today=Tokens(input=5))
    assert activity_text(msgspec.structs.replace(busy, unpriced_today=2)).endswith("$4.10 or more today")
    assert activity_text(unpriced) == "0 in flight, 0 wait, 0/min, 5 tokens, cost unknown today"
    assert activity_text(GatewayActivity(per_minute=1)) == "0 in flight, 0 wait, 1/min"
    assert call_counts_text(GatewayCounts()) == "0 calls in flight, 0 waiting; 0 in the last minute"
    assert call_counts_text(None) == "the daemon does not answer"


def test_tokens_by_kind() -> None:
    assert call_tokens_text(Tokens(input=1, output=2)) == "1 in, 2 out"
    assert call_tokens_text(Tokens(input=1, cache_read=3, cache_write=4)) == "1 in, 0 out, 3 from cache, 4 to cache"


def test_a_failing_account_says_since_when_and_when_it_is_tried() -> None:
    failure = MemberFailure(
        account="key-a", scope="anthropic/key-a", pools=("team",), kind="unreachable", detail="no connection: refused",
        since=NOW - 150, last_at=NOW - 10, calls=7, retry_at=NOW + 60,
    )  # fmt: skip
    refused = msgspec.structs.replace(
        failure, kind="refused", detail="status 429", calls=1, pools=("team", "all"), retry_at=None
    )
    since = "since 2023-11-14 22:10:50 UTC, 2 min ago"

    assert [failure_text(failure, now, UTC) for now in (NOW, NOW + 61)] == [
        f"cannot be reached {since}: no connection: refused, 7 calls; "
        "tried last in the pool team until 2023-11-14 22:14:20 UTC, in 60 s",
        "cannot be reached since 2023-11-14 22:10:50 UTC, 4 min ago: no connection: refused, 7 calls; "
        "the next call of the pool team may try it",
    ]
    assert failure_text(refused, NOW, UTC) == (
        f"refuses calls {since}: status 429, 1 call; the pools team, all may use other accounts for them"
    )


PLACE: dict[str, object] = {"path": "/w/a", "branch": "paceline/docs/a"}


@pytest.mark.parametrize(
    ("name", "fields", "line"),
    [
        ("unit.checked", {"exit_code": 0, "seconds": 2.5, "reason": None}, "checked docs/a: passed after 2.5 s"),
        ("unit.checked", {"exit_code": 2, "seconds": 1.0}, "checked docs/a: failed with exit code 2 after 1 s"),
        ("unit.checked", {"exit_code": None, "seconds": 60.0, "reason": "lost"}, "checked docs/a: lost"),
        ("unit.delivered", {"branch": "b", "commit": "c", "patch": None}, "delivered docs/a: branch b"),
        ("workspace.created", PLACE, "workspace created docs/a: path /w/a, branch paceline/docs/a"),
    ],
)  # fmt: skip
def test_a_line_says_how_the_work_of_a_unit_fared(name: str, fields: dict[str, object], line: str) -> None:
    assert event_line(Event(name, 0.0, None, "docs/a", fields), UTC) == f"00:00:00 {line}"


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

    assert event_line(Event(name, 0.0, "key:team", None, fields), UTC) == f"00:00:00 {line}"

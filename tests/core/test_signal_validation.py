"""Signals and tickets filled with nonsense: unknown where it came from outside, refused where it is the caller's."""

import math
from itertools import product

import msgspec
import pytest

from paceline.core import Governor, GovernorSettings, Snapshot, Ticket, signals
from paceline.core.signals import Budget, QuotaClosed, RateLimited, Signal
from paceline.errors import InvalidInput

ODD: tuple[object, ...] = (
    None,
    -1,
    2.5,
    "4",
    "",
    True,
    False,
    math.nan,
    math.inf,
    -math.inf,
    10**400,
    [],
    {},
    b"x",
    object(),
)
KINDS = [
    kind
    for kind in vars(signals).values()
    if isinstance(kind, type) and issubclass(kind, Signal) and kind is not Signal
]
FIELDS = [(kind, name) for kind in KINDS for name in kind.__struct_fields__ if name not in ("ticket", "reach")]
SENSE: dict[str, object] = {
    "requests_remaining": 0,
    "requests_reset_at": 2000.0,
    "tokens_remaining": 0,
    "tokens_reset_at": 2000.0,
    "used_ratio": 0.5,
    "resets_at": 2000.0,
    "window": "5h",
}


def a_governor() -> Governor:
    governor = Governor(GovernorSettings(limits={"umans": 1}, usage_scopes=("umans",)), now=1000.0)
    governor.request(Ticket("held", ("runs", "umans")), now=1000.0)
    governor.request(Ticket("waits", ("runs", "umans")), now=1000.0)
    return governor


@pytest.mark.parametrize(("kind", "field"), FIELDS)
def test_a_senseless_field_of_a_signal_is_unknown(kind: type[Signal], field: str) -> None:
    """Whatever a provider says: nothing is raised, and what is kept can be stored and read back."""
    for value, ticket in product(ODD, (None, "held")):
        filled = {name: SENSE[name] for name in kind.__struct_fields__ if name in SENSE}
        governor = a_governor()
        signal = kind(ticket=ticket, **{**filled, field: value})  # type: ignore[arg-type]
        governor.report("umans", signal, now=1000.0)
        governor.release("held", now=1001.0)
        governor.why("waits", now=1002.0)
        stored = msgspec.json.encode(governor.snapshot())
        again = Governor.restore(msgspec.json.decode(stored, type=Snapshot), now=1003.0)
        assert again.status("umans", now=1003.0) is not None


def test_a_count_beyond_all_sense_leaves_a_snapshot_that_can_be_restored() -> None:
    # given a budget whose limit is near the largest number there is
    governor = Governor(now=0.0)
    reading = Budget(tokens_remaining=0, tokens_limit=10**308, tokens_reset_at=60.0)
    # when it is stated again and again
    for now in (0.0, 1.0, 2.0, 3.0):
        governor.report("umans", reading, now=now)
    # then what was learnt from it can be stored
    stored = msgspec.json.encode(governor.snapshot())
    assert msgspec.json.decode(stored, type=Snapshot) == governor.snapshot()
    Governor.restore(msgspec.json.decode(stored, type=Snapshot), now=3.0)


def test_a_budget_that_resets_in_the_year_57000_blocks_nobody() -> None:
    governor = Governor(now=1_790_000_000.0)
    governor.report("umans", Budget(requests_remaining=0, requests_reset_at=1_790_000_060_000.0), now=1_790_000_000.0)
    verdict = governor.request(Ticket("t1", ("runs", "umans")), now=1_790_000_000.0)
    assert type(verdict).__name__ == "Granted"


@pytest.mark.parametrize("resets_at", [1_790_000_060_000.0, 1e18, 1e300])
def test_a_window_that_resets_beyond_the_calendar_resets_at_an_unknown_time(resets_at: float) -> None:
    governor = Governor(now=1_790_000_000.0)
    governor.report("umans", QuotaClosed(resets_at=resets_at, window="5h"), now=1_790_000_000.0)
    status = governor.status("umans", now=1_790_000_000.0)
    assert status is not None
    assert status.window is not None
    assert (status.window.state, status.window.resets_at) == ("closed", None)


@pytest.mark.parametrize(
    ("signal", "named"),
    [
        (None, "None"),
        ("429", "'429'"),
        (RateLimited(reach="galaxy"), "galaxy"),  # type: ignore[arg-type]
        (RateLimited(reach=[]), r"\[\]"),  # type: ignore[arg-type]
        (QuotaClosed(ticket=5), "5"),  # type: ignore[arg-type]
        (QuotaClosed(ticket=[]), r"\[\]"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_signal_is_refused_by_name_and_changes_nothing(signal: Signal, named: str) -> None:
    governor = a_governor()
    before = governor.snapshot()
    with pytest.raises(InvalidInput, match=named):
        governor.report("umans", signal, now=1000.0)
    assert governor.snapshot() == before


@pytest.mark.parametrize("scope", ["umans", "free"])
@pytest.mark.parametrize(
    "ticket",
    [
        {"since": "yesterday"},
        {"since": True},
        {"since": []},
        {"tokens": "many"},
        {"tokens": -5},
        {"tokens": 2.5},
        {"priority": "high"},
        {"priority": 1.5},
    ],
)
def test_a_ticket_that_makes_no_sense_is_refused_whether_or_not_it_has_to_wait(
    ticket: dict[str, object], scope: str
) -> None:
    governor = a_governor()
    before = governor.snapshot()
    odd = Ticket("odd", ("runs", scope), **ticket)  # type: ignore[arg-type]
    (value,) = ticket.values()
    for ask in (governor.request, governor.try_request):
        with pytest.raises(InvalidInput) as refusal:
            ask(odd, now=1000.0)
        assert repr(value) in str(refusal.value)
    with pytest.raises(InvalidInput):
        governor.request_all([odd], now=1000.0)
    assert governor.snapshot() == before

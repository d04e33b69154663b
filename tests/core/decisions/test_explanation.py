"""How many wait, and for what: the sum over all lines is what the scopes count."""

from paceline.core import Governor, GovernorSettings, Ticket
from paceline.core.signals import RateLimited

OPUS = ("runs", "anthropic", "anthropic/max-1", "anthropic/max-1/opus-4-6")
SONNET = ("runs", "anthropic", "anthropic/max-1", "anthropic/max-1/sonnet-4-5")


def ask(governor: Governor, scopes: tuple[str, ...], count: int, group: str = "") -> None:
    for number in range(count):
        governor.request(Ticket(f"{scopes[-1]}-{group}-{number}", scopes, group=group), now=0.0)


def test_nobody_waits_where_there_is_room() -> None:
    governor = Governor(GovernorSettings(), now=0.0)
    ask(governor, OPUS, 3)

    assert governor.waiting(now=0.0) == {}


def test_those_who_wait_are_counted_by_what_binds_their_line() -> None:
    governor = Governor(GovernorSettings(limits={"anthropic/*/opus-*": 2}), now=0.0)
    ask(governor, OPUS, 7, group="docs")
    ask(governor, OPUS, 4, group="tests")
    governor.report("anthropic/max-1/sonnet-4-5", RateLimited(retry_after=30.0), now=0.0)
    ask(governor, SONNET, 5)

    assert governor.waiting(now=1.0) == {
        ("anthropic/max-1/opus-4-6", "limit"): 9,
        ("anthropic/max-1/sonnet-4-5", "paused"): 5,
    }

    governor.advance(now=31.0)
    assert governor.waiting(now=31.0) == {("anthropic/max-1/opus-4-6", "limit"): 9}


def test_the_demand_of_a_scope_is_what_is_taken_cools_and_waits_beside_its_effective_limit() -> None:
    governor = Governor(GovernorSettings(limits={"anthropic/*/opus-*": 3}, cooldown=0.35), now=0.0)
    ask(governor, OPUS, 5)
    governor.release(f"{OPUS[-1]}--0", now=1.0)

    status = governor.status(OPUS[-1], now=1.0)
    assert status is not None
    assert (status.in_flight, status.cooling, status.queued, status.limit) == (2, 1, 2, 3)
    assert governor.demand(OPUS[-1]) == (5, 3)
    assert governor.demand("anthropic/max-1") == (4, None)
    assert governor.demand("anthropic/nobody") == (0, None)

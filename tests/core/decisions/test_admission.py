"""The bounds of the order rule: how long, and by whom, a waiting ticket can be passed at most."""

from hypothesis import given
from hypothesis import strategies as st

from paceline.core import Deferred, Governor, GovernorSettings, Granted, Ticket
from paceline.core.signals import RateLimited

AGEING = 60.0
SLOT_SECONDS = 10.0


def let_in(governor: Governor, now: float) -> list[str]:
    return [effect.ticket_id for effect in governor.advance(now=now) if isinstance(effect, Granted)]


def reason(governor: Governor, ticket_id: str, now: float) -> tuple[str, str]:
    why = governor.why(ticket_id, now=now)
    assert isinstance(why, Deferred)
    return why.reason, why.scope


@given(
    st.lists(st.tuples(st.floats(0.0, 30.0), st.none() | st.floats(-500.0, 500.0)), min_size=2, max_size=30),
    st.floats(0.0, 20.0),
)
def test_inside_a_line_only_tickets_that_came_within_ageing_can_pass(
    arrivals: list[tuple[float, float | None]], hold_seconds: float
) -> None:
    governor = Governor(GovernorSettings(limits={"umans": 1}, slot_timeout=1e6), now=0.0)
    governor.request(Ticket("first", ("umans",)), now=0.0)
    now, enqueued = 0.0, {}
    for number, (gap, since) in enumerate(arrivals):
        now += gap
        enqueued[f"t{number}"] = now
        governor.request(Ticket(f"t{number}", ("umans",), since=None if since is None else now + since), now=now)
    order: list[str] = []
    holder = "first"
    while len(order) < len(arrivals):
        now += hold_seconds
        governor.release(holder, now=now)
        (holder,) = let_in(governor, now)
        order.append(holder)
    for position, granted in enumerate(order):
        for passed in order[position + 1 :]:
            assert enqueued[granted] <= enqueued[passed] + AGEING


def churn(governor: Governor, until: float, wanted: str) -> float | None:
    """Two full scopes whose places free in turn, never together; when `wanted` gets in."""
    now, asked = 0.0, 2
    holders = {"a": "a-0", "b": "b-0"}
    while now < until:
        now += SLOT_SECONDS / 2
        scope = "a" if holders["a"] and asked % 2 == 0 else "b"
        asked += 1
        governor.request(Ticket(f"{scope}-{asked}", (scope,)), now=now)
        governor.release(holders[scope], now=now)
        for ticket_id in let_in(governor, now):
            if ticket_id == wanted:
                return now
            holders[ticket_id[0]] = ticket_id
    return None


def two_full_scopes() -> Governor:
    settings = GovernorSettings(limits={"a": 1, "b": 1}, slot_timeout=1e6, ageing=AGEING)
    governor = Governor(settings, now=0.0)
    governor.request(Ticket("a-0", ("a",)), now=0.0)
    governor.request(Ticket("b-0", ("b",)), now=0.0)
    return governor


def test_a_ticket_of_two_scopes_gets_in_though_its_places_never_free_together() -> None:
    """Its patience starts with the first place it could not use; then it keeps the next place of each scope."""
    governor = two_full_scopes()
    governor.request(Ticket("both", ("a", "b")), now=0.0)
    entered_at = churn(governor, until=600.0, wanted="both")
    assert entered_at is not None
    assert AGEING <= entered_at <= SLOT_SECONDS + AGEING + 2 * SLOT_SECONDS


def test_nothing_is_kept_for_an_overdue_ticket_behind_a_gate() -> None:
    governor = two_full_scopes()
    governor.request(Ticket("both", ("a", "b")), now=0.0)
    governor.request(Ticket("b-1", ("b",)), now=1.0)
    governor.release("b-0", now=2.0)
    assert let_in(governor, 2.0) == ["b-1"], "passed over from here on: a is full"
    governor.advance(now=2.0 + AGEING)
    governor.request(Ticket("b-2", ("b",)), now=70.0)
    governor.release("b-1", now=71.0)
    assert let_in(governor, 71.0) == [], "the place in b is kept"
    assert reason(governor, "b-2", 71.0) == ("queue_order", "b")
    assert reason(governor, "both", 71.0) == ("limit", "a")

    governor.report("a", RateLimited(retry_after=300.0), now=72.0)

    assert let_in(governor, 72.0) == ["b-2"]
    assert reason(governor, "both", 72.0) == ("limit", "b"), "it does not wait for the pause alone"


def test_a_ticket_at_its_cap_never_blocks_one_that_has_room() -> None:
    settings = GovernorSettings(limits={"runs": 2, "anthropic/max-1/opus-4-6": 1, "anthropic/max-1/sonnet-4-5": 4})
    governor = Governor(settings, now=0.0)
    account = ("runs", "anthropic", "anthropic/max-1")
    governor.request(Ticket("opus", (*account, "anthropic/max-1/opus-4-6")), now=0.0)
    governor.request(Ticket("opus-waits", (*account, "anthropic/max-1/opus-4-6")), now=0.0)
    for number in range(20):
        now = 100.0 * number
        governor.renew("opus", now=now)
        verdict = governor.request(Ticket(f"sonnet-{number}", (*account, "anthropic/max-1/sonnet-4-5")), now=now)
        assert isinstance(verdict, Granted), number
        governor.release(verdict.ticket_id, now=now + 1.0)
    assert reason(governor, "opus-waits", 2000.0) == ("limit", "anthropic/max-1/opus-4-6")


def test_a_claim_is_served_by_a_place_that_nobody_else_waits_for() -> None:
    """Its line is at `a`, whose place it has; the last one it misses frees in `b`, where nobody stands in line."""
    governor = two_full_scopes()
    governor.request(Ticket("both", ("a", "b")), now=0.0)
    governor.request(Ticket("b-1", ("b",)), now=1.0)
    governor.release("b-0", now=2.0)
    assert let_in(governor, 2.0) == ["b-1"]
    governor.advance(now=2.0 + AGEING)
    governor = Governor.restore(governor.snapshot(), now=65.0)  # nobody stands in line at `b`, nor is remembered there
    governor.release("a-0", now=70.0)
    assert let_in(governor, 70.0) == [], "kept in a, still missing in b"
    governor.release("b-1", now=71.0)
    assert let_in(governor, 71.0) == ["both"]

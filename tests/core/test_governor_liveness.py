"""Nobody waits forever: who waits has a live slot in the way, or a time at which the Governor decides again."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.core import Governor, GovernorSettings, Snapshot, Ticket
from paceline.core.signals import (
    AnySignal,
    AuthFailed,
    BillingStop,
    Budget,
    Overloaded,
    PlatformLimit,
    QuotaClosed,
    RateLimited,
    Succeeded,
    Unreachable,
    Usage,
)
from paceline.core.values.scopes import path_scopes
from paceline.core.values.settings import Rate

START = 1_700_000_000.25
PATHS = ("openai/main-key/gpt-5", "openai/main-key/gpt-5-mini", "umans")
EXACT_WAKEUPS = 100
MOST_WAKEUPS = 600
Pool = tuple[list[str], list[tuple[str, int | None]], list[AnySignal]]

# -- any gates, budgets and readings ---------------------------------------------------------------

rates = st.builds(Rate, rpm=st.none() | st.integers(1, 90), tpm=st.none() | st.integers(100, 9_000))
tables = st.fixed_dictionaries(
    {},
    optional={
        "limits": st.dictionaries(st.sampled_from(["runs", "sessions", "openai", *PATHS]), st.integers(1, 4)),
        "rates": st.dictionaries(st.sampled_from(["openai", *PATHS]), rates),
        "reserves": st.dictionaries(st.sampled_from(PATHS), st.sampled_from([0.1, 0.5])),
        "cooldown": st.sampled_from([0.0, 0.35, "auto"]),
        "usage_scopes": st.sampled_from([(), ("umans",)]),
        "headroom": st.sampled_from(["adaptive", "one-way", "off"]),
        "ageing": st.sampled_from([0.0, 2.0, 60.0]),
    },
)
moments = st.sampled_from([0.0, 0.0002, 0.0009, 0.005, 0.02, 0.3, 1.0, 30.0, 400.0])
resets = st.none() | st.sampled_from([-5.0, 0.0, 1e-7, 0.0005, 0.006, 0.02, 1.0, 60.0, 360.0, 86_400.0, 1e12])
counts = st.none() | st.sampled_from([0, 1, 2, 59, 60, 9_999])
sizes = st.none() | st.sampled_from([0, 1, 2, 60, 10_000])
waits = st.none() | st.sampled_from([0.0, 0.001, 1.0, 20.0])
causes = st.sampled_from([None, "concurrency", "requests", "tokens", "starts"])
tokens = st.none() | st.sampled_from([0, 50, 5_000, 1_000_000])
kinds = st.sampled_from(["run", "run", "spread", "session", "child"])


def budget(left: int | None, reset: float | None, limit: int | None, *tokens: object) -> Budget:
    return msgspec.convert(
        {
            "requests_remaining": left,
            "requests_reset_at": reset,
            "requests_limit": limit,
            "tokens_remaining": tokens[0],
            "tokens_reset_at": tokens[1],
            "tokens_limit": tokens[2],
        },
        Budget,
    )


scarce = st.sampled_from([0, 0, 1]), st.sampled_from([0.006, 0.02, 1.0, 60.0]), st.sampled_from([2, 60])
nothing = st.just(None)
budgets = (
    st.builds(budget, *scarce, nothing, nothing, nothing)
    | st.builds(budget, nothing, nothing, nothing, *scarce)
    | st.builds(budget, *scarce, *scarce)
    | st.builds(budget, counts, resets, sizes, counts, resets, sizes)
)
troubles = (
    st.builds(Budget, used_ratio=st.sampled_from([0.1, 0.99, 1.0]), window=st.just("5h"), resets_at=resets)
    | st.builds(RateLimited, retry_after=waits, cause=causes)
    | st.builds(QuotaClosed, resets_at=resets, window=st.sampled_from([None, "5h"]))
    | st.builds(PlatformLimit, limit=st.none() | st.integers(0, 3), retry_after=waits)
    | st.builds(Usage, concurrent_sessions=st.none() | st.integers(0, 5))
    | st.builds(Succeeded, tokens=tokens)
    | st.sampled_from([Overloaded(), Unreachable(), BillingStop(), AuthFailed()])
)
pools = st.tuples(
    st.lists(st.sampled_from(PATHS), min_size=1, max_size=2),
    st.lists(st.tuples(kinds, tokens), min_size=1, max_size=2),
    st.lists(budgets, min_size=1, max_size=2) | st.lists(budgets | troubles, min_size=1, max_size=3),
)
"""Few paths, tickets and signals in one life, each of them often: that brings them together."""
numbers = st.integers(0, 50)
steps = st.lists(
    st.tuples(st.sampled_from(["ask", "ask", "report"]), numbers)
    | st.tuples(st.just("nearly follow"), st.sampled_from([0.0, 1e-6, 0.0002, 0.0009, 0.1]))
    | st.tuples(st.just("follow"), st.integers(1, 5))
    | st.tuples(st.just("wait"), moments)
    | st.tuples(st.just("release"), numbers)
    | st.tuples(st.sampled_from(["cancel", "step back", "restart"]), numbers),
    min_size=5,
    max_size=50,
)


class Life:
    """A Governor and those who ask it, none of whom renews a lease: no sweep hides that a wake-up is missing."""

    def __init__(self, table: dict[str, object], pool: Pool) -> None:
        self.paths, self.tickets, self.signals = pool
        self.governor = Governor(msgspec.convert(table, GovernorSettings), now=START)
        self.now = START
        self.asked = 0

    @property
    def held(self) -> list[str]:
        return sorted(self.governor.ledger.slots)

    def do(self, verb: str, number: float) -> None:
        getattr(self, verb.replace(" ", "_"))(number)
        self.governor.advance(now=self.now)

    def ask(self, number: int) -> None:
        self.asked += 1
        path, (kind, tokens) = self.paths[number % len(self.paths)], self.tickets[number % len(self.tickets)]
        live = self.governor.ledger.slots.values()
        session = next((slot.ticket for slot in live if slot.ticket.scopes[0] == "sessions"), None)
        scopes = "sessions" if kind == "session" else "runs", *path_scopes(path)
        parent = None
        if kind == "child" and session is not None:
            scopes, parent = ("runs", *session.scopes[1:]), session.id
        spread = kind == "spread"
        ticket = Ticket(f"t{self.asked}", scopes, parent=parent, tokens=tokens, leased=False, spread=spread)
        self.governor.request(ticket, now=self.now)

    def release(self, number: int) -> None:
        if self.held:
            self.governor.release(self.held[number % len(self.held)], now=self.now)

    def cancel(self, number: int) -> None:
        if waiting := sorted(self.governor.ledger.waiters):
            self.governor.cancel(waiting[number % len(waiting)], now=self.now)

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def follow(self, wakeups: int) -> None:
        for _ in range(wakeups):
            self.wake()

    def nearly_follow(self, seconds: float) -> None:
        """Move to a moment before the next wake-up: a gate may count what comes back so soon as there."""
        if (due := self.governor.next_wakeup()) is not None:
            self.now = max(self.now, due - seconds)

    def wake(self) -> bool:
        """Move to the next wake-up. Returns whether there is one."""
        due = self.governor.next_wakeup()
        if due is not None:
            self.now = max(self.now, due)
            self.governor.advance(now=self.now)
        return due is not None

    def report(self, number: int) -> None:
        signal, path = self.signals[number % len(self.signals)], self.paths[number % len(self.paths)]
        held = self.governor.ledger.slots.get(self.held[number % len(self.held)] if self.held else "")
        at = {name: getattr(signal, name, None) for name in ("requests_reset_at", "tokens_reset_at", "resets_at")}
        moved = {name: self.now + seconds for name, seconds in at.items() if seconds is not None}
        signal = msgspec.structs.replace(signal, ticket=held and held.ticket.id, **moved)
        self.governor.report(path if held is None else held.ticket.scopes[-1], signal, now=self.now)

    def step_back(self, number: int) -> None:
        self.now -= 2.0 * number

    def restart(self, number: int) -> None:
        stored = msgspec.json.encode(self.governor.snapshot())
        self.governor = Governor.restore(msgspec.json.decode(stored, type=Snapshot), now=self.now)

    def stuck(self) -> list[str]:
        """Return who waits for no slot, no time, no person and no one ahead."""
        ledger = self.governor.ledger
        return [
            waiter.ticket.id
            for waiter in ledger.waiters.values()
            if not any(
                scope.live or scope.wake_at is not None or (scope.claimed and waiter not in ledger.place_claims)
                for scope in (waiter.lane.scopes if waiter in ledger.place_claims else (waiter.lane.watching,))
                if scope is not None
            )
            and not self.waits_for_a_person(waiter.ticket.id)
        ]

    def waits_for_a_person(self, ticket_id: str) -> bool:
        why = self.governor.why(ticket_id, now=self.now)
        return why is not None and why.reason == "held"


@given(tables, pools, steps)
@settings(max_examples=300)
def test_who_waits_has_a_slot_in_the_way_or_a_next_check(
    table: dict[str, object], pool: Pool, moves: list[tuple[str, float]]
) -> None:
    # given a Governor with any gates, limits and rates
    life = Life(table, pool)
    for move in moves:
        # when tickets come and go, and the provider states anything at any time
        life.do(*move)

        # then nobody waits without a slot in the way or a next check, and that is ahead
        assert life.stuck() == []
        due = life.governor.next_wakeup()
        assert due is None or due > life.now

    # and who waits is let in, one wake-up after another, once slots end and people lift their holds
    for wakeups in range(MOST_WAKEUPS):
        life.now += max(0, wakeups - EXACT_WAKEUPS) ** 2  # a window may close for weeks
        for scope in life.governor.statuses(now=life.now):
            life.governor.lift_hold(scope.scope, now=life.now)
        for ticket_id in life.held:
            life.governor.release(ticket_id, now=life.now)
        life.governor.advance(now=life.now)
        if not life.held and not life.wake():
            break
    assert sorted(life.governor.ledger.waiters) == []

"""The Governor under a hypothesis state machine: any order of calls, any values, the same promises as in World."""

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule

from paceline.core import Governor, GovernorSettings, Snapshot, Ticket
from paceline.core.signals import (
    AuthFailed,
    BillingStop,
    Budget,
    Overloaded,
    PlatformLimit,
    QuotaClosed,
    RateLimited,
    Signal,
    Succeeded,
    Usage,
)
from paceline.core.values.scopes import path_scopes
from paceline.testing.checked_governor import CheckedGovernor

START = 1_000_000.0
PATHS = ("umans", "anthropic/max-1/opus-4-6", "anthropic/max-1/sonnet-4-5", "openai/key")
LIMITED = ("sessions", "runs", "umans", "anthropic", "anthropic/max-1", "anthropic/*/opus-*", "openai/*")

paths = st.sampled_from(PATHS)
limits = st.none() | st.integers(1, 4)
odd_waits = st.none() | st.floats(allow_nan=True, allow_infinity=True) | st.floats(0.1, 60.0)
odd_counts = st.none() | st.integers(-3, 10)
reaches = st.sampled_from([None, "model", "account", "provider"])
offsets = st.none() | st.floats(-200.0, 200.0) | st.just(1e15)


def after(now: float, wait: float | None) -> float | None:
    return None if wait is None else now + wait


class GovernorMachine(RuleBasedStateMachine):
    """Every call goes through CheckedGovernor, which raises when a promise is broken."""

    sessions: Bundle[Ticket] = Bundle("sessions")

    @initialize(
        table=st.dictionaries(st.sampled_from(LIMITED), limits),
        cooldown=st.sampled_from([0.0, 0.35, 5.0]),
        usage=st.booleans(),
        headroom=st.sampled_from(["adaptive", "one-way", "off"]),
        ageing=st.sampled_from([0.0, 2.0, 60.0]),
    )
    def begin(self, table: dict[str, int | None], cooldown: float, usage: bool, headroom: str, ageing: float) -> None:
        chosen = msgspec.convert(
            {
                "limits": table,
                "cooldown": cooldown,
                "usage_scopes": ("umans",) if usage else (),
                "headroom": headroom,
                "ageing": ageing,
                "slot_timeout": 60.0,
            },
            GovernorSettings,
        )
        self.checked = CheckedGovernor(Governor(chosen, now=START), chosen, START)
        self.asked = 0

    def next_id(self) -> str:
        self.asked += 1
        return f"t{self.asked}"

    # -- tickets ------------------------------------------------------------------------------------

    @rule(
        path=paths,
        group=st.sampled_from(["", "a", "b"]),
        priority=st.integers(-40, 40),
        since=offsets,
        tokens=st.none() | st.integers(0, 10_000),
        waits=st.booleans(),
    )
    def ask_for_a_run(
        self, path: str, group: str, priority: int, since: float | None, tokens: int | None, waits: bool
    ) -> None:
        scopes = ("runs", *path_scopes(path))
        priority = priority if not group else ord(group)  # a group has one priority
        ticket = Ticket(self.next_id(), scopes, group, priority, after(self.checked.wall, since), None, tokens)
        if waits:
            self.checked.request(ticket)
        else:
            self.checked.try_request(ticket)

    @rule(target=sessions, path=paths)
    def ask_for_a_session(self, path: str) -> Ticket:
        ticket = Ticket(self.next_id(), ("sessions", *path_scopes(path)))
        self.checked.request(ticket)
        return ticket

    @rule(session=sessions)
    def ask_for_a_run_of(self, session: Ticket) -> None:
        if session.id in self.checked.expected.held:
            ticket = Ticket(self.next_id(), ("runs", *session.scopes[1:]), parent=session.id)
            self.checked.request(ticket)

    @rule(session=consumes(sessions))
    def end_session(self, session: Ticket) -> None:
        for waiting in list(self.checked.expected.waiting.values()):
            if waiting.ticket.parent == session.id:
                self.checked.cancel(waiting.ticket.id)
        for held in list(self.checked.expected.held.values()):
            if held.ticket.parent == session.id:
                self.checked.release(held.ticket.id)
        self.checked.cancel(session.id)
        self.checked.release(session.id)

    @precondition(lambda self: any("runs" in h.ticket.scopes for h in self.checked.expected.held.values()))
    @rule(data=st.data(), well=st.booleans())
    def release(self, data: st.DataObject, well: bool) -> None:
        runs = [h.ticket for h in self.checked.expected.held.values() if "runs" in h.ticket.scopes]
        ticket = data.draw(st.sampled_from(runs))
        if well:
            self.checked.report(ticket.scopes[-1], Succeeded(ticket=ticket.id, tokens=10))
        self.checked.release(ticket.id)

    @precondition(lambda self: self.checked.expected.waiting)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.checked.cancel(data.draw(st.sampled_from(sorted(self.checked.expected.waiting))))

    @rule(number=st.integers(0, 60))
    def meddle_with_any_id(self, number: int) -> None:
        """Of ids that are not held or not waiting, nothing happens."""
        name = f"t{number}"
        if name not in self.checked.expected.held:
            self.checked.release(name)
        if name not in self.checked.expected.waiting:
            self.checked.cancel(name)
        self.checked.renew(name)

    # -- signals ------------------------------------------------------------------------------------

    def report(self, path: str, signal: Signal, data: st.DataObject) -> None:
        held = sorted(self.checked.expected.held)
        ticket = data.draw(st.none() | st.sampled_from(held)) if held else None
        if ticket is not None:
            path = self.checked.expected.held[ticket].ticket.scopes[-1]
        self.checked.report(path, msgspec.structs.replace(signal, ticket=ticket))  # type: ignore[arg-type]

    @rule(
        path=paths,
        retry_after=odd_waits,
        cause=st.sampled_from([None, "concurrency", "requests", "tokens", "starts"]),
        reach=reaches,
        data=st.data(),
    )
    def rate_limited(self, path: str, retry_after: float | None, cause: str, reach: str, data: st.DataObject) -> None:
        self.report(path, RateLimited(retry_after=retry_after, cause=cause, reach=reach), data)  # type: ignore[arg-type]

    @rule(path=paths, retry_after=odd_waits, data=st.data())
    def overloaded(self, path: str, retry_after: float | None, data: st.DataObject) -> None:
        self.report(path, Overloaded(retry_after=retry_after), data)

    @rule(path=paths, reset=offsets, window=st.sampled_from([None, "5h", "weekly"]), data=st.data())
    def quota_closed(self, path: str, reset: float | None, window: str | None, data: st.DataObject) -> None:
        resets_at = after(self.checked.wall, reset)
        self.report(path, QuotaClosed(resets_at=resets_at, window=window, source="field"), data)

    @rule(path=paths, limit=odd_counts, reach=reaches)
    def platform_limit(self, path: str, limit: int | None, reach: str) -> None:
        self.checked.report(path, PlatformLimit(limit=limit, reach=reach))  # type: ignore[arg-type]

    @rule(path=paths, is_billing=st.booleans(), stays=st.booleans())
    def hold(self, path: str, is_billing: bool, stays: bool) -> None:
        self.checked.report(path, BillingStop() if is_billing else AuthFailed(detail="key"))
        if not stays:
            for scope in sorted(self.checked.gates.held):
                self.checked.lift_hold(scope)

    @rule(path=paths, left=odd_counts, reset=offsets, ratio=st.none() | st.floats())
    def budget(self, path: str, left: int | None, reset: float | None, ratio: float | None) -> None:
        reset_at = after(self.checked.wall, reset)
        signal = Budget(requests_remaining=left, requests_reset_at=reset_at, used_ratio=ratio, resets_at=reset_at)
        self.checked.report(path, signal)

    @rule(count=odd_counts, limit=st.none() | st.integers(-1, 5))
    def answer_usage(self, count: int | None, limit: int | None) -> None:
        self.checked.report("umans", Usage(concurrent_sessions=count, limit=limit))

    # -- settings and time --------------------------------------------------------------------------

    @rule(scope=st.sampled_from(LIMITED), limit=limits, removes=st.booleans())
    def change_limit(self, scope: str, limit: int | None, removes: bool) -> None:
        if removes:
            self.checked.remove_limit(scope)
        else:
            self.checked.set_limit(scope, limit)

    @rule(seconds=st.floats(0.0, 100.0))
    def let_time_pass(self, seconds: float) -> None:
        self.checked.run_until(self.checked.wall + seconds)

    @rule(seconds=st.floats(2.0, 10_000.0), forward=st.booleans())
    def step_clock(self, seconds: float, forward: bool) -> None:
        self.checked.move_clock(self.checked.wall + (seconds if forward else -seconds))

    @rule()
    def restart(self) -> None:
        stored = msgspec.json.encode(self.checked.governor.snapshot())
        snapshot = msgspec.json.decode(stored, type=Snapshot)
        self.checked.governor = Governor.restore(snapshot, now=self.checked.wall)

    @invariant()
    def all_is_as_the_books_say(self) -> None:
        if hasattr(self, "checked"):
            self.checked.audit()


TestGovernorMachine = GovernorMachine.TestCase
TestGovernorMachine.settings = settings(
    max_examples=80,
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

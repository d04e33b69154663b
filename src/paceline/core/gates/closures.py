"""Closures: a scope admits nobody until a time, an answer or a person says otherwise.

- `Closure`: closed for a reason of `CLOSURES` until an answer proves the reason gone, or a person lifts it. After a
  failure that may pass, one ticket at a time asks again while all others wait: the canary
- `Pause`: until a time, after a refusal or while the provider is in trouble. A later refusal never shortens one

A new reason to be closed is one function that explains it and one entry in `CLOSURES`.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar

import msgspec

from paceline.core.gates.gate import NEVER, NOW, Explanation, Gate, GateEvent, ScopeView, earliest
from paceline.core.gates.start_meters import SlowStart
from paceline.core.values.tickets import Reason, Ticket

ACCOUNT_HOLD, LOGIN_DOUBT, OUTAGE = "account_hold", "login_doubt", "outage"
LONGEST_PAUSE_SECONDS = 6 * 3600.0
"""The longest pause after a refusal: nobody meant a longer one, and where it was meant, a look costs one refusal."""
CANARY_SECONDS = 300.0
"""A canary without an answer for this long is joined by another: a first answer takes seconds, a hanging one never
comes."""


class Closure(Gate):
    """A scope that is closed for one reason, by whose name the gate is stored.

    While `probe_at` is set, one canary may go from then on, and after it the next one. `failures` counts failures in a
    row. `last` is the sequence number of the last one: a slot that was granted, and last answered, before it is no
    news. `cause` is what failed, or what a person has to fix. `is_missing`: there is no login at all.
    """

    TAG = "closure"
    relative_times: ClassVar[tuple[str, ...]] = ("probe_at",)

    reason: str = ACCOUNT_HOLD
    cause: str = ""
    probe_at: float | None = None
    failures: int = 0
    last: int = -1
    canary: str | None = None
    is_missing: bool = False

    @property
    def rule(self) -> "ClosureRule":
        return CLOSURES[self.reason]

    @property
    def is_closed(self) -> bool:
        """Whether the gate waits for an answer, or for a person."""
        return self.probe_at is not None or not self.rule.waits

    @property
    def is_held(self) -> bool:
        """Whether a person is asked: nothing else lifts it, or it failed so often."""
        held_after = self.rule.held_after
        return self.is_closed and held_after is not None and self.failures >= held_after

    # -- failures and answers ----------------------------------------------------------------

    def on_failure(
        self, ticket: Ticket | None, proven_seq: int, seq: int, now: float, *, stated: float = 0.0, is_missing: bool
    ) -> bool:
        """Take in a failure. Returns whether that is news; else only a longer `stated` wait counts."""
        waits, held_after = self.rule.waits, self.rule.held_after or 0
        is_first_missing = is_missing and not self.is_held
        if not (is_first_missing or self._is_news(ticket, proven_seq, now)):
            if stated and self.probe_at is not None and self.canary is None:
                self.probe_at = max(self.probe_at, now + stated)
            return False
        if is_missing:
            self.failures = max(self.failures, held_after - 1)
        wait = waits[min(self.failures, len(waits) - 1)]
        self.failures += 1
        self.probe_at, self.canary, self.last, self.is_missing = now + max(wait, stated), None, seq, is_missing
        return True

    def _is_news(self, ticket: Ticket | None, proven_seq: int, now: float) -> bool:
        """Return whether a failure is one more in a row. Many sessions that meet the same trouble are one failure.

        While the gate is closed only the canary's own failure is news, and one without a ticket when a canary is due.
        """
        if self.probe_at is None:
            return ticket is None or proven_seq > self.last
        if ticket is None:
            return self.canary is None and now >= self.probe_at
        return self.canary is not None and self.canary in (ticket.id, ticket.parent)

    def ask_again(self, now: float) -> bool:
        """Let a canary go now. Returns False if no person was asked yet, or a canary is asking already."""
        if not self.is_held or self.canary is not None:
            return False
        self.probe_at = now
        return True

    def lift(self) -> Sequence[GateEvent]:
        if self.probe_at is None:
            return ()
        self.probe_at, self.canary, self.failures = None, None, 0
        return (GateEvent("scope.resumed", lets_in=True),)

    # -- as a gate ---------------------------------------------------------------------------

    def refuses(self, ticket: Ticket, scope: ScopeView, now: float) -> Reason | None:
        may_ask = self.probe_at is None or now >= self.probe_at or self._is_run_of_canary(ticket)
        if self.rule.waits and may_ask:
            return None
        return "held" if self.is_held else self.rule.verdict

    def explain(self, ticket: Ticket, scope: ScopeView, now: float) -> Explanation:
        return self.rule.explain(self, scope.name)

    def active_from(self, scope: ScopeView) -> float:
        return NOW if self.is_closed else NEVER

    def is_idle(self, now: float) -> bool:
        return not self.is_closed

    def on_grant(self, ticket: Ticket, scope: ScopeView, now: float, *, takes_place: bool) -> Sequence[GateEvent]:
        if self.probe_at is not None and now >= self.probe_at and not self._is_run_of_canary(ticket):
            self.canary, self.probe_at = ticket.id, now + CANARY_SECONDS
        return ()

    def awaits_success(self, scope: ScopeView) -> bool:
        return self.probe_at is not None

    def on_success(self, ticket: Ticket | None, granted_at: float, scope: ScopeView, now: float) -> Sequence[GateEvent]:
        return self.lift()

    @property
    def canaries(self) -> Sequence[str]:
        return () if self.canary is None else (self.canary,)

    def on_canary_lost(self, ticket_id: str | None, now: float) -> bool:
        """Allow another canary if the ticket (None: any) was one that got no answer. Returns whether it was."""
        if self.canary is None or ticket_id not in (None, self.canary):
            return False
        self.canary, self.probe_at = None, now
        return True

    def next_wake(self, scope: ScopeView, now: float, *, has_waiters: bool) -> float | None:
        return earliest(now, self.probe_at) if has_waiters else None

    def _is_run_of_canary(self, ticket: Ticket) -> bool:
        return self.canary is not None and ticket.parent == self.canary


class ClosureRule(msgspec.Struct, frozen=True, kw_only=True):
    """What a reason to be closed means. Without `waits`, only a person lifts the closure."""

    explain: Callable[[Closure, str], Explanation]
    """Returns why the scope of this name is closed, and when that may change."""
    verdict: Reason
    pause: str = ""
    """Why the scope is paused, in events and in its status."""
    waits: tuple[float, ...] = ()
    """The waits before a canary goes after the first, second ... failure in a row. The last one repeats."""
    held_after: int | None = None
    """The failures in a row after which a person is asked."""


def _explain_hold(hold: Closure, scope: str) -> Explanation:
    return Explanation(f"{scope} is held: {hold.cause}; lift the hold when that is fixed")


def _explain_login(doubt: Closure, scope: str) -> Explanation:
    refused = f"the login of {scope} was refused ({doubt.cause})"
    what = f"{scope} is held: {doubt.cause}" if doubt.is_held else refused
    if doubt.canary is not None:
        return Explanation(f"{what}; {doubt.canary} is asking again", doubt.probe_at)
    if not doubt.is_held:
        return Explanation(f"{what}; one session will ask again before it is held", doubt.probe_at)
    if doubt.is_missing:  # waiting alone helps nobody, so no time is promised
        return Explanation(f"{what}; log in, then it is asked again by itself", None)
    return Explanation(f"{what}; one session asks again once an hour, and when its login changes", doubt.probe_at)


def _explain_outage(outage: Closure, scope: str) -> Explanation:
    cause = f" ({outage.cause})" if outage.cause else ""
    if outage.canary is None:
        return Explanation(f"{scope} cannot be reached{cause}; one session will try it first", outage.probe_at)
    return Explanation(f"{scope} could not be reached{cause}; {outage.canary} is trying it now", outage.probe_at)


LOGIN_WAITS = (60.0, 300.0, 3600.0)
"""A token is refreshed within seconds, and an incident at the provider seldom outlasts five minutes. A login that is
held is asked again once an hour: one that works again costs an hour at most, a revoked one 24 starts a day."""
OUTAGE_WAITS: tuple[float, ...] = tuple(min(5.0 * 2**failures, 300.0) for failures in range(7))
"""Most outages and overloads are over within seconds. One start in five minutes costs nothing, and after a night
offline work continues soon enough."""

CLOSURES: dict[str, ClosureRule] = {
    # Made by a billing stop, a failed login, or by hand.
    ACCOUNT_HOLD: ClosureRule(explain=_explain_hold, verdict="held", held_after=0),
    # A login that was refused once may be accepted again: parallel CLIs that refresh one token meet such refusals.
    # The third refusal in a row holds the account, and so does the first one if there is no login at all.
    LOGIN_DOUBT: ClosureRule(explain=_explain_login, verdict="paused", pause="auth", waits=LOGIN_WAITS, held_after=3),
    # Nobody answers, because the network, the provider's address or the agent's program is away. The limits are not to
    # blame, so none falls. Any answer, a refusal too, ends it.
    OUTAGE: ClosureRule(explain=_explain_outage, verdict="unreachable", pause="unreachable", waits=OUTAGE_WAITS),
}
"""In the order in which they decide."""


class Pause(Gate):
    """A pause that lasts until `until`. `overloads` counts successive refusals that were the provider's own trouble."""

    TAG = "pause"
    relative_times: ClassVar[tuple[str, ...]] = ("until", "since")

    until: float | None = None
    overloads: int = 0
    since: float | None = None
    cause: str | None = None

    def extend(self, until: float, cause: str, now: float) -> bool:
        """Extend the pause to `until`. Returns False if it already lasts as long."""
        if self.until is not None and until <= self.until:
            return False
        self.since = now if self.until is None or self.since is None else self.since
        self.until, self.cause = until, cause
        return True

    def overload_wait(self) -> float:
        """Return the wait for one more overload: it doubles from 5 s to 5 min while the trouble lasts."""
        wait = OUTAGE_WAITS[min(self.overloads, len(OUTAGE_WAITS) - 1)]
        self.overloads += 1
        return wait

    def refuses(self, ticket: Ticket, scope: ScopeView, now: float) -> Reason | None:
        return "paused" if self.until is not None and now < self.until else None

    def explain(self, ticket: Ticket, scope: ScopeView, now: float) -> Explanation:
        return Explanation(f"{scope.name} is paused after a refusal", self.until)

    def active_from(self, scope: ScopeView) -> float:
        return NEVER if self.until is None else NOW

    def is_idle(self, now: float) -> bool:
        return self.until is None and self.overloads == 0

    def awaits_success(self, scope: ScopeView) -> bool:
        return True

    def on_success(self, ticket: Ticket | None, granted_at: float, scope: ScopeView, now: float) -> Sequence[GateEvent]:
        self.overloads = 0
        return ()

    def next_wake(self, scope: ScopeView, now: float, *, has_waiters: bool) -> float | None:
        return earliest(now, self.until)

    def on_time(self, scope: ScopeView, now: float) -> Sequence[GateEvent]:
        """End the pause when its time has come."""
        if self.until is None or self.until > now:
            return ()
        successor = self._slow_start(scope, now)
        self.until = None
        return (GateEvent("scope.resumed", lets_in=True, successor=successor),)

    def _slow_start(self, scope: ScopeView, now: float) -> SlowStart | None:
        """Return a slow start where the pause came with a step of the limit, or with a refusal for its rate."""
        adaptive = scope.adaptive
        if adaptive is None:
            return None
        incidents = adaptive.incidents
        if not incidents.was_step or incidents.until != self.until:
            return None
        incidents.was_step = False
        return SlowStart(next_at=now)

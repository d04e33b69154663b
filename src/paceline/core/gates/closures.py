"""Closures: a scope admits nobody until a time, an answer or a person says otherwise.

- `AccountHold`: until a person lifts it; made by a billing stop, a failed login, or by hand
- `CanaryGate`: what the next two share: after a failure that may pass, one ticket at a time asks again while all others
  wait. It knows when the next canary may go, and what its fate means; not how long to wait, nor what lifts the gate
- `LoginDoubt`: a login that was refused once, which may pass: parallel CLIs that refresh one token meet such refusals.
  One canary asks again after a minute, another after five. The third refusal in a row holds the account, and so does
  the first one if there is no login at all. A held login is asked again once an hour, and as soon as `ask_again` is
  called. A success of any session of the account ends the doubt and the hold
- `Outage`: nobody answers, because the network, the provider's address or the agent's program is away. The limits are
  not to blame, so none falls. Any answer, a refusal too, ends it
- `Pause`: until a time, after a refusal or while the provider is in trouble. A later refusal never shortens one
"""

from collections.abc import Sequence
from typing import ClassVar

from paceline.core.gates.gate import NEVER, NOW, Explanation, Gate, GateEvent, ScopeView, earliest
from paceline.core.gates.start_meters import SlowStart
from paceline.core.values.tickets import Ticket
from paceline.core.values.verdicts import Reason


class AccountHold(Gate):
    """A closed account. `cause` is what a person has to fix."""

    TAG = "account_hold"

    cause: str

    def refuses(self, ticket: Ticket, scope: ScopeView, now: float) -> Reason | None:
        return "held"

    def explain(self, ticket: Ticket, scope: ScopeView, now: float) -> Explanation:
        return Explanation(f"{scope.name} is held: {self.cause}; lift the hold when that is fixed")


CANARY_SECONDS = 300.0
"""A canary without an answer for this long is joined by another: a first answer takes seconds, a hanging one never
comes."""


class CanaryGate(Gate):
    """Closed while `probe_at` is set: from then on one canary may go, and after it the next one.

    `failures` counts failures in a row. `last` is the sequence number of the last one: a slot that was granted, and
    last answered, before it is no news.
    """

    REASON: ClassVar[Reason] = "paused"
    relative_times: ClassVar[tuple[str, ...]] = ("probe_at",)

    probe_at: float | None = None
    failures: int = 0
    last: int = -1
    canary: str | None = None

    @property
    def is_closed(self) -> bool:
        """Whether the gate waits for an answer."""
        return self.probe_at is not None

    def is_news(self, ticket: Ticket | None, proven_seq: int, now: float) -> bool:
        """Return whether a failure is one more in a row. Many sessions that meet the same trouble are one failure.

        While the gate is closed only the canary's own failure is news, and one without a ticket when a canary is due.
        """
        if self.probe_at is None:
            return ticket is None or proven_seq > self.last
        if ticket is None:
            return self.canary is None and now >= self.probe_at
        return self.is_probed_by(ticket)

    def is_probed_by(self, ticket: Ticket) -> bool:
        """Return whether the ticket is the canary, or a run of it."""
        return self.canary is not None and self.canary in (ticket.id, ticket.parent)

    def close_until(self, probe_at: float, seq: int) -> None:
        """Count one more failure, and admit nobody before `probe_at`."""
        self.failures += 1
        self.probe_at, self.canary, self.last = probe_at, None, seq

    def lift(self) -> Sequence[GateEvent]:
        """Open the gate: an answer came."""
        if self.probe_at is None:
            return ()
        self.probe_at, self.canary, self.failures = None, None, 0
        return (GateEvent("scope.resumed", lets_in=True),)

    def refuses(self, ticket: Ticket, scope: ScopeView, now: float) -> Reason | None:
        if self.probe_at is None or now >= self.probe_at or self._is_run_of_canary(ticket):
            return None
        return self.REASON

    def active_from(self, scope: ScopeView) -> float:
        return NOW if self.is_closed else NEVER

    def is_blank(self, now: float) -> bool:
        return not self.is_closed

    def on_grant(self, ticket: Ticket, scope: ScopeView, now: float, *, takes_place: bool) -> Sequence[GateEvent]:
        if self.probe_at is not None and now >= self.probe_at and not self._is_run_of_canary(ticket):
            self.canary, self.probe_at = ticket.id, now + CANARY_SECONDS
        return ()

    def awaits_success(self, scope: ScopeView) -> bool:
        return self.is_closed

    def on_success(self, ticket: Ticket | None, granted_at: float, scope: ScopeView, now: float) -> Sequence[GateEvent]:
        return self.lift()

    def has_canary(self, ticket_id: str) -> bool:
        return self.canary == ticket_id

    def on_canary_lost(self, ticket_id: str | None, now: float) -> bool:
        if self.canary is None or ticket_id not in (None, self.canary):
            return False
        self.canary, self.probe_at = None, now
        return True

    def next_wake(self, scope: ScopeView, now: float, *, has_waiters: bool) -> float | None:
        return earliest(now, self.probe_at) if has_waiters else None

    def _is_run_of_canary(self, ticket: Ticket) -> bool:
        return self.canary is not None and ticket.parent == self.canary


ASK_AGAIN_SECONDS = (60.0, 300.0)
"""Waits after the first and the second refusal: a token is refreshed within seconds, and an incident at the provider
seldom outlasts five minutes. A revoked login costs two starts more."""
HELD_SECONDS = 3600.0
"""The wait while it is held: one that works again costs an hour of a night at most, a revoked one 24 starts a day."""


class LoginDoubt(CanaryGate):
    """An account whose login was refused, and may be accepted again. `cause` is what the provider said.

    `is_missing`: the CLI found no login, so a person must log in.
    """

    TAG = "login_doubt"
    REASON: ClassVar[Reason] = "paused"

    cause: str = ""
    is_missing: bool = False

    @property
    def is_held(self) -> bool:
        """Whether it was refused so often that a person is asked."""
        return self.is_closed and self.failures > len(ASK_AGAIN_SECONDS)

    def on_refused(
        self, ticket: Ticket | None, proven_seq: int, cause: str, seq: int, now: float, *, is_missing: bool
    ) -> bool:
        """Take in a refusal. Returns whether it was news."""
        is_first_missing = is_missing and not self.is_held
        if not (is_first_missing or self.is_news(ticket, proven_seq, now)):
            return False
        self.cause, self.is_missing = cause, is_missing
        if is_missing:
            self.failures = max(self.failures, len(ASK_AGAIN_SECONDS))
        waits = (*ASK_AGAIN_SECONDS, HELD_SECONDS)
        self.close_until(now + waits[min(self.failures, len(ASK_AGAIN_SECONDS))], seq)
        return True

    def ask_again(self, now: float) -> bool:
        """Let a canary go now. Returns False if the login is not held, or one is asking already."""
        if not self.is_held or self.canary is not None:
            return False
        self.probe_at = now
        return True

    def refuses(self, ticket: Ticket, scope: ScopeView, now: float) -> Reason | None:
        reason = super().refuses(ticket, scope, now)
        return "held" if reason is not None and self.is_held else reason

    def explain(self, ticket: Ticket, scope: ScopeView, now: float) -> Explanation:
        if self.is_held:
            return self._explain_hold(scope)
        refused = f"the login of {scope.name} was refused ({self.cause})"
        if self.canary is None:
            return Explanation(f"{refused}; one session will ask again before it is held", self.probe_at)
        return Explanation(f"{refused}; {self.canary} is asking again", self.probe_at)

    def _explain_hold(self, scope: ScopeView) -> Explanation:
        held = f"{scope.name} is held: {self.cause}"
        if self.canary is not None:
            return Explanation(f"{held}; {self.canary} is asking again", self.probe_at)
        if self.is_missing:  # waiting alone helps nobody, so no time is promised
            return Explanation(f"{held}; log in, then it is asked again by itself", None)
        return Explanation(f"{held}; one session asks again once an hour, and when its login changes", self.probe_at)


FIRST_WAIT_SECONDS = 5.0
"""The wait after the first failure: most outages are a dropped connection that is back within seconds."""
LONGEST_WAIT_SECONDS = 300.0
"""The longest wait: one start in five minutes costs nothing, and after a night offline work continues soon enough."""
MOST_DOUBLINGS = 16
"""Where the doubling stops: the wait has reached its longest long before."""


class Outage(CanaryGate):
    """A scope that cannot be reached. The wait before each canary doubles from 5 s to 5 min."""

    TAG = "outage"
    REASON: ClassVar[Reason] = "unreachable"

    cause: str = ""
    """What was tried last, and how it failed; empty if that is not known."""

    def on_unreachable(
        self, ticket: Ticket | None, proven_seq: int, retry_after: float | None, seq: int, now: float
    ) -> bool:
        """Take in that nobody answered. Returns whether that is news; else only a longer stated wait counts."""
        stated = retry_after or 0.0
        if not self.is_news(ticket, proven_seq, now):
            if self.probe_at is not None and self.canary is None:
                self.probe_at = max(self.probe_at, now + stated)
            return False
        backoff = min(FIRST_WAIT_SECONDS * 2 ** min(self.failures, MOST_DOUBLINGS), LONGEST_WAIT_SECONDS)
        self.close_until(now + max(backoff, stated), seq)
        return True

    def explain(self, ticket: Ticket, scope: ScopeView, now: float) -> Explanation:
        cause = f" ({self.cause})" if self.cause else ""
        if self.canary is None:
            return Explanation(f"{scope.name} cannot be reached{cause}; one session will try it first", self.probe_at)
        return Explanation(f"{scope.name} could not be reached{cause}; {self.canary} is trying it now", self.probe_at)

    def on_answer(self, scope: ScopeView, now: float) -> Sequence[GateEvent]:
        return self.lift()


OVERLOAD_FIRST_SECONDS = 5.0
"""The first wait in an overload without a stated one: most last for seconds, so a longer wait would idle."""
OVERLOAD_LONGEST_SECONDS = 300.0
"""The longest wait in an overload: one request in five minutes costs the provider nothing and finds its end soon."""
MOST_OVERLOADS = 16
"""Where the count stops: the wait has reached its longest long before, and 2 to this power is still a small number."""
LONE_LONGEST_SECONDS = 300.0
"""The longest wait after refusals of one that was alone: longer than the known penalties, which each try renews."""


class Pause(Gate):
    """A pause that lasts until `until`. `overloads` counts successive refusals that were the provider's own trouble.

    `lone_refusals` counts successive rate limits that met the only one in the scope.
    """

    TAG = "pause"
    relative_times: ClassVar[tuple[str, ...]] = ("until", "since")

    until: float | None = None
    overloads: int = 0
    lone_refusals: int = 0
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
        wait = min(OVERLOAD_FIRST_SECONDS * 2**self.overloads, OVERLOAD_LONGEST_SECONDS)
        self.overloads = min(self.overloads + 1, MOST_OVERLOADS)
        return float(wait)

    def lone_wait(self, seconds: float) -> float:
        """Return the wait for one more rate limit of one that was alone: `seconds`, then twice that, up to 5 min."""
        wait = min(seconds * 2**self.lone_refusals, max(seconds, LONE_LONGEST_SECONDS))
        self.lone_refusals = min(self.lone_refusals + 1, MOST_OVERLOADS)
        return float(wait)

    def refuses(self, ticket: Ticket, scope: ScopeView, now: float) -> Reason | None:
        return "paused" if self.until is not None and now < self.until else None

    def explain(self, ticket: Ticket, scope: ScopeView, now: float) -> Explanation:
        return Explanation(f"{scope.name} is paused after a refusal", self.until)

    def active_from(self, scope: ScopeView) -> float:
        return NEVER if self.until is None else NOW

    @property
    def is_idle(self) -> bool:
        return self.until is None and self.overloads == self.lone_refusals == 0

    def awaits_success(self, scope: ScopeView) -> bool:
        return True

    def on_success(self, ticket: Ticket | None, granted_at: float, scope: ScopeView, now: float) -> Sequence[GateEvent]:
        self.overloads = self.lone_refusals = 0
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

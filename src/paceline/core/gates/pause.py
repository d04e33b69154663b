"""A pause: a scope admits nobody until a time, after a refusal or while the provider is in trouble.

Pauses only extend: a later refusal with a shorter wait never shortens one.
"""

from collections.abc import Sequence
from typing import ClassVar

from paceline.core.gates.gate import Explanation, Gate, GateEvent, ScopeView, earliest
from paceline.core.gates.slow_start import SlowStart
from paceline.core.values.tickets import Ticket
from paceline.core.values.verdicts import Reason

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

    def is_active(self, scope: ScopeView) -> bool:
        return self.until is not None

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

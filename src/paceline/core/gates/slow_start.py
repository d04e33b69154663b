"""A slow start: after a pause a scope admits its waiters one by one, at shrinking intervals.

If the provider refuses the first one again, the others have not started. The intervals follow the length of the calls:
where a call takes milliseconds, so does its refusal.
"""

from collections.abc import Sequence
from typing import ClassVar

from paceline.core.gates.gate import Explanation, Gate, GateEvent, ScopeView, earliest
from paceline.core.values.tickets import Ticket
from paceline.core.values.verdicts import Reason

FIRST_GAP_SECONDS = 2.0
"""The gap after the first one: about as long as a provider takes to refuse a start."""
GAP_IN_CALLS = 2.0
"""The first gap where calls are short: in the time of two calls a refusal has come back."""
LAST_GAP_SECONDS = 0.1
"""The n-th gap is the first one divided by n. From the twentieth on it makes no difference."""
SHORTEST_GAP_SECONDS = 0.001
"""A gap that ends now would wake nobody; a millisecond is no wait."""
LULL_SECONDS = 30.0
"""If no waiter took its turn for this long, no crowd is left to hold back."""


class SlowStart(Gate):
    """The slow start of one scope. `next_at` is when the next waiter may enter."""

    TAG = "slow_start"
    relative_times: ClassVar[tuple[str, ...]] = ("next_at", "last_at")

    next_at: float
    entered: int = 0
    is_over: bool = False
    last_at: float | None = None
    """When the last one entered."""

    def refuses(self, ticket: Ticket, scope: ScopeView, now: float) -> Reason | None:
        return "pacing" if now < self.next_at else None

    def explain(self, ticket: Ticket, scope: ScopeView, now: float) -> Explanation:
        return Explanation(f"{scope.name} admits its waiters one by one after a refusal", self.next_at)

    @property
    def is_idle(self) -> bool:
        return self.is_over

    def on_grant(self, ticket: Ticket, scope: ScopeView, now: float, *, takes_place: bool) -> Sequence[GateEvent]:
        is_lull = now > self.next_at + LULL_SECONDS
        self.entered += 1
        self.last_at = now
        self.next_at = now + self._gap(scope.calls.seconds(scope.use(now), scope.live))
        self.is_over = FIRST_GAP_SECONDS / self.entered <= LAST_GAP_SECONDS or is_lull
        return ()

    def awaits_success(self, scope: ScopeView) -> bool:
        return True

    def on_success(self, ticket: Ticket | None, granted_at: float, scope: ScopeView, now: float) -> Sequence[GateEvent]:
        """Let the next one enter sooner where calls turn out to be short."""
        if self.last_at is not None and granted_at <= self.last_at < self.next_at:
            known = scope.calls.seconds(scope.use(now), scope.live)
            gap = self._gap(max(0.0, now - granted_at) if known is None else known)
            self.next_at = min(self.next_at, max(self.last_at + gap, now + SHORTEST_GAP_SECONDS))
        return ()

    def next_wake(self, scope: ScopeView, now: float, *, has_waiters: bool) -> float | None:
        return earliest(now, self.next_at) if has_waiters else None

    def _gap(self, call_seconds: float | None) -> float:
        """Return the gap after the last one: the first is as long as a refusal takes to come, each next one shorter."""
        first = FIRST_GAP_SECONDS if call_seconds is None else min(FIRST_GAP_SECONDS, GAP_IN_CALLS * call_seconds)
        return first / self.entered

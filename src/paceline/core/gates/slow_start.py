"""A slow start: after a pause a scope admits its waiters one by one, at shrinking intervals.

If the provider refuses the first one again, the others have not started.
"""

from collections.abc import Sequence
from typing import ClassVar

from paceline.core.gates.gate import Explanation, Gate, GateEvent, ScopeView, earliest
from paceline.core.values.tickets import Ticket
from paceline.core.values.verdicts import Reason

FIRST_GAP_SECONDS = 2.0
"""The gap after the first one: about as long as a provider takes to refuse a start."""
LAST_GAP_SECONDS = 0.1
"""The n-th gap is the first one divided by n. From the twentieth on it makes no difference."""
LULL_SECONDS = 30.0
"""If no waiter took its turn for this long, no crowd is left to hold back."""


class SlowStart(Gate):
    """The slow start of one scope. `next_at` is when the next waiter may enter."""

    TAG = "slow_start"
    relative_times: ClassVar[tuple[str, ...]] = ("next_at",)

    next_at: float
    entered: int = 0
    is_over: bool = False

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
        gap = FIRST_GAP_SECONDS / self.entered
        self.next_at = now + gap
        self.is_over = gap <= LAST_GAP_SECONDS or is_lull
        return ()

    def next_wake(self, scope: ScopeView, now: float, *, has_waiters: bool) -> float | None:
        return earliest(now, self.next_at) if has_waiters else None

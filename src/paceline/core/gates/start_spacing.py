"""The spacing of starts: where a provider refuses too many at once, starts are an interval apart.

Runs of a session are not starts: their session was.
"""

from collections.abc import Sequence
from typing import ClassVar

from paceline.core.gates.gate import Explanation, Gate, GateEvent, ScopeView, earliest
from paceline.core.limits.start_bursts import BURST_SECONDS
from paceline.core.values.tickets import Ticket
from paceline.core.values.verdicts import Reason

SLOWER_AGAIN = 1.5
"""Each further refusal makes the interval longer by this factor: few steps find the right one."""
SHORTEST_INTERVAL_SECONDS = 0.05
"""Below this the spacing makes no difference, and is dropped."""
FIRST_INTERVAL_SECONDS = 1.0
"""The interval where too few starts were seen to measure one."""
LONGEST_INTERVAL_SECONDS = 30.0
"""Two starts a minute: slower than any provider is known to want, so a longer interval would be a mistake."""
EASE_SECONDS = 3600.0
"""How long nothing may be refused before the interval is eased: an hour, so that a tight cap is tried seldom."""
EASE_FACTOR = 0.97
"""A small step down, so that easing costs at most one refusal in a while."""


class StartSpacing(Gate):
    """Starts at least `interval` apart, learnt from refusals and eased while there are none."""

    TAG = "start_spacing"
    relative_times: ClassVar[tuple[str, ...]] = ("next_at", "ease_at", "since")

    interval: float
    next_at: float
    ease_at: float
    is_over: bool = False
    since: float | None = None

    @classmethod
    def from_starts(cls, recent: int, before: "StartSpacing | None", now: float) -> "StartSpacing":
        """Space starts so that as many fit in the span as went well in it, and further apart each time."""
        interval = BURST_SECONDS / recent if recent > 1 else FIRST_INTERVAL_SECONDS
        if before is not None:
            interval = max(interval, before.interval * SLOWER_AGAIN)
        since = now if before is None else before.since
        interval = min(interval, LONGEST_INTERVAL_SECONDS)
        return cls(interval=interval, next_at=now, ease_at=now + EASE_SECONDS, since=since)

    def refuses(self, ticket: Ticket, scope: ScopeView, now: float) -> Reason | None:
        return "pacing" if now < self.next_at and ticket.parent is None else None

    def explain(self, ticket: Ticket, scope: ScopeView, now: float) -> Explanation:
        return Explanation(f"starts in {scope.name} are {self.interval:.3g} s apart", self.next_at)

    def refuses_only_this(self, ticket: Ticket, scope: ScopeView, now: float) -> bool:
        """Return whether it waits for its turn to start: runs of a session that has ended do not."""
        return self.refuses(ticket, scope, now) is not None

    @property
    def is_idle(self) -> bool:
        return self.is_over

    def on_grant(self, ticket: Ticket, scope: ScopeView, now: float, *, takes_place: bool) -> Sequence[GateEvent]:
        if ticket.parent is None:
            self.next_at = max(self.next_at, now) + self.interval
            if now >= self.ease_at:
                self.interval *= EASE_FACTOR
                self.ease_at = now + EASE_SECONDS
                self.is_over = self.interval < SHORTEST_INTERVAL_SECONDS
        return ()

    def next_wake(self, scope: ScopeView, now: float, *, has_waiters: bool) -> float | None:
        return earliest(now, self.next_at) if has_waiters else None

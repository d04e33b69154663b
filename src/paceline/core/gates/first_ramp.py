"""The first seconds of a scope that nothing is known about: its sessions start over some seconds, not all at once.

A configured limit that is twice too high then costs a few refusals instead of as many as there are places too many.
Calls that belong to no session are let through: they are over in seconds, and somebody waits for each.
"""

from collections.abc import Collection, Sequence
from typing import ClassVar

from paceline.core.gates.gate import Explanation, Gate, GateEvent, ScopeView
from paceline.core.state.limit_table import UNLIMITED
from paceline.core.values.scopes import SESSIONS
from paceline.core.values.tickets import LaneKey, Ticket
from paceline.core.values.verdicts import Reason

AT_ONCE = 16
"""Sessions that start at once: a limit up to this costs at most eight refusals if it is twice too high."""
AT_ONCE_SHARE = 0.25
"""The same as a share of a large limit: few limits are four times too high."""
ROUNDING = 0.001
"""Part of a place: a wake-up at the computed time must find the level reached, however the time was rounded."""
REMEMBER_SECONDS = 86400.0
"""A scope without any use for a day may be forgotten, and is new again after that."""


class FirstRamp(Gate):
    """The ramp of one scope. It begins with the first start and lasts `seconds`; then the limit alone counts.

    `entered` are the places taken since then, `held` those taken before.
    """

    TAG = "first_ramp"
    relative_times: ClassVar[tuple[str, ...]] = ("began_at",)

    seconds: float
    began_at: float | None = None
    entered: int = 0
    held: int = 0
    is_over: bool = False

    def refuses(self, ticket: Ticket, scope: ScopeView, now: float) -> Reason | None:
        if SESSIONS not in ticket.scopes or not self.is_active(scope):
            return None
        return None if scope.live + 1 <= self._level(scope, now) + ROUNDING else "pacing"

    def explain(self, ticket: Ticket, scope: ScopeView, now: float) -> Explanation:
        return Explanation(f"{scope.name} is ramping up: {scope.live} of {scope.cap} so far", self._next_at(scope))

    def is_active(self, scope: ScopeView) -> bool:
        """Return whether the limit is only assumed: neither stated, nor learnt, nor reached before, nor small."""
        is_learnt = scope.adaptive is not None and scope.adaptive.limit is not None
        is_known = is_learnt or scope.platform is not None
        return not (self.is_over or is_known) and AT_ONCE < scope.cap < UNLIMITED

    def is_blank(self, now: float) -> bool:
        return self.began_at is None or now > self.began_at + REMEMBER_SECONDS

    def on_grant(self, ticket: Ticket, scope: ScopeView, now: float, *, takes_place: bool) -> Sequence[GateEvent]:
        if takes_place and not self.is_over:
            if self.began_at is None:
                self.began_at, self.held = now, scope.live - 1
            self.entered += 1
            self.is_over = scope.live >= scope.cap  # it has run at its limit
        return ()

    def next_wake(self, scope: ScopeView, now: float, *, has_waiters: bool) -> float | None:
        if self.began_at is None or not self.is_active(scope):
            return None
        if has_waiters and now < (next_at := self._next_at(scope)):
            return next_at
        return self.began_at + self.seconds

    def on_time(self, scope: ScopeView, now: float) -> Sequence[GateEvent]:
        """End the ramp when its time is over."""
        self.is_over = self.is_over or (self.began_at is not None and now >= self.began_at + self.seconds)
        return ()

    def restored(self, configured: Gate | None, lanes: Collection[LaneKey]) -> Gate | None:
        return self

    def _base(self, scope: ScopeView) -> float:
        """Return how many may start at once. Each that has ended makes room for one more: it was accepted."""
        ended = self.entered + self.held - scope.live if self.began_at is not None else 0
        return max(AT_ONCE, AT_ONCE_SHARE * scope.cap) + max(0, ended)

    def _level(self, scope: ScopeView, now: float) -> float:
        """Return how many may be live by now. What is live before the ramp began shows that the scope is in use."""
        if self.began_at is None and scope.live > 0:
            return float(scope.cap)
        passed = 0.0 if self.began_at is None else max(0.0, now - self.began_at) / self.seconds
        return self._base(scope) + passed * scope.cap

    def _next_at(self, scope: ScopeView) -> float:
        """Return when one more may start."""
        share = (scope.live + 1 - self._base(scope)) / scope.cap
        return (self.began_at or 0.0) + self.seconds * min(1.0, max(0.0, share))

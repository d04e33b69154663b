"""Budgets from response headers: what is left until a reset, counted down by what was started.

Mirrored here so that calls wait instead of being refused. Sessions do not count: their runs use the budget.
"""

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from paceline.core.gates.gate import Explanation, Gate, GateEvent, ScopeView, earliest
from paceline.core.signals import Budget
from paceline.core.values.scopes import SESSIONS
from paceline.core.values.tickets import Ticket
from paceline.core.values.verdicts import Reason

LARGE_RUN = 6.0
"""A large run in means: sizes have a heavy tail, and one that does not fit the budget is refused at a cost."""
LARGER_STILL = 1.2
"""The next large run may be a little larger than the largest so far."""
UNTIL_READ = 2.5
"""What a run without a stated size is charged, in means, until the next reading: a few large ones may go at once."""
LARGE_FADES = 0.9997
"""Per run: the largest counts half after about 2,300 runs, so that one odd run does not rule for days."""
LONGEST_BUDGET_SECONDS = 32 * 86400.0
"""A reset further ahead than the longest period there is (a month) was meant in milliseconds."""


class Remaining(msgspec.Struct):
    """What is left until a reset by a header, counted down by what was started since."""

    left: float
    resets_at: float

    def obstacle(self, need: float, now: float) -> float | None:
        """Return the reset to wait for where less than `need` is left."""
        return self.resets_at if now < self.resets_at and self.left < need else None


class HeaderBudget(Gate):
    """The provider's request and token budgets. Resets are points on the calendar and do not shift."""

    TAG = "header_budget"
    relative_times: ClassVar[tuple[str, ...]] = ()

    requests: Remaining | None = None
    tokens: Remaining | None = None
    large_tokens: float = 0.0
    """What the largest run used. Older runs count for less."""
    largest_left: float = 0.0

    def on_reading(self, budget: Budget, now: float) -> None:
        """Take over what the headers of a response state."""
        self.requests = _remaining(budget.requests_remaining, budget.requests_reset_at, now) or self.requests
        self.tokens = _remaining(budget.tokens_remaining, budget.tokens_reset_at, now) or self.tokens
        self.largest_left = max(self.largest_left, self.tokens.left if self.tokens is not None else 0.0)

    def refuses(self, ticket: Ticket, scope: ScopeView, now: float) -> Reason | None:
        return None if self._obstacle(ticket, scope, now) is None else "pacing"

    def explain(self, ticket: Ticket, scope: ScopeView, now: float) -> Explanation:
        what, resets_at = self._obstacle(ticket, scope, now) or ("budget", None)
        return Explanation(f"no {what} left in {scope.name}", resets_at)

    def refuses_only_this(self, ticket: Ticket, scope: ScopeView, now: float) -> bool:
        return self._obstacle(ticket, scope, now) is not None

    def is_active(self, scope: ScopeView) -> bool:
        return self.requests is not None or self.tokens is not None

    def on_grant(self, ticket: Ticket, scope: ScopeView, now: float, *, takes_place: bool) -> Sequence[GateEvent]:
        self._expire(now)
        if SESSIONS in ticket.scopes:
            return ()
        if self.requests is not None:
            self.requests.left -= 1
        if self.tokens is not None:
            self.tokens.left -= self._need(ticket.tokens, scope) * (1.0 if ticket.tokens is not None else UNTIL_READ)
        return ()

    def on_tokens(self, ticket: Ticket | None, granted_at: float, tokens: int, scope: ScopeView, now: float) -> bool:
        self.large_tokens = max(float(tokens), self.large_tokens * LARGE_FADES)
        return False

    def next_wake(self, scope: ScopeView, now: float, *, has_waiters: bool) -> float | None:
        if not has_waiters:
            return None
        return earliest(now, *(part.resets_at for part in (self.requests, self.tokens) if part is not None))

    def on_time(self, scope: ScopeView, now: float) -> Sequence[GateEvent]:
        self._expire(now)
        return ()

    def _expire(self, now: float) -> None:
        """Drop budgets whose reset has passed."""
        if self.requests is not None and now >= self.requests.resets_at:
            self.requests = None
        if self.tokens is not None and now >= self.tokens.resets_at:
            self.tokens = None

    def _obstacle(self, ticket: Ticket, scope: ScopeView, now: float) -> tuple[str, float] | None:
        """Return what is used up, and until when."""
        if SESSIONS in ticket.scopes:
            return None
        if self.requests is not None and (at := self.requests.obstacle(1, now)) is not None:
            return "requests", at
        if self.tokens is not None and (at := self.tokens.obstacle(self._most(ticket.tokens, scope), now)) is not None:
            return "tokens", at
        return None

    def _need(self, tokens: int | None, scope: ScopeView) -> float:
        return float(tokens) if tokens is not None else max(1.0, scope.tokens.mean)

    def _most(self, tokens: int | None, scope: ScopeView) -> float:
        """Return the most that the run may use. Without a stated size: that of the largest run, or half the budget."""
        mean = self._need(tokens, scope)
        if tokens is not None:
            return mean
        large = max(mean * LARGE_RUN, self.large_tokens * LARGER_STILL)
        return max(mean, min(large, self.largest_left / 2))


def _remaining(left: int | None, resets_at: float | None, now: float) -> Remaining | None:
    if left is None or resets_at is None or not now < resets_at <= now + LONGEST_BUDGET_SECONDS:
        return None  # a reset in the year 57000 was meant in milliseconds
    return Remaining(left=float(left), resets_at=resets_at)

"""Budgets from response headers: what is left of a limit, counted down by what was started and up by its refill.

Mirrored here so that calls wait instead of being refused. Sessions do not count: their runs use the budget.
"""

import math
from collections.abc import Sequence
from typing import ClassVar

from paceline.core.gates.gate import Explanation, Gate, GateEvent, ScopeView, earliest
from paceline.core.gates.stated_budget import StatedBudget
from paceline.core.signals import Budget
from paceline.core.values.scopes import SESSIONS
from paceline.core.values.tickets import Ticket
from paceline.core.values.verdicts import Reason

RARE = 3.2
"""Standard deviations that only one run in 1,500 exceeds: for a bucket, which fills up while a run waits."""
SELDOM = 2.3
"""Standard deviations that one run in a hundred exceeds: for a period or a sum, whose unused rest is lost."""
MOST_KEPT = 0.5
"""A run without a stated size waits for no more than this share of a budget, however large runs may be."""
RECHECK_SECONDS = 1.0
"""How often a filling token budget is checked for a run that is larger than usual."""
PLENTY = 2.0
"""Requests left with which nobody needs to be asked: each grant is counted, and takes one."""
LONGEST_BUDGET_SECONDS = 32 * 86400.0
"""A reset further ahead than the longest period there is (a month) was meant in milliseconds."""


class HeaderBudget(Gate):
    """The provider's request and token budgets. Resets are points on the calendar and do not shift."""

    TAG = "header_budget"
    COUNTS_ALONE = True
    relative_times: ClassVar[tuple[str, ...]] = ()

    requests: StatedBudget | None = None
    tokens: StatedBudget | None = None
    unread: int = 0
    """The runs without a stated size that were started since tokens were last read."""

    def on_reading(self, budget: Budget, asked_at: float, started: int | None, now: float) -> None:
        """Take over what the headers of a response state. They may lack what was started since it was asked for.

        `started` counts those runs; None where they are not remembered, but in parts of a period.
        """
        requests = budget.requests_remaining, budget.requests_limit, budget.requests_reset_at
        tokens = budget.tokens_remaining, budget.tokens_limit, budget.tokens_reset_at
        if started is not None:
            lacks = float(started)
        else:
            lacks = 0.0 if self.requests is None else self.requests.started_since(asked_at)
        self.requests = _read(self.requests, requests, lacks, now)
        self.tokens = _read(self.tokens, tokens, None, now)
        self.unread = 0

    def per_second(self, cause: str) -> float:
        """Return the rate of the budget of `requests` or `tokens`; 0 where it is not known."""
        part = self.tokens if cause == "tokens" else self.requests
        return 0.0 if part is None else part.per_second

    def refuses(self, ticket: Ticket, scope: ScopeView, now: float) -> Reason | None:
        requests, tokens = self.requests, self.tokens
        if (requests is None or requests.left >= 1.0) and (  # there was enough even without the refill
            tokens is None or (ticket.tokens is not None and tokens.left >= ticket.tokens)
        ):
            return None
        return None if self._obstacle(ticket, scope, now) is None else "pacing"

    def explain(self, ticket: Ticket, scope: ScopeView, now: float) -> Explanation:
        what, at = self._obstacle(ticket, scope, now) or ("budget", None)
        part = self.tokens if what == "tokens" else self.requests
        how = f"; {part.how_it_returns}" if part is not None else ""
        return Explanation(f"too few {what} left in {scope.name} by its response headers{how}", at)

    def refuses_only_this(self, ticket: Ticket, scope: ScopeView, now: float) -> bool:
        return self._obstacle(ticket, scope, now) is not None

    def is_active(self, scope: ScopeView) -> bool:
        if self.tokens is not None:
            return True  # a ticket may state any number of tokens
        return self.requests is not None and self.requests.left < PLENTY

    def counts_grants_from(self, scope: ScopeView) -> float:
        return math.inf if self.requests is None and self.tokens is None else -math.inf

    def on_grant(self, ticket: Ticket, scope: ScopeView, now: float, *, takes_place: bool) -> Sequence[GateEvent]:
        self._expire(now)
        self._take(ticket, scope, now)
        return ()

    def counts(self, ticket: Ticket, scope: ScopeView, now: float) -> bool:
        requests, tokens = self.requests, self.tokens
        if tokens is None:
            if requests is None or requests.left < PLENTY + 1.0:
                return False
        elif scope.waiting or not tokens.renew(now):
            return False  # a waiter may have to be woken later
        if requests is not None and not requests.renew(now):
            return False
        self._take(ticket, scope, now)
        return True

    def _take(self, ticket: Ticket, scope: ScopeView, now: float) -> None:
        """Count what was started."""
        if SESSIONS in ticket.scopes:
            return
        if self.requests is not None:
            self.requests.take(1.0, now)
            self.requests.log_use(1.0, now)
        if self.tokens is not None:
            self.tokens.take(_need(ticket.tokens, scope), now)
            self.unread += ticket.tokens is None

    def awaits_success(self, scope: ScopeView) -> bool:
        return self.requests is not None or self.tokens is not None

    def heeds_success(self, granted_at: float, now: float) -> bool:
        if self.requests is not None and self.requests.is_doubted(granted_at, now):
            return True
        return self.tokens is not None and self.tokens.is_doubted(granted_at, now)

    def on_success(self, ticket: Ticket | None, granted_at: float, scope: ScopeView, now: float) -> Sequence[GateEvent]:
        if ticket is not None and SESSIONS not in ticket.scopes:
            self.requests = None if self.requests is None or self.requests.is_over(granted_at, now) else self.requests
            self.tokens = None if self.tokens is None or self.tokens.is_over(granted_at, now) else self.tokens
        return ()

    def on_tokens(self, ticket: Ticket | None, granted_at: float, tokens: int, scope: ScopeView, now: float) -> bool:
        if self.tokens is not None and ticket is not None and SESSIONS not in ticket.scopes:
            self.tokens.log_use(float(tokens), granted_at)
        return False

    def next_wake(self, scope: ScopeView, now: float, *, has_waiters: bool) -> float | None:
        if not has_waiters:
            return None
        times: list[float | None] = []
        if self.requests is not None:
            times.append(self.requests.ready_at(1.0, now))
        if (tokens := self.tokens) is not None:
            most = self._most(None, scope)
            times += [tokens.ready_at(need, now) for need in (_need(None, scope), most)]
            if times[-1] is None and tokens.kind.name != "period" and tokens.level(now) < (tokens.limit or 0.0):
                times.append(now + RECHECK_SECONDS)  # a run may have stated a larger size
            times.append(None if tokens.refill else tokens.resets_at)
        return earliest(now, *times)

    def on_time(self, scope: ScopeView, now: float) -> Sequence[GateEvent]:
        self._expire(now)
        return ()

    def shift(self, seconds: float) -> None:
        for part in (self.requests, self.tokens):
            if part is not None:
                part.seen_at -= seconds
                part.stated_at -= seconds

    def _expire(self, now: float) -> None:
        """Drop budgets that are over."""
        if self.requests is not None and not self.requests.renew(now):
            self.requests = None
        if self.tokens is not None and not self.tokens.renew(now):
            self.tokens = None

    def _obstacle(self, ticket: Ticket, scope: ScopeView, now: float) -> tuple[str, float] | None:
        """Return what is used up, and until when."""
        if SESSIONS in ticket.scopes:
            return None
        if self.requests is not None and (at := self.requests.refused_until(1.0, now)) is not None:
            return "requests", at
        if self.tokens is None:
            return None
        at = self.tokens.refused_until(self._most(ticket.tokens, scope), now)
        return None if at is None else ("tokens", at)

    def _most(self, tokens: int | None, scope: ScopeView) -> float:
        """Return what must be left for the run. Without a stated size: what a large one uses, with those unread."""
        if tokens is not None:
            return float(tokens)
        is_refilled = self.tokens is not None and self.tokens.refill > 0
        most = scope.tokens.largest_of(1 + self.unread, RARE if is_refilled else SELDOM)
        limit = None if self.tokens is None else self.tokens.limit
        return max(1.0, most if limit is None else min(most, limit * MOST_KEPT))


def _need(tokens: int | None, scope: ScopeView) -> float:
    return float(tokens) if tokens is not None else max(1.0, scope.tokens.mean)


def _read(
    before: StatedBudget | None, reading: tuple[int | None, int | None, float | None], lacks: float | None, now: float
) -> StatedBudget | None:
    """Return the budget after a reading: what is left, of how much, until when."""
    left, limit, resets_at = reading
    if left is None or resets_at is None or not now < resets_at <= now + LONGEST_BUDGET_SECONDS:
        return before  # a reset in the year 57000 was meant in milliseconds
    if limit == 0:
        return before  # how some gateways say that there is no such limit
    if limit is None or limit < left:
        return StatedBudget.first(float(left), None, resets_at, now)
    if before is None or before.limit != limit:
        budget = StatedBudget.first(float(left), float(limit), resets_at, now)
        budget.left -= max(0.0, (lacks or 0.0) - 1.0)  # started since, less the run whose reading it is
        return budget
    before.on_reading(float(left), resets_at, lacks, now)
    return before

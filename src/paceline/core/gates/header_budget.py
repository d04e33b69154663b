"""Budgets from response headers: what is left of a limit, counted down by what was started and up by what comes back.

Mirrored here so that calls wait instead of being refused. Sessions do not count: their runs use the budget. How a
budget comes back is shown by the resets that its readings state; a bucket is assumed until they show something else:

- *bucket*: it refills evenly, and `reset` says when it is full: the more was used, the later
- *period*: everything comes back at once, and `reset` stays where it is until then
- *sum*: each use comes back one period after it, so `reset` is one period after the last use, whoever made it
"""

import math
from collections.abc import Sequence
from itertools import takewhile
from typing import ClassVar, Literal

import msgspec

from paceline.core.gates.gate import NEVER, NOW, Explanation, Gate, GateEvent, ScopeView, earliest
from paceline.core.signals import Budget
from paceline.core.values.scopes import SESSIONS
from paceline.core.values.tickets import Reason, Ticket

SAME_RESET_SECONDS = 2.5
"""Resets and amounts are rounded: two forecasts of a reset that lie closer than this cannot be kept apart."""
KEPT_SHARE = 0.9
"""Weight of the earlier readings, in the kind and in the refill: about ten of them count."""

KindName = Literal["bucket", "period", "sum"]


class BudgetKind(msgspec.Struct):
    """How often each kind led to a wrong forecast of late."""

    bucket: float = 0.0
    period: float = 0.0
    sum: float = 0.0

    @property
    def name(self) -> KindName:
        """The kind that was wrong least often.

        A bucket where several were: if that is a mistake, it costs a refusal. The others would cost idle time.
        """
        if self.bucket <= min(self.period, self.sum):
            return "bucket"
        return "period" if self.period <= self.sum else "sum"

    def on_reading(
        self, resets_at: float, *, bucket: float, period: float, earliest_sum: float, rounding: float
    ) -> bool:
        """Compare the reset of a reading with what each kind leads one to expect. Returns False where they agree.

        `rounding` is the time in which a bucket refills by one. A sum's reset is no earlier than stated here; where
        others use the budget, it is later.
        """
        forecasts = bucket, period, earliest_sum
        if max(forecasts) - min(forecasts) <= SAME_RESET_SECONDS + rounding:
            return False
        is_no_bucket = abs(resets_at - bucket) > SAME_RESET_SECONDS + rounding
        is_no_period = abs(resets_at - period) > SAME_RESET_SECONDS
        is_no_sum = resets_at < earliest_sum - SAME_RESET_SECONDS
        self.bucket = self.bucket * KEPT_SHARE + is_no_bucket
        self.period = self.period * KEPT_SHARE + is_no_period
        self.sum = self.sum * KEPT_SHARE + is_no_sum
        return True


CAREFUL = 0.97
"""The refill is counted a little slower than stated: providers round what is left and when it is full."""
WHOLE_SECOND = 1.0
"""A reset in whole seconds may be this much later than stated."""
MINUTE = 60.0
"""Providers count whole minutes. A use that is expected back too early costs a refusal."""
USES = 60
"""The own uses of the last period are kept in so many parts: each comes back with the last of its part."""
SOON_SECONDS = 0.001
"""What is back within a millisecond is there: the clock cannot show every fraction of it."""
SILENT_SECONDS = 0.5
"""A call that began this long after the last reading should bring a new one: readings are 0.1 s apart at most."""
MOST_SILENT = 2
"""Successes without a reading after which a budget is over. Where a reading follows its success there is only one."""
LONGEST_WAIT_SECONDS = 900.0
"""After this wait one run probes the budget, whatever the headers stated.

A wrong reset may lie days ahead, and a probe costs one refusal.
"""
FORGOTTEN_SECONDS = 600.0
"""A budget that was not stated for this long after its reset is forgotten: it may have changed meanwhile."""


class Use(msgspec.Struct):
    """What was started up to `at`, and since the use before it."""

    at: float
    amount: float


class StatedBudget(msgspec.Struct):
    """What was left at `seen_at`, counted down by what was started since.

    `filled` over `seconds` is the refill as stated: used amounts, and the times until they are back. `read_reset` is
    the reset of a reading to compare the next ones with. `period` is the longest wait for a reset. `uses` are the own
    ones of the last period, `used_at` is the time of the last.
    """

    left: float
    resets_at: float
    seen_at: float = 0.0
    limit: float | None = None
    filled: float = 0.0
    seconds: float = 0.0
    kind: BudgetKind = msgspec.field(default_factory=BudgetKind)
    period: float = 0.0
    read_reset: float = 0.0
    used_at: float = 0.0
    uses: list[Use] = msgspec.field(default_factory=list)
    since: float = 0.0
    stated_at: float = 0.0
    silent: int = 0
    """Successes since the last reading that brought none."""

    @classmethod
    def first(cls, left: float, limit: float | None, resets_at: float, now: float) -> "StatedBudget":
        budget = cls(left, resets_at, now, limit, read_reset=resets_at, used_at=now, since=now, stated_at=now)
        budget._learn_refill(left, resets_at, now)
        return budget

    @property
    def refill(self) -> float:
        """What comes back in a second; 0 where it does not come back evenly, or no reading shows how fast."""
        if self.limit is None or self.seconds <= 0 or self.kind.name != "bucket":
            return 0.0
        return CAREFUL * self.filled / self.seconds

    @property
    def per_second(self) -> float:
        """The rate of the whole budget in a second; 0 where it is not known."""
        if self.kind.name != "bucket" and self.limit is not None and self.period > 0:
            return self.limit / self.period
        return self.refill

    @property
    def span(self) -> float:
        """The time after which a use comes back, in full minutes: the longest wait that was stated is a little less."""
        return math.ceil(self.period / MINUTE) * MINUTE

    @property
    def how_it_returns(self) -> str:
        if self.kind.name == "sum":
            return f"each use comes back after {self.span:.0f} s"
        return "all comes back at the reset" if not self.refill else f"{self.refill * 60:,.0f} a minute come back"

    def level(self, now: float) -> float:
        limit = self.limit
        if limit is None:
            return self.left
        back = self._returned(now) if self.kind.name == "sum" else max(0.0, now - self.seen_at) * self.refill
        return min(limit, self.left + back)

    def _returned(self, now: float) -> float:
        """Return what has come back of the uses that are still kept. They are in the order of their times."""
        span, back = self.span, 0.0
        for use in self.uses:
            if use.at + span > now:
                break
            back += use.amount
        return back

    def ready_at(self, need: float, now: float) -> float | None:
        """Return when `need` is there, or when it is worth a look; None where there is enough now."""
        need = need if self.limit is None else min(need, self.limit)
        missing = need - self.level(now)
        if missing <= 0:
            return None
        at = self._back_at(missing, now)
        if self.seen_at:  # an older snapshot lacks it
            at = min(at, self.seen_at + LONGEST_WAIT_SECONDS)
        return at if at > now else None  # what is missing may be less than the clock can show

    def refused_until(self, need: float, now: float) -> float | None:
        """Return until when a run that needs so much has to wait; None where it may start now."""
        at = self.ready_at(need, now)
        return at if at is not None and at > now + SOON_SECONDS else None

    def _back_at(self, missing: float, now: float) -> float:
        """Return when so much more will have come back."""
        if refill := self.refill:
            return now + missing / refill
        if self.kind.name == "sum":
            span = self.span
            for use in self.uses:
                if use.at + span > now:
                    missing -= use.amount
                    if missing <= 0:
                        return min(use.at + span, self.resets_at)
        return self.resets_at

    def take(self, amount: float, now: float) -> None:
        self.left = self.level(now) - amount
        self._forget_uses(now)
        self.used_at = max(self.used_at, now)
        if now > self.seen_at:
            self.seen_at = now
        if self.kind.name == "sum":
            self.resets_at = max(self.resets_at, now + self.period)

    def log_use(self, amount: float, at: float) -> None:
        """Remember when a use was made, to know when it comes back. It may have been made some time ago."""
        part = self.span / USES
        place = len(self.uses)
        while place and self.uses[place - 1].at >= at:
            place -= 1
        if place < len(self.uses) and self.uses[place].at - at < part:
            self.uses[place].amount += amount
        else:
            self.uses.insert(place, Use(at + part, amount))

    def started_since(self, at: float) -> float:
        return sum(use.amount for use in takewhile(lambda use: use.at > at, reversed(self.uses)))

    def _forget_uses(self, now: float) -> None:
        span = self.span
        if self.uses and self.uses[0].at + span <= now:
            self.uses = [use for use in self.uses if use.at + span > now]

    def is_past(self, now: float) -> bool:
        """Return whether the budget was not stated for so long after its reset that it is to be forgotten."""
        longest = 0.0 if self.limit is None else max(self.period, FORGOTTEN_SECONDS)
        return now >= self.resets_at + longest

    def renew(self, now: float) -> bool:
        """Begin the next period once one has ended. Returns False for a budget that is to be forgotten."""
        if now < self.resets_at:
            return True
        if self.limit is None or self.is_past(now):
            return False
        if not self.refill:
            self.left, self.seen_at, self.resets_at = self.limit, now, now + max(1.0, self.period)
            self._forget_uses(now)
        return True

    def on_reading(self, left: float, resets_at: float, lacks: float | None, now: float) -> None:
        """Take over a reading. It may lack as much as `lacks` of what was started: then the own count is better."""
        self._learn_kind(left, resets_at, now)
        self._learn_refill(left, resets_at, now)
        counted = left
        if lacks is not None:
            most = left + 1.0 if self.refill else left  # what is left is stated in whole numbers
            counted = max(left - lacks, min(self.level(now), most))
        self._forget_uses(now + self.span / USES)  # of a use that is coming back, some is in the reading already
        self.left, self.seen_at, self.resets_at = counted, now, resets_at
        self.stated_at, self.silent = now, 0

    def is_doubted(self, granted_at: float, now: float) -> bool:
        """Return whether a success of a slot granted then should have brought another reading."""
        return now >= self.resets_at and granted_at >= self.stated_at + SILENT_SECONDS

    def is_over(self, granted_at: float, now: float) -> bool:
        """Return whether a success shows that the budget is over: only a refusal stated it."""
        if not self.is_doubted(granted_at, now):
            return False
        self.silent += 1
        return self.silent >= MOST_SILENT

    def _learn_refill(self, left: float, resets_at: float, now: float) -> None:
        self.period = max(self.period, resets_at - now)
        if self.limit is None or left >= self.limit:
            return
        rounded = WHOLE_SECOND if resets_at == int(resets_at) else 0.0
        self.filled = self.filled * KEPT_SHARE + self.limit - left
        self.seconds = self.seconds * KEPT_SHARE + resets_at - now + rounded

    def _learn_kind(self, left: float, resets_at: float, now: float) -> None:
        """Let the reading show how the budget comes back, if it is far enough from the one before."""
        if self.limit is None or left >= self.limit or not self.filled:
            return
        rounding = self.seconds / self.filled
        if now >= self.read_reset or self.kind.on_reading(
            resets_at,
            bucket=now + (self.limit - left) * rounding,
            period=self.read_reset,
            earliest_sum=self.used_at + self.period,
            rounding=rounding,
        ):
            self.read_reset = resets_at


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
    """The provider's request and token budgets. Resets are points on the calendar and do not shift.

    While no other part of its scope needs more, the scope calls only `counts` and `heeds_success`.
    """

    TAG = "header_budget"
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

    def current(self, kind: str, now: float) -> StatedBudget | None:
        """Return the budget of `requests` or `tokens`. One that is past stays here until somebody enters or waits."""
        part = self.tokens if kind == "tokens" else self.requests
        return None if part is None or part.is_past(now) else part

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

    def active_from(self, scope: ScopeView) -> float:
        return NEVER if self.requests is None and self.tokens is None else NOW

    @property
    def may_refuse(self) -> bool:
        """Whether a ticket may be refused before the next grant is counted."""
        if self.tokens is not None:
            return True  # a ticket may state any number of tokens
        return self.requests is not None and self.requests.left < PLENTY

    def on_grant(self, ticket: Ticket, scope: ScopeView, now: float, *, takes_place: bool) -> Sequence[GateEvent]:
        self._expire(now)
        self._take(ticket, scope, now)
        return ()

    def counts(self, ticket: Ticket, scope: ScopeView, now: float) -> bool:
        """Count a grant, if that changes neither whether the gate is active nor when it wakes.

        Returns False where `on_grant` must be called instead.
        """
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
        """Return whether a success now of a slot granted then may change the gate."""
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

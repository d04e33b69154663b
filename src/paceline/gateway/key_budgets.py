"""Budgets of clients' keys: what a key has spent in its period, when it warns, and when it stops.

A call is refused before it begins; one that runs is never cut off. The refusal has the status 402. SDKs and proxies
repeat a 429 by themselves, which is of no use here for hours or weeks; nobody repeats a 402.
"""

import time
from calendar import timegm
from collections.abc import Callable, Sequence
from typing import Protocol

from paceline.clock import Clock
from paceline.engine.key_commands import scope_of_key
from paceline.events import Event
from paceline.gateway.errors import GatewayError
from paceline.gateway.spend_totals import DAY_SECONDS, KEPT_DAYS, day_of
from paceline.store import ClientKey, KeyBudget, SpendRow

WARNING_SHARE = 0.8
"""The share of a budget at which it warns: early enough to raise it before a team is stopped."""
LEVELS = (WARNING_SHARE, 1.0)


class KeySpend(Protocol):
    """What is known of the dollars of each key. Days are those of UTC."""

    def spent_by(self, key: str, since: str) -> float: ...


class SpendReader(Protocol):
    """Where older days are."""

    def __call__(self, *, since: str, key: str | None = None) -> Sequence[SpendRow]: ...


class KeyBudgets:
    """The budgets of all keys. `emit` stores an event; `read_spend` reads days that are not in memory any more."""

    def __init__(self, spend: KeySpend, clock: Clock) -> None:
        self.emit: Callable[[Event], object] | None = None
        self.read_spend: SpendReader | None = None
        self._spend = spend
        self._clock = clock
        self._announced: dict[str, tuple[str, float]] = {}
        """The period of each key, and the highest share in it that was announced."""
        self._older: dict[str, tuple[str, float]] = {}
        """What a key has spent in days that are not in memory, and the day on which that was read."""

    def check(self, key: ClientKey) -> None:
        """Raise `GatewayError` if the budget of the key is reached."""
        budget = key.budget
        if budget is None:
            return
        now = self._clock.now()
        spent = self._spent(key, budget, now)
        self._announce(key, budget, spent, now)
        if spent < budget.dollars:
            return
        resumes_at = next_period(budget, now)
        what = f"the budget of the key {key.name}, {budget.text}, is reached (${spent:,.2f} spent)"
        if resumes_at is None:
            raise GatewayError(402, "budget_reached", f"{what}; ask for a key with another budget")
        when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(resumes_at))
        raise GatewayError(402, "budget_reached", f"{what}; it continues at {when}", retry_after=resumes_at - now)

    def note(self, key: ClientKey) -> None:
        """Announce a budget that is nearly or wholly spent, after a call."""
        if key.budget is not None:
            now = self._clock.now()
            self._announce(key, key.budget, self._spent(key, key.budget, now), now)

    def _spent(self, key: ClientKey, budget: KeyBudget, now: float) -> float:
        since = max(_period_start(budget, now), key.created_at)
        return self._spend.spent_by(key.name, day_of(since)) + self._spent_before(key, since, now)

    def _spent_before(self, key: ClientKey, since: float, now: float) -> float:
        """Return what was spent in days that are too old for `spent_by`. It is read once a day."""
        oldest = now - (KEPT_DAYS - 1) * DAY_SECONDS
        if self.read_spend is None or since >= oldest:
            return 0.0
        read_on, dollars = self._older.get(key.name, ("", 0.0))
        if read_on != day_of(now):
            rows = self.read_spend(since=day_of(since), key=key.name)
            known = sum(row.dollars for row in rows)
            dollars = max(0.0, known - self._spend.spent_by(key.name, day_of(since)))
            self._older[key.name] = (day_of(now), dollars)
        return dollars

    def _announce(self, key: ClientKey, budget: KeyBudget, spent: float, now: float) -> None:
        """Emit an event at 80 % and at the end of a budget, once in each period."""
        period = day_of(max(_period_start(budget, now), key.created_at)) + budget.text
        share = max((level for level in LEVELS if spent >= level * budget.dollars), default=0.0)
        known = self._announced.get(key.name)
        if known is None and now - key.created_at > DAY_SECONDS:
            known = (period, share)  # announced before this process began
        if known is None or known[0] != period:
            known = (period, 0.0)
        self._announced[key.name] = (period, max(share, known[1]))
        if share > known[1] and self.emit is not None:
            fields: dict[str, object] = {"budget": budget.text, "spent": round(spent, 6), "share": share}
            fields["resumes_at"] = next_period(budget, now)
            self.emit(Event("budget.reached", now, scope_of_key(key.name), None, fields))


def next_period(budget: KeyBudget, now: float) -> float | None:
    """Return when the budget begins again (UTC); None if it never does."""
    at = time.gmtime(now)
    match budget.period:
        case "day":
            return now - now % DAY_SECONDS + DAY_SECONDS
        case "month":
            year, month = (at.tm_year + 1, 1) if at.tm_mon == 12 else (at.tm_year, at.tm_mon + 1)
            return float(timegm((year, month, 1, 0, 0, 0, 0, 0, 0)))
        case "total":
            return None


def _period_start(budget: KeyBudget, now: float) -> float:
    at = time.gmtime(now)
    match budget.period:
        case "day":
            return now - now % DAY_SECONDS
        case "month":
            return float(timegm((at.tm_year, at.tm_mon, 1, 0, 0, 0, 0, 0, 0)))
        case "total":
            return 0.0

"""Budgets of clients' keys: what a key has spent in its period, when it warns, and when it stops.

A call is refused before it begins; one that runs is never cut off. The refusal has the status 402. SDKs and proxies
repeat a 429 by themselves, which is of no use here for hours or weeks; nobody repeats a 402.
"""

import logging
import time
from collections.abc import Sequence
from typing import Protocol

from paceline.clock import Clock
from paceline.engine.key_commands import scope_of_key
from paceline.errors import PacelineError
from paceline.gateway.background_store import read_soon
from paceline.gateway.budget_events import BudgetEvents
from paceline.gateway.errors import BUDGET_REACHED, GatewayError
from paceline.gateway.spend_totals import DAY_SECONDS, KEPT_DAYS, OUTAGE_SECONDS, day_of
from paceline.store import ClientKey, KeyBudget, SpendRow

log = logging.getLogger("paceline.gateway")

KeyId = tuple[str, float]


class KeySpend(Protocol):
    """What is known of the dollars of each key. Days are those of UTC."""

    def spent_by(self, key: str, since: str) -> float: ...


class SpendReader(Protocol):
    """Where older days are. It is called in a thread."""

    def __call__(self, *, since: str, key: str | None = None) -> Sequence[SpendRow]: ...


class KeyBudgets:
    """The budgets of all keys. `read_spend` reads days that are not in memory any more."""

    def __init__(self, spend: KeySpend, events: BudgetEvents, clock: Clock) -> None:
        self.read_spend: SpendReader | None = None
        self._spend = spend
        self._events = events
        self._clock = clock
        self._noted: dict[str, ClientKey] = {}
        """The keys that have spent something since the last `announce`, by name."""
        self._older: dict[KeyId, tuple[str, float]] = {}
        """The first day that is counted in memory, by key, and what the key has spent before it."""
        self._read_older_at = 0.0

    def check(self, key: ClientKey) -> None:
        """Raise `GatewayError` if the budget of the key is reached."""
        budget = key.budget
        if budget is None:
            return
        now = self._clock.now()
        spent = self._spent(key, now)
        self._announce(key, budget, spent, now)
        if spent < budget.dollars:
            return
        resumes_at = budget.begins_again_at(now)
        what = f"the budget of the key {key.name}, {budget.text}, is reached (${spent:,.2f} spent)"
        if resumes_at is None:
            raise GatewayError(402, BUDGET_REACHED, f"{what}; ask for a key with another budget")
        when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(resumes_at))
        raise GatewayError(402, BUDGET_REACHED, f"{what}; it continues at {when}", retry_after=resumes_at - now)

    def note(self, key: ClientKey) -> None:
        """Remember that the key has spent something: `announce` checks it later, once for many calls."""
        if key.budget is not None:
            self._noted[key.name] = key

    def announce(self) -> None:
        """Announce the budgets that calls have nearly or wholly spent."""
        noted, self._noted = self._noted, {}
        now = self._clock.now()
        for key in noted.values():
            if key.budget is not None:
                self._announce(key, key.budget, self._spent(key, now), now)

    async def catch_up(self, key: ClientKey) -> None:
        """Read what the key has spent in days that are not in memory any more, once a day. It may be unknown then."""
        if key.budget is None or self.read_spend is None:
            return
        now, read = self._clock.now(), self.read_spend
        first, kept = key.counted_from(now), _first_kept_day(now)
        if first >= kept or self._older.get(_id(key), ("", 0.0))[0] == kept or now < self._read_older_at:
            return
        try:
            rows = await read_soon(lambda: read(since=first, key=key.name))
        except PacelineError as error:
            self._read_older_at = self._clock.now() + OUTAGE_SECONDS
            log.warning("what the key %s has spent before %s is read later: %s", key.name, kept, error)
        else:
            self._older[_id(key)] = kept, sum(row.dollars for row in rows if row.day < kept)

    def spent(self, key: ClientKey) -> float:
        """Return what the key has spent in the period of its budget; 0 without one."""
        return 0.0 if key.budget is None else self._spent(key, self._clock.now())

    def _spent(self, key: ClientKey, now: float) -> float:
        first = key.counted_from(now)
        since, older = self._older.get(_id(key), (first, 0.0))
        if since <= first:
            since, older = first, 0.0
        return key.spent(self._spend.spent_by(key.name, since) + older, now)

    def _announce(self, key: ClientKey, budget: KeyBudget, spent: float, now: float) -> None:
        period, was_known = (key.counted_from(now), budget, key.created_at), now - key.created_at > DAY_SECONDS
        self._events.announce(scope_of_key(key.name), budget, spent, now, period=period, was_known=was_known)


def _first_kept_day(now: float) -> str:
    """Return the first day that `spent_by` surely knows. It forgets a day when the next one begins."""
    return day_of(now - (KEPT_DAYS - 1) * DAY_SECONDS)


def _id(key: ClientKey) -> KeyId:
    """Return what distinguishes a key from an earlier one of its name."""
    return key.name, key.created_at

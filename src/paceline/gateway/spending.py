"""What requests cost: sums by day, key, account and model, kept in memory and stored every few seconds.

Here: counting. Never here: prices (`settings.prices`), and a store on the path of a request.
"""

import logging
import time
from collections.abc import Sequence

from paceline.core.values.tokens import Tokens
from paceline.errors import LeadLost, StoreError
from paceline.gateway.request_log import CallRecord
from paceline.settings.prices import PriceList
from paceline.store import Cost, SpendRow, Store
from paceline.store.spend import SpendId

log = logging.getLogger("paceline.gateway")

DAY_SECONDS = 86400
KEPT_DAYS = 32
"""Days whose sums answer `spent_by`: a whole month and the day before it."""
MOST_MODELS = 1000
"""Models with rows of their own in one day. Clients choose the names, and the table must not grow with them."""
OTHER_MODEL = "other"
STORE_SECONDS = 5.0
"""Between two writes to the store: what a crash may lose, against a write that delays all requests."""
OUTAGE_SECONDS = 30.0
"""Between two attempts while the store does not answer. An attempt holds up all requests."""


DollarsByDay = dict[str, dict[str, float]]
"""Dollars by name and day, stored or not."""


def day_of(at: float) -> str:
    """Return the day (UTC) of a time, such as `2026-11-16`."""
    return time.strftime("%Y-%m-%d", time.gmtime(at))


class _Sum:
    """A row that grows."""

    __slots__ = (
        "billed",
        "cache_read",
        "cache_write",
        "estimated",
        "imputed",
        "input",
        "output",
        "requests",
        "unpriced",
    )

    def __init__(self) -> None:
        self.requests = self.input = self.output = self.cache_read = self.cache_write = 0
        self.unpriced = self.estimated = 0
        self.billed = self.imputed = 0.0

    def row(self, names: SpendId) -> SpendRow:
        day, key, account, model = names
        return SpendRow(
            day=day,
            key=key,
            account=account,
            model=model,
            requests=self.requests,
            tokens=Tokens(
                input=self.input, output=self.output, cache_read=self.cache_read, cache_write=self.cache_write
            ),
            billed=self.billed,
            imputed=self.imputed,
            unpriced=self.unpriced,
            estimated=self.estimated,
        )


class Spending:
    """The sums of one gateway. Without a store, they live as long as the process."""

    def __init__(self, prices: PriceList) -> None:
        self._prices = prices
        self._store: Store | None = None
        self._sums: dict[SpendId, _Sum] = {}
        """What is not stored yet."""
        self._by_key: DollarsByDay = {}
        self._by_account: DollarsByDay = {}
        self._today = _Sum()
        """All requests of the day."""
        self._day, self._day_ends = "", 0.0
        self._models: set[str] = set()
        self._store_at = 0.0

    # -- counting ----------------------------------------------------------------------------------

    def add(self, record: CallRecord, now: float, *, is_billed: bool) -> None:
        """Count a request that the provider has answered, and set the cost in its record."""
        if now >= self._day_ends or not self._day:
            self._begin_day(now)
        name = record.model or ""
        if name not in self._models:
            name = self._counted_model(name)
        names = self._day, record.key or "", record.account or "", name
        row = self._sums.get(names)
        if row is None:
            row = self._sums[names] = _Sum()
        dollars = None if record.tokens is None else self._prices.cost({record.model or "": record.tokens})
        for each in (row, self._today):
            each.requests += 1
            if record.tokens is not None:
                each.input += record.tokens.input
                each.output += record.tokens.output
                each.cache_read += record.tokens.cache_read
                each.cache_write += record.tokens.cache_write
            each.estimated += record.is_estimated
            if dollars is None:
                each.unpriced += 1
            elif is_billed:
                each.billed += dollars
            else:
                each.imputed += dollars
        if dollars is not None:
            record.cost = Cost(billed=dollars) if is_billed else Cost(imputed=dollars)
            self._count_dollars(names[1], names[2], names[0], dollars)

    def spent_by(self, key: str, since: str) -> float:
        """Return the dollars, billed and imputed, that the key has spent since that day. Not older than `KEPT_DAYS`."""
        return _since(self._by_key, key, since)

    def today(self, now: float) -> SpendRow:
        """Return the sum of this day (UTC)."""
        if now >= self._day_ends or not self._day:
            self._begin_day(now)
        return self._today.row((self._day, "", "", ""))

    def unsaved(self) -> list[SpendRow]:
        """Return what the store does not have yet."""
        return [each.row(names) for names, each in self._sums.items()]

    # -- the store ---------------------------------------------------------------------------------

    def use_store(self, store: Store, now: float) -> None:
        """Keep the sums in this store from now on, and begin with what it has: another engine may have led before."""
        rows: Sequence[SpendRow] = store.spend(since=day_of(now - KEPT_DAYS * DAY_SECONDS))
        self._store = store
        self._begin_day(now)
        self._by_key, self._by_account, self._today = {}, {}, _Sum()
        for row in (*rows, *self.unsaved()):
            self._count_dollars(row.key, row.account, row.day, row.dollars)
            if row.day == self._day:
                _add(self._today, row)

    def save_if_due(self, now: float) -> None:
        """Store the sums, if the last time is a while ago. `now` may be of any clock that is always the same."""
        if self._sums and now >= self._store_at:
            self._store_at = now + (STORE_SECONDS if self.save() else OUTAGE_SECONDS)

    def save(self) -> bool:
        """Store the sums. Return False, and keep them, if that is not possible now."""
        if self._store is None or not self._sums:
            return True
        try:
            self._store.add_spend(self.unsaved())
        except (StoreError, LeadLost) as error:
            log.warning("what calls cost is stored later: %s", error)
            return False
        self._sums = {}
        return True

    # -- details -----------------------------------------------------------------------------------

    def _begin_day(self, now: float) -> None:
        begun = now - now % DAY_SECONDS
        day = day_of(begun)
        self._day_ends = begun + DAY_SECONDS
        if day == self._day:
            return
        self._day, self._today, self._models = day, _Sum(), set()
        oldest = day_of(now - KEPT_DAYS * DAY_SECONDS)
        for dollars in (*self._by_key.values(), *self._by_account.values()):
            for old in [each for each in dollars if each < oldest]:
                del dollars[old]

    def _counted_model(self, name: str) -> str:
        """Return the name under which a model is counted."""
        if len(self._models) >= MOST_MODELS:
            return OTHER_MODEL
        self._models.add(name)
        return name

    def _count_dollars(self, key: str, account: str, day: str, dollars: float) -> None:
        for sums, name in ((self._by_key, key), (self._by_account, account)):
            by_day = sums.setdefault(name, {})
            by_day[day] = by_day.get(day, 0.0) + dollars


def _since(sums: DollarsByDay, name: str, since: str) -> float:
    return sum(dollars for day, dollars in sums.get(name, {}).items() if day >= since)


def _add(total: _Sum, row: SpendRow) -> None:
    total.requests += row.requests
    total.input += row.tokens.input
    total.output += row.tokens.output
    total.cache_read += row.tokens.cache_read
    total.cache_write += row.tokens.cache_write
    total.billed += row.billed
    total.imputed += row.imputed
    total.unpriced += row.unpriced
    total.estimated += row.estimated

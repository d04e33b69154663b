"""What requests cost: sums by day, key, account and model, kept in memory and stored every few seconds.

Here: counting. Never here: prices (`settings.prices`), and a store on the path of a request.
"""

import logging
import time
from collections.abc import Sequence
from functools import lru_cache

from paceline.core.values.scopes import canonical_model
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
    return _day_beginning(at // DAY_SECONDS * DAY_SECONDS)


@lru_cache(maxsize=64)
def _day_beginning(at: float) -> str:
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

    @property
    def tokens(self) -> Tokens:
        return Tokens(input=self.input, output=self.output, cache_read=self.cache_read, cache_write=self.cache_write)

    def add(self, row: SpendRow) -> None:
        self.requests += row.requests
        self.input += row.tokens.input
        self.output += row.tokens.output
        self.cache_read += row.tokens.cache_read
        self.cache_write += row.tokens.cache_write
        self.billed += row.billed
        self.imputed += row.imputed
        self.unpriced += row.unpriced
        self.estimated += row.estimated

    def add_sum(self, other: "_Sum") -> None:
        self.requests += other.requests
        self.input += other.input
        self.output += other.output
        self.cache_read += other.cache_read
        self.cache_write += other.cache_write
        self.billed += other.billed
        self.imputed += other.imputed
        self.unpriced += other.unpriced
        self.estimated += other.estimated

    def row(self, names: SpendId) -> SpendRow:
        day, key, account, model = names
        return SpendRow(
            day=day,
            key=key,
            account=account,
            model=model,
            requests=self.requests,
            tokens=self.tokens,
            billed=self.billed,
            imputed=self.imputed,
            unpriced=self.unpriced,
            estimated=self.estimated,
        )


class SpendTotals:
    """The sums of one gateway. Without a store, they live as long as the process."""

    def __init__(self, prices: PriceList) -> None:
        self._prices = prices
        self._store: Store | None = None
        self._unpriced: dict[tuple[str | None, str | None, str | None, bool], _Sum] = {}
        """What was counted since the last time that it was priced, all of one day."""
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

    def add(self, record: CallRecord, now: float) -> None:
        """Count a request that the provider has answered. What it costs is computed later, for many at once."""
        if now >= self._day_ends:
            self._begin_day(now)
        names = record.key, record.account, record.model, record.is_billed
        used = self._unpriced.get(names)
        if used is None:
            used = self._unpriced[names] = _Sum()
        used.requests += 1
        if record.is_estimated:
            used.estimated += 1
        if (tokens := record.tokens) is None:
            used.unpriced += 1
            return
        used.input += tokens.input
        used.output += tokens.output
        used.cache_read += tokens.cache_read
        used.cache_write += tokens.cache_write

    def cost_of(self, record: CallRecord) -> Cost:
        """Return what one request costs."""
        dollars = None if record.tokens is None else self._prices.cost({record.model or "": record.tokens})
        return Cost(billed=dollars) if record.is_billed else Cost(imputed=dollars)

    def is_priced(self, model: str) -> bool:
        """Return whether the cost of the model is known."""
        return canonical_model(model) in self._prices.prices

    def _settle(self) -> None:
        """Add what was counted since the last time, with its cost, to the sums of the day."""
        unpriced, self._unpriced = self._unpriced, {}
        for (key, account, model, is_billed), used in unpriced.items():
            dollars = self._prices.cost({model or "": used.tokens})
            if dollars is None:
                used.unpriced = used.requests
            elif is_billed:
                used.billed = dollars
            else:
                used.imputed = dollars
            names = self._day, key or "", account or "", self._counted_model(model or "")
            if (known := self._sums.get(names)) is None:
                self._sums[names] = used
            else:
                known.add_sum(used)
            self._today.add_sum(used)
            self._count_dollars(key or "", account or "", self._day, used.billed + used.imputed)

    def spent_by(self, key: str, since: str) -> float:
        """Return the dollars, billed and imputed, that the key has spent since that day. Not older than `KEPT_DAYS`."""
        if self._unpriced:
            self._settle()
        return sum([dollars for day, dollars in self._by_key.get(key, {}).items() if day >= since])

    def spent_on(self, account: str, day: str) -> float:
        """Return the dollars, billed and imputed, that calls on the account have cost on that day."""
        if self._unpriced:
            self._settle()
        return self._by_account.get(account, {}).get(day, 0.0)

    def today(self, now: float) -> SpendRow:
        """Return the sum of this day (UTC)."""
        if now >= self._day_ends:
            self._begin_day(now)
        self._settle()
        return self._today.row((self._day, "", "", ""))

    def unsaved(self) -> list[SpendRow]:
        """Return what the store does not have yet."""
        self._settle()
        return [each.row(names) for names, each in self._sums.items()]

    # -- the store ---------------------------------------------------------------------------------

    def use_store(self, store: Store, now: float) -> None:
        """Keep the sums in this store from now on, and begin with what it has: another engine may have led before."""
        rows: Sequence[SpendRow] = store.spend(since=day_of(now - KEPT_DAYS * DAY_SECONDS))
        self._store = store
        self._begin_day(now)
        unsaved = self.unsaved()
        self._by_key, self._by_account, self._today = {}, {}, _Sum()
        for row in (*rows, *unsaved):
            self._count_dollars(row.key, row.account, row.day, row.dollars)
            if row.day == self._day:
                self._today.add(row)

    def save_if_due(self, now: float) -> None:
        """Store the sums, if the last time is a while ago. `now` may be of any clock that is always the same."""
        if (self._sums or self._unpriced) and now >= self._store_at:
            self._store_at = now + (STORE_SECONDS if self.save() else OUTAGE_SECONDS)

    def save(self) -> bool:
        """Store the sums. Return False, and keep them, if that is not possible now."""
        rows = self.unsaved()
        if self._store is None or not rows:
            return True
        try:
            self._store.add_spend(rows)
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
        self._settle()
        self._day, self._today, self._models = day, _Sum(), set()
        oldest = day_of(now - KEPT_DAYS * DAY_SECONDS)
        for dollars in (*self._by_key.values(), *self._by_account.values()):
            for old in [each for each in dollars if each < oldest]:
                del dollars[old]

    def _counted_model(self, name: str) -> str:
        """Return the name under which a model is counted."""
        if name in self._models:
            return name
        if len(self._models) >= MOST_MODELS:
            return OTHER_MODEL
        self._models.add(name)
        return name

    def _count_dollars(self, key: str, account: str, day: str, dollars: float) -> None:
        for by_day in (self._by_key.setdefault(key, {}), self._by_account.setdefault(account, {})):
            by_day[day] = by_day.get(day, 0.0) + dollars

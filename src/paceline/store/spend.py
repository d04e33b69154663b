"""What keys of clients allow, never the keys themselves, and what calls of the gateway have used.

Calls are summed by day, key, account and model. Never here: prices, or who checks a key.
"""

import time
from calendar import timegm
from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple

import msgspec

from paceline.core.values.session_output import Tokens

_DAY_SECONDS: Final = 86400
BudgetPeriod = Literal["day", "month", "total"]
_PERIOD_LETTERS: Final[dict[BudgetPeriod, int]] = {"day": 10, "month": 7, "total": 0}
"""Letters of `2026-11-16` that name a period."""


def day_of(at: float) -> str:
    """Return the day (UTC) of a time, such as `2026-11-16`."""
    return time.strftime("%Y-%m-%d", time.gmtime(at))


WARNING_SHARE: Final = 0.8
"""The share of a budget at which it warns: early enough to raise it before anybody is stopped."""


class KeyBudget(msgspec.Struct, frozen=True):
    """What the calls of a key may cost: so many dollars in each day or month (UTC), or in all."""

    dollars: float
    period: BudgetPeriod

    @property
    def text(self) -> str:
        """The budget as a person writes it."""
        amount = f"${self.dollars:,.2f}".removesuffix(".00")
        return amount if self.period == "total" else f"{amount}/{self.period}"

    def days(self, now: float) -> str:
        """Return the beginning that all days of the present period have in common: `2026-11-16`, `2026-11` or ''."""
        return day_of(now)[: _PERIOD_LETTERS[self.period]]

    def begins_again_at(self, now: float) -> float | None:
        """Return when the next period begins (UTC); None if there is none."""
        at = time.gmtime(now)
        match self.period:
            case "day":
                return now - now % _DAY_SECONDS + _DAY_SECONDS
            case "month":
                year, month = (at.tm_year + 1, 1) if at.tm_mon == 12 else (at.tm_year, at.tm_mon + 1)
                return float(timegm((year, month, 1, 0, 0, 0, 0, 0, 0)))
            case "total":
                return None


class KeyRules(msgspec.Struct, frozen=True, kw_only=True):
    """What a key of a client allows. Its name is unique among the keys that are not revoked."""

    name: str
    pool: str | None = None
    """The one address of the gateway that it may use: a pool or an account. None: all of them."""
    models: tuple[str, ...] = ()
    """The models that it may call, by name or pattern (`core.values.scopes`). Empty: all of them."""
    rpm: int | None = None
    tpm: int | None = None
    parallel: int | None = None
    priority_max: int = 0
    weight: float = 1.0
    all_paths: bool = False
    """Whether it may also use files, batches and every other path of the upstream."""


class ClientKey(KeyRules, frozen=True, kw_only=True):
    """A key that a client of the gateway presents."""

    budget: KeyBudget | None = None
    created_at: float = 0.0
    revoked_at: float | None = None


class HashedKey(msgspec.Struct, frozen=True):
    """A key and the SHA-256 digest of its text."""

    key: ClientKey
    digest: str


SpendId = tuple[str, str, float, str, str]
"""The day, the key and when it was created, the account and the model of a sum."""

_KINDS: Final = ("input", "output", "cache_read", "cache_write")
_DUST: Final = 1e-9
"""Dollars that are nothing: what sums of floats leave over."""
SPEND_COLUMNS: Final = (
    *("day", "key", "key_created_at", "account", "model"),
    *("requests", *_KINDS),
    *("billed", "imputed", "unpriced", "estimated"),
)
"""The columns of a row in a database. The first five identify it; the others are sums."""

SUMS_BY_KEY: Final = ", ".join(
    [
        "day, key, key_created_at, account, ''",
        *(f"CAST(SUM({name}) AS BIGINT)" for name in SPEND_COLUMNS[5:10]),
        *(f"SUM({name})" for name in SPEND_COLUMNS[10:12]),
        *(f"CAST(SUM({name}) AS BIGINT)" for name in SPEND_COLUMNS[12:]),
    ]
)
"""The same of all models, for SQL that groups by day, key and account."""


class BatchId(NamedTuple):
    """One writing of sums. A store that has this number of the writer, or a higher one, does not add them again."""

    writer: str
    number: int


class SpendRow(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of one day (UTC, `2026-11-16`) by one key, on one account, to one model. Costs are in dollars.

    `key` is '' for calls with Paceline's own token, and `key_created_at` distinguishes keys of one name.
    `unpriced` counts the calls whose cost is not known, so that it is in neither sum.
    `estimated` counts those whose provider did not say all tokens.
    """

    day: str
    key: str
    account: str
    model: str
    key_created_at: float = 0.0
    requests: int = 0
    tokens: Tokens = Tokens()
    billed: float = 0.0
    imputed: float = 0.0
    unpriced: int = 0
    estimated: int = 0

    @property
    def id(self) -> SpendId:
        return self.day, self.key, self.key_created_at, self.account, self.model

    @property
    def dollars(self) -> float:
        return self.billed + self.imputed

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left of it: all of its calls were taken back.

        Each number counts by itself. The tokens of one call may take the place of as many of another kind.
        """
        counts = (self.requests, *(getattr(self.tokens, kind) for kind in _KINDS), self.unpriced, self.estimated)
        return not any(counts) and abs(self.billed) + abs(self.imputed) < _DUST

    def plus(self, other: "SpendRow", times: int = 1) -> "SpendRow":
        """Return the sum, under the names of this row. `times` -1 takes the other one back."""
        pairs = zip(spend_values(self), spend_values(other), strict=True)
        return spend_row((*self.id, *(mine + times * theirs for mine, theirs in list(pairs)[len(self.id) :])))


def summed(rows: Iterable[SpendRow]) -> list[SpendRow]:
    """Return one row for each day, key, account and model, in their order."""
    sums: dict[SpendId, SpendRow] = {}
    for row in rows:
        sums[row.id] = sums[row.id].plus(row) if row.id in sums else row
    return [sums[each] for each in sorted(sums)]


def spend_values(row: SpendRow) -> tuple[Any, ...]:
    """Return the values of `SPEND_COLUMNS`."""
    kinds = (getattr(row.tokens, kind) for kind in _KINDS)
    return (*row.id, row.requests, *kinds, row.billed, row.imputed, row.unpriced, row.estimated)


def spend_row(values: tuple[Any, ...]) -> SpendRow:
    """Return the row with these values of `SPEND_COLUMNS`."""
    columns = dict(zip(SPEND_COLUMNS, values, strict=True))
    tokens = Tokens(**{kind: columns.pop(kind) for kind in _KINDS})
    return SpendRow(tokens=tokens, **columns)


class Balances:
    """Dollars by day of each key and each account."""

    def __init__(self, rows: Iterable[SpendRow] = ()) -> None:
        self._of_key: dict[tuple[str, float], dict[str, float]] = {}
        self._of_account: dict[str, dict[str, float]] = {}
        for row in rows:
            self.add(row, row.dollars)

    def add(self, row: SpendRow, dollars: float) -> None:
        """Add dollars, which may be below 0, to the key, the account and the day of the row."""
        for days in (
            self._of_key.setdefault((row.key, row.key_created_at), {}),
            self._of_account.setdefault(row.account, {}),
        ):
            days[row.day] = days.get(row.day, 0.0) + dollars

    def of_key(self, key: ClientKey, budget: KeyBudget, now: float) -> float:
        """Return what the key, and no other key of its name, has spent in the period of its budget."""
        return _sum_of(self._of_key.get((key.name, key.created_at)), budget.days(now))

    def of_account(self, name: str, budget: KeyBudget, now: float) -> float:
        """Return what calls on the account have cost in the period of its budget."""
        return _sum_of(self._of_account.get(name), budget.days(now))


def _sum_of(by_day: dict[str, float] | None, period: str) -> float:
    if by_day is None:
        return 0.0
    return by_day[period] if period in by_day else sum(by_day[day] for day in by_day if day.startswith(period))

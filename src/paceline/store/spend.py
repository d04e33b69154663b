"""What calls of the gateway have used, summed by day, key, account and model.

Here: the row, and how two of them are added. Never here: prices.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from paceline.core.values.tokens import Tokens

SpendId = tuple[str, str, str, str]
"""The day, the key, the account and the model of a sum."""

SPEND_COLUMNS: Final = (
    *("day", "key", "account", "model"),
    *("requests", "input", "output", "cache_read", "cache_write"),
    *("billed", "imputed", "unpriced", "estimated"),
)
"""The columns of a row in a database. The first four identify it; the others are sums."""


class SpendRow(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of one day (UTC, `2026-11-16`) by one key, on one account, to one model. Costs are in dollars.

    `key` is '' for calls with Paceline's own token. `unpriced` counts the calls whose cost is not known, so
    that it is in neither sum. `estimated` counts those whose provider did not say all tokens.
    """

    day: str
    key: str
    account: str
    model: str
    requests: int = 0
    tokens: Tokens = Tokens()
    billed: float = 0.0
    imputed: float = 0.0
    unpriced: int = 0
    estimated: int = 0

    @property
    def id(self) -> SpendId:
        return self.day, self.key, self.account, self.model

    @property
    def dollars(self) -> float:
        return self.billed + self.imputed

    def plus(self, other: "SpendRow") -> "SpendRow":
        """Return the sum, under the names of this row."""
        return msgspec.structs.replace(
            self,
            requests=self.requests + other.requests,
            tokens=self.tokens.plus(other.tokens),
            billed=self.billed + other.billed,
            imputed=self.imputed + other.imputed,
            unpriced=self.unpriced + other.unpriced,
            estimated=self.estimated + other.estimated,
        )


def summed(rows: Iterable[SpendRow]) -> list[SpendRow]:
    """Return one row for each day, key, account and model, in their order."""
    sums: dict[SpendId, SpendRow] = {}
    for row in rows:
        sums[row.id] = sums[row.id].plus(row) if row.id in sums else row
    return [sums[each] for each in sorted(sums)]


def spend_values(row: SpendRow) -> tuple[Any, ...]:
    """Return the values of `SPEND_COLUMNS`."""
    used = row.tokens
    counts = (row.requests, used.input, used.output, used.cache_read, used.cache_write)
    return (*row.id, *counts, row.billed, row.imputed, row.unpriced, row.estimated)


def spend_row(values: tuple[Any, ...]) -> SpendRow:
    """Return the row with these values of `SPEND_COLUMNS`."""
    day, key, account, model, requests, input_tokens, output, cache_read, cache_write, *rest = values
    billed, imputed, unpriced, estimated = rest
    return SpendRow(
        day=day,
        key=key,
        account=account,
        model=model,
        requests=requests,
        tokens=Tokens(input=input_tokens, output=output, cache_read=cache_read, cache_write=cache_write),
        billed=billed,
        imputed=imputed,
        unpriced=unpriced,
        estimated=estimated,
    )

"""What tokens cost: the shipped price list, and the prices that the user sets.

Here: prices and the cost of tokens. Never here: who pays it.
"""

import tomllib
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources

import msgspec

from paceline.core.values.scopes import canonical_model
from paceline.core.values.tokens import Tokens

_MILLION = 1_000_000
_FILE = "prices.toml"


class Price(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dollars per million tokens. Without a price of its own, the cache costs what other input costs."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None

    def cost(self, tokens: Tokens) -> float:
        """Return the dollars that the tokens cost."""
        cache_read = self.input if self.cache_read is None else self.cache_read
        cache_write = self.input if self.cache_write is None else self.cache_write
        dollars = tokens.input * self.input + tokens.output * self.output
        return (dollars + tokens.cache_read * cache_read + tokens.cache_write * cache_write) / _MILLION


class PriceList(msgspec.Struct, frozen=True):
    """Prices by model, in the one spelling of its name."""

    prices: dict[str, Price]

    def cost(self, by_model: Mapping[str, Tokens]) -> float | None:
        """Return the dollars that the tokens cost, or None if one of the models has no price."""
        total = 0.0
        for model, tokens in by_model.items():
            if not tokens.total:
                continue
            price = self.prices.get(canonical_model(model))
            if price is None:
                return None
            total += price.cost(tokens)
        return total


class _PriceFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    as_of: str
    models: dict[str, Price]


def price_list(own: Mapping[str, Price] | None = None) -> PriceList:
    """Return the shipped prices with the user's own in place of those of the same model."""
    shipped = {canonical_model(name): price for name, price in shipped_prices().models.items()}
    return PriceList(shipped | {canonical_model(name): price for name, price in (own or {}).items()})


@lru_cache(maxsize=1)
def shipped_prices() -> _PriceFile:
    """Return the prices that this version of Paceline knows, and their date."""
    text = resources.files(__package__).joinpath(_FILE).read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), _PriceFile)

"""A client's key as a store keeps it: what it allows, never the key itself.

Here: the value, and the errors of its verbs. Never here: who checks a key (`paceline.gateway.client_keys`).
"""

import time
from calendar import timegm
from functools import lru_cache
from typing import Final, Literal

import msgspec

from paceline.errors import IllegalStep, UnknownName

_DAY_SECONDS: Final = 86400
BudgetPeriod = Literal["day", "month", "total"]
_PERIOD_LETTERS: Final[dict[BudgetPeriod, int]] = {"day": 10, "month": 7, "total": 0}
"""Letters of `2026-11-16` that name a period."""


def day_of(at: float) -> str:
    """Return the day (UTC) of a time, such as `2026-11-16`."""
    return _day_beginning(at // _DAY_SECONDS * _DAY_SECONDS)


@lru_cache(maxsize=1024)
def _day_beginning(at: float) -> str:
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
    """The models that it may call, by name or pattern (`core.values.model_patterns`). Empty: all of them."""
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


_KEYS: Final = msgspec.json.Decoder(ClientKey)


def encode_key(key: ClientKey) -> str:
    """Encode as JSON. When it was revoked is stored beside it."""
    return msgspec.json.encode(msgspec.structs.replace(key, revoked_at=None)).decode()


def decode_key(encoded: bytes | str, revoked_at: float | None) -> ClientKey | None:
    """Decode what `encode_key` returned; None if it is damaged."""
    try:
        return msgspec.structs.replace(_KEYS.decode(encoded), revoked_at=revoked_at)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def name_taken(name: str) -> IllegalStep:
    return IllegalStep(
        f"there is a key {name!r:.80} already; choose another name, or revoke it first: paceline keys revoke {name}"
    )


def unknown_key(name: str) -> UnknownName:
    return UnknownName(f"there is no key {name!r:.80}; `paceline keys list` lists them")

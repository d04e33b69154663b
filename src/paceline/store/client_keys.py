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

    def began_at(self, now: float) -> float:
        """Return when the present period began (UTC)."""
        at = time.gmtime(now)
        match self.period:
            case "day":
                return now - now % _DAY_SECONDS
            case "month":
                return float(timegm((at.tm_year, at.tm_mon, 1, 0, 0, 0, 0, 0, 0)))
            case "total":
                return 0.0

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


class ClientKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key that a client of the gateway presents. Its name is unique among the keys that are not revoked."""

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
    budget: KeyBudget | None = None
    all_paths: bool = False
    """Whether it may also use files, batches and every other path of the upstream."""
    created_at: float = 0.0
    spent_before: float = 0.0
    """Dollars that earlier keys of the name had spent on the day (UTC) on which this one was created."""
    revoked_at: float | None = None

    def counted_from(self, now: float) -> str:
        """Return the day (UTC) from which on its calls count towards its budget."""
        return _counted_from(self.budget, self.created_at, now // _DAY_SECONDS * _DAY_SECONDS)

    def spent(self, dollars: float, now: float) -> float:
        """Return what the key has spent, of the dollars that its name has cost since that day."""
        if self.spent_before and self.counted_from(now) == _day(self.created_at):
            dollars -= self.spent_before
        return max(0.0, dollars)


@lru_cache(maxsize=1024)
def _counted_from(budget: KeyBudget | None, created_at: float, today: float) -> str:
    """Return `ClientKey.counted_from` for the day that begins at `today`. It is asked several times in each call."""
    began_at = 0.0 if budget is None else budget.began_at(today)
    return _day(max(began_at, created_at))


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(at))


class HashedKey(msgspec.Struct, frozen=True):
    """A key and the SHA-256 digest of its text."""

    key: ClientKey
    digest: str


_KEYS: Final = msgspec.json.Decoder(ClientKey)


def encode_key(key: ClientKey) -> bytes:
    """Encode as JSON. When it was revoked is stored beside it."""
    return msgspec.json.encode(msgspec.structs.replace(key, revoked_at=None))


def decode_key(encoded: bytes, revoked_at: float | None) -> ClientKey | None:
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

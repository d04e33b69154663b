"""A client's key as a store keeps it: what it allows, never the key itself.

Here: the value, and the errors of its verbs. Never here: who checks a key (`paceline.gateway.client_keys`).
"""

from typing import Final, Literal

import msgspec

from paceline.errors import IllegalStep, UnknownName

BudgetPeriod = Literal["day", "month", "total"]


class KeyBudget(msgspec.Struct, frozen=True):
    """What the calls of a key may cost: so many dollars in each day or month (UTC), or in all."""

    dollars: float
    period: BudgetPeriod

    @property
    def text(self) -> str:
        """The budget as a person writes it."""
        amount = f"${self.dollars:,.2f}".removesuffix(".00")
        return amount if self.period == "total" else f"{amount}/{self.period}"


class ClientKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key that a client of the gateway presents. Its name is unique among the keys that are not revoked."""

    name: str
    pool: str | None = None
    """The one address of the gateway that it may use: a pool or an account. None: all of them."""
    models: tuple[str, ...] = ()
    """The models, by canonical name, that it may call. Empty: all of them."""
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

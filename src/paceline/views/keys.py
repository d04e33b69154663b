"""A client's key as people see it: what it allows, and never its text or its digest."""

from typing import Any

import msgspec

from paceline.store import ClientKey


class KeyView(msgspec.Struct, frozen=True, kw_only=True):
    """One key of a client."""

    name: str
    pool: str | None
    models: tuple[str, ...]
    rpm: int | None
    tpm: int | None
    parallel: int | None
    priority_max: int
    weight: float
    budget: str | None
    all_paths: bool
    created_at: float
    revoked_at: float | None = None


class KeyList(msgspec.Struct, frozen=True, kw_only=True):
    """The keys that are not revoked."""

    keys: list[KeyView]


class NewKeyView(KeyView, frozen=True, kw_only=True):
    """A key that was just created, with its text, which is shown once."""

    key: str


class RevokedKeyView(KeyView, frozen=True, kw_only=True):
    """A key that no gateway accepts any more."""

    ok: bool = True


def key_view(record: ClientKey) -> KeyView:
    return KeyView(**_fields(record))


def new_key_view(record: ClientKey, text: str) -> NewKeyView:
    return NewKeyView(**_fields(record), key=text)


def revoked_key_view(record: ClientKey) -> RevokedKeyView:
    return RevokedKeyView(**_fields(record))


def _fields(record: ClientKey) -> dict[str, Any]:
    fields = msgspec.structs.asdict(record)
    del fields["spent_before"]
    return fields | {"budget": None if record.budget is None else record.budget.text}

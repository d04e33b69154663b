"""A client's key as people see it: what it allows, and never its text or its digest."""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import msgspec

from paceline.engine.key_commands import present_keys
from paceline.store import ClientKey, HashedKey, SpendRow


class SpendRows(Protocol):
    """Where it is stored what calls have cost."""

    def __call__(self, *, since: str) -> Sequence[SpendRow]: ...


class KeyView(msgspec.Struct, frozen=True, kw_only=True):
    """One key of a client.

    `spent` is what it has cost in the period of its budget, null without a budget. When that is reached, `resumes_at`
    is when it continues, null if it does not.
    """

    name: str
    pool: str | None
    models: tuple[str, ...]
    rpm: int | None
    tpm: int | None
    parallel: int | None
    priority_max: int
    weight: float
    budget: str | None
    spent: float | None = None
    is_reached: bool = False
    resumes_at: float | None = None
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


def key_list(keys: Iterable[HashedKey], read_spend: SpendRows, unsaved: Sequence[SpendRow], now: float) -> KeyList:
    """Return the keys that are not revoked, with what each has spent of its budget."""
    present = [each.key for each in present_keys(keys)]
    days = [key.counted_from(now) for key in present if key.budget is not None]
    rows = [*read_spend(since=min(days)), *unsaved] if days else []
    return KeyList(keys=[key_view(key, rows, now) for key in present])


def key_view(record: ClientKey, rows: Iterable[SpendRow], now: float) -> KeyView:
    """Return the key, and what it has spent by these rows, which may be of all keys."""
    if record.budget is None:
        return KeyView(**_fields(record))
    first = record.counted_from(now)
    spent = record.spent(sum(row.dollars for row in rows if row.key == record.name and row.day >= first), now)
    is_reached = spent >= record.budget.dollars
    resumes_at = record.budget.begins_again_at(now) if is_reached else None
    return KeyView(**_fields(record), spent=round(spent, 6), is_reached=is_reached, resumes_at=resumes_at)


def new_key_view(record: ClientKey, text: str) -> NewKeyView:
    return NewKeyView(**_fields(record), spent=None if record.budget is None else 0.0, key=text)


def revoked_key_view(record: ClientKey) -> RevokedKeyView:
    return RevokedKeyView(**_fields(record))


def _fields(record: ClientKey) -> dict[str, Any]:
    fields = msgspec.structs.asdict(record)
    del fields["spent_before"]
    return fields | {"budget": None if record.budget is None else record.budget.text}

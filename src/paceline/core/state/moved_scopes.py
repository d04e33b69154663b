"""Scopes that are known by another name since: what was learnt under the old name is restored under the new one.

Here: a snapshot in, a snapshot out. Never here: which scopes have moved; the settings say so.
"""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from paceline.core.gates.rate_limit import RateLimit
from paceline.core.state.snapshot import ScopeRecord, Snapshot
from paceline.core.state.snapshot_v1 import ScopeFieldsV1
from paceline.core.values.scopes import is_provider_scope

Value = TypeVar("Value")
_OWN_V1 = "rate"
_LEARNT_V1 = tuple(name for name in ScopeFieldsV1.__struct_fields__ if name != _OWN_V1)
_LEARNT = ("adaptive", "platform", *_LEARNT_V1)
"""What a provider taught. A rate, the places and the meters belong to the scope itself."""


def with_moved_scopes(snapshot: Snapshot, moved: Mapping[str, str]) -> Snapshot:
    """Return the snapshot with everything learnt under its present name. What the present name knows itself wins.

    A scope of the provider moves whole, with its models and the limits that were set live. Of any other scope only
    what was learnt moves: its limit is the user's own.
    """
    if not moved:
        return snapshot
    records: dict[str, ScopeRecord] = {}
    for record in snapshot.scopes:
        for part in _parts(record, moved):
            known = records.get(part.name)
            is_moved = part.name != record.name
            records[part.name] = part if known is None else _merged(*((known, part) if is_moved else (part, known)))
    paths = {old: new for old, new in moved.items() if is_provider_scope(old)}
    return msgspec.structs.replace(
        snapshot,
        scopes=tuple(records.values()),
        limits=_renamed(snapshot.limits, paths),
        cooldowns=_renamed(snapshot.cooldowns, paths),
        headroom_modes=_renamed(snapshot.headroom_modes, paths),
        recent=tuple((at, tuple(_present_name(name, paths) for name in names)) for at, names in snapshot.recent),
    )


def _parts(record: ScopeRecord, moved: Mapping[str, str]) -> list[ScopeRecord]:
    """Return the record, renamed where its whole scope moved; else what stays, and what moves if anything does."""
    name = _present_name(record.name, moved)
    if name == record.name or is_provider_scope(record.name):
        return [msgspec.structs.replace(record, name=name)]
    own = {tag: gate for tag, gate in record.gates.items() if tag == RateLimit.TAG}
    learnt = {tag: gate for tag, gate in record.gates.items() if tag not in own}
    values = {field: getattr(record, field) for field in _LEARNT if getattr(record, field)}
    if not learnt and not values:
        return [record]
    defaults = {field: getattr(ScopeRecord(name=""), field) for field in _LEARNT}
    return [
        msgspec.structs.replace(record, gates=own, **defaults),
        ScopeRecord(name=name, gates=learnt, began_at=record.began_at, **values),
    ]


def _merged(known: ScopeRecord, other: ScopeRecord) -> ScopeRecord:
    """Return the record with what only the other one knows."""
    values = {field: getattr(other, field) for field in _LEARNT if not getattr(known, field)}
    return msgspec.structs.replace(known, gates={**other.gates, **known.gates}, **values)


def _present_name(name: str, moved: Mapping[str, str]) -> str:
    """Return the name of a scope now. Models move with their account."""
    for old, new in moved.items():
        if name == old or (is_provider_scope(old) and name.startswith(f"{old}/")):
            return new + name.removeprefix(old)
    return name


def _renamed(values: Mapping[str, Value], moved: Mapping[str, str]) -> dict[str, Value]:
    renamed = {_present_name(name, moved): value for name, value in values.items()}
    return {**renamed, **{name: value for name, value in values.items() if name in renamed}}

"""The keys of clients in memory."""

import functools

import msgspec

from paceline.store.client_keys import ClientKey, HashedKey, name_taken, unknown_key
from paceline.store.memory_undo import UndoLog


class MemoryClientKeys:
    """Keys that clients of the gateway present."""

    def __init__(self, undo: UndoLog) -> None:
        self._undo = undo
        self._keys: tuple[HashedKey, ...] = ()

    def create(self, key: ClientKey, digest: str) -> None:
        if any(each.key.name == key.name and each.key.revoked_at is None for each in self._keys):
            raise name_taken(key.name)
        self._replace((*self._keys, HashedKey(key, digest)))

    def revoke(self, name: str, *, now: float) -> ClientKey:
        for place, (key, digest) in enumerate((each.key, each.digest) for each in self._keys):
            if key.name == name and key.revoked_at is None:
                revoked = msgspec.structs.replace(key, revoked_at=now)
                self._replace((*self._keys[:place], HashedKey(revoked, digest), *self._keys[place + 1 :]))
                return revoked
        raise unknown_key(name)

    def all(self) -> list[HashedKey]:
        return list(self._keys)

    def _replace(self, keys: tuple[HashedKey, ...]) -> None:
        self._undo.note(functools.partial(setattr, self, "_keys", self._keys))
        self._keys = keys

"""What a leader keeps in the store beside the units: the Governor, and how far it has read the commands."""

import msgspec

from paceline.core import Governor, GovernorSettings, Snapshot
from paceline.engine import control
from paceline.store import Store, StoredEvent

GOVERNOR_STATE = "governor"
CONTROL_SEEN = "control_seen"


def load_governor(store: Store, settings: GovernorSettings, now: float) -> Governor:
    """Limits, pauses, windows and what was learnt; slots are found by looking who still runs."""
    stored = store.load_state(GOVERNOR_STATE)
    if stored is None:
        return Governor(settings, now=now)
    snapshot = msgspec.json.decode(stored, type=Snapshot)
    return Governor.restore(_without_slots(snapshot, now), now=now, settings=settings)


def _without_slots(snapshot: Snapshot, now: float) -> Snapshot:
    """Nobody holds a place, so no group has anything running, and a window whose canary is gone sends another."""
    for scope in snapshot.scopes:
        for window in scope.windows:
            if window.state == "probing":
                window.on_canary_lost(now)
    groups = tuple(msgspec.structs.replace(group, live=0) for group in snapshot.groups)
    return msgspec.structs.replace(snapshot, slots=(), waiters=(), claims=(), effects=(), groups=groups)


def save_governor(store: Store, governor: Governor) -> None:
    store.save_state(GOVERNOR_STATE, msgspec.json.encode(governor.snapshot()))


class CommandReader:
    """Reads commands once, in order, across restarts. What was read counts once `done` was called."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen = int(store.load_state(CONTROL_SEEN) or b"0")
        self._read = self._seen

    def read(self) -> list[StoredEvent]:
        events = self._store.events(after=self._seen)
        if events:
            self._read = events[-1].id
        return [event for event in events if event.event.name.startswith(control.PREFIX)]

    def done(self) -> None:
        """They were carried out, and what they changed is stored."""
        if self._read > self._seen:
            self._seen = self._read
            self._store.save_state(CONTROL_SEEN, str(self._seen).encode())

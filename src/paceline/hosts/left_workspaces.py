"""Workspaces on hosts that nobody needs any more: kept in the store until their host has removed them.

The commands that find them may run while no engine does, and while the host is away.
"""

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from paceline.store import Store
from paceline.workspaces import WorkspacePlace

LEFT_STATE: Final = "hosts_left_workspaces"
MOST_LEFT: Final = 10_000
"""How many are remembered, the latest ones. A host that never comes back must not let the list grow forever."""


class LeftWorkspace(msgspec.Struct, frozen=True, kw_only=True):
    """A workspace to remove, and the unit that it was made for. Without `force`, one with uncommitted work stays."""

    host: str
    unit: str
    place: WorkspacePlace
    force: bool = False


def leave_to_hosts(store: Store, workspaces: Iterable[LeftWorkspace]) -> None:
    """Let hosts remove the workspaces when they can."""
    with store.together():
        known = {(each.host, each.place.path): each for each in (*left_workspaces(store), *workspaces)}
        _save(store, list(known.values())[-MOST_LEFT:])


def left_workspaces(store: Store) -> list[LeftWorkspace]:
    """Return the workspaces that hosts are to remove."""
    stored = store.load_state(LEFT_STATE)
    return [] if stored is None else msgspec.json.decode(stored, type=list[LeftWorkspace])


def forget_left(store: Store, done: Collection[LeftWorkspace]) -> None:
    """Forget workspaces that were removed, or that stay because of what is in them."""
    with store.together():
        _save(store, [each for each in left_workspaces(store) if each not in done])


def _save(store: Store, workspaces: list[LeftWorkspace]) -> None:
    store.save_state(LEFT_STATE, msgspec.json.encode(workspaces))

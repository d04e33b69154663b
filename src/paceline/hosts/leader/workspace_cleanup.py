"""Workspaces on hosts that nobody needs any more: kept in the store until their host has removed them.

The commands that find them may run while no engine does, and while the host is away.
"""

import logging
from collections.abc import Collection, Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

import msgspec

from paceline.errors import HostLost, PacelineError
from paceline.hosts.jobs import remove_all
from paceline.store import Store
from paceline.workspaces import WorkspaceLocation

if TYPE_CHECKING:
    from paceline.hosts.leader.registry import HostRegistry

TOMBSTONES_STATE: Final = "hosts_left_workspaces"
MOST_TOMBSTONES: Final = 10_000
"""How many are remembered, the latest ones. A host that never comes back must not let the list grow forever."""


class WorkspaceTombstone(msgspec.Struct, frozen=True, kw_only=True):
    """A workspace to remove, and the unit that it was made for. Without `force`, one with uncommitted work stays."""

    host: str
    unit: str
    place: WorkspaceLocation
    force: bool = False


def leave_tombstones(store: Store, workspaces: Iterable[WorkspaceTombstone]) -> None:
    """Let hosts remove the workspaces when they can."""
    with store.together():
        known = {(each.host, each.place.path): each for each in (*workspace_tombstones(store), *workspaces)}
        _save(store, list(known.values())[-MOST_TOMBSTONES:])


def workspace_tombstones(store: Store) -> list[WorkspaceTombstone]:
    """Return the workspaces that hosts are to remove."""
    stored = store.load_state(TOMBSTONES_STATE)
    return [] if stored is None else msgspec.json.decode(stored, type=list[WorkspaceTombstone])


def drop_tombstones(store: Store, done: Collection[WorkspaceTombstone]) -> None:
    """Forget workspaces that were removed, or that stay because of what is in them."""
    with store.together():
        _save(store, [each for each in workspace_tombstones(store) if each not in done])


def _save(store: Store, workspaces: list[WorkspaceTombstone]) -> None:
    store.save_state(TOMBSTONES_STATE, msgspec.json.encode(workspaces))


log = logging.getLogger("paceline.engine")

LOOK_SECONDS: Final = 30.0
"""How often the store is asked. Nobody waits for a removal."""
MOST_AT_ONCE: Final = 100
"""Workspaces in one call. Large ones take seconds each, and other work of the host has its turn in between."""


class WorkspaceCleanup:
    """Gives each host that is there its next workspaces to remove."""

    def __init__(self, store: Store, hosts: "HostRegistry") -> None:
        self._store = store
        self._hosts = hosts
        self._running: dict[str, tuple[list[WorkspaceTombstone], Future[dict[str, str]]]] = {}
        self._next_at = float("-inf")

    def step(self, now: float) -> None:
        """Take in what hosts have removed, and order more now and then."""
        for host, (workspaces, job) in list(self._running.items()):
            if job.done():
                del self._running[host]
                self._finish(host, workspaces, job)
        if self._next_at - LOOK_SECONDS <= now < self._next_at:
            return
        self._next_at = now + LOOK_SECONDS
        present = {state.name for state in self._hosts.remote_states() if state.presence == "joined"}
        left = workspace_tombstones(self._store) if present else []
        for host in present - self._running.keys():
            mine = [each for each in left if each.host == host and not self._is_in_use(each)]
            # Those without force first, and never mixed: one call has one way.
            chosen = [each for each in mine if each.force == mine[0].force][:MOST_AT_ONCE]
            if chosen:
                places = tuple(each.place for each in chosen)
                job = self._hosts.named(host).jobs.start(remove_all, places, chosen[0].force)
                self._running[host] = chosen, job

    def _is_in_use(self, left: WorkspaceTombstone) -> bool:
        """Return whether a unit has the workspace: it was retried, or another one has got its name and its folder."""
        unit = self._store.unit(left.unit)
        if unit is None or unit.state in ("done", "cancelled"):
            return False
        return (unit.result.host, unit.result.workspace) == (left.host, left.place.path)

    def _finish(self, host: str, workspaces: list[WorkspaceTombstone], job: Future[dict[str, str]]) -> None:
        try:
            kept = job.result()
        except HostLost:
            return  # it is asked again when it is back
        except PacelineError as error:
            log.warning("workspaces on %s were not removed: %s", host, error)
            return
        for path, reason in kept.items():
            log.warning("on %s the workspace %s stays: %s", host, path, reason)
        drop_tombstones(self._store, workspaces)

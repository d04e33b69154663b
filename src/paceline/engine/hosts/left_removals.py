"""The removal of workspaces on hosts that nobody needs any more, whenever their host is there."""

import logging
import math
from typing import Final

from paceline.engine.background_jobs import Job
from paceline.engine.hosts.registry import HostRegistry
from paceline.engine.output_retention import FINISHED
from paceline.errors import HostLost, PacelineError
from paceline.hosts.host_jobs import KeptFolder, remove_all
from paceline.hosts.left_workspaces import LeftWorkspace, forget_left, left_workspaces
from paceline.store import Store

log = logging.getLogger("paceline.engine")

LOOK_SECONDS: Final = 30.0
"""How often the store is asked. Nobody waits for a removal."""
MOST_AT_ONCE: Final = 100
"""Workspaces in one call. Large ones take seconds each, and other work of the host has its turn in between."""


class LeftRemovals:
    """Gives each host that is there its next workspaces to remove."""

    def __init__(self, store: Store, hosts: HostRegistry) -> None:
        self._store = store
        self._hosts = hosts
        self._running: dict[str, tuple[list[LeftWorkspace], Job[tuple[KeptFolder, ...]]]] = {}
        self._next_at = -math.inf

    def step(self, now: float) -> None:
        """Take in what hosts have removed, and order more now and then."""
        for host, (workspaces, job) in list(self._running.items()):
            if job.is_over:
                del self._running[host]
                self._finish(host, workspaces, job)
        if self._next_at - LOOK_SECONDS <= now < self._next_at:
            return
        self._next_at = now + LOOK_SECONDS
        present = {state.name for state in self._hosts.remote_states() if state.presence == "joined"}
        left = left_workspaces(self._store) if present else []
        for host in present - self._running.keys():
            mine = [each for each in left if each.host == host and not self._is_in_use(each)]
            # Those without force first, and never mixed: one call has one way.
            chosen = [each for each in mine if each.force == mine[0].force][:MOST_AT_ONCE]
            if chosen:
                places = tuple(each.place for each in chosen)
                job = self._hosts.named(host).jobs.start(remove_all, places, chosen[0].force)
                self._running[host] = chosen, job

    def _is_in_use(self, left: LeftWorkspace) -> bool:
        """Return whether a unit has the workspace: it was retried, or another one has got its name and its folder."""
        unit = self._store.unit(left.unit)
        if unit is None or unit.state in FINISHED:
            return False
        return (unit.result.host, unit.result.workspace) == (left.host, left.place.path)

    def _finish(self, host: str, workspaces: list[LeftWorkspace], job: Job[tuple[KeptFolder, ...]]) -> None:
        try:
            kept = job.result()
        except HostLost:
            return  # it is asked again when it is back
        except PacelineError as error:
            log.warning("workspaces on %s were not removed: %s", host, error)
            return
        for folder in kept:
            log.warning("on %s the workspace %s stays: %s", host, folder.path, folder.reason)
        forget_left(self._store, workspaces)

"""The removal of workspaces that the plan does not keep. Their branches stay, and so does work that is in no branch."""

import logging
from collections.abc import Mapping

from paceline.engine.background_jobs import Job
from paceline.engine.hosts.registry import HostRegistry
from paceline.errors import HostLost, PacelineError
from paceline.hosts.left_workspaces import LeftWorkspace, leave_to_hosts
from paceline.store import Campaign, OutcomeRecord, Store, Unit
from paceline.store.interface import Keep
from paceline.store.rules import split_unit_id
from paceline.workspaces import WorkspacePlace, commit_and_remove, stored_place

log = logging.getLogger("paceline.engine")

REMOVED_AFTER: Mapping[Keep, tuple[str, ...]] = {
    "all": (),
    "failed": ("succeed",),
    "none": ("succeed", "quarantine", "fail_check"),
}
"""The steps after which a workspace is removed. A unit that is held continues in its own."""


class WorkspaceRemovals:
    """Removes folders in the background. One that cannot be removed is logged, and `paceline gc` tries again."""

    def __init__(self, store: Store, hosts: HostRegistry) -> None:
        self._store = store
        self._hosts = hosts
        self._running: list[tuple[Unit, WorkspacePlace, Job[None]]] = []

    @property
    def is_busy(self) -> bool:
        return bool(self._running)

    def begin(self, record: OutcomeRecord, campaign: Campaign) -> None:
        """Remove the workspace of a unit whose outcome is stored, if the plan does not keep it.

        What a failed unit left is committed first, so that its branch keeps it.
        """
        settings, step = campaign.workspace, record.transition.step
        if settings is None or settings.kind != "worktree" or step not in REMOVED_AFTER[settings.keep]:
            return
        unit = self._store.unit(record.unit_id)
        place = None if unit is None else stored_place(unit.result)
        if unit is not None and place is not None:
            message = commit_message(record.unit_id) if campaign.commit and step != "succeed" else None
            host = self._hosts.named(unit.result.host) if unit.result.is_remote else self._hosts.local
            job = host.jobs.start(commit_and_remove, place, message)
            self._running.append((unit, place, job))

    def report(self) -> None:
        """Log what could not be removed. A host that is away removes it later."""
        over = [each for each in self._running if each[2].is_over]
        self._running = [each for each in self._running if not each[2].is_over]
        for unit, place, job in over:
            try:
                job.result()
            except HostLost:
                leave_to_hosts(self._store, [LeftWorkspace(host=unit.result.host or "", unit=unit.id, place=place)])
            except (PacelineError, OSError) as error:
                log.warning("the workspace of %s stays: %s", unit.id, error)


def commit_message(unit_id: str) -> str:
    """Return the message of the commit of a unit's work."""
    return "{}: {}".format(*split_unit_id(unit_id))

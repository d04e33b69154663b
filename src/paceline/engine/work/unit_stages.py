"""The stages of running units besides their sessions: workspaces before, checks and delivery after."""

from collections.abc import Mapping

from paceline.core import Governor
from paceline.engine.capacity.breaker import CampaignBreaker
from paceline.engine.journal import EngineJournal
from paceline.engine.session.launcher import Launcher
from paceline.engine.work.stage_commands import StageCommands
from paceline.engine.work.work_verifier import WorkVerifier, is_active
from paceline.engine.work.workspace_preparation import WorkspacePreparations
from paceline.hosts.jobs import Job
from paceline.store import Campaign, Store, Unit


class UnitStages:
    """All units that run without a session of their agent."""

    def __init__(
        self, store: Store, governor: Governor, launcher: Launcher, journal: EngineJournal, breaker: CampaignBreaker
    ) -> None:
        commands, hosts = StageCommands(launcher.settings), launcher.hosts
        self.preparations = WorkspacePreparations(store, governor, journal, hosts, commands)
        self.verifier = WorkVerifier(store, governor, hosts, journal=journal, commands=commands, breaker=breaker)
        self._dropped: dict[str, Job[object]] = {}
        """What still runs in the workspaces of cancelled units, and cannot be ended."""

    def units(self) -> list[Unit]:
        """Return the units that are in a stage."""
        before = [work.unit for work in self.preparations.pending.values()]
        return before + [work.unit for work in self.verifier.staged.values()]

    def attempt_ids(self) -> list[str]:
        """Return the ids of the commands that run, or may still run after a restart. They begin with an attempt's."""
        self._dropped = {name: job for name, job in self._dropped.items() if not job.is_over}
        return [*self.preparations.attempt_ids(), *self.verifier.attempt_ids(), *self._dropped]

    def is_busy(self, campaigns: Mapping[str, Campaign]) -> bool:
        """Return whether something runs, or could run without a person."""
        works = self.verifier.staged.values()
        is_at_work = any(work.is_at_work or is_active(campaigns.get(work.campaign.name)) for work in works)
        return is_at_work or bool(self.preparations.pending)

    def drop(self, unit_id: str, now: float) -> None:
        """End what runs for a unit that was cancelled."""
        work = self.verifier.staged.get(unit_id) or self.preparations.pending[unit_id]
        if work.job is not None:
            self._dropped[f"{work.unit.attempt_id}-job"] = work.job
        if unit_id in self.verifier.staged:
            self.verifier.drop(unit_id, now)
        else:
            self.preparations.drop(unit_id, now)

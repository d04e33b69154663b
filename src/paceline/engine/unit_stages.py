"""The stages of running units besides their sessions: workspaces before, checks and delivery after."""

from collections.abc import Mapping

from paceline.core import Governor
from paceline.engine.breaker import CampaignBreaker
from paceline.engine.hosts.left_removals import LeftRemovals
from paceline.engine.journal import EngineJournal
from paceline.engine.launcher import Launcher
from paceline.engine.stage_commands import StageCommands
from paceline.engine.work_verifier import WorkVerifier, is_active
from paceline.engine.workspace_preparation import WorkspacePreparations
from paceline.engine.workspace_removal import WorkspaceRemovals
from paceline.store import Campaign, OutcomeRecord, Store, Unit
from paceline.store.rules import split_unit_id


class UnitStages:
    """All units that run without a session of their agent."""

    def __init__(
        self, store: Store, governor: Governor, launcher: Launcher, journal: EngineJournal, breaker: CampaignBreaker
    ) -> None:
        commands, hosts = StageCommands(launcher.settings), launcher.hosts
        self.preparations = WorkspacePreparations(store, governor, journal, hosts, commands)
        self.verifier = WorkVerifier(store, governor, hosts, journal=journal, commands=commands, breaker=breaker)
        self._removals = WorkspaceRemovals(store, hosts)
        self._left_removals = LeftRemovals(store, hosts)

    def units(self) -> list[Unit]:
        """Return the units that are in a stage."""
        before = [work.unit for work in self.preparations.pending.values()]
        return before + [work.unit for work in self.verifier.staged.values()]

    def attempt_ids(self) -> list[str]:
        """Return the ids of the commands that run, or may still run after a restart."""
        return self.preparations.attempt_ids() + self.verifier.attempt_ids()

    def is_busy(self, campaigns: Mapping[str, Campaign]) -> bool:
        """Return whether something runs, or could run without a person."""
        works = self.verifier.staged.values()
        is_at_work = any(work.is_at_work or is_active(campaigns.get(work.campaign.name)) for work in works)
        return is_at_work or bool(self.preparations.pending) or self._removals.is_busy

    def drop(self, unit_id: str, now: float) -> None:
        """End what runs for a unit that was cancelled."""
        if unit_id in self.verifier.staged:
            self.verifier.drop(unit_id, now)
        else:
            self.preparations.drop(unit_id, now)

    def on_stored(self, records: list[OutcomeRecord], campaigns: Mapping[str, Campaign], now: float) -> None:
        """Remove the workspaces that plans do not keep, and report earlier removals."""
        self._removals.report()
        self._left_removals.step(now)
        for record in records:
            campaign = campaigns.get(split_unit_id(record.unit_id)[0])
            if campaign is not None:
                self._removals.begin(record, campaign)

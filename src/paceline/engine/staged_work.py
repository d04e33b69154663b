"""The work of a unit between the end of its session and its outcome, and what may go wrong with its stages."""

import logging
from typing import Literal

import msgspec

from paceline.agents.account import split_login
from paceline.core import Governor, Ticket
from paceline.core.unit_lifecycle import AttemptOutcome
from paceline.core.values.scopes import CHECKS
from paceline.engine.background_jobs import Job
from paceline.engine.breaker import MOST_FAULTS_OF_UNIT, CampaignBreaker
from paceline.engine.journal import EngineJournal
from paceline.engine.placement import host_scope
from paceline.engine.stage_commands import CHECK_TICKETS, CommandEnd
from paceline.engine.unit_events import pause_event
from paceline.engine.workspace_preparation import RETRY_SECONDS
from paceline.errors import HostLost, LinkDown, NoRoomForSession, NotJoined, PacelineError, WorkspaceError
from paceline.executors import Handle
from paceline.limiter.governor_driver import SEPARATOR
from paceline.store import Campaign, Store, Unit

log = logging.getLogger("paceline.engine")

MOST_LOSSES = 3
"""Times in a row that a command may be ended from outside and just run again: more are no accident."""


class StagedWork(msgspec.Struct, kw_only=True):
    """The work of a unit whose session ended well. `handle` or `job` is what runs for its present stage."""

    unit: Unit
    campaign: Campaign
    stage: Literal["check", "commit", "deliver"]
    handle: Handle | None = None
    job: Job[object] | None = None
    losses: int = 0
    faults: int = 0
    retry_at: float = 0.0

    @property
    def ticket(self) -> Ticket:
        name, priority = self.campaign.name, self.campaign.priority
        ticket_id = f"{CHECK_TICKETS}{SEPARATOR}{self.unit.attempt_id}"
        # On another host it takes a place of that host: the CPUs of this machine do not matter there.
        _, host = split_login(self.unit.account or "")
        return Ticket(ticket_id, (host_scope(host) if host else CHECKS,), group=name, priority=priority, leased=False)

    @property
    def command_id(self) -> str:
        """The attempt id of its next check or delivery. Every run of a command has its own."""
        result = self.unit.result
        number = len(result.checks) if self.stage == "check" else result.deliveries
        return f"{self.unit.attempt_id}-{self.stage}{number + 1}"

    @property
    def is_at_work(self) -> bool:
        return self.handle is not None or self.job is not None


class StageFaults:
    """Decides what follows when a check, a commit or a delivery could not do its work."""

    def __init__(self, store: Store, governor: Governor, journal: EngineJournal, breaker: CampaignBreaker) -> None:
        self._store = store
        self._governor = governor
        self._journal = journal
        self._breaker = breaker

    def after_error(self, work: StagedWork, error: PacelineError, now: float) -> AttemptOutcome | None:
        """Return the outcome if only a person can help. Else the stage is tried again."""
        work.job = None
        self._governor.abandon(work.ticket.id, now=now)
        if isinstance(error, HostLost):
            return AttemptOutcome(ending="lost", reason=str(error))
        if isinstance(error, WorkspaceError) and not error.is_campaigns:
            return AttemptOutcome(ending="barred", reason=str(error))
        if isinstance(error, NoRoomForSession | LinkDown | NotJoined):
            work.retry_at = now + RETRY_SECONDS  # a full disk or a cut link is nobody's fault
            return None
        return self._note(work, f"the {work.stage} failed: {error}", now)

    def after_command(self, work: StagedWork, end: CommandEnd, reason: str, now: float) -> AttemptOutcome | None:
        """Run a command again at once that was ended from outside, such as by a restart of the machine."""
        work.losses = work.losses + 1 if end.was_lost else 0
        return None if 0 < work.losses < MOST_LOSSES else self._note(work, reason, now)

    def clear(self, work: StagedWork) -> None:
        """Start a new count: a command of the campaign has done its work."""
        work.faults = work.losses = 0
        self._breaker.clear_faults(work.campaign.name)

    def _note(self, work: StagedWork, reason: str, now: float) -> AttemptOutcome | None:
        """Try the stage again later. The breaker pauses a campaign in which this happens again.

        A unit that meets this alone, while others of its campaign pass, is held.
        """
        work.retry_at = now + RETRY_SECONDS
        with self._journal.together():
            paused = self._breaker.after_fault(work.campaign.name, reason)
            for campaign in paused:
                self._store.set_campaign(campaign)
                self._journal.append(pause_event(campaign, now))
        work.faults = 0 if paused else work.faults + 1
        is_alone = work.faults >= MOST_FAULTS_OF_UNIT
        follows = "its campaign is paused" if paused else "it is held" if is_alone else "it is tried again"
        log.warning("%s: %s; %s", work.unit.id, reason, follows)
        return AttemptOutcome(ending="barred", reason=reason) if is_alone else None

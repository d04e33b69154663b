"""The stages of a unit around its session: a workspace before it; check, commit and delivery after it; removal.

Its workspace and its phase are stored before each stage. git runs in threads and commands under supervisors, so the
pass never waits for them: they outlive a crash of the engine, have a time limit, and leave no process behind. Here: the
order of the stages and what their ends mean.

Before the session: a setup may take minutes, so it does not hold the slots of a session: it takes a place in the local
scope `checks`, and its unit then waits for a session as any other. Units that find no place there keep their slots
meanwhile, so that no more of them are prepared than there are slots and places. Where there are other hosts, a setup
keeps its slots: the next slot might be on another host, where everything would begin again.

After the session: its slots are given up, and a check takes a place in `checks`. A check or delivery that cannot do its
work at all says nothing about the unit.
"""

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from paceline.agents import Task, load_agent
from paceline.agents.account import Account, split_login
from paceline.core import Granted, Ticket
from paceline.core.unit_lifecycle import AttemptOutcome, Policy, transition_after
from paceline.core.values.fields import fields_of
from paceline.core.values.scopes import CHECKS
from paceline.engine.capacity.breaker import MOST_FAULTS_OF_UNIT, CampaignBreaker
from paceline.engine.dispatch.placement import host_scope
from paceline.engine.journal import EngineParts
from paceline.engine.session.live_session import STOPPED_EARLY, LiveSession, outcome_of_request
from paceline.engine.settings import this_host
from paceline.errors import (
    HostLost,
    InvalidInput,
    LinkDown,
    NoRoomForSession,
    NotJoined,
    PacelineError,
    StoreError,
    UnfitHost,
    WorkspaceError,
    WorkspaceLost,
)
from paceline.events import Event
from paceline.executors.interface import Handle, printed_tail
from paceline.hosts.jobs import Job
from paceline.hosts.leader.workspace_cleanup import WorkspaceTombstone, leave_tombstones
from paceline.hosts.messages import SessionOrder
from paceline.limiter.governor_driver import SEPARATOR
from paceline.settings.plan_file import environment_rules
from paceline.store import CheckRound
from paceline.store.interface import Campaign, Keep, OutcomeRecord, Phase, Unit
from paceline.store.rules import split_unit_id
from paceline.store.unit_result import SessionEnd, SessionFacts, UnitResult
from paceline.workspaces import (
    Change,
    Prepared,
    WorkspaceLocation,
    commit_all,
    commit_and_remove,
    finish_setup,
    location_of,
    mapped_path,
    patch_file,
    prepare,
    stored_location,
    unused_location,
    write_patch,
)

log = logging.getLogger("paceline.engine")

RETRY_SECONDS = 30.0
"""How long a campaign whose setup, check or delivery cannot do its work waits before it is tried again."""
SETUP_SECONDS = 1800.0
"""How long a setup may take: installing the dependencies of a large repository takes minutes."""
DELIVERY_SECONDS = 600.0
"""How long a delivery may take: it pushes a branch and calls a web service."""
CHECK_TICKETS = "check"
"""The namespace of the tickets of checks and setups."""
CANNOT_RUN = (126, 127)
"""Exit codes of a shell for a command that cannot be run or was not found."""
TOO_LONG = 124
"""The exit code of a command that reached its time limit, as timeout(1) reports it: its own may even be 0."""
MOST_LOSSES = 3
"""Times in a row that a command may be ended from outside and just run again: more are no accident."""
FIRST_PORT = 20_000
PORTS_EACH = 10
"""Ports of one workspace: a server, its database and a few more. All lie below those that systems give to clients."""
MOST_PORT_RANGES = 1_200
LOST_NOTE = (
    "Your working folder was lost and has been made again from its branch. Changes that were not committed are gone."
)
DEFAULT_CHECK_PROMPT = "The check failed:\n{output}\nFix it."
REMOVED_AFTER: Mapping[Keep, tuple[str, ...]] = {
    "all": (),
    "failed": ("succeed",),
    "none": ("succeed", "quarantine", "fail_check"),
}
"""The steps after which a workspace is removed. A unit that is held continues in its own."""
PHASES: Mapping[str, Phase] = {"check": "checking", "commit": "delivering", "deliver": "delivering"}


class CommandEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended. `reason` says why, if its exit code does not.

    `could_not_start`: the plan names a command that cannot be run here. `was_lost`: it was ended from outside, for
    example by a restart of the machine. Neither says anything about the work. A command that took too long does.
    """

    exit_code: int | None
    seconds: float
    tail: str
    reason: str | None = None
    could_not_start: bool = False
    was_lost: bool = False
    has_begun: bool = True
    """False for a command that was lost before anybody saw it run, such as one that its host never got."""

    @property
    def has_passed(self) -> bool:
        return self.reason is None and self.exit_code == 0

    @property
    def has_judged(self) -> bool:
        """Whether the command did its work, so that its end says something about the unit."""
        return not (self.could_not_start or self.was_lost)

    @property
    def last_line(self) -> str:
        """The last line of its output: programs name the cause of an error there."""
        return self.tail.rpartition("\n")[2].strip() or "no output"

    @property
    def round(self) -> CheckRound:
        return CheckRound(exit_code=self.exit_code, seconds=self.seconds, tail=self.tail, reason=self.reason)


class StagedWork(msgspec.Struct, kw_only=True):
    """A unit in a stage. `handle` or `job` is what runs for it."""

    unit: Unit
    campaign: Campaign
    stage: Literal["find", "make", "setup", "finish", "check", "commit", "deliver"]
    handle: Handle | None = None
    job: Job[object] | None = None
    losses: int = 0
    faults: int = 0
    retry_at: float = 0.0

    @property
    def command_ticket(self) -> Ticket:
        """The ticket of its setup or check."""
        name, priority = self.campaign.name, self.campaign.priority
        suffix = "-setup" if isinstance(self, Preparation) else ""
        ticket_id = f"{CHECK_TICKETS}{SEPARATOR}{self.unit.attempt_id}{suffix}"
        # On another host it takes a place of that host: the CPUs of this machine do not matter there.
        _, host = split_login(self.unit.account or "")
        return Ticket(ticket_id, (host_scope(host) if host else CHECKS,), group=name, priority=priority, leased=False)

    @property
    def command_id(self) -> str:
        """The attempt id of its next command. Every run of a check or a delivery has its own."""
        if self.stage == "setup":
            return f"{self.unit.attempt_id}-setup"
        result = self.unit.result
        number = len(result.checks) + result.unbegun_checks if self.stage == "check" else result.deliveries
        return f"{self.unit.attempt_id}-{self.stage}{number + 1}"

    @property
    def limit_seconds(self) -> float:
        return {"setup": SETUP_SECONDS, "check": self.campaign.check_timeout}.get(self.stage, DELIVERY_SECONDS)

    @property
    def is_at_work(self) -> bool:
        return self.handle is not None or self.job is not None


class Preparation(StagedWork, kw_only=True):
    """A claimed unit whose workspace is being made. At the stage `setup` without a handle it waits for a place."""

    account: Account | None
    ticket: Ticket
    """That of its session."""
    folder: WorkspaceLocation
    was_lost: bool = False
    keeps_slots: bool = False
    """Whether the session begins as soon as the setup is over."""
    has_place: bool = False
    """Whether its setup needs no place of its own: it has the session's place on another host."""
    outcome: AttemptOutcome | None = None
    """Why it failed."""


class UnitStages:
    """All units that run without a session of their agent."""

    def __init__(self, parts: EngineParts, breaker: CampaignBreaker) -> None:
        self._store, self._governor, self._hosts = parts.store, parts.driver.governor, parts.hosts
        self._journal, self._breaker = parts.journal, breaker
        self._key_variables = parts.settings.key_variables
        self.preparing: dict[str, Preparation] = {}
        self.staged: dict[str, StagedWork] = {}
        """The work of units whose sessions ended well."""
        self.ended: list[Handle] = []
        """Commands whose ends are stored, or that were stopped. Their output is put away once they are over."""
        self.removals: list[tuple[Unit, WorkspaceLocation, Job[None]]] = []
        """The workspaces that are being removed."""
        self._delivered_events: dict[str, Event] = {}
        self._dropped: dict[str, Job[object]] = {}
        """What still runs in the workspaces of cancelled units, and cannot be ended."""
        self._ports: dict[str, int | None] = {}
        """The ports of units that were set up and wait for a session: their setup may have used them."""

    def units(self) -> list[Unit]:
        """Return the units that are in a stage."""
        return [work.unit for work in (*self.preparing.values(), *self.staged.values())]

    def attempt_ids(self) -> list[str]:
        """Return the ids of the commands that run, or may still run after a restart. They begin with an attempt's."""
        self._dropped = {name: job for name, job in self._dropped.items() if not job.is_over}
        works = self.staged.values()
        deliveries = [msgspec.structs.replace(work, stage="deliver").command_id for work in works]
        setups = [work.handle.attempt_id for work in self.preparing.values() if work.handle is not None]
        ended = [handle.attempt_id for handle in self.ended]
        return [*setups, *(work.command_id for work in works), *deliveries, *ended, *self._dropped]

    def is_busy(self, campaigns: Mapping[str, Campaign]) -> bool:
        """Return whether something runs, or could run without a person."""
        works = self.staged.values()
        is_at_work = any(work.is_at_work or is_active(campaigns.get(work.campaign.name)) for work in works)
        return is_at_work or bool(self.preparing or self.removals)

    def drop(self, unit_id: str, now: float) -> None:
        """Forget a unit that was cancelled: end what runs for it, and give up its slots. Its workspace stays."""
        work = self.staged.pop(unit_id, None) or self.preparing.pop(unit_id)
        if work.job is not None:
            self._dropped[f"{work.unit.attempt_id}-job"] = work.job
        if work.handle is not None:
            self._hosts.holder_of(work.handle).stop(work.handle)
            self.ended.append(work.handle)
        if isinstance(work, Preparation):
            self._governor.abandon(work.ticket.id, now=now)
        self._governor.abandon(work.command_ticket.id, now=now)

    def clean_up(self) -> None:
        """Put away the output of ended commands. What cannot be put away now is tried again at later passes.

        Log the workspaces that could not be removed: `paceline gc` tries again. A host that is away removes its later.
        """
        over = [each for each in self.removals if each[2].is_over]
        self.removals = [each for each in self.removals if not each[2].is_over]
        for unit, place, job in over:
            try:
                job.result()
            except HostLost:
                tombstone = WorkspaceTombstone(host=unit.result.host or "", unit=unit.id, place=place)
                leave_tombstones(self._store, [tombstone])
            except (PacelineError, OSError) as error:
                log.warning("the workspace of %s stays: %s", unit.id, error)
        waiting, self.ended = self.ended, []
        for handle in waiting:
            with contextlib.suppress(PacelineError, OSError):
                if handle.state().is_over:
                    self._hosts.holder_of(handle).archive(handle)
                    continue
            self.ended.append(handle)

    # -- before the session --------------------------------------------------------------------

    def prepare(
        self, unit: Unit, campaign: Campaign, account: Account | None, ticket: Ticket, used_ports: Iterable[int | None]
    ) -> None:
        """Begin the workspace of a claimed unit. Raises `WorkspaceError` if it cannot have one."""
        host = self._hosts.of_unit(unit)
        unit = self._moved_to(unit, host.name)
        planned = campaign
        if host.name and campaign.workspace is not None:  # the folder that the plan names may not exist there
            workspace = msgspec.structs.replace(campaign.workspace, root=None)
            planned = msgspec.structs.replace(campaign, workspace=workspace)
        folder = workspace_place(unit, planned, host.home)
        port_base = unit.result.port_base if unit.result.workspace else None
        self._ports.pop(unit.id, None)
        self._ports = {name: port for name, port in self._ports.items() if self._is_waiting(name)}
        used = {*used_ports, *self._ports.values()}
        if port_base is None or port_base in used:
            port_base = free_port(used)
        work = Preparation(
            unit=with_result(unit, port_base=port_base),
            campaign=campaign,
            account=account,
            ticket=ticket,
            folder=folder,
            stage="find",
            keeps_slots=bool(self._hosts.remote_states()),
            has_place=bool(host.name),
        )
        if unit.result.workspace is None:
            work.job = host.jobs.start(unused_location, folder)
        else:
            self._make(work)
        self.preparing[unit.id] = work

    def _moved_to(self, unit: Unit, host: str) -> Unit:
        """Return the unit for a host. A workspace on another one is left there, and its work starts over.

        Its checks still count: work that never passes must not move from host to host forever.
        """
        result = unit.result
        before = self._hosts.machine_of(result)
        place = stored_location(result)
        if place is not None and before != host:
            if before:
                leave_tombstones(self._store, [WorkspaceTombstone(host=before, unit=unit.id, place=place)])
            result = msgspec.structs.replace(result.without_work(), checks=result.checks)
        result = msgspec.structs.replace(result, host=host or this_host(), is_remote=bool(host))
        return msgspec.structs.replace(unit, result=result)

    def _is_waiting(self, unit_id: str) -> bool:
        unit = self._store.unit(unit_id)
        return unit is not None and unit.state == "todo"

    def collect(self, campaigns: Mapping[str, Campaign], now: float) -> Iterator[Preparation]:
        """Move every preparation on. Yields and forgets those that are over: ready, or with an outcome.

        An error of one keeps to it; one of the store ends the pass.
        """
        for unit_id, work in list(self.preparing.items()):
            wait = reason_to_wait(work, campaigns)
            try:
                is_over = self._continue_preparation(work, wait, now)
            except StoreError:
                self.drop(unit_id, now)  # the recovery of the next pass gives the unit back
                raise
            except PacelineError as error:
                is_over, work.outcome = True, outcome_of_error(error, now)
            except Exception as error:
                log.exception("the workspace of %s could not be made; the others continue", unit_id)
                reason = f"its workspace could not be made ({type(error).__name__}: {error})"
                is_over, work.outcome = True, AttemptOutcome(ending="lost", reason=reason)
            if is_over:
                del self.preparing[unit_id]
                if work.outcome is None or work.outcome.ending == "yielded":
                    work.outcome = wait or work.outcome
                work.unit = placed(work.unit, work.campaign, self._hosts.of_unit(work.unit).home)
                yield work

    def is_claimed(self, work: Preparation, now: float) -> bool:
        """Return whether the unit was not cancelled. Its session may begin then."""
        work.unit = with_result(work.unit, is_preparing=False)
        try:
            return self._store.save_progress(work.unit.id, work.unit.fence, phase=None, result=work.unit.result)
        except StoreError:
            self._governor.abandon(work.ticket.id, now=now)  # nobody else knows of its slot by now
            raise

    def _continue_preparation(self, work: Preparation, wait: AttemptOutcome | None, now: float) -> bool:
        """Start the next step if the present one is over. Returns whether none is left.

        With a reason to `wait` no setup is started.
        """
        if work.handle is not None:
            return self._read_setup(work, now)
        if work.stage == "setup":
            return self._begin_setup(work, wait, now)
        if work.job is None or not work.job.is_over:
            return False
        result, work.job = work.job.result(), None
        match work.stage:
            case "find":
                assert isinstance(result, WorkspaceLocation)
                work.folder = result
                self._make(work)
            case "make":
                assert isinstance(result, Prepared)
                work.was_lost = result.was_lost
                work.unit = with_result(work.unit, uncommitted=result.uncommitted)
                if result.created or result.was_lost:
                    name = "workspace.lost" if result.was_lost else "workspace.created"
                    fields: dict[str, object] = {"path": work.folder.path, "branch": work.folder.branch}
                    self._journal.append(Event(name, now, None, work.unit.id, fields))
                if not result.needs_setup:
                    return True
                work.stage = "setup"
                return self._begin_setup(work, wait, now)
            case _:
                if not work.keeps_slots:  # it waits for a session, with its ports and what its agent must know
                    work.unit = with_note(work.unit, LOST_NOTE) if work.was_lost else work.unit
                    self._ports[work.unit.id] = work.unit.result.port_base
                    work.outcome = AttemptOutcome(ending="yielded", reason="its workspace is set up")
                return True
        return False

    def _make(self, work: Preparation) -> None:
        """Store where the workspace lies, then make it."""
        folder = work.folder
        where = fields_of(UnitResult, folder) | {"workspace": folder.path}
        work.unit = with_result(work.unit, is_preparing=True, **where)
        self._store.save_progress(work.unit.id, work.unit.fence, phase=None, result=work.unit.result)
        assert work.campaign.workspace is not None
        work.stage = "make"
        work.job = self._hosts.of_unit(work.unit).jobs.start(prepare, folder, work.campaign.workspace)

    def _begin_setup(self, work: Preparation, wait: AttemptOutcome | None, now: float) -> bool:
        """Start the setup once there is a place for it, and mostly give up the session's slots.

        Returns whether it must wait. A place may become free at any later pass.
        """
        assert work.campaign.workspace is not None
        if wait is not None:
            self._governor.abandon(work.command_ticket.id, now=now)
            return True
        if not work.has_place and not isinstance(self._governor.request(work.command_ticket, now=now), Granted):
            return False
        try:
            work.handle = self._hosts.of_unit(work.unit).start(self._order(work, work.campaign.workspace.setup))
        except BaseException:
            self._governor.abandon(work.command_ticket.id, now=now)
            raise
        if not work.keeps_slots:
            self._governor.abandon(work.ticket.id, now=now)
        return False

    def _read_setup(self, work: Preparation, now: float) -> bool:
        assert work.handle is not None
        end = read_end(work.handle, now, limit_seconds=work.limit_seconds)
        if end is None:
            return False
        self.ended.append(work.handle)
        work.handle = None
        if not work.has_place:
            self._governor.release(work.command_ticket.id, now=now)
        if end.was_lost:
            work.outcome = AttemptOutcome(ending="lost", reason="its setup was ended from outside")
            return True
        if not end.has_passed:
            why = end.reason or f"exit code {end.exit_code}"
            failed = UnfitHost if work.has_place else WorkspaceError
            raise failed(f"the setup failed ({why}): {end.last_line}")
        work.stage = "finish"
        work.job = self._hosts.of_unit(work.unit).jobs.start(finish_setup, work.folder)
        return False

    # -- after the session ---------------------------------------------------------------------

    def take_over(self, session: LiveSession, record: OutcomeRecord) -> None:
        """Store that the session's work is at its first stage. Nothing is taken over of a unit that was cancelled."""
        end = SessionEnd(**fields_of(SessionFacts, record), exit_code=record.transition.exit_code)
        unit, campaign = session.unit, session.campaign
        if record.result is not None:
            unit = msgspec.structs.replace(unit, result=record.result)
        unit = with_result(unit, session_end=end, feedback=None, deliveries=0, unbegun_checks=0)
        work = StagedWork(unit=unit, campaign=campaign, stage="check" if campaign.check else "commit")
        with self._journal.together():
            is_current = self._save(work)
            if is_current:
                self._journal.emit("unit.worked", unit=unit.id, exit_code=end.exit_code)
        if is_current:
            self.staged[unit.id] = work

    def resume(self, unit: Unit, campaign: Campaign, now: float) -> None:
        """Continue the stages of a unit after a restart. A command that still runs, or has ended since, is adopted."""
        stage: Literal["check", "commit"] = "check" if unit.phase == "checking" and campaign.check else "commit"
        host = self._hosts.of_unit(unit)
        work = StagedWork(unit=placed(unit, campaign, host.home), campaign=campaign, stage=stage)
        if stage == "check":
            work.handle = host.adopt(self._order(work, campaign.check))
            if work.handle is not None:
                self._governor.adopt(work.command_ticket, now=now)
        self.staged[unit.id] = work

    def step(self, campaigns: Mapping[str, Campaign], now: float) -> Iterator[OutcomeRecord]:
        """Move everything on. Yields what is over, without storing it: transition, result and all.

        An error of one unit keeps to it; one of the store ends the pass.
        """
        for work in list(self.staged.values()):
            campaign = campaigns.get(work.campaign.name)
            if campaign is not None:
                work.campaign = campaign
            try:
                outcome = self._move_on(work, is_active(campaign), now)
            except StoreError:  # what is stored is the truth, and the recovery of the next pass continues from there
                del self.staged[work.unit.id]
                self._governor.abandon(work.command_ticket.id, now=now)
                raise
            except PacelineError as error:
                outcome = self._after_error(work, error, now)
            except Exception as error:
                log.exception("the %s of %s failed; the others continue", work.stage, work.unit.id)
                outcome = self._after_error(work, WorkspaceError(f"{type(error).__name__}: {error}"), now)
            if outcome is not None:
                del self.staged[work.unit.id]
                yield self._record(work, outcome, now)

    def take_delivered(self) -> dict[str, Event]:
        """Return the events of the deliveries that `step` has yielded. They are stored with the outcomes."""
        events, self._delivered_events = self._delivered_events, {}
        return events

    def _move_on(self, work: StagedWork, is_active: bool, now: float) -> AttemptOutcome | None:
        """Read what has ended, and begin what follows."""
        outcome = self._read(work, now) if work.is_at_work else None
        if outcome is not None or work.is_at_work or work.unit.id not in self.staged:
            return outcome
        if not is_active and not (work.stage != "check" and work.campaign.workspace is None):
            self._governor.abandon(work.command_ticket.id, now=now)
        elif not 0 < work.retry_at - now <= RETRY_SECONDS:
            return self._begin(work, now)
        return None

    def _read(self, work: StagedWork, now: float) -> AttemptOutcome | None:
        if work.job is not None:
            return self._read_job(work, now) if work.job.is_over else None
        assert work.handle is not None
        end = read_end(work.handle, now, limit_seconds=work.limit_seconds)
        return None if end is None else self._after_command(work, end, now)

    def _begin(self, work: StagedWork, now: float) -> AttemptOutcome | None:
        match work.stage:
            case "check" if not work.campaign.check:
                work.stage = "commit"  # the check was taken from the campaign since
                return self._begin(work, now)
            case "check":
                if work.unit.result.feedback is not None:
                    # It failed, and an engine ended before that was stored.
                    return self._after_failure(work)
                if isinstance(self._governor.request(work.command_ticket, now=now), Granted):
                    self._start(work, work.campaign.check)
            case "commit":
                if not _commits(work.campaign):
                    work.stage = "deliver"
                    return self._begin(work, now)
                self._start_commit(work)
            case "deliver" if isinstance(work.campaign.deliver, tuple):
                self._start(work, work.campaign.deliver)
            case "deliver" if work.campaign.deliver == "patch":
                host = self._hosts.of_unit(work.unit)
                place = workspace_place(work.unit, work.campaign, host.home)
                work.job = host.jobs.start(write_patch, place, _patch_of(work, self._hosts.local.home))
            case "deliver":
                return self._delivered(work, now, to=None)
        return None

    def _start(self, work: StagedWork, command: tuple[str, ...]) -> None:
        work.handle = self._hosts.of_unit(work.unit).begin(self._order(work, command))

    def _order(self, work: StagedWork, command: tuple[str, ...]) -> SessionOrder:
        return command_order(
            work.command_id,
            command,
            work.unit,
            work.campaign,
            cwd=work.folder.cwd if isinstance(work, Preparation) else work.unit.spec.cwd,
            timeout=work.limit_seconds,
            key_variables=self._key_variables,
        )

    def _start_commit(self, work: StagedWork) -> None:
        host = self._hosts.of_unit(work.unit)
        place = workspace_place(work.unit, work.campaign, host.home)
        work.job = host.jobs.start(commit_all, place, commit_message(work.unit.id))

    # -- ends ----------------------------------------------------------------------------------

    def _after_command(self, work: StagedWork, end: CommandEnd, now: float) -> AttemptOutcome | None:
        assert work.handle is not None
        handle, work.handle = work.handle, None
        after = self._after_check if work.stage == "check" else self._after_delivery
        outcome = after(work, end, now)
        self.ended.append(handle)
        self._governor.release(work.command_ticket.id, now=now)
        return outcome

    def _after_check(self, work: StagedWork, end: CommandEnd, now: float) -> AttemptOutcome | None:
        """Store the round, and the next prompt if it failed, before anything follows from it."""
        result = work.unit.result
        if end.has_begun:
            work.unit = with_result(work.unit, checks=(*result.checks, end.round))
        else:
            work.unit = with_result(work.unit, unbegun_checks=result.unbegun_checks + 1)
        if end.has_passed:
            work.stage = "commit"
        elif end.has_judged:
            prompt = (work.campaign.check_prompt or DEFAULT_CHECK_PROMPT).replace("{output}", end.round.output)
            work.unit = with_result(work.unit, feedback=prompt)
        with self._journal.together():
            if end.has_begun:
                fields: dict[str, object] = {"round": len(work.unit.result.checks), "exit_code": end.exit_code}
                fields |= {"seconds": end.seconds, "reason": end.reason}
                self._journal.append(Event("unit.checked", now, None, work.unit.id, fields))
            is_current = self._save(work)
        if not is_current:
            self.drop(work.unit.id, now)  # it was cancelled
            return None
        if not end.has_judged:
            return self._after_fault(work, end, f"the check cannot do its work: {end.reason}", now)
        self._clear_faults(work)
        return None if end.has_passed else self._after_failure(work)

    def _after_delivery(self, work: StagedWork, end: CommandEnd, now: float) -> AttemptOutcome | None:
        if end.has_passed:
            self._clear_faults(work)
            return self._delivered(work, now, to=None)
        work.unit = with_result(work.unit, deliveries=work.unit.result.deliveries + 1)
        if not self._save(work):
            self.drop(work.unit.id, now)
            return None
        why = end.reason or f"exit code {end.exit_code}"
        return self._after_fault(work, end, f"the delivery failed ({why}): {end.last_line}", now)

    def _read_job(self, work: StagedWork, now: float) -> AttemptOutcome | None:
        assert work.job is not None
        job, work.job = work.job, None
        result = job.result()
        if isinstance(result, Change):
            work.unit = with_result(
                work.unit,
                commit=result.commit,
                files_changed=result.files_changed,
                lines_added=result.lines_added,
                lines_removed=result.lines_removed,
            )
            if work.stage == "check":
                return _verdict(work)  # stored together with its commit
            work.stage = "deliver"
            if not self._save(work):
                self.drop(work.unit.id, now)
            return None
        return self._delivered(work, now, to=str(_patch_of(work, self._hosts.local.home)))

    def _delivered(self, work: StagedWork, now: float, *, to: str | None) -> AttemptOutcome:
        if work.campaign.workspace is not None:
            result = work.unit.result
            fields: dict[str, object] = {"branch": result.branch, "commit": result.commit, "patch": to}
            self._delivered_events[work.unit.id] = Event("unit.delivered", now, None, work.unit.id, fields)
        return AttemptOutcome(ending="succeeded", reason="done")

    def _after_failure(self, work: StagedWork) -> AttemptOutcome | None:
        """Return what follows from a failed check. Work without a round left is committed first, for `accept`."""
        outcome = _verdict(work)
        if outcome.ending != "unverified" or not _commits(work.campaign):
            return outcome
        self._start_commit(work)
        return None

    # -- a check, a commit or a delivery that could not do its work --------------------------------

    def _after_error(self, work: StagedWork, error: PacelineError, now: float) -> AttemptOutcome | None:
        """Return the outcome if only a person can help. Else the stage is tried again."""
        work.job = None
        self._governor.abandon(work.command_ticket.id, now=now)
        if isinstance(error, HostLost):
            return AttemptOutcome(ending="lost", reason=str(error))
        if isinstance(error, WorkspaceError) and not error.is_campaigns:
            return AttemptOutcome(ending="barred", reason=str(error))
        if isinstance(error, NoRoomForSession | LinkDown | NotJoined):
            work.retry_at = now + RETRY_SECONDS  # a full disk or a cut link is nobody's fault
            return None
        return self._try_later(work, f"the {work.stage} failed: {error}", now)

    def _after_fault(self, work: StagedWork, end: CommandEnd, reason: str, now: float) -> AttemptOutcome | None:
        """Run a command again at once that was ended from outside, such as by a restart of the machine.

        Hold a unit whose check cannot start. Its campaign pauses if a second unit, or the only one left, has that.
        """
        if end.could_not_start and work.stage == "check":
            paused = self._breaker.after_unchecked(work.campaign.name, work.unit.id, reason)
            with self._journal.together():
                self._journal.pause(paused, now)
            log.warning("%s: %s; it is held%s", work.unit.id, reason, ", and its campaign is paused" if paused else "")
            return AttemptOutcome(ending="barred", reason=reason)
        work.losses = work.losses + 1 if end.was_lost else 0
        return None if 0 < work.losses < MOST_LOSSES else self._try_later(work, reason, now)

    def _try_later(self, work: StagedWork, reason: str, now: float) -> AttemptOutcome | None:
        """Try the stage again later. The breaker pauses a campaign in which this happens again.

        A unit that meets this alone, while others of its campaign pass, is held.
        """
        work.retry_at = now + RETRY_SECONDS
        paused = self._breaker.after_fault(work.campaign.name, reason)
        with self._journal.together():
            self._journal.pause(paused, now)
        work.faults = 0 if paused else work.faults + 1
        is_alone = work.faults >= MOST_FAULTS_OF_UNIT
        follows = "its campaign is paused" if paused else "it is held" if is_alone else "it is tried again"
        log.warning("%s: %s; %s", work.unit.id, reason, follows)
        return AttemptOutcome(ending="barred", reason=reason) if is_alone else None

    def _clear_faults(self, work: StagedWork) -> None:
        """Start a new count: a command of the campaign has done its work."""
        work.faults = work.losses = 0
        self._breaker.clear_faults(work.campaign.name)
        self._breaker.clear_unchecked(work.campaign.name)

    # -- what is stored ------------------------------------------------------------------------

    def _save(self, work: StagedWork) -> bool:
        unit = work.unit
        return self._store.save_progress(unit.id, unit.fence, phase=PHASES[work.stage], result=unit.result)

    def _record(self, work: StagedWork, outcome: AttemptOutcome, now: float) -> OutcomeRecord:
        end = work.unit.result.session_end or SessionEnd()
        result: UnitResult = msgspec.structs.replace(
            work.unit.result, session_end=None, port_base=None, deliveries=0, unbegun_checks=0
        )
        outcome = msgspec.structs.replace(outcome, exit_code=end.exit_code)
        return OutcomeRecord(
            unit_id=work.unit.id,
            fence=work.unit.fence,
            transition=transition_after(work.unit.counters, outcome, Policy(), now),
            result=result,
            **fields_of(SessionFacts, end),
        )

    # -- after the outcome ---------------------------------------------------------------------

    def remove_workspace(self, record: OutcomeRecord, campaign: Campaign) -> None:
        """Remove the workspace of a unit whose outcome is stored, in the background, if the plan does not keep it.

        What a failed unit left is committed first, so that its branch keeps it.
        """
        settings, step = campaign.workspace, record.transition.step
        if settings is None or settings.kind != "worktree" or step not in REMOVED_AFTER[settings.keep]:
            return
        unit = self._store.unit(record.unit_id)
        place = None if unit is None else stored_location(unit.result)
        if unit is not None and place is not None:
            message = commit_message(record.unit_id) if campaign.commit and step != "succeed" else None
            job = self._hosts.named(unit.result.host).jobs.start(commit_and_remove, place, message)
            self.removals.append((unit, place, job))


def _commits(campaign: Campaign) -> bool:
    return campaign.workspace is not None and campaign.commit


def is_active(campaign: Campaign | None) -> bool:
    return campaign is not None and campaign.state == "active"


def _patch_of(work: StagedWork, home: Path) -> Path:
    """Return the file in the leader's home that the change is delivered to."""
    return patch_file(home, work.campaign.name, work.unit.spec.id)


def _verdict(work: StagedWork) -> AttemptOutcome:
    """Return what follows from the last check, which failed: another round, if one is left."""
    checks = work.unit.result.checks
    last = checks[-1]
    failed = sum(1 for each in checks if each.exit_code and each.exit_code not in CANNOT_RUN)
    if failed <= work.campaign.check_rounds:
        return AttemptOutcome(ending="check_failed", reason=f"the check failed with exit code {last.exit_code}")
    times = "once" if failed == 1 else f"{failed} times, the last"
    last_line = last.output.rpartition("\n")[2].strip() or "no output"
    reason = f"the check failed {times} with exit code {last.exit_code}: {last_line}"
    return AttemptOutcome(ending="unverified", reason=reason)


def commit_message(unit_id: str) -> str:
    """Return the message of the commit of a unit's work."""
    return "{}: {}".format(*split_unit_id(unit_id))


def reason_to_wait(work: Preparation, campaigns: Mapping[str, Campaign]) -> AttemptOutcome | None:
    """Return the outcome of an attempt whose session must not begin: by request, or because its campaign is paused."""
    request = work.unit.result.end_request_of(work.unit.attempt_id)
    if request is not None:
        return outcome_of_request(request)
    campaign = campaigns.get(work.campaign.name)
    if campaign is None or campaign.state != "active":
        return AttemptOutcome(ending="yielded", reason="its campaign was paused before its session began")
    return None


def workspace_place(unit: Unit, campaign: Campaign, home: Path) -> WorkspaceLocation:
    """Return where the workspace of the unit lies. Its campaign must have workspaces."""
    assert campaign.workspace is not None
    return location_of(campaign.workspace, campaign.name, unit.spec.id, unit.spec.cwd, home, unit.result)


def placed(unit: Unit, campaign: Campaign, home: Path) -> Unit:
    """Return the unit with its folder and its output in its workspace, if it has one."""
    if campaign.workspace is None or unit.result.workspace is None:
        return unit
    place = workspace_place(unit, campaign, home)
    output = None if unit.spec.output is None else mapped_path(place, unit.spec.output)
    return msgspec.structs.replace(unit, spec=msgspec.structs.replace(unit.spec, cwd=place.cwd, output=output))


def with_note(unit: Unit, note: str) -> Unit:
    """Return the unit with a note for its agent before the next prompt."""
    feedback = "\n".join(part for part in (note, unit.result.feedback) if part)
    return msgspec.structs.replace(unit, result=msgspec.structs.replace(unit.result, feedback=feedback))


def with_result(unit: Unit, **fields: object) -> Unit:
    """Return the unit with some fields of its result changed."""
    result: UnitResult = msgspec.structs.replace(unit.result, **fields)
    return msgspec.structs.replace(unit, result=result)


def free_port(used: set[int | None]) -> int | None:
    """Return the first port of a range that no live workspace uses; None if there are more than could have one."""
    ranges = (FIRST_PORT + number * PORTS_EACH for number in range(MOST_PORT_RANGES))
    return next((port for port in ranges if port not in used), None)


def outcome_of_error(error: PacelineError, now: float) -> AttemptOutcome:
    """Return the outcome of an attempt whose workspace could not be made or used."""
    match error:
        case HostLost():
            return AttemptOutcome(ending="lost", reason=str(error))
        case UnfitHost():
            return AttemptOutcome(ending="not_started", reason=str(error))
        case NoRoomForSession() | LinkDown() | NotJoined():
            return AttemptOutcome(ending="unreachable", reason=str(error), resume_at=now + RETRY_SECONDS)
        case WorkspaceLost():
            return AttemptOutcome(ending="barred", reason=f"workspace lost: {error}")
        case WorkspaceError(is_campaigns=False) | InvalidInput():
            return AttemptOutcome(ending="barred", reason=str(error))
    return AttemptOutcome(ending="campaign_fault", reason=str(error), resume_at=now + RETRY_SECONDS)


# -- commands: setup, check and delivery, as sessions of a host -----------------------------------------


def command_order(
    attempt_id: str,
    command: tuple[str, ...],
    unit: Unit,
    campaign: Campaign,
    *,
    cwd: str,
    timeout: float,
    key_variables: frozenset[str],
) -> SessionOrder:
    """Return the command for a unit as a session. It has no account, and so no key and no login variables."""
    result = unit.result
    places = {"branch": result.branch, "base": result.base, "commit": result.commit, "workspace": result.workspace}
    for name, value in places.items():
        command = tuple(part.replace(f"{{{name}}}", value or "") for part in command)
    task = Task(
        unit_id=unit.id,
        attempt_id=attempt_id,
        prompt="",
        cwd=cwd,
        model=campaign.model,
        command=command,
        env=campaign.env | port_variable(unit),
    )
    rules = environment_rules(campaign, key_variables)
    return SessionOrder(profile=load_agent("command"), task=task, rules=rules, timeout=timeout, is_command=True)


def port_variable(unit: Unit) -> dict[str, str]:
    """Return the variable with the first of the ports that only this workspace uses."""
    return {} if unit.result.port_base is None else {"PACELINE_PORT_BASE": str(unit.result.port_base)}


def read_end(handle: Handle, now: float, *, limit_seconds: float) -> CommandEnd | None:
    """Return how the command ended, or None while it runs. The limit is the one that it was started with."""
    state = handle.state()
    if not state.is_over:
        return None
    seconds = max(0.0, (state.ended_at or now) - (state.started_at or now))
    was_lost = state.phase == "lost" or state.cause in ("stopped", "terminated") or state.message == STOPPED_EARLY
    end = CommandEnd(exit_code=state.shell_code, seconds=round(seconds, 3), tail=printed_tail(handle))
    if was_lost:
        has_begun = state.started_at is not None
        return msgspec.structs.replace(
            end, exit_code=None, reason="it was ended from outside", was_lost=True, has_begun=has_begun
        )
    if state.cause == "timed_out":
        return msgspec.structs.replace(
            end, exit_code=TOO_LONG, reason=f"it did not end within {_duration(limit_seconds)}"
        )
    problem = None
    if state.phase == "not_started":
        problem = f"it could not be started: {state.message or 'no reason'}"
    elif state.shell_code in CANNOT_RUN:
        problem = f"it could not be run (exit code {state.shell_code})"
    return end if problem is None else msgspec.structs.replace(end, reason=problem, could_not_start=True)


def _duration(seconds: float) -> str:
    return f"{seconds:g} s" if seconds < 60 or seconds % 60 else f"{seconds / 60:g} min"

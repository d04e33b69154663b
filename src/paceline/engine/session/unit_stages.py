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

import logging
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec

from paceline import errors, workspaces
from paceline.agents import Task, load_agent
from paceline.core import Granted
from paceline.core.unit_lifecycle import AttemptOutcome, Policy, transition_after
from paceline.core.values.fields import fields_of
from paceline.engine.capacity.breaker import MOST_FAULTS_OF_UNIT, CampaignBreaker
from paceline.engine.journal import EngineParts
from paceline.engine.session.live_session import STOPPED_EARLY, Attempt, LiveSession, outcome_of_request, with_result
from paceline.engine.settings import this_host
from paceline.events import Event
from paceline.executors.interface import Handle, printed_tail
from paceline.hosts.leader.workspace_cleanup import WorkspaceTombstone, leave_tombstones
from paceline.hosts.messages import SessionOrder
from paceline.settings.plan_file import environment_rules
from paceline.store import CheckRound
from paceline.store.interface import Campaign, Keep, OutcomeRecord, Phase, Unit
from paceline.store.rules import split_unit_id
from paceline.store.unit_result import SessionEnd, SessionFacts, UnitResult

log = logging.getLogger("paceline.engine")

RETRY_SECONDS = 30.0
"""How long a campaign whose setup, check or delivery cannot do its work waits before it is tried again."""
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


class CommandEnd(CheckRound, frozen=True, kw_only=True):
    """How a command ended.

    `could_not_start`: the plan names a command that cannot be run here. `was_lost`: it was ended from outside, for
    example by a restart of the machine. Neither says anything about the work. A command that took too long does.
    """

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


class UnitStages:
    """All units that run without a session of their agent."""

    def __init__(self, parts: EngineParts) -> None:
        self._store, self._governor, self._hosts = parts.store, parts.driver.governor, parts.hosts
        self._journal, self._live, self._campaigns = parts.journal, parts.live, parts.campaigns
        self._now, self._ended = parts.driver.now, parts.ended
        self.breaker = CampaignBreaker(parts.store)
        self._key_variables = parts.settings.key_variables
        self.preparing: dict[str, Attempt] = {}
        self.staged: dict[str, Attempt] = {}
        """The work of units whose sessions ended well."""
        self.removals: list[tuple[Unit, workspaces.WorkspaceLocation, Future[None]]] = []
        """The workspaces that are being removed."""
        self.delivered: dict[str, Event] = {}
        """The events of the deliveries that `step` has yielded, by unit. They are stored with the outcomes."""
        self._dropped: dict[str, Future[object]] = {}
        """What still runs in the workspaces of cancelled units, and cannot be ended."""
        self._ports: dict[str, int | None] = {}
        """The ports of units that were set up and wait for a session: their setup may have used them."""

    def units(self) -> list[Unit]:
        """Return the units that are in a stage."""
        return [work.unit for work in (*self.preparing.values(), *self.staged.values())]

    def attempt_ids(self) -> list[str]:
        """Return the ids of the commands that run, or may still run after a restart. They begin with an attempt's."""
        self._dropped = {name: job for name, job in self._dropped.items() if not job.done()}
        works = self.staged.values()
        deliveries = [msgspec.structs.replace(work, stage="deliver").command_id for work in works]
        setups = [work.handle.attempt_id for work in self.preparing.values() if work.handle is not None]
        ended = [handle.attempt_id for handle in self._ended]
        return [*setups, *(work.command_id for work in works), *deliveries, *ended, *self._dropped]

    @property
    def is_busy(self) -> bool:
        """Whether something runs, or could run without a person."""
        is_at_work = any(work.is_at_work or self._is_active(work) for work in self.staged.values())
        return is_at_work or bool(self.preparing or self.removals)

    def _is_active(self, work: Attempt) -> bool:
        campaign = self._campaigns.get(work.campaign.name)
        return campaign is not None and campaign.state == "active"

    def drop(self, unit_id: str, now: float) -> None:
        """Forget a unit that was cancelled: end what runs for it, and give up its slots. Its workspace stays."""
        work = self.staged.pop(unit_id, None) or self.preparing.pop(unit_id)
        if work.job is not None:
            self._dropped[f"{work.unit.attempt_id}-job"] = work.job
        if work.handle is not None:
            self._hosts.holder_of(work.handle).stop(work.handle)
            self._ended.append(work.handle)
        if work.is_preparing:
            self._governor.abandon(work.ticket.id, now=now)
        self._governor.abandon(work.command_ticket.id, now=now)

    def note_removals(self) -> None:
        """Log the workspaces that stay: `paceline gc` tries again. A host that is away removes its own later."""
        over = [each for each in self.removals if each[2].done()]
        self.removals = [each for each in self.removals if not each[2].done()]
        for unit, place, job in over:
            try:
                job.result()
            except errors.HostLost:
                tombstone = WorkspaceTombstone(host=unit.result.host or "", unit=unit.id, place=place)
                leave_tombstones(self._store, [tombstone])
            except (errors.PacelineError, OSError) as error:
                log.warning("the workspace of %s stays: %s", unit.id, error)

    # -- before the session --------------------------------------------------------------------

    def prepare(self, work: Attempt) -> None:
        """Begin the workspace of a claimed unit. Raises `WorkspaceError` if it cannot have one."""
        host = self._hosts.of_unit(work.unit)
        unit, settings = self._moved_to(work.unit, host.name), work.campaign.workspace
        assert settings is not None
        if host.name:  # the folder that the plan names may not exist there
            settings = msgspec.structs.replace(settings, root=None)
        name, spec = work.campaign.name, unit.spec
        work.folder = workspaces.location_of(settings, name, spec.id, spec.cwd, host.home, unit.result)
        port_base = unit.result.port_base if unit.result.workspace else None
        self._ports.pop(unit.id, None)
        known = (self._store.unit(name) for name in self._ports)
        self._ports = {each.id: self._ports[each.id] for each in known if each is not None and each.state == "todo"}
        at_work = (*(session.unit for session in self._live.values()), *self.units())
        used = {*self._ports.values(), *(each.result.port_base for each in at_work)}
        if port_base is None or port_base in used:
            ranges = (FIRST_PORT + number * PORTS_EACH for number in range(MOST_PORT_RANGES))
            port_base = next((port for port in ranges if port not in used), None)
        work.unit, work.stage = with_result(unit, port_base=port_base), "find"
        work.keeps_slots = bool(self._hosts.remote_states())
        if unit.result.workspace is None:
            work.job = host.jobs.start(workspaces.unused_location, work.folder)
        else:
            self._make(work, work.folder)
        self.preparing[unit.id] = work

    def _moved_to(self, unit: Unit, host: str) -> Unit:
        """Return the unit for a host. What lies on another starts over; its checks count, so that it ends."""
        result = unit.result
        before = self._hosts.machine_of(result)
        place = workspaces.stored_location(result)
        if place is not None and before != host:
            if before:
                leave_tombstones(self._store, [WorkspaceTombstone(host=before, unit=unit.id, place=place)])
            result = msgspec.structs.replace(result.without_work(), checks=result.checks)
        result = msgspec.structs.replace(result, host=host or this_host(), is_remote=bool(host))
        return msgspec.structs.replace(unit, result=result)

    def collect(self, now: float) -> Iterator[Attempt]:
        """Move all preparations on. Yields and forgets those that are over. Only an error of the store is raised."""
        for unit_id, work in list(self.preparing.items()):
            wait = None  # or the outcome if its session must not begin
            if (request := work.unit.result.end_request_of(work.unit.attempt_id)) is not None:
                wait = outcome_of_request(request)
            elif not self._is_active(work):
                wait = AttemptOutcome(ending="yielded", reason="its campaign was paused before its session began")
            try:
                is_over = self._continue_preparation(work, wait, now)
            except errors.StoreError:
                self.drop(unit_id, now)  # the recovery of the next pass gives the unit back
                raise
            except errors.PacelineError as error:
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

    def is_claimed(self, work: Attempt, now: float) -> bool:
        """Return whether the unit was not cancelled. Its session may begin then."""
        work.unit = with_result(work.unit, is_preparing=False)
        try:
            return self._store.save_progress(work.unit.id, work.unit.fence, phase=None, result=work.unit.result)
        except errors.StoreError:
            self._governor.abandon(work.ticket.id, now=now)  # nobody else knows of its slot by now
            raise

    def _continue_preparation(self, work: Attempt, wait: AttemptOutcome | None, now: float) -> bool:
        """Start what follows, but no setup with a reason to `wait`. Returns whether nothing is left to do."""
        if work.handle is not None:
            return self._read_setup(work, work.handle, now)
        if work.stage == "setup":
            return self._begin_setup(work, wait, now)
        if work.job is None or not work.job.done():
            return False
        result, work.job = work.job.result(), None
        if isinstance(result, workspaces.WorkspaceLocation):
            self._make(work, result)
            return False
        if not isinstance(result, workspaces.Prepared):  # the setup is over
            if not work.keeps_slots:  # it waits for a session, with its ports and what its agent must know
                work.unit = with_note(work.unit, LOST_NOTE) if work.was_lost else work.unit
                self._ports[work.unit.id] = work.unit.result.port_base
                work.outcome = AttemptOutcome(ending="yielded", reason="its workspace is set up")
            return True
        work.was_lost = result.was_lost
        work.unit = with_result(work.unit, uncommitted=result.uncommitted)
        if result.created or result.was_lost:
            name, at = "workspace.lost" if result.was_lost else "workspace.created", work.unit.result
            self._journal.emit(name, unit=work.unit.id, path=at.workspace, branch=at.branch)
        if not result.needs_setup:
            return True
        work.stage = "setup"
        return self._begin_setup(work, wait, now)

    def _make(self, work: Attempt, folder: workspaces.WorkspaceLocation) -> None:
        """Store where the workspace lies, then make it."""
        work.folder, work.stage = folder, "make"
        where = fields_of(UnitResult, folder) | {"workspace": folder.path}
        work.unit = with_result(work.unit, is_preparing=True, **where)
        self._store.save_progress(work.unit.id, work.unit.fence, phase=None, result=work.unit.result)
        assert work.campaign.workspace is not None
        work.job = self._hosts.of_unit(work.unit).jobs.start(workspaces.prepare, folder, work.campaign.workspace)

    def _begin_setup(self, work: Attempt, wait: AttemptOutcome | None, now: float) -> bool:
        """Start the setup once it has a place, on another host at once. Returns whether it must wait."""
        assert work.campaign.workspace is not None
        if wait is not None:
            self._governor.abandon(work.command_ticket.id, now=now)
            return True
        host = self._hosts.of_unit(work.unit)
        if not host.name and not isinstance(self._governor.request(work.command_ticket, now=now), Granted):
            return False
        try:
            work.handle = host.start(command_order(work, work.campaign.workspace.setup, self._key_variables))
        except BaseException:
            self._governor.abandon(work.command_ticket.id, now=now)
            raise
        if not work.keeps_slots:
            self._governor.abandon(work.ticket.id, now=now)
        return False

    def _read_setup(self, work: Attempt, handle: Handle, now: float) -> bool:
        end = read_end(handle, now, limit_seconds=work.limit_seconds)
        if end is None:
            return False
        self._ended.append(handle)
        work.handle, host = None, self._hosts.of_unit(work.unit)
        if not host.name:
            self._governor.release(work.command_ticket.id, now=now)
        if end.was_lost:
            work.outcome = AttemptOutcome(ending="lost", reason="its setup was ended from outside")
            return True
        if not end.has_passed:
            failed = errors.UnfitHost if host.name else errors.WorkspaceError
            raise failed(f"the setup failed {_how(end)}")
        assert work.folder is not None
        work.stage = "finish"
        work.job = host.jobs.start(workspaces.finish_setup, work.folder)
        return False

    # -- after the session ---------------------------------------------------------------------

    def take_over(self, session: LiveSession, record: OutcomeRecord) -> None:
        """Store that the session's work is at its first stage. Nothing is taken over of a unit that was cancelled."""
        end = SessionEnd(**fields_of(SessionFacts, record), exit_code=record.transition.exit_code)
        unit, campaign = session.unit, session.campaign
        if record.result is not None:
            unit = msgspec.structs.replace(unit, result=record.result)
        unit = with_result(unit, session_end=end, feedback=None, deliveries=0, unbegun_checks=0)
        work = Attempt(unit=unit, campaign=campaign, ticket=session.ticket)
        work.stage = "check" if campaign.check else "commit"
        with self._journal.together():
            is_current = self._save(work)
            if is_current:
                self._journal.emit("unit.worked", unit=unit.id, exit_code=end.exit_code)
        if is_current:
            self.staged[unit.id] = work

    def resume(self, work: Attempt, now: float) -> None:
        """Continue the stages of a unit after a restart. A command that still runs, or has ended since, is adopted."""
        host, command = self._hosts.of_unit(work.unit), work.campaign.check
        work.stage = "check" if work.unit.phase == "checking" and command else "commit"
        work.unit = placed(work.unit, work.campaign, host.home)
        if work.stage == "check":
            work.handle = host.adopt(command_order(work, command, self._key_variables))
            if work.handle is not None:
                self._governor.adopt(work.command_ticket, now=now)
        self.staged[work.unit.id] = work

    def step(self, now: float) -> Iterator[OutcomeRecord]:
        """Move everything on. Yields what is over, without storing it. Only an error of the store ends the pass."""
        for work in list(self.staged.values()):
            work.campaign = self._campaigns.get(work.campaign.name, work.campaign)
            try:
                outcome = self._move_on(work, now)
            except errors.StoreError:  # what is stored is the truth: the recovery of the next pass continues from there
                del self.staged[work.unit.id]
                self._governor.abandon(work.command_ticket.id, now=now)
                raise
            except errors.PacelineError as error:
                outcome = self._after_error(work, error, now)
            except Exception as error:
                log.exception("the %s of %s failed; the others continue", work.stage, work.unit.id)
                outcome = self._after_error(work, errors.WorkspaceError(f"{type(error).__name__}: {error}"), now)
            if outcome is not None:
                del self.staged[work.unit.id]
                yield self._record(work, outcome, now)

    def _move_on(self, work: Attempt, now: float) -> AttemptOutcome | None:
        """Read what has ended, and begin what follows."""
        outcome = None
        if work.job is not None and work.job.done():
            outcome = self._read_job(work, work.job)
        elif work.handle is not None:
            end = read_end(work.handle, now, limit_seconds=work.limit_seconds)
            outcome = None if end is None else self._after_command(work, work.handle, end, now)
        if outcome is not None or work.is_at_work or work.unit.id not in self.staged:
            return outcome
        if not self._is_active(work) and (work.stage == "check" or work.campaign.workspace is not None):
            self._governor.abandon(work.command_ticket.id, now=now)
        elif not 0 < work.retry_at - now <= RETRY_SECONDS:
            return self._begin(work, now)
        return None

    def _begin(self, work: Attempt, now: float) -> AttemptOutcome | None:
        campaign, host = work.campaign, self._hosts.of_unit(work.unit)
        if work.stage == "check" and campaign.check:
            if work.unit.result.feedback is not None:  # it failed, and an engine ended before that was stored
                return self._after_failure(work)
            if isinstance(self._governor.request(work.command_ticket, now=now), Granted):
                work.handle = host.begin(command_order(work, campaign.check, self._key_variables))
            return None
        if work.stage != "deliver":
            work.stage = "commit"  # or the check was taken from the campaign since
            if _commits(campaign):
                self._start_commit(work)
                return None
            work.stage = "deliver"
        match campaign.deliver:
            case tuple() as command:
                work.handle = host.begin(command_order(work, command, self._key_variables))
            case "patch":
                place = workspace_place(work.unit, campaign, host.home)
                work.job = host.jobs.start(workspaces.write_patch, place, self._patch_of(work))
            case _:
                return self._delivered(work)
        return None

    def _patch_of(self, work: Attempt) -> Path:
        """Return the file in the leader's home that the change is delivered to."""
        return workspaces.patch_file(self._hosts.local.home, work.campaign.name, work.unit.spec.id)

    def _start_commit(self, work: Attempt) -> None:
        host = self._hosts.of_unit(work.unit)
        place = workspace_place(work.unit, work.campaign, host.home)
        work.job = host.jobs.start(workspaces.commit_all, place, commit_message(work.unit.id))

    # -- ends ----------------------------------------------------------------------------------

    def _after_command(self, work: Attempt, handle: Handle, end: CommandEnd, now: float) -> AttemptOutcome | None:
        work.handle = None
        if work.stage == "check":
            outcome = self._after_check(work, end, now)
        elif end.has_passed:
            self._clear_faults(work)
            outcome = self._delivered(work)
        else:
            work.unit, outcome = with_result(work.unit, deliveries=work.unit.result.deliveries + 1), None
            if self._save(work):
                outcome = self._after_fault(work, end, f"the delivery failed {_how(end)}", now)
            else:
                self.drop(work.unit.id, now)
        self._ended.append(handle)
        self._governor.release(work.command_ticket.id, now=now)
        return outcome

    def _after_check(self, work: Attempt, end: CommandEnd, now: float) -> AttemptOutcome | None:
        """Store the round, and the next prompt if it failed, before anything follows from it."""
        result = work.unit.result
        if end.has_begun:
            work.unit = with_result(work.unit, checks=(*result.checks, CheckRound(**fields_of(CheckRound, end))))
        else:
            work.unit = with_result(work.unit, unbegun_checks=result.unbegun_checks + 1)
        if end.has_passed:
            work.stage = "commit"
        elif end.has_judged:
            prompt = (work.campaign.check_prompt or DEFAULT_CHECK_PROMPT).replace("{output}", end.output)
            work.unit = with_result(work.unit, feedback=prompt)
        with self._journal.together():
            if end.has_begun:
                fields: dict[str, Any] = {"exit_code": end.exit_code, "seconds": end.seconds, "reason": end.reason}
                self._journal.emit("unit.checked", unit=work.unit.id, round=len(work.unit.result.checks), **fields)
            is_current = self._save(work)
        if not is_current:
            self.drop(work.unit.id, now)  # it was cancelled
            return None
        if not end.has_judged:
            return self._after_fault(work, end, f"the check cannot do its work: {end.reason}", now)
        self._clear_faults(work)
        return None if end.has_passed else self._after_failure(work)

    def _read_job(self, work: Attempt, job: Future[object]) -> AttemptOutcome | None:
        work.job, result = None, job.result()
        if not isinstance(result, workspaces.Change):
            return self._delivered(work, to=str(self._patch_of(work)))
        lines = {"lines_added": result.lines_added, "lines_removed": result.lines_removed}
        work.unit = with_result(work.unit, commit=result.commit, files_changed=result.files_changed, **lines)
        if work.stage == "check":
            return _verdict(work)  # stored together with its commit
        work.stage = "deliver"
        if not self._save(work):
            self.drop(work.unit.id, self._now())  # it was cancelled
        return None

    def _delivered(self, work: Attempt, *, to: str | None = None) -> AttemptOutcome:
        if work.campaign.workspace is not None:
            result = work.unit.result
            fields: dict[str, object] = {"branch": result.branch, "commit": result.commit, "patch": to}
            self.delivered[work.unit.id] = Event("unit.delivered", self._now(), None, work.unit.id, fields)
        return AttemptOutcome(ending="succeeded", reason="done")

    def _after_failure(self, work: Attempt) -> AttemptOutcome | None:
        """Return what follows from a failed check. Work without a round left is committed first, for `accept`."""
        outcome = _verdict(work)
        if outcome.ending != "unverified" or not _commits(work.campaign):
            return outcome
        self._start_commit(work)
        return None

    # -- a check, a commit or a delivery that could not do its work --------------------------------

    def _after_error(self, work: Attempt, error: errors.PacelineError, now: float) -> AttemptOutcome | None:
        """Return the outcome if only a person can help. Else the stage is tried again."""
        work.job = None
        self._governor.abandon(work.command_ticket.id, now=now)
        if isinstance(error, errors.HostLost):
            return AttemptOutcome(ending="lost", reason=str(error))
        if isinstance(error, errors.WorkspaceError) and not error.is_campaigns:
            return AttemptOutcome(ending="barred", reason=str(error))
        if isinstance(error, errors.NoRoomForSession | errors.LinkDown | errors.NotJoined):
            work.retry_at = now + RETRY_SECONDS  # a full disk or a cut link is nobody's fault
            return None
        return self._try_later(work, f"the {work.stage} failed: {error}", now)

    def _after_fault(self, work: Attempt, end: CommandEnd, reason: str, now: float) -> AttemptOutcome | None:
        """Run a command again at once that was ended from outside. Hold a unit whose check cannot start."""
        if end.could_not_start and work.stage == "check":
            paused = self._pause(self.breaker.after_unchecked(work.campaign.name, work.unit.id, reason), now)
            log.warning("%s: %s; it is held%s", work.unit.id, reason, ", and its campaign is paused" if paused else "")
            return AttemptOutcome(ending="barred", reason=reason)
        work.losses = work.losses + 1 if end.was_lost else 0
        return None if 0 < work.losses < MOST_LOSSES else self._try_later(work, reason, now)

    def _try_later(self, work: Attempt, reason: str, now: float) -> AttemptOutcome | None:
        """Try it again later. A campaign in which that happens again pauses; a unit that meets it alone is held."""
        work.retry_at = now + RETRY_SECONDS
        paused = self._pause(self.breaker.after_fault(work.campaign.name, reason), now)
        work.faults = 0 if paused else work.faults + 1
        is_alone = work.faults >= MOST_FAULTS_OF_UNIT
        follows = "its campaign is paused" if paused else "it is held" if is_alone else "it is tried again"
        log.warning("%s: %s; %s", work.unit.id, reason, follows)
        return AttemptOutcome(ending="barred", reason=reason) if is_alone else None

    def _pause(self, campaigns: list[Campaign], now: float) -> bool:
        with self._journal.together():
            self._journal.pause(campaigns, now)
        return bool(campaigns)

    def _clear_faults(self, work: Attempt) -> None:
        """Start a new count: a command of the campaign has done its work."""
        work.faults = work.losses = 0
        self.breaker.clear_faults(work.campaign.name, can_check=True)

    # -- what is stored ------------------------------------------------------------------------

    def _save(self, work: Attempt) -> bool:
        unit = work.unit
        return self._store.save_progress(unit.id, unit.fence, phase=PHASES[work.stage], result=unit.result)

    def _record(self, work: Attempt, outcome: AttemptOutcome, now: float) -> OutcomeRecord:
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

    def remove_workspaces(self, records: Iterable[OutcomeRecord]) -> None:
        """Remove workspaces that the plan does not keep. What a failed unit left is committed first, to its branch."""
        for record in records:
            campaign, step = self._campaigns.get(split_unit_id(record.unit_id)[0]), record.transition.step
            settings = None if campaign is None else campaign.workspace
            if settings is None or settings.kind != "worktree" or step not in REMOVED_AFTER[settings.keep]:
                continue
            unit = self._store.unit(record.unit_id)
            place = None if unit is None else workspaces.stored_location(unit.result)
            if campaign is not None and unit is not None and place is not None:
                message = commit_message(unit.id) if campaign.commit and step != "succeed" else None
                job = self._hosts.named(unit.result.host).jobs.start(workspaces.commit_and_remove, place, message)
                self.removals.append((unit, place, job))


def _commits(campaign: Campaign) -> bool:
    return campaign.workspace is not None and campaign.commit


def _verdict(work: Attempt) -> AttemptOutcome:
    """Return what follows from the last check, which failed: another round, if one is left."""
    checks = work.unit.result.checks
    last = checks[-1]
    failed = sum(1 for each in checks if each.exit_code and each.exit_code not in CANNOT_RUN)
    if failed <= work.campaign.check_rounds:
        return AttemptOutcome(ending="check_failed", reason=f"the check failed with exit code {last.exit_code}")
    times = "once" if failed == 1 else f"{failed} times, the last"
    reason = f"the check failed {times} with exit code {last.exit_code}: {_last_line(last.output)}"
    return AttemptOutcome(ending="unverified", reason=reason)


def _how(end: CommandEnd) -> str:
    return f"({end.reason or f'exit code {end.exit_code}'}): {_last_line(end.tail or '')}"


def _last_line(output: str) -> str:
    """Return the last line: programs name the cause of an error there."""
    return output.rpartition("\n")[2].strip() or "no output"


def commit_message(unit_id: str) -> str:
    """Return the message of the commit of a unit's work."""
    return "{}: {}".format(*split_unit_id(unit_id))


def workspace_place(unit: Unit, campaign: Campaign, home: Path) -> workspaces.WorkspaceLocation:
    """Return where the workspace of the unit lies. Its campaign must have workspaces."""
    assert campaign.workspace is not None
    return workspaces.location_of(campaign.workspace, campaign.name, unit.spec.id, unit.spec.cwd, home, unit.result)


def placed(unit: Unit, campaign: Campaign, home: Path) -> Unit:
    """Return the unit with its folder and its output in its workspace, if it has one."""
    if campaign.workspace is None or unit.result.workspace is None:
        return unit
    place = workspace_place(unit, campaign, home)
    output = None if unit.spec.output is None else workspaces.mapped_path(place, unit.spec.output)
    return msgspec.structs.replace(unit, spec=msgspec.structs.replace(unit.spec, cwd=place.cwd, output=output))


def with_note(unit: Unit, note: str) -> Unit:
    """Return the unit with a note for its agent before the next prompt."""
    feedback = "\n".join(part for part in (note, unit.result.feedback) if part)
    return msgspec.structs.replace(unit, result=msgspec.structs.replace(unit.result, feedback=feedback))


def outcome_of_error(error: errors.PacelineError, now: float) -> AttemptOutcome:
    """Return the outcome of an attempt whose workspace could not be made or used."""
    match error:
        case errors.HostLost():
            return AttemptOutcome(ending="lost", reason=str(error))
        case errors.UnfitHost():
            return AttemptOutcome(ending="not_started", reason=str(error))
        case errors.NoRoomForSession() | errors.LinkDown() | errors.NotJoined():
            return AttemptOutcome(ending="unreachable", reason=str(error), resume_at=now + RETRY_SECONDS)
        case errors.WorkspaceLost():
            return AttemptOutcome(ending="barred", reason=f"workspace lost: {error}")
        case errors.WorkspaceError(is_campaigns=False) | errors.InvalidInput():
            return AttemptOutcome(ending="barred", reason=str(error))
    return AttemptOutcome(ending="campaign_fault", reason=str(error), resume_at=now + RETRY_SECONDS)


# -- commands: setup, check and delivery, as sessions of a host -----------------------------------------


def command_order(work: Attempt, command: tuple[str, ...], key_variables: frozenset[str]) -> SessionOrder:
    """Return the command for a unit as a session. It has no account, and so no key and no login variables."""
    unit, campaign = work.unit, work.campaign
    for name in ("branch", "base", "commit", "workspace"):
        value = getattr(unit.result, name) or ""
        command = tuple(part.replace(f"{{{name}}}", value) for part in command)
    task = Task(
        unit_id=unit.id,
        attempt_id=work.command_id,
        prompt="",
        cwd=unit.spec.cwd if work.folder is None else work.folder.cwd,
        model=campaign.model,
        command=command,
        env=campaign.env | port_variable(unit),
    )
    rules, timeout = environment_rules(campaign, key_variables), work.limit_seconds
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
    end = CommandEnd(exit_code=state.shell_code, seconds=round(seconds, 3), tail=printed_tail(handle))
    if state.phase == "lost" or state.cause in ("stopped", "terminated") or state.message == STOPPED_EARLY:
        lost = {"exit_code": None, "reason": "it was ended from outside", "was_lost": True}
        return msgspec.structs.replace(end, **lost, has_begun=state.started_at is not None)
    if state.cause == "timed_out":
        is_short = limit_seconds < 60 or limit_seconds % 60
        limit = f"{limit_seconds:g} s" if is_short else f"{limit_seconds / 60:g} min"
        late = f"it did not end within {limit}"
        return msgspec.structs.replace(end, exit_code=TOO_LONG, reason=late)
    if state.phase == "not_started":
        problem = f"it could not be started: {state.message or 'no reason'}"
    elif state.shell_code in CANNOT_RUN:
        problem = f"it could not be run (exit code {state.shell_code})"
    else:
        return end
    return msgspec.structs.replace(end, reason=problem, could_not_start=True)

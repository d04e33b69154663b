"""The preparation of workspaces: before its agent starts, a claimed unit gets a folder of its own, set up.

Here: the steps from a claim to a folder in which the agent can start. git runs in threads and the setup under a
supervisor, so the pass never waits for them. Where the workspace lies is stored before it is made.

A setup may take minutes, so it does not hold the slots of a session: it takes a place in the local scope `checks`, and
its unit then waits for a session as any other. Units that find no place there keep their slots meanwhile, so that no
more of them are prepared than there are slots and places. Where there are other hosts, a setup keeps its slots: the
next slot might be on another host, where everything would begin again.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from paceline.agents.account import Account
from paceline.core import Governor, Granted, Ticket
from paceline.core.unit_lifecycle import AttemptOutcome
from paceline.core.values.fields import fields_of
from paceline.core.values.scopes import CHECKS
from paceline.engine.journal import EngineJournal
from paceline.engine.session.launcher import with_note
from paceline.engine.session.live_session import outcome_of_request
from paceline.engine.session.unit_results import this_host
from paceline.engine.work.stage_commands import CHECK_TICKETS, SETUP_SECONDS, EndedCommands, command_order, read_end
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
from paceline.executors import Handle
from paceline.hosts.jobs import Job
from paceline.hosts.leader.registry import HostRegistry
from paceline.hosts.leader.workspace_cleanup import WorkspaceTombstone, leave_tombstones
from paceline.limiter.governor_driver import SEPARATOR
from paceline.store import Campaign, Store, Unit
from paceline.store.unit_result import UnitResult
from paceline.workspaces import (
    Prepared,
    WorkspaceLocation,
    finish_setup,
    location_of,
    mapped_path,
    prepare,
    stored_location,
    unused_location,
)

log = logging.getLogger("paceline.engine")

RETRY_SECONDS = 30.0
"""How long a campaign whose setup, check or delivery cannot do its work waits before it is tried again."""
FIRST_PORT = 20_000
PORTS_EACH = 10
"""Ports of one workspace: a server, its database and a few more. All lie below those that systems give to clients."""
MOST_PORT_RANGES = 1_200
LOST_NOTE = (
    "Your working folder was lost and has been made again from its branch. Changes that were not committed are gone."
)


class Preparation(msgspec.Struct, kw_only=True):
    """A claimed unit whose workspace is being made. `step` is what `job` or `handle` does.

    At the step `setup` without a handle it waits for a place.
    """

    unit: Unit
    campaign: Campaign
    account: Account | None
    ticket: Ticket
    place: WorkspaceLocation
    step: Literal["find", "make", "setup", "finish"]
    job: Job[object] | None = None
    handle: Handle | None = None
    was_lost: bool = False
    keeps_slots: bool = False
    """Whether the session begins as soon as the setup is over."""
    has_place: bool = False
    """Whether its setup needs no place of its own: it has the session's place on another host."""
    outcome: AttemptOutcome | None = None
    """Why it failed."""

    @property
    def setup_ticket(self) -> Ticket:
        name, priority = self.campaign.name, self.campaign.priority
        ticket_id = f"{CHECK_TICKETS}{SEPARATOR}{self.unit.attempt_id}-setup"
        return Ticket(ticket_id, (CHECKS,), group=name, priority=priority, leased=False)

    @property
    def note(self) -> str:
        """What the agent must know about its folder."""
        return LOST_NOTE if self.was_lost else ""


class WorkspacePreparations:
    """The units whose workspaces are being made."""

    def __init__(
        self,
        store: Store,
        governor: Governor,
        journal: EngineJournal,
        hosts: HostRegistry,
        *,
        ended: EndedCommands,
        key_variables: frozenset[str],
    ) -> None:
        self._store = store
        self._governor = governor
        self._journal = journal
        self._hosts = hosts
        self._ended = ended
        self._key_variables = key_variables
        self.pending: dict[str, Preparation] = {}
        self._ports: dict[str, int | None] = {}
        """The ports of units that were set up and wait for a session: their setup may have used them."""

    def begin(
        self, unit: Unit, campaign: Campaign, account: Account | None, ticket: Ticket, used_ports: Iterable[int | None]
    ) -> None:
        """Begin the workspace of a claimed unit. Raises `WorkspaceError` if it cannot have one."""
        host = self._hosts.of_unit(unit)
        unit = self._moved_to(unit, host.name)
        place = workspace_place(unit, _without_root(campaign) if host.name else campaign, host.home)
        port_base = unit.result.port_base if unit.result.workspace else None
        self._ports.pop(unit.id, None)
        self._ports = {name: port for name, port in self._ports.items() if self._is_waiting(name)}
        used = {*used_ports, *self._ports.values()}
        if port_base is None or port_base in used:
            port_base = free_port(used)
        unit = with_result(unit, port_base=port_base)
        work = Preparation(unit=unit, campaign=campaign, account=account, ticket=ticket, place=place, step="find")
        work.keeps_slots = bool(self._hosts.remote_states())
        work.has_place = bool(host.name)
        if unit.result.workspace is None:
            work.job = host.jobs.start(unused_location, place)
        else:
            self._make(work)
        self.pending[unit.id] = work

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
        """Move every preparation on. Yields and forgets those that are over: ready, or with an outcome."""
        for unit_id, work in list(self.pending.items()):
            wait = reason_to_wait(work, campaigns)
            if self._try_move(work, wait, now):
                del self.pending[unit_id]
                if work.outcome is None or work.outcome.ending == "yielded":
                    work.outcome = wait or work.outcome
                work.unit = placed(work.unit, work.campaign, self._hosts.of_unit(work.unit).home)
                yield work

    def is_claimed(self, work: Preparation, now: float) -> bool:
        """Return whether the unit was not cancelled."""
        try:
            return self._store.save_progress(work.unit.id, work.unit.fence, phase=None, result=work.unit.result)
        except StoreError:
            self._governor.abandon(work.ticket.id, now=now)  # nobody else knows of its slot by now
            raise

    def _try_move(self, work: Preparation, wait: AttemptOutcome | None, now: float) -> bool:
        """Move one preparation on. Returns whether it is over. An error of the store ends the pass."""
        try:
            return self._move_on(work, wait, now)
        except StoreError:
            self.drop(work.unit.id, now)  # the recovery of the next pass gives the unit back
            raise
        except PacelineError as error:
            work.outcome = outcome_of_error(error, now)
        except Exception as error:
            log.exception("the workspace of %s could not be made; the others continue", work.unit.id)
            reason = f"its workspace could not be made ({type(error).__name__}: {error})"
            work.outcome = AttemptOutcome(ending="lost", reason=reason)
        return True

    def attempt_ids(self) -> list[str]:
        """Return the ids of the setups that run."""
        return [work.handle.attempt_id for work in self.pending.values() if work.handle is not None]

    def drop(self, unit_id: str, now: float) -> None:
        """Forget a unit that was cancelled, and give up its slots. Its setup is ended; its workspace stays."""
        work = self.pending.pop(unit_id)
        for ticket in (work.ticket, work.setup_ticket):
            self._governor.abandon(ticket.id, now=now)
        if work.handle is not None:
            self._ended.stop(work.handle)

    def _move_on(self, work: Preparation, wait: AttemptOutcome | None, now: float) -> bool:
        """Start the next step if the present one is over. Returns whether none is left.

        With a reason to `wait` no setup is started.
        """
        if work.handle is not None:
            return self._read_setup(work, now)
        if work.step == "setup":
            return self._begin_setup(work, wait, now)
        if work.job is None or not work.job.is_over:
            return False
        result, work.job = work.job.result(), None
        match work.step:
            case "find":
                assert isinstance(result, WorkspaceLocation)
                work.place = result
                self._make(work)
            case "make":
                assert isinstance(result, Prepared)
                self._note_made(work, result, now)
                if not result.needs_setup:
                    return True
                work.step = "setup"
                return self._begin_setup(work, wait, now)
            case _:
                if not work.keeps_slots:
                    self._leave_ready(work)
                return True
        return False

    def _make(self, work: Preparation) -> None:
        """Store where the workspace lies, then make it."""
        place = work.place
        work.unit = with_result(work.unit, workspace=place.path, **fields_of(UnitResult, place))
        self._store.save_progress(work.unit.id, work.unit.fence, phase=None, result=work.unit.result)
        assert work.campaign.workspace is not None
        work.step = "make"
        work.job = self._hosts.of_unit(work.unit).jobs.start(prepare, place, work.campaign.workspace)

    def _note_made(self, work: Preparation, prepared: Prepared, now: float) -> None:
        work.was_lost = prepared.was_lost
        work.unit = with_result(work.unit, uncommitted=prepared.uncommitted)
        if prepared.created or prepared.was_lost:
            name = "workspace.lost" if prepared.was_lost else "workspace.created"
            fields: dict[str, object] = {"path": work.place.path, "branch": work.place.branch}
            self._journal.append(Event(name, now, None, work.unit.id, fields))

    def _begin_setup(self, work: Preparation, wait: AttemptOutcome | None, now: float) -> bool:
        """Start the setup once there is a place for it, and mostly give up the session's slots.

        Returns whether it must wait.

        A place may become free at any later pass.
        """
        assert work.campaign.workspace is not None
        if wait is not None:
            self._governor.abandon(work.setup_ticket.id, now=now)
            return True
        if not work.has_place and not isinstance(self._governor.request(work.setup_ticket, now=now), Granted):
            return False
        order = command_order(
            f"{work.unit.attempt_id}-setup",
            work.campaign.workspace.setup,
            work.unit,
            work.campaign,
            cwd=work.place.cwd,
            timeout=SETUP_SECONDS,
            key_variables=self._key_variables,
        )
        try:
            work.handle = self._hosts.of_unit(work.unit).start(order)
        except BaseException:
            self._governor.abandon(work.setup_ticket.id, now=now)
            raise
        if not work.keeps_slots:
            self._governor.abandon(work.ticket.id, now=now)
        return False

    def _leave_ready(self, work: Preparation) -> None:
        """Let a unit that is set up wait for a session, with its ports and what its agent must know."""
        work.unit = with_note(work.unit, work.note)
        self._ports[work.unit.id] = work.unit.result.port_base
        work.outcome = AttemptOutcome(ending="yielded", reason="its workspace is set up")

    def _read_setup(self, work: Preparation, now: float) -> bool:
        assert work.handle is not None
        end = read_end(work.handle, now, limit_seconds=SETUP_SECONDS)
        if end is None:
            return False
        self._ended.handles.append(work.handle)
        work.handle = None
        if not work.has_place:
            self._governor.release(work.setup_ticket.id, now=now)
        if end.was_lost:
            work.outcome = AttemptOutcome(ending="lost", reason="its setup was ended from outside")
            return True
        if not end.has_passed:
            why = end.reason or f"exit code {end.exit_code}"
            failed = UnfitHost if work.has_place else WorkspaceError
            raise failed(f"the setup failed ({why}): {end.last_line}")
        work.step = "finish"
        work.job = self._hosts.of_unit(work.unit).jobs.start(finish_setup, work.place)
        return False


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


def _without_root(campaign: Campaign) -> Campaign:
    """Return the campaign for another host, where the folder that the plan names may not exist."""
    assert campaign.workspace is not None
    return msgspec.structs.replace(campaign, workspace=msgspec.structs.replace(campaign.workspace, root=None))


def placed(unit: Unit, campaign: Campaign, home: Path) -> Unit:
    """Return the unit with its folder and its output in its workspace, if it has one."""
    if campaign.workspace is None or unit.result.workspace is None:
        return unit
    place = workspace_place(unit, campaign, home)
    output = None if unit.spec.output is None else mapped_path(place, unit.spec.output)
    return msgspec.structs.replace(unit, spec=msgspec.structs.replace(unit.spec, cwd=place.cwd, output=output))


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

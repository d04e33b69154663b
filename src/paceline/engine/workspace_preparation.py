"""The preparation of workspaces: before its agent starts, a claimed unit gets a folder of its own, set up.

Here: the steps from a claim to a folder in which the agent can start. git runs in threads and the setup under a
supervisor, so the pass never waits for them. Where the workspace lies is stored before it is made.
"""

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from paceline.agents.account import Account
from paceline.core import Ticket
from paceline.core.unit_lifecycle import AttemptOutcome
from paceline.engine.background_jobs import BackgroundJobs, Job
from paceline.engine.journal import EngineJournal
from paceline.engine.stage_commands import SETUP_SECONDS, EndedCommands, StageCommands, read_end
from paceline.errors import InvalidInput, NoRoomForSession, PacelineError, StoreError, WorkspaceError, WorkspaceLost
from paceline.events import Event
from paceline.executors import Executor, Handle
from paceline.store import Campaign, Store, Unit
from paceline.store.unit_result import UnitResult
from paceline.workspaces import Prepared, WorkspacePlace, finish_setup, mapped_path, place_of, prepare, unused_place

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
    """A claimed unit whose workspace is being made. `step` is what `job` or `handle` does."""

    unit: Unit
    campaign: Campaign
    account: Account | None
    ticket: Ticket
    place: WorkspacePlace
    step: Literal["find", "make", "setup", "finish"]
    job: Job[object] | None = None
    handle: Handle | None = None
    was_lost: bool = False
    outcome: AttemptOutcome | None = None
    """Why it failed."""

    @property
    def note(self) -> str:
        """What the agent must know about its folder."""
        return LOST_NOTE if self.was_lost else ""


class WorkspacePreparations:
    """The units whose workspaces are being made."""

    def __init__(
        self, store: Store, journal: EngineJournal, executor: Executor, jobs: BackgroundJobs, commands: StageCommands
    ) -> None:
        self._store = store
        self._journal = journal
        self._executor = executor
        self._jobs = jobs
        self._commands = commands
        self._ended = EndedCommands(executor)
        self.pending: dict[str, Preparation] = {}

    def begin(
        self, unit: Unit, campaign: Campaign, account: Account | None, ticket: Ticket, used_ports: Iterable[int | None]
    ) -> None:
        """Begin the workspace of a claimed unit. Raises `WorkspaceError` if it cannot have one."""
        place = workspace_place(unit, campaign, self._commands.home)
        port_base = unit.result.port_base if unit.result.workspace else None
        used = set(used_ports)
        if port_base is None or port_base in used:
            port_base = free_port(used)
        unit = with_result(unit, port_base=port_base)
        work = Preparation(unit=unit, campaign=campaign, account=account, ticket=ticket, place=place, step="find")
        if unit.result.workspace is None:
            work.job = self._jobs.start(unused_place, place)
        else:
            self._make(work)
        self.pending[unit.id] = work

    def collect(self, now: float) -> Iterator[Preparation]:
        """Move every preparation on. Yields and forgets those that are over: ready, or with an outcome."""
        self._ended.archive()
        for unit_id, work in list(self.pending.items()):
            if self._try_move(work, now):
                del self.pending[unit_id]
                work.unit = placed(work.unit, work.campaign, self._commands.home)
                yield work

    def _try_move(self, work: Preparation, now: float) -> bool:
        """Move one preparation on. Returns whether it is over. An error of the store ends the pass."""
        try:
            return self._move_on(work, now)
        except StoreError:
            self.drop(work.unit.id)  # the recovery of the next pass gives the unit back
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
        setups = [work.handle.attempt_id for work in self.pending.values() if work.handle is not None]
        return setups + self._ended.attempt_ids

    def drop(self, unit_id: str) -> Preparation:
        """Forget a unit that was cancelled. Its setup is ended; its workspace stays."""
        work = self.pending.pop(unit_id)
        if work.handle is not None:
            self._executor.stop(work.handle)
            self._ended.add(work.handle)
        return work

    def _move_on(self, work: Preparation, now: float) -> bool:
        """Start the next step if the present one is over. Returns whether the workspace is ready."""
        if work.handle is not None:
            return self._read_setup(work, now)
        if work.job is None or not work.job.is_over:
            return False
        result, work.job = work.job.result(), None
        match work.step:
            case "find":
                assert isinstance(result, WorkspacePlace)
                work.place = result
                self._make(work)
            case "make":
                assert isinstance(result, Prepared)
                return self._begin_setup(work, result, now)
            case _:
                return True
        return False

    def _make(self, work: Preparation) -> None:
        """Store where the workspace lies, then make it."""
        place = work.place
        work.unit = with_result(
            work.unit, workspace=place.path, branch=place.branch, base=place.base, repository=place.repository
        )
        self._store.save_progress(work.unit.id, work.unit.fence, phase=None, result=work.unit.result)
        assert work.campaign.workspace is not None
        work.step = "make"
        work.job = self._jobs.start(prepare, place, work.campaign.workspace)

    def _begin_setup(self, work: Preparation, prepared: Prepared, now: float) -> bool:
        work.was_lost = prepared.was_lost
        if prepared.created or prepared.was_lost:
            name = "workspace.lost" if prepared.was_lost else "workspace.created"
            fields: dict[str, object] = {"path": work.place.path, "branch": work.place.branch}
            self._journal.append(Event(name, now, None, work.unit.id, fields))
        if not prepared.needs_setup:
            return True
        assert work.campaign.workspace is not None
        work.step = "setup"
        launch = self._commands.launch(
            f"{work.unit.attempt_id}-setup",
            work.campaign.workspace.setup,
            work.unit,
            work.campaign,
            work.place.cwd,
            SETUP_SECONDS,
        )
        work.handle = self._executor.start(launch)
        return False

    def _read_setup(self, work: Preparation, now: float) -> bool:
        assert work.handle is not None
        end = read_end(work.handle, now)
        if end is None:
            return False
        self._ended.add(work.handle)
        work.handle = None
        if end.was_lost:
            work.outcome = AttemptOutcome(ending="lost", reason="its setup was ended from outside")
            return True
        if not end.has_passed:
            why = end.fault or f"exit code {end.exit_code}"
            raise WorkspaceError(f"the setup failed ({why}): {end.last_line}")
        work.step = "finish"
        work.job = self._jobs.start(finish_setup, work.place)
        return False


def workspace_place(unit: Unit, campaign: Campaign, home: Path) -> WorkspacePlace:
    """Return where the workspace of the unit lies. Its campaign must have workspaces."""
    assert campaign.workspace is not None
    return place_of(campaign.workspace, campaign.name, unit.spec.id, unit.spec.cwd, home, unit.result)


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
        case NoRoomForSession():
            return AttemptOutcome(ending="unreachable", reason=str(error), resume_at=now + RETRY_SECONDS)
        case WorkspaceLost():
            return AttemptOutcome(ending="barred", reason=f"workspace lost: {error}")
        case WorkspaceError(is_campaigns=False) | InvalidInput():
            return AttemptOutcome(ending="barred", reason=str(error))
    return AttemptOutcome(ending="campaign_fault", reason=str(error), resume_at=now + RETRY_SECONDS)

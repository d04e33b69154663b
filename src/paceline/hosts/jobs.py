"""Blocking work on one machine besides sessions: git in workspaces, and reading output.

The engine starts a piece of work by its function. On its own machine a few threads do it (`BackgroundJobs`); on a host
the worker does (`RemoteJobs`). The table `JOBS` has the names and types of what a worker can do. The leader sends what
only its own repository knows, and takes into that repository what comes back. `worker/job_runner.py` is the side of
the worker.
"""

import asyncio
import contextlib
import itertools
import os
import re
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from paceline import errors
from paceline.core.values.session_output import Channel
from paceline.errors import HostLost, InvalidInput, PacelineError, UnfitHost, WorkspaceError
from paceline.hosts.messages import Call, CallReport, Order
from paceline.store.interface import WorkspaceSettings
from paceline.workspaces.changes import (
    Change,
    commit_all,
    commit_and_remove,
    configured_identity,
    take_branch,
    take_bundle,
    write_bundle,
    write_patch,
)
from paceline.workspaces.contents import SubmoduleCommit, cloned_submodules
from paceline.workspaces.folders import WorkspaceLocation, folder_error
from paceline.workspaces.preparation import (
    IncludedFile,
    Prepared,
    finish_setup,
    prepare,
    read_included,
    repository_of,
    unused_location,
)
from paceline.workspaces.repository import GitCall, PlainFolder, branches_like, open_repository, run_git

THREADS = 4
"""git waits for the disk most of the time, and more than a few checkouts at once only slow each other down."""

Value = TypeVar("Value")


class BackgroundJobs:
    """Threads for blocking work. `on_over` is called in the event loop when a job has ended."""

    def __init__(self, on_over: Callable[[], None]) -> None:
        self._on_over = on_over
        self._pool: ThreadPoolExecutor | None = None

    def start(self, work: Callable[..., Value], *arguments: object) -> Future[Value]:
        """Start work in a thread."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="paceline-git")
        future: Future[Value] = self._pool.submit(work, *arguments)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return future  # without a loop the next pass finds it
        future.add_done_callback(lambda _: _wake(loop, self._on_over))
        return future

    def close(self) -> None:
        """Start nothing more. Work that has begun ends by itself."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


def _wake(loop: asyncio.AbstractEventLoop, on_over: Callable[[], Any]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(on_over)


def in_daemon_thread(work: Callable[[], Value], name: str) -> "asyncio.Future[Value]":
    """Begin the work in a thread of that name. If it is still at it when the process ends, it is given up."""
    result: Future[Value] = Future()
    result.set_running_or_notify_cancel()  # whoever waits may go; the work itself cannot be taken back

    def run() -> None:
        try:
            result.set_result(work())
        except Exception as error:  # noqa: BLE001 (it is raised where the work was asked for)
            result.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return asyncio.wrap_future(result)


MOST_SENT_BYTES: Final = 4 << 30
"""The most that a worker may send for one call: far more than agents write, and too little to fill most disks."""
WANTED: Final = "refs/paceline/wanted/"
"""The names in a bundle of the commits that a call needs: `base`, and `branch` if the leader has it."""
OF_SUBMODULE: Final = "submodule:"
"""Before the number of a submodule, in place of the first commit that a worker has: it asks for that submodule."""
_COMMIT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_CARRIED: Final = (
    errors.WorkspaceError,
    errors.WorkspaceLost,
    errors.UncommittedWork,
    errors.NoRoomForSession,
    errors.SpoolError,
    errors.AttemptInUse,
    errors.ExecutorError,
    errors.UnknownName,
    errors.InvalidInput,
    errors.LinkDown,
    errors.NotJoined,
)
"""Errors that are the same on both sides. All others become a `WorkspaceError`."""
_ERRORS: Final[dict[str, type[PacelineError]]] = {each.__name__: each for each in _CARRIED}


class OutputPiece(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of what a session printed, or the beginning of a patch.

    The next one begins at `position`; after a complete one there is none.
    """

    data: bytes
    position: int
    is_complete: bool


class LeaderRepository(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the repository of the leader has that a job must know."""

    tip: str | None = None
    """The last commit of the unit's branch."""
    taken: tuple[str, ...] = ()
    """Branches by whose names the unit's branch must not be called."""
    included: tuple[IncludedFile, ...] = ()
    submodules: tuple[SubmoduleCommit, ...] = ()
    """Those that the leader has cloned."""
    author: tuple[str, str] | None = None
    """Name and address of the user there, who commits."""
    remote: str | None = None
    """Where the branch is pushed to. None: it is sent to the leader."""


def read_output(attempt_id: str, channel: Channel, position: int | None, most: int) -> OutputPiece:
    """Read what a session on a host printed, from a position; with None the last `most` bytes."""
    raise NotImplementedError("a host reads this: start it as a job of the host")


def read_patch(location: WorkspaceLocation, most: int) -> OutputPiece:
    """Read the beginning of the change in a workspace on a host, as it is there now."""
    raise NotImplementedError("a host reads this: start it as a job of the host")


def remove_all(locations: tuple[WorkspaceLocation, ...], force: bool) -> dict[str, str]:
    """Remove workspaces on a host. Return the paths of those that stay, with the reasons."""
    raise NotImplementedError("a host does this: start it as a job of the host")


class HostJob(NamedTuple):
    """A piece of work with the types of its arguments and its result."""

    name: str
    work: Callable[..., Any]
    arguments: Any
    result: Any = None


JOBS: Final = (
    HostJob("unused_place", unused_location, tuple[WorkspaceLocation], WorkspaceLocation),
    HostJob("prepare", prepare, tuple[WorkspaceLocation, WorkspaceSettings], Prepared),
    HostJob("finish_setup", finish_setup, tuple[WorkspaceLocation]),
    HostJob("commit_all", commit_all, tuple[WorkspaceLocation, str], Change),
    HostJob("write_patch", write_patch, tuple[WorkspaceLocation, str]),
    HostJob("commit_and_remove", commit_and_remove, tuple[WorkspaceLocation, str | None], Change | None),
    HostJob("remove_all", remove_all, tuple[tuple[WorkspaceLocation, ...], bool], dict[str, str]),
    HostJob("read_patch", read_patch, tuple[WorkspaceLocation, int], OutputPiece),
    HostJob("read_output", read_output, tuple[str, Channel, int | None, int], OutputPiece),
)
JOB_BY_NAME: Final = {job.name: job for job in JOBS}
_JOB_BY_WORK: Final = {job.work: job for job in JOBS}


# -- the leader ----------------------------------------------------------------------------------------------


def make_call(call_id: str, work: Callable[..., Any], arguments: tuple[Any, ...], remote: str | None = None) -> Call:
    """Return the call that lets a worker do the work. It reads the leader's repository.

    `remote` is the `git_remote` of the host.
    """
    job = _JOB_BY_WORK.get(work)
    if job is None:
        raise InvalidInput(f"no host can do {getattr(work, '__name__', work)}; it can do {', '.join(JOB_BY_NAME)}")
    leader = LeaderRepository()
    location = arguments[0]
    if isinstance(location, WorkspaceLocation) and location.branch is not None:
        leader = _leader_repository(job.name, location, arguments, remote)
    values = msgspec.Raw(msgspec.json.encode(arguments, enc_hook=str))
    return Call(call_id=call_id, job=job.name, arguments=values, leader=msgspec.Raw(msgspec.json.encode(leader)))


def read_result(call: Call, report: CallReport, received: Path | None) -> Any:
    """Return the result of a call, and take what was sent for it. Raise what the work raised on the host.

    `received` is the file that the worker sent, if it sent one.
    """
    if report.error is not None:
        raise _raised(report)
    values, leader = decode_call(call)
    result = msgspec.json.decode(report.result, type=JOB_BY_NAME[call.job].result)
    match call.job:
        case "unused_place":
            _check_location(values[0], result)
        case "commit_all":
            _take_commits(values[0], leader, result, received)
        case "commit_and_remove":
            if result is not None:
                _take_commits(values[0], leader, result, received)
            return None
        case "write_patch":
            _take_patch(Path(values[1]), received)
    return result


def _check_location(asked: WorkspaceLocation, given: WorkspaceLocation) -> None:
    """Raise unless a worker has only added a number to the names: they are used in the leader's repository."""
    is_same = (given.repository, given.base) == (asked.repository, asked.base)
    if not (is_same and _is_numbered(asked.path, given.path) and _is_numbered(asked.branch or "", given.branch or "")):
        raise WorkspaceError(f"the host answered with another place for {asked.path}: {given.path!r:.200}")


def _is_numbered(name: str, given: str) -> bool:
    return given == name or (given.startswith(f"{name}-") and given.removeprefix(f"{name}-").isdecimal())


def write_wanted(call: Call, have: Iterable[str], file: Path) -> None:
    """Write a bundle of the commits that the call needs, for a worker that has the commits `have`.

    Raise `InvalidInput` if this call needs none: a worker gets the commits of its own work only.
    """
    if call.job != "prepare":
        raise InvalidInput(f"the call {call.call_id} ({call.job}) needs no commits")
    (location, _), leader = decode_call(call)
    if location.repository is None or location.base is None:
        raise InvalidInput(f"the call {call.call_id} is about a folder, which has no commits")
    have = tuple(have)
    if have and have[0].startswith(OF_SUBMODULE):
        number = have[0].removeprefix(OF_SUBMODULE)
        if not number.isdecimal() or int(number) >= len(leader.submodules):
            raise InvalidInput(f"the call {call.call_id} has no submodule {number!r}")
        submodule = leader.submodules[int(number)]
        write_bundle(submodule.clone, {f"{WANTED}base": submodule.commit}, have[1:], file)
        return
    refs = {f"{WANTED}base": location.base}
    if leader.tip is not None:
        refs[f"{WANTED}branch"] = leader.tip
    write_bundle(location.repository, refs, have, file)


def may_send(call: Call) -> bool:
    """Return whether a worker may send a file for this call."""
    return call.job in ("commit_all", "commit_and_remove", "write_patch")


def decode_call(call: Call) -> tuple[tuple[Any, ...], LeaderRepository]:
    """Return the arguments of a call. Raise `WorkspaceError` if this version does not know its job."""
    job = JOB_BY_NAME.get(call.job)
    if job is None:
        raise WorkspaceError(f"this worker cannot do {call.job!r}; install the version of the leader there")
    try:
        values = msgspec.json.decode(call.arguments, type=job.arguments)
        return values, msgspec.json.decode(call.leader, type=LeaderRepository)
    except msgspec.MsgspecError as error:
        raise WorkspaceError(f"the arguments of {call.job} cannot be read: {error}") from error


def error_report(call_id: str, error: BaseException) -> CallReport:
    """Return the report of a call that raised."""
    if isinstance(error, OSError) and not isinstance(error, PacelineError):
        error = folder_error("a file of the host", error)
    name = next((each.__name__ for each in type(error).__mro__ if each.__name__ in _ERRORS), None)
    if name is None:
        text = str(error) if isinstance(error, PacelineError) else f"{type(error).__name__}: {error}"
        return CallReport(call_id=call_id, error="WorkspaceError", text=text, is_campaigns=True)
    is_campaigns = isinstance(error, WorkspaceError) and error.is_campaigns
    return CallReport(call_id=call_id, error=name, text=str(error), is_campaigns=is_campaigns)


def _raised(report: CallReport) -> PacelineError:
    raised = _ERRORS.get(report.error or "", WorkspaceError)
    if raised is WorkspaceError and report.is_campaigns:
        return UnfitHost(report.text)  # what every unit would meet there may be right on other hosts
    if raised is WorkspaceError:
        return WorkspaceError(report.text, is_campaigns=False)
    return raised(report.text)


def _leader_repository(
    name: str, location: WorkspaceLocation, arguments: tuple[Any, ...], remote: str | None
) -> LeaderRepository:
    top = location.repository or ""
    branch = location.branch or ""
    if name == "unused_place":
        return LeaderRepository(taken=branches_like(top, branch))
    if name == "prepare":
        repository = repository_of(location)
        tip = repository.branch_tip(branch)
        return LeaderRepository(
            tip=tip,
            included=read_included(repository, arguments[1].include),
            submodules=tuple(cloned_submodules(top, repository.common, tip or location.base or "HEAD")),
            author=configured_identity(repository.settings),
        )
    if name in ("commit_all", "commit_and_remove"):
        return LeaderRepository(tip=open_repository(top).branch_tip(branch), remote=_remote_url(top, remote))
    return LeaderRepository()


def _remote_url(top: str, remote: str | None) -> str | None:
    """Return the URL of a remote of the repository, by its name. Anything else is a URL already."""
    if remote is None:
        return None
    found = run_git(PlainFolder(top), "config", "--get", f"remote.{remote}.url", call=GitCall(accepted=(0, 1)))
    return found.line or remote


def _take_commits(location: WorkspaceLocation, leader: LeaderRepository, change: Change, received: Path | None) -> None:
    if change.commit is None or location.branch is None or location.repository is None:
        return
    if not _COMMIT.fullmatch(change.commit):
        raise WorkspaceError(f"the host answered with {change.commit!r:.80}, which is not the id of a commit")
    if leader.remote is not None:
        take_branch(location.repository, leader.remote, location.branch, change.commit)
    elif received is not None:
        take_bundle(location.repository, received, location.branch, change.commit)
    elif open_repository(location.repository).branch_tip(location.branch) != change.commit:
        raise WorkspaceError(
            f"the commits of {location.branch} did not arrive; they are on the host", is_campaigns=False
        )


def _take_patch(file: Path, received: Path | None) -> None:
    if received is None:
        raise WorkspaceError(f"the patch for {file} did not arrive", is_campaigns=False)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        os.replace(received, file)
    except OSError as error:
        raise folder_error(str(file), error) from error


class _Work(msgspec.Struct):
    """One piece of work. It is made into a call, then the worker does it, then its result is read."""

    future: Future[Any]
    job: Future[Any] | None
    """What this machine does for it: makes the call, or reads the result."""
    call: Call | None = None
    received: Path | None = None
    """The file that the worker has sent for it."""

    @property
    def is_at_worker(self) -> bool:
        return self.job is None


class RemoteJobs:
    """The work of one host. Call ids begin with the owner: those of an earlier leader are none of this one's."""

    def __init__(self, send: Callable[[Order], None], local: BackgroundJobs, *, owner: str) -> None:
        self.remote: str | None = None
        """Where branches are pushed to from the host."""
        self.gone: str | None = None
        """Why the host can do nothing: it was silent for so long that it is lost."""
        self._send = send
        self._local = local
        self._owner = owner
        self._numbers = itertools.count(1)
        self._works: dict[str, _Work] = {}

    def start(self, work: Callable[..., Value], *arguments: object) -> Future[Value]:
        """Begin the work. Its function must be one that workers know (`hosts/jobs.py`)."""
        call_id = f"{self._owner}-{next(self._numbers)}"
        future: Future[Value] = Future()
        if self.gone is not None:
            future.set_exception(HostLost(self.gone))
            return future
        self._works[call_id] = _Work(future, self._local.start(make_call, call_id, work, arguments, self.remote))
        future.add_done_callback(lambda over: self._forget(call_id) if over.cancelled() else None)
        return future

    def step(self) -> None:
        """Move everything on."""
        for call_id, work in list(self._works.items()):
            if work.job is None or not work.job.done():
                continue
            job, work.job = work.job, None
            try:
                result = job.result()
            except Exception as error:  # noqa: BLE001 - whoever waits for the work decides what it means
                self._forget(call_id).set_exception(error)
                continue
            if work.call is None:
                work.call = result
                self._send(result)
            else:
                self._forget(call_id).set_result(result)

    @property
    def is_busy(self) -> bool:
        return bool(self._works)

    def repeat(self) -> None:
        """Order everything again that has no result: a worker does no call twice."""
        for work in self._works.values():
            if work.call is not None and work.is_at_worker:
                self._send(work.call)

    def call_of(self, call_id: str) -> Call | None:
        """Return a call that the worker is at."""
        work = self._works.get(call_id)
        return work.call if work is not None and work.is_at_worker else None

    def receive(self, call_id: str, file: Path) -> None:
        """Keep the file that the worker has sent for a call, until its result is read."""
        work = self._works.get(call_id)
        if work is None:
            file.unlink(missing_ok=True)
            return
        if work.received is not None:
            work.received.unlink(missing_ok=True)  # the answer to it was lost, and it was sent again
        work.received = file

    def take(self, report: CallReport) -> None:
        """Begin to read the result of a call."""
        work = self._works.get(report.call_id)
        if work is not None and work.call is not None and work.is_at_worker:
            work.job = self._local.start(read_result, work.call, report, work.received)

    def lose_all(self, reason: str) -> None:
        """End everything that has no result, and begin nothing more."""
        self.gone = reason
        for call_id in list(self._works):
            self._forget(call_id).set_exception(HostLost(reason))

    def _forget(self, call_id: str) -> Future[Any]:
        work = self._works.pop(call_id)
        if work.received is not None:
            with contextlib.suppress(OSError):
                work.received.unlink(missing_ok=True)
        return work.future

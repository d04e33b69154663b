"""The pieces of work that a worker does for the leader, besides sessions: git in workspaces, and reading output.

The engine starts them by the functions that it also runs itself, and this table has their names and their types. Here:
the leader's side. It sends what only its own repository knows, and takes into that repository what comes back. All of
it blocks, so callers run it in threads. `job_runner.py` has the side of the worker.
"""

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from paceline import errors
from paceline.core.values.channels import Channel
from paceline.errors import InvalidInput, PacelineError, UnfitHost, WorkspaceError
from paceline.hosts.messages import Call, CallReport
from paceline.store.interface import WorkspaceSettings
from paceline.workspaces import (
    Change,
    Prepared,
    WorkspacePlace,
    commit_all,
    commit_and_remove,
    finish_setup,
    prepare,
    unused_place,
    write_patch,
)
from paceline.workspaces.branches import branches_like
from paceline.workspaces.bundles import take_branch, take_bundle, write_bundle
from paceline.workspaces.changes import configured_identity
from paceline.workspaces.git import GitCall, run_git
from paceline.workspaces.included_files import IncludedFile, read_included
from paceline.workspaces.records import folder_error
from paceline.workspaces.repository import open_repository
from paceline.workspaces.submodules import SubmoduleCommit, cloned_submodules

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
    """A piece of what a session printed. The next one begins at `position`; after a complete one there is none."""

    data: bytes
    position: int
    is_complete: bool


class PatchPiece(msgspec.Struct, frozen=True, kw_only=True):
    """The beginning of the change in a workspace, as a patch."""

    data: bytes
    is_truncated: bool


class KeptFolder(msgspec.Struct, frozen=True, kw_only=True):
    """A workspace that was not removed, and why."""

    path: str
    reason: str


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


class JobArguments(msgspec.Struct, frozen=True, kw_only=True):
    """What a call carries: the arguments of the function, and what the leader's repository adds."""

    values: msgspec.Raw
    leader: LeaderRepository = LeaderRepository()


def read_output(attempt_id: str, channel: Channel, position: int | None, most: int) -> OutputPiece:
    """Read what a session on a host printed, from a position; with None the last `most` bytes."""
    raise NotImplementedError("a host reads this: start it as a job of the host")


def read_patch(place: WorkspacePlace, most: int) -> PatchPiece:
    """Read the change in a workspace on a host, as it is there now."""
    raise NotImplementedError("a host reads this: start it as a job of the host")


def remove_all(places: tuple[WorkspacePlace, ...], force: bool) -> "tuple[KeptFolder, ...]":
    """Remove workspaces on a host. Return those that stay."""
    raise NotImplementedError("a host does this: start it as a job of the host")


class HostJob(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of work with the types of its arguments and its result."""

    name: str
    work: Callable[..., Any]
    arguments: Any
    result: Any = None


JOBS: Final = (
    HostJob(name="unused_place", work=unused_place, arguments=tuple[WorkspacePlace], result=WorkspacePlace),
    HostJob(name="prepare", work=prepare, arguments=tuple[WorkspacePlace, WorkspaceSettings], result=Prepared),
    HostJob(name="finish_setup", work=finish_setup, arguments=tuple[WorkspacePlace]),
    HostJob(name="commit_all", work=commit_all, arguments=tuple[WorkspacePlace, str], result=Change),
    HostJob(name="write_patch", work=write_patch, arguments=tuple[WorkspacePlace, str]),
    HostJob(
        name="commit_and_remove",
        work=commit_and_remove,
        arguments=tuple[WorkspacePlace, str | None],
        result=Change | None,
    ),
    HostJob(
        name="remove_all",
        work=remove_all,
        arguments=tuple[tuple[WorkspacePlace, ...], bool],
        result=tuple[KeptFolder, ...],
    ),
    HostJob(name="read_patch", work=read_patch, arguments=tuple[WorkspacePlace, int], result=PatchPiece),
    HostJob(
        name="read_output",
        work=read_output,
        arguments=tuple[str, Channel, int | None, int],
        result=OutputPiece,
    ),
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
    place = arguments[0]
    if isinstance(place, WorkspacePlace) and place.branch is not None:
        leader = _leader_repository(job.name, place, arguments, remote)
    values = msgspec.json.encode(arguments, enc_hook=str)
    return Call(
        call_id=call_id,
        job=job.name,
        arguments=msgspec.Raw(msgspec.json.encode(JobArguments(values=msgspec.Raw(values), leader=leader))),
    )


def read_result(call: Call, report: CallReport, received: Path | None) -> Any:
    """Return the result of a call, and take what was sent for it. Raise what the work raised on the host.

    `received` is the file that the worker sent, if it sent one.
    """
    if report.error is not None:
        raise _raised(report)
    job, arguments = decode_call(call)
    values = msgspec.json.decode(arguments.values, type=job.arguments)
    result = msgspec.json.decode(report.result, type=job.result)
    match job.name:
        case "unused_place":
            _check_place(values[0], result)
        case "commit_all":
            _take_commits(values[0], arguments.leader, result, received)
        case "commit_and_remove":
            if result is not None:
                _take_commits(values[0], arguments.leader, result, received)
            return None
        case "write_patch":
            _take_patch(Path(values[1]), received)
    return result


def _check_place(asked: WorkspacePlace, given: WorkspacePlace) -> None:
    """Raise unless a worker has only added a number to the names: they are used in the leader's repository."""
    is_same = (given.repository, given.base) == (asked.repository, asked.base)
    if not (is_same and _is_numbered(asked.path, given.path) and _is_numbered(asked.branch or "", given.branch or "")):
        raise WorkspaceError(f"the host answered with another place for {asked.path}: {given.path!r:.200}")


def _is_numbered(name: str, given: str) -> bool:
    return given == name or (given.startswith(f"{name}-") and given.removeprefix(f"{name}-").isdecimal())


def _check_commit(commit: str) -> None:
    if not _COMMIT.fullmatch(commit):
        raise WorkspaceError(f"the host answered with {commit!r:.80}, which is not the id of a commit")


def write_wanted(call: Call, have: Iterable[str], file: Path) -> None:
    """Write a bundle of the commits that the call needs, for a worker that has the commits `have`.

    Raise `InvalidInput` if this call needs none: a worker gets the commits of its own work only.
    """
    job, arguments = decode_call(call)
    if job.name != "prepare":
        raise InvalidInput(f"the call {call.call_id} ({job.name}) needs no commits")
    place, _ = msgspec.json.decode(arguments.values, type=job.arguments)
    if place.repository is None or place.base is None:
        raise InvalidInput(f"the call {call.call_id} is about a folder, which has no commits")
    have = tuple(have)
    if have and have[0].startswith(OF_SUBMODULE):
        submodule = _submodule(call, arguments.leader, have[0].removeprefix(OF_SUBMODULE))
        write_bundle(submodule.clone, {f"{WANTED}base": submodule.commit}, have[1:], file)
        return
    refs = {f"{WANTED}base": place.base}
    if arguments.leader.tip is not None:
        refs[f"{WANTED}branch"] = arguments.leader.tip
    write_bundle(place.repository, refs, have, file)


def _submodule(call: Call, leader: LeaderRepository, number: str) -> SubmoduleCommit:
    if not number.isdecimal() or int(number) >= len(leader.submodules):
        raise InvalidInput(f"the call {call.call_id} has no submodule {number!r}")
    return leader.submodules[int(number)]


def may_send(call: Call) -> bool:
    """Return whether a worker may send a file for this call."""
    return call.job in ("commit_all", "commit_and_remove", "write_patch")


def decode_call(call: Call) -> tuple[HostJob, JobArguments]:
    """Return the job of a call and its arguments. Raise `WorkspaceError` if this version does not know it."""
    job = JOB_BY_NAME.get(call.job)
    if job is None:
        raise WorkspaceError(f"this worker cannot do {call.job!r}; install the version of the leader there")
    try:
        return job, msgspec.json.decode(call.arguments, type=JobArguments)
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
    name: str, place: WorkspacePlace, arguments: tuple[Any, ...], remote: str | None
) -> LeaderRepository:
    top = place.repository or ""
    branch = place.branch or ""
    if name == "unused_place":
        return LeaderRepository(taken=branches_like(top, branch))
    if name == "prepare":
        repository = open_repository(top)
        tip = repository.branch_tip(branch)
        return LeaderRepository(
            tip=tip,
            included=read_included(top, arguments[1].include),
            submodules=tuple(cloned_submodules(top, repository.common, tip or place.base or "HEAD")),
            author=configured_identity(top),
        )
    if name in ("commit_all", "commit_and_remove"):
        return LeaderRepository(tip=open_repository(top).branch_tip(branch), remote=_remote_url(top, remote))
    return LeaderRepository()


def _remote_url(top: str, remote: str | None) -> str | None:
    """Return the URL of a remote of the repository, by its name. Anything else is a URL already."""
    if remote is None:
        return None
    found = run_git(top, "config", "--get", f"remote.{remote}.url", call=GitCall(accepted=(0, 1)))
    return found.line or remote


def _take_commits(place: WorkspacePlace, leader: LeaderRepository, change: Change, received: Path | None) -> None:
    if change.commit is None or place.branch is None or place.repository is None:
        return
    _check_commit(change.commit)
    if leader.remote is not None:
        take_branch(place.repository, leader.remote, place.branch, change.commit)
    elif received is not None:
        take_bundle(place.repository, received, place.branch, change.commit)
    elif open_repository(place.repository).branch_tip(place.branch) != change.commit:
        raise WorkspaceError(f"the commits of {place.branch} did not arrive; they are on the host", is_campaigns=False)


def _take_patch(file: Path, received: Path | None) -> None:
    if received is None:
        raise WorkspaceError(f"the patch for {file} did not arrive", is_campaigns=False)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        os.replace(received, file)
    except OSError as error:
        raise folder_error(str(file), error) from error

"""The side of the worker of `hosts/jobs.py`: doing what a call asks for, and reporting what came of it.

Workspaces are made from a repository of this machine: the user's own clone, or a mirror. A location names the
repository on the machine of the leader. If the same path is a repository here that has the commits, it is used. Else a
bare mirror in the home of the worker is, which gets the missing commits from the leader.
"""

import asyncio
import contextlib
import hashlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar, TypeVarTuple, Unpack

import msgspec

from paceline.clock import Clock
from paceline.core.values.session_output import Channel
from paceline.errors import LinkDown, NotJoined, PacelineError, UnknownName, WorkspaceError, WorkspaceLost
from paceline.executors.spool import OutputReader, Spool, is_locked, read_tail
from paceline.hosts.jobs import (
    OF_SUBMODULE,
    WANTED,
    LeaderRepository,
    OutputPiece,
    decode_call,
    error_report,
)
from paceline.hosts.messages import Call, CallReport
from paceline.hosts.worker.link import Link
from paceline.store.interface import WorkspaceSettings
from paceline.workspaces import (
    Change,
    Prepared,
    WorkspaceLocation,
    commit_all,
    diff,
    finish_setup,
    prepare,
    remove,
    unused_location,
    write_patch,
)
from paceline.workspaces.changes import (
    MOST_KNOWN,
    SHALLOW,
    fetch_refs,
    is_ancestor,
    known_commits,
    shallow_commits,
    write_bundle,
)
from paceline.workspaces.contents import SubmoduleCommit
from paceline.workspaces.folders import locked, slug_of
from paceline.workspaces.preparation import delete_empty_parents, records_of
from paceline.workspaces.repository import (
    OUTSIDE,
    PLAIN,
    GitAnswer,
    GitCall,
    PlainFolder,
    branches_like,
    open_repository,
    run_git,
)
from paceline.workspaces.worktree import linked_entry

KEPT: Final = "refs/paceline/kept/"
"""Names for the commits that a mirror got, so that git keeps them and the next transfer is small."""
MOST_KEPT: Final = 50
"""How many of them stay named. Workspaces hold what they need by their branches."""
UNUSED_SECONDS: Final = 30 * 86400.0
"""After this time a mirror without workspaces and branches is deleted. Making it again costs one transfer."""
_TIDYING: Final = ("gc.auto=6700", "gc.autoPackLimit=50", "gc.autoDetach=false")
"""git's own limits of loose objects and packs; each transfer adds a pack. It must not detach itself."""


class HostRepositories:
    """Finds and fills repositories. `home` is the folder of the worker."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "repositories"

    def in_use(self, location: WorkspaceLocation) -> str | None:
        """Return the repository that the workspace was made from, or None if this machine has no such workspace."""
        found = [top for top in self._candidates(location.repository or "") if _is_repository(top)]
        for top in found:
            if linked_entry(open_repository(top), location.path) is not None:
                return top
        for top in found:
            if records_of(_at(location, top)).read() is not None:
                return top
        return next((top for top in found if open_repository(top).branch_tip(location.branch or "")), None)

    def holding(self, location: WorkspaceLocation, leader: LeaderRepository) -> str | None:
        """Return the repository of the workspace, or one that has the commits that it begins with; None without one."""
        used = self.in_use(location)
        if used is not None and linked_entry(open_repository(used), location.path) is not None:
            return used
        needed = {location.base or "", leader.tip or location.base or ""}
        for top in dict.fromkeys((used or location.repository or "", *self._candidates(location.repository or ""))):
            has_commits = _is_repository(top) and set(known_commits(open_repository(top).git, needed)) == needed
            if has_commits and (self._is_mirror(top) or not any(self.missing_submodules(top, leader))):
                return top
        return None

    def unused(self, location: WorkspaceLocation, taken: tuple[str, ...]) -> WorkspaceLocation:
        """Return the location, with a number if a folder or a branch is in its way, here or on the leader (`taken`)."""
        tops = [top for top in self._candidates(location.repository or "") if _is_repository(top)] or [
            self.mirror(location)
        ]
        names = {*taken, *(name for top in tops for name in branches_like(top, location.branch or ""))}
        return _at(unused_location(_at(location, tops[0]), names), location.repository or "")

    def missing_submodules(self, top: str, leader: LeaderRepository) -> Iterator[tuple[int, SubmoduleCommit]]:
        """Yield the submodules, with their numbers, whose commits the repository does not have."""
        common = open_repository(top).common if leader.submodules else ""
        for number, submodule in enumerate(leader.submodules):
            clone = submodule.clone_in(common)
            if not _is_repository(clone) or not known_commits(open_repository(clone).git, [submodule.commit]):
                yield number, submodule

    def mirror(self, location: WorkspaceLocation) -> str:
        """Return the mirror of the repository, made if it is missing."""
        top = self._mirror_path(location.repository or "")
        with locked(f"{top}.lock"):
            if not os.path.isfile(os.path.join(top, "HEAD")):
                self._delete_unused()
                _make_bare(top, location.base or "")
            with contextlib.suppress(OSError):
                os.utime(os.path.join(top, "HEAD"))
        return top

    def submodule_mirror(self, mirror: str, submodule: SubmoduleCommit) -> str:
        """Return the mirror of a submodule, made if it is missing."""
        top = submodule.clone_in(mirror)
        with open_repository(mirror).locked():
            if not os.path.isfile(os.path.join(top, "HEAD")):
                _make_bare(top, submodule.commit)
        return top

    def tips(self, mirror: str) -> tuple[str, ...]:
        """Return commits that the mirror has, the newest first."""
        order = ("--sort=-committerdate", f"--count={MOST_KNOWN}", "--format=%(objectname)")
        out = run_git(open_repository(mirror).git, "for-each-ref", *order, "refs/heads", KEPT).out
        return tuple(dict.fromkeys(out.decode().split()))

    def fill(self, mirror: str, bundle: Path, base: str, tip: str | None = None) -> None:
        """Take the commits of a bundle into the mirror."""
        refspecs = [f"+{WANTED}base:{KEPT}{base}"]
        if tip is not None:
            refspecs.append(f"+{WANTED}branch:{KEPT}{tip}")
        with open_repository(mirror).locked() as call:
            _note_shallow(mirror, bundle)
            fetch_refs(mirror, os.path.abspath(bundle), *refspecs, call=call)
            _drop_old_names(mirror, call)

    def set_author(self, top: str, author: tuple[str, str] | None) -> None:
        """Let whoever commits in a mirror be the one who commits on the machine of the leader."""
        if not self._is_mirror(top) or author is None:
            return
        wanted = {"user.name": author[0], "user.email": author[1]}
        if any(_config(top, "--get", key).line != value for key, value in wanted.items()):
            with open_repository(top).locked() as call:
                for key, value in wanted.items():
                    if value:
                        _config(top, key, value, call=call)

    def bring_branch(self, top: str, location: WorkspaceLocation, tip: str | None) -> None:
        """Let the branch begin where the leader has it, if this machine has no workspace with newer work."""
        branch = location.branch or ""
        if tip is None or os.path.lexists(location.path):
            return
        repository = open_repository(top)
        with repository.locked() as call:
            ours = repository.branch_tip(branch)
            is_behind = ours is None or is_ancestor(repository.git, ours, tip)
            if is_behind and repository.checked_out().get(branch) in (None, location.path):
                run_git(repository.git, "update-ref", f"refs/heads/{branch}", tip, call=call)

    def forget_branch(self, top: str, branch: str, tip: str | None) -> None:
        """Delete the branch of a removed workspace from a mirror, if the leader has all its commits, and tidy up."""
        if not self._is_mirror(top):
            return  # the user's own clone
        repository = open_repository(top)
        with repository.locked() as call:
            ours = repository.branch_tip(branch)
            is_safe = ours is not None and tip is not None and bool(known_commits(repository.git, [tip]))
            if is_safe and ours is not None and tip is not None and is_ancestor(repository.git, ours, tip):
                run_git(repository.git, "update-ref", "-d", f"refs/heads/{branch}", ours, call=call)
        run_git(repository.git, "gc", "--auto", "--quiet", call=GitCall(config=_TIDYING))

    def _candidates(self, repository: str) -> tuple[str, ...]:
        return (repository, self._mirror_path(repository))

    def _mirror_path(self, repository: str) -> str:
        digest = hashlib.sha256(os.fsencode(repository)).hexdigest()[:16]
        return str(self._folder / f"{slug_of(os.path.basename(repository))}-{digest}.git")

    def _is_mirror(self, top: str) -> bool:
        return os.path.dirname(top) == str(self._folder)

    def _delete_unused(self) -> None:
        """Delete mirrors that nothing was made from for long, and that hold no work."""
        with contextlib.suppress(FileNotFoundError):
            for mirror in self._folder.glob("*.git"):
                age = time.time() - _used_at(str(mirror))
                has_work = run_git(open_repository(str(mirror)).git, "for-each-ref", "--count=1", "refs/heads").out
                if age > UNUSED_SECONDS and not has_work and not any((mirror / "worktrees").glob("*")):
                    shutil.rmtree(mirror, ignore_errors=True)


def _is_repository(top: str) -> bool:
    """Return whether the folder itself is a repository that git lets us use."""
    marks = (".git", "HEAD") if os.path.isdir(top) else ()
    if not any(os.path.lexists(os.path.join(top, mark)) for mark in marks):
        return False
    try:
        return run_git(open_repository(top).git, "rev-parse", "--git-dir", call=GitCall(accepted=(0, 128))).code == 0
    except WorkspaceError:
        return False


def _config(mirror: str, *arguments: str, call: GitCall = PLAIN) -> GitAnswer:
    """Read or change the configuration of a mirror, an ordinary file without what it includes."""
    file = os.path.join(mirror, "config")
    if not os.path.isfile(file):
        raise WorkspaceError(f"{file} is no file that git can read; delete the mirror {mirror}, and retry")
    call = msgspec.structs.replace(call, env=OUTSIDE, accepted=(0, 1))
    return run_git(PlainFolder("/"), "config", "--file", file, "--no-includes", *arguments, call=call)


def _make_bare(top: str, commit: str) -> None:
    """Make a bare repository, whole or not at all."""
    shutil.rmtree(f"{top}.new", ignore_errors=True)
    os.makedirs(f"{top}.new", mode=0o700)
    length = "sha256" if len(commit) == 64 else "sha1"
    run_git(PlainFolder(f"{top}.new"), "init", "--quiet", "--bare", f"--object-format={length}", ".")
    os.rename(f"{top}.new", top)


def _at(location: WorkspaceLocation, top: str) -> WorkspaceLocation:
    return msgspec.structs.replace(location, repository=top)


def _note_shallow(mirror: str, bundle: Path) -> None:
    """Record commits whose parents the leader does not have either. git would else miss them."""
    git = open_repository(mirror).git
    out = run_git(git, "bundle", "list-heads", os.path.abspath(bundle)).out.decode(errors="replace")
    named = [line.partition(" ")[0] for line in out.splitlines() if line.partition(" ")[2].startswith(SHALLOW)]
    known = shallow_commits(mirror)
    new = [commit for commit in named if commit not in known and not known_commits(git, [commit])]
    if new:
        file = os.path.join(mirror, "shallow")
        with open(f"{file}.new", "w", encoding="ascii") as opened:
            opened.writelines(f"{commit}\n" for commit in (*known, *new))
        os.replace(f"{file}.new", file)


def _drop_old_names(mirror: str, call: GitCall) -> None:
    out = run_git(open_repository(mirror).git, "for-each-ref", "--sort=-committerdate", "--format=%(refname)", KEPT).out
    for name in out.decode().split()[MOST_KEPT:]:
        run_git(open_repository(mirror).git, "update-ref", "-d", name, call=call)


def _used_at(mirror: str) -> float:
    try:
        return os.stat(os.path.join(mirror, "HEAD")).st_mtime
    except OSError:
        return time.time()


# -- calls of the leader -----------------------------------------------------------------------------

log = logging.getLogger("paceline.worker")

RETRY_SECONDS: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 30.0, 30.0, 60.0, 60.0)
"""Waits between attempts to move commits while no leader answers. A leader that is replaced is back sooner."""
MOST_PIECE_BYTES: Final = 1 << 20
"""The most that one report carries of an output or a patch, so that others have their turn."""

Arguments = TypeVarTuple("Arguments")
Value = TypeVar("Value")


class JobRunner:
    """Does the calls of the leader. Several may run at the same time.

    `joining` returns the joining of now: when one is over, another try of a transfer may find the next one.
    """

    def __init__(self, home: Path, spool: Spool, link: Link, joining: Callable[[], str], clock: Clock) -> None:
        self._repositories = HostRepositories(home)
        self._spool = spool
        self._link = link
        self._joining = joining
        self._clock = clock
        self._folder = home / "transfers"
        shutil.rmtree(self._folder, ignore_errors=True)  # of a worker that was killed
        self._filling: dict[str, asyncio.Lock] = {}
        self._threads = asyncio.Semaphore(4)  # git waits for the disk; more at once slow each other down

    async def run(self, call: Call) -> CallReport:
        """Do what the call asks for. An error becomes part of the report."""
        try:
            values, leader = decode_call(call)
            result = await self._do(call, leader, values)
            return CallReport(call_id=call.call_id, result=msgspec.Raw(msgspec.json.encode(result)))
        except Exception as error:
            if not isinstance(error, PacelineError | OSError):
                log.exception("the call %s (%s) failed", call.call_id, call.job)
            return error_report(call.call_id, error)

    async def _do(self, call: Call, leader: LeaderRepository, values: tuple[Any, ...]) -> object:
        match call.job:
            case "unused_place":
                if values[0].branch is None:
                    return await self._in_thread(unused_location, values[0])
                return await self._in_thread(self._repositories.unused, values[0], leader.taken)
            case "prepare":
                return await self._prepare(call, leader, *values)
            case "finish_setup":
                await self._in_thread(finish_setup, await self._found(values[0]))
                return None
            case "commit_all":
                return await self._commit(call, leader, *values)
            case "commit_and_remove":
                return await self._remove(call, leader, *values)
            case "remove_all":
                left = {location.path: await self._remove_left(location, force=values[1]) for location in values[0]}
                return {path: reason for path, reason in left.items() if reason is not None}
            case "write_patch":
                await self._send_patch(call, values[0])
                return None
            case "read_patch":
                return await self._in_thread(patch_piece, await self._found(values[0]), values[1])
            case _:
                return await self._in_thread(output_piece, self._spool, *values)

    async def _prepare(
        self, call: Call, leader: LeaderRepository, location: WorkspaceLocation, settings: WorkspaceSettings
    ) -> Prepared:
        if location.branch is None:
            _check_folder(location)
            return await self._in_thread(prepare, location, settings)
        top = await self._in_thread(self._repositories.holding, location, leader)
        if top is None:
            mirror = await self._in_thread(self._repositories.mirror, location)
            async with self._filling.setdefault(mirror, asyncio.Lock()):  # the others find its commits there afterwards
                top = await self._in_thread(self._repositories.holding, location, leader)
                if top is None:
                    top = await self._fill_mirror(call, leader, location, mirror)
        await self._fill_submodules(call, leader, location, top)
        await self._in_thread(self._repositories.set_author, top, leader.author)
        await self._in_thread(self._repositories.bring_branch, top, location, leader.tip)
        return await self._in_thread(prepare, _with(location, top), settings, leader.included)

    async def _fill_mirror(self, call: Call, leader: LeaderRepository, location: WorkspaceLocation, mirror: str) -> str:
        have = await self._in_thread(self._repositories.tips, mirror)
        async with self._file() as file:
            await self._repeat(partial(self._link.fetch_commits, call_id=call.call_id, have=have, file=file))
            await self._in_thread(self._repositories.fill, mirror, file, location.base or "", leader.tip)
        return mirror

    async def _fill_submodules(
        self, call: Call, leader: LeaderRepository, location: WorkspaceLocation, top: str
    ) -> None:
        """Get the missing commits of submodules. The user's own clone has them, or it was not chosen."""
        if top == location.repository or not leader.submodules:
            return
        async with self._filling.setdefault(top, asyncio.Lock()):
            missing = await self._in_thread(lambda: [*self._repositories.missing_submodules(top, leader)])
            for number, submodule in missing:
                mirror = await self._in_thread(self._repositories.submodule_mirror, top, submodule)
                have = (f"{OF_SUBMODULE}{number}", *await self._in_thread(self._repositories.tips, mirror))
                async with self._file() as file:
                    await self._repeat(partial(self._link.fetch_commits, call_id=call.call_id, have=have, file=file))
                    await self._in_thread(self._repositories.fill, mirror, file, submodule.commit, None)

    async def _commit(self, call: Call, leader: LeaderRepository, location: WorkspaceLocation, message: str) -> Change:
        here = await self._found(location)
        change = await self._in_thread(commit_all, here, message)
        await self._send_branch(call, leader, here, change)
        return change

    async def _remove(
        self, call: Call, leader: LeaderRepository, location: WorkspaceLocation, message: str | None
    ) -> Change | None:
        """Remove the workspace. What is committed for that is sent before the folder is deleted."""
        here = await self._removable(location)
        if here is None:
            return None
        change = None
        if message is not None and await self._in_thread(os.path.isdir, location.path):
            change = await self._in_thread(commit_all, here, message)
            await self._send_branch(call, leader, here, change)
        await self._in_thread(_remove, here, False)
        if here.branch is not None and change is None:
            await self._in_thread(self._repositories.forget_branch, here.repository or "", here.branch, leader.tip)
        return change

    async def _remove_left(self, location: WorkspaceLocation, *, force: bool) -> str | None:
        """Remove a workspace that nobody needs. Return why it stays, if it does."""
        try:
            here = await self._removable(location)
            if here is not None and (location.branch or await self._in_thread(os.path.lexists, location.path)):
                await self._in_thread(_remove, here, force)
        except PacelineError as error:
            return str(error)
        return None

    async def _removable(self, location: WorkspaceLocation) -> WorkspaceLocation | None:
        """Return the location with its repository here; None if nothing is left of it."""
        here = await self._found_or_none(location)
        if here is None and await self._in_thread(os.path.lexists, location.path):
            what = "this host has no repository (any more) that it was made from"
            raise WorkspaceError(f"the workspace {location.path} is not removed: {what}", is_campaigns=False)
        return here

    async def _send_branch(self, call: Call, leader: LeaderRepository, here: WorkspaceLocation, change: Change) -> None:
        if change.commit is None or here.branch is None:
            return
        if leader.remote is not None:
            await self._in_thread(_push, here, leader.remote)
            return
        refs = {f"refs/heads/{here.branch}": change.commit}
        have = [commit for commit in (here.base, leader.tip) if commit is not None and commit != change.commit]
        async with self._file() as file:
            await self._in_thread(write_bundle, here.repository or "", refs, have, file)
            await self._repeat(partial(self._link.send_commits, call_id=call.call_id, file=file))

    async def _send_patch(self, call: Call, location: WorkspaceLocation) -> None:
        here = await self._found(location)
        async with self._file() as file:
            await self._in_thread(write_patch, here, file)
            await self._repeat(partial(self._link.send_commits, call_id=call.call_id, file=file))

    async def _found(self, location: WorkspaceLocation) -> WorkspaceLocation:
        here = await self._found_or_none(location)
        if here is None:
            raise WorkspaceLost(
                f"this host has no workspace {location.path} (any more);"
                " `paceline retry UNIT --fresh` starts the unit over"
            )
        return here

    async def _found_or_none(self, location: WorkspaceLocation) -> WorkspaceLocation | None:
        """Return the location with the repository that it was made from on this machine."""
        if location.branch is None:
            return location
        top = await self._in_thread(self._repositories.in_use, location)
        return None if top is None else _with(location, top)

    async def _in_thread(self, work: Callable[[Unpack[Arguments]], Value], *arguments: *Arguments) -> Value:
        async with self._threads:
            return await asyncio.to_thread(work, *arguments)

    @contextlib.asynccontextmanager
    async def _file(self) -> AsyncIterator[Path]:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            yield Path(folder) / "transfer"

    async def _repeat(self, transfer: Callable[[str], Awaitable[None]]) -> None:
        """Make a transfer. While no leader answers, it is tried again. Raise `LinkDown` if that lasts too long."""
        for seconds in (*RETRY_SECONDS, None):
            try:
                await transfer(self._joining())
                return
            except (LinkDown, NotJoined) as error:
                if seconds is None:
                    raise LinkDown(str(error)) from error
                log.info("no commits can be moved now: %s", error)
                await self._clock.sleep(seconds)


def output_piece(spool: Spool, attempt_id: str, channel: Channel, position: int | None, most: int) -> OutputPiece:
    """Read what an attempt printed, from a position; with None its end."""
    most = min(most, MOST_PIECE_BYTES)
    folder = spool.folder(attempt_id)
    if folder is None:
        raise UnknownName(f"this host has no output of the attempt {attempt_id} (any more)")
    if position is None:
        return OutputPiece(data=read_tail(folder, channel, most), position=0, is_complete=True)
    is_over = not is_locked(folder)  # checked before reading, so that the last output is not missed
    reader = OutputReader(folder, channel, position)
    data = b""
    while len(data) < most:
        piece = reader.read(is_over=is_over)
        if not piece:
            return OutputPiece(data=data, position=reader.position, is_complete=is_over)
        data += piece
    return OutputPiece(data=data, position=reader.position, is_complete=False)


def patch_piece(location: WorkspaceLocation, most: int) -> OutputPiece:
    """Read the beginning of the change in a workspace."""
    most = min(most, MOST_PIECE_BYTES)
    data = b""
    with contextlib.closing(diff(location)) as pieces:
        while len(data) <= most and (piece := next(pieces, b"")):
            data += piece
    return OutputPiece(data=data[:most], position=most, is_complete=len(data) <= most)


def _remove(location: WorkspaceLocation, force: bool) -> None:
    remove(location, force=force)
    delete_empty_parents(location)


def _push(location: WorkspaceLocation, remote: str) -> None:
    name = f"refs/heads/{location.branch}"
    try:
        run_git(
            open_repository(location.repository or "").git,
            *("push", "--quiet", "--no-verify", "--", remote, f"{name}:{name}"),
            call=GitCall(uses_network=True),
        )
    except WorkspaceError as error:
        raise WorkspaceError(
            f"the branch {location.branch} cannot be pushed to {remote}: {error}; if an earlier attempt of the unit has"
            " left it there, delete it there and retry the unit",
            is_campaigns=False,
        ) from error


def _check_folder(location: WorkspaceLocation) -> None:
    if not os.path.isdir(location.repository or ""):
        raise WorkspaceError(
            f"this host has no folder {location.repository}, and a copy needs it on a file system that all hosts share;"
            ' set kind = "worktree" in [campaign.workspace], or hosts = ["local"]'
        )


def _with(location: WorkspaceLocation, top: str) -> WorkspaceLocation:
    git = None if location.git is None else msgspec.structs.replace(location.git, alternates=None)
    return msgspec.structs.replace(location, repository=top, git=git)

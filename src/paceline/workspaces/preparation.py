"""The life of a workspace: it is made before the first attempt of a unit, found again by the next, and removed.

Every step can be interrupted by a crash and is safe to repeat. The record of the workspace, git and the disk decide
what is to be done. Only what the record calls half-made is deleted without being asked for.
"""

import contextlib
import functools
import os
import shutil
import stat
from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec

from paceline.errors import UncommittedWork, WorkspaceError, WorkspaceLost
from paceline.store.interface import WorkspaceSettings
from paceline.store.unit_result import GitSettings
from paceline.workspaces.contents import (
    check_no_repository,
    check_objects,
    checked_submodules,
    fill_submodules,
    pathspecs_without,
    read_contents,
    scratch_index,
    show_all_changes,
)
from paceline.workspaces.folders import (
    RecordFile,
    WorkspaceLocation,
    WorkspaceRecord,
    check_no_link,
    check_room,
    copy_folder,
    delete_folder,
    folder_error,
    is_empty_or_missing,
    is_inside,
    make_parent,
    size_of,
)
from paceline.workspaces.repository import Repository, commit_in, open_repository, run_git
from paceline.workspaces.worktree import Worktree, linked_entry

MOST_BYTES: Final = 1 << 20
"""What files that are sent to another machine may take together, for each unit. Configuration is far smaller."""


# -- files outside of git that a worktree needs as well, such as `.env` -------------------------------


class IncludedFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file outside of git on its way to another machine. Its path is relative to the top of the repository."""

    path: bytes
    data: bytes = b""
    mode: int = 0o600
    link: bytes | None = None
    """What it points to, if it is a link."""
    is_ignored: bool = True
    """Whether git ignores it. Else it is kept out of commits."""


def copy_included(repository: Repository, workspace: str, patterns: Sequence[str]) -> tuple[str, ...]:
    """Copy the untracked files of the main tree that match a pattern. Return those that git does not ignore.

    A pattern names files or folders relative to the top; one without a slash matches in every folder. Links are copied
    as links if they stay inside of the tree, and left out otherwise.
    """
    if not patterns or is_bare(repository.top):
        return ()
    ignored, untracked = _listed(repository, patterns, "--ignored"), _listed(repository, patterns)
    for path in (*ignored, *untracked):
        _copy(repository.top, workspace, path)
    return untracked


def read_included(repository: Repository, patterns: Sequence[str]) -> tuple[IncludedFile, ...]:
    """Read the untracked files of the main tree that match a pattern, for a workspace on another machine."""
    top = repository.top
    if not patterns or is_bare(top):
        return ()
    found: list[IncludedFile] = []
    ignored = set(_listed(repository, patterns, "--ignored"))
    left = MOST_BYTES
    for path in (*ignored, *_listed(repository, patterns)):
        file = _read(top, path, most=left, is_ignored=path in ignored)
        if file is not None:
            left -= len(file.data)
            found.append(file)
    return tuple(sorted(found, key=lambda file: file.path))


def write_included(workspace: str, files: Iterable[IncludedFile]) -> tuple[str, ...]:
    """Write files of another machine into the workspace. Return those that git does not ignore.

    What the workspace has already stays as it is.
    """
    untracked = []
    for file in files:
        path = os.fsdecode(file.path)
        target = _target(workspace, path)
        if target is None:
            continue
        if file.link is None:
            fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, file.mode & 0o777)
            with open(fd, "wb") as opened:
                opened.write(file.data)
        elif not os.path.isabs(file.link):
            os.symlink(file.link, os.fsencode(target))
        untracked += [] if file.is_ignored else [path]
    return tuple(untracked)


def is_bare(top: str) -> bool:
    """Return whether the repository has no main tree, such as a mirror."""
    return not os.path.lexists(os.path.join(top, ".git"))


def include_mistake(pattern: str) -> str | None:
    """Return what is wrong with a pattern, or None."""
    if not pattern.strip() or "\0" in pattern:
        return "it is empty"
    if pattern.startswith(("/", "~")) or ".." in pattern.split("/"):
        return "it must be relative to the top of the repository, and stay inside of it"
    return None


def _listed(repository: Repository, patterns: Sequence[str], *options: str) -> tuple[str, ...]:
    """Return the matching files that git does not track, relative to the top."""
    wanted = [pathspec for pattern in patterns for pathspec in _pathspecs(pattern)]
    out = run_git(repository.tree, "ls-files", "--others", "--exclude-standard", *options, "-z", "--", *wanted).out
    return tuple(sorted(os.fsdecode(path) for path in out.split(b"\0") if path and not path.endswith(b"/")))


def _pathspecs(pattern: str) -> tuple[str, str]:
    """Return the pattern in git's own words: the file itself, and everything in a folder of that name."""
    pattern = pattern.removeprefix("./").rstrip("/")
    glob = f":(glob){pattern}" if "/" in pattern else f":(glob)**/{pattern}"
    return glob, f"{glob}/**"


def _copy(top: str, workspace: str, path: str) -> None:
    source, target = os.path.join(top, path), _target(workspace, path)
    if target is None or not _stays_inside(top, source):
        return
    if os.path.islink(source):
        os.symlink(os.readlink(source), target)
    elif os.path.isfile(source):
        shutil.copy2(source, target, follow_symlinks=False)


def _read(top: str, path: str, *, most: int, is_ignored: bool) -> IncludedFile | None:
    source, name = os.path.join(top, path), os.fsencode(path)
    if not _stays_inside(top, source):
        return None
    if os.path.islink(source):
        return IncludedFile(path=name, link=os.fsencode(os.readlink(source)), is_ignored=is_ignored)
    if not os.path.isfile(source):
        return None
    try:
        with open(source, "rb") as opened:
            data = opened.read(most + 1)
            mode = stat.S_IMODE(os.fstat(opened.fileno()).st_mode)
    except OSError as error:
        raise WorkspaceError(f"cannot read {source}, which `include` names: {error.strerror}") from error
    if len(data) > most:
        raise WorkspaceError(
            f"the files that `include` names in {top} take more than {MOST_BYTES >> 20} MB, too much to send to another"
            f" host ({path} is one of them); include less, or let `setup` fetch them there"
        )
    return IncludedFile(path=name, data=data, mode=mode, is_ignored=is_ignored)


def _stays_inside(top: str, source: str) -> bool:
    """Return whether the file lies in the tree, and points into it if it is a link."""
    is_absolute = os.path.islink(source) and os.path.isabs(os.readlink(source))
    return not is_absolute and is_inside(os.path.realpath(source), os.path.realpath(top))


def _target(workspace: str, path: str) -> str | None:
    """Return where the file goes, with its folder made; None if it must not go there.

    A folder of the base may be a link that leads out of the workspace, and a file of the base is not replaced.
    """
    target = os.path.join(workspace, path)
    folder = os.path.realpath(os.path.dirname(target))
    if not is_inside(folder, os.path.realpath(workspace)) or os.path.lexists(target):
        return None
    os.makedirs(os.path.dirname(target), exist_ok=True)
    return target


# -- the life of a workspace --------------------------------------------------------------------------

_COPY_RECORDS: Final = ".paceline"
"""The folder beside copies that holds their records."""


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """How a workspace was found. `was_lost`: its folder had disappeared and was made again from its branch.

    `needs_setup`: the campaign's setup has not succeeded in it yet; call `finish_setup` when it has. `uncommitted` are
    the included files that are never committed: store them with the unit, for its location.
    """

    created: bool
    was_lost: bool = False
    needs_setup: bool = False
    uncommitted: tuple[str, ...] = ()


def prepare(location: WorkspaceLocation, settings: WorkspaceSettings, sent: tuple[IncludedFile, ...] = ()) -> Prepared:
    """Make the workspace, or find it as an earlier attempt left it. A new one also gets the files that were `sent`.

    Raise `WorkspaceLost` if its folder and its branch are gone, `WorkspaceError` if it cannot be made, and
    `NoRoomForSession` if the disk is too full for it.
    """
    make_parent(location.path)
    records = records_of(location)
    try:
        with records.locked() as lock_fd:
            if location.branch is None:
                prepared = _prepare_copy(location, records)
            else:
                prepared = _prepare_worktree(location, settings, records, lock_fd, sent)
            os.makedirs(location.cwd, exist_ok=True)
    except OSError as error:
        raise folder_error(location.path, error) from error
    return msgspec.structs.replace(prepared, needs_setup=prepared.needs_setup and bool(settings.setup))


def finish_setup(location: WorkspaceLocation) -> None:
    """Record that the setup of the campaign succeeded in the workspace."""
    records = records_of(location)
    with records.locked():
        record = records.read() or _new_record(location)
        records.write(msgspec.structs.replace(record, phase="made", is_set_up=True))


def unused_location(location: WorkspaceLocation, taken: Collection[str] = ()) -> WorkspaceLocation:
    """Return the location, with a number if an earlier campaign of the same name left a folder or a branch there.

    For units without a stored workspace: they must not continue the work of others by accident. `taken` are branches
    of other copies of the repository.
    """
    number, candidate = 1, location
    while candidate.branch in taken or _is_taken(candidate):
        number += 1
        cwd = os.path.relpath(location.cwd, location.path)
        path = f"{location.path}-{number}"
        candidate = msgspec.structs.replace(
            location,
            path=path,
            cwd=os.path.normpath(os.path.join(path, cwd)),
            branch=None if location.branch is None else f"{location.branch}-{number}",
        )
    return candidate


def remove(location: WorkspaceLocation, *, force: bool) -> None:
    """Remove the folder of the workspace and its registration, never its branch. Removing it twice is harmless.

    Raise `UncommittedWork` if work in it is in no branch, unless `force`. A copy has no branch: it needs `force`.
    """
    try:
        records = records_of(location)
    except WorkspaceError:
        if not force:
            raise
        delete_folder(location.path)  # its repository is gone or not known, and nothing but the folder is left
        return
    with records.locked() as lock_fd:
        if not force:
            check_nothing_is_lost(location)
        if location.branch is None:
            delete_folder(location.path)
            delete_folder(_partial(location))
        else:
            Worktree(repository_of(location), location, lock_fd).delete()
        records.delete()


def abandoned_location(path: str, tops: Iterable[str]) -> WorkspaceLocation:
    """Return the location of a worktree that no unit knows any more. Its branch is that of its record.

    Its repository is one of those with these top folders, or not known: an agent can let `.git` name any.
    """
    location = WorkspaceLocation(
        path=path, cwd=path, branch="HEAD", base=None, repository=None, git=GitSettings(), uncommitted=()
    )
    for top in tops:
        with contextlib.suppress(WorkspaceError):
            if linked_entry(open_repository(top), path) is not None:
                location = msgspec.structs.replace(location, repository=top)
                record = records_of(location).read()
                return msgspec.structs.replace(location, branch=(record and record.branch) or "HEAD")
    return location


def delete_empty_parents(location: WorkspaceLocation) -> None:
    """Delete the folder of the campaign that the removed workspace lay in, if nothing is left in it."""
    parent = os.path.dirname(location.path)
    for folder in (os.path.join(parent, _COPY_RECORDS), parent):
        with contextlib.suppress(OSError):  # missing, or not empty
            os.rmdir(folder)


def _prepare_worktree(
    location: WorkspaceLocation,
    settings: WorkspaceSettings,
    records: RecordFile,
    lock_fd: int,
    sent: tuple[IncludedFile, ...],
) -> Prepared:
    repository = repository_of(location)
    worktree = Worktree(repository, location, lock_fd)
    record = records.read()
    if record is not None and record.phase == "making" and not worktree.is_made():
        worktree.delete()
    elif not is_empty_or_missing(location.path) and (
        record is not None or linked_entry(repository, location.path) is not None
    ):
        return _found(worktree, record, records, location)
    assert location.branch is not None
    tip = repository.branch_tip(location.branch)
    was_made = record is not None and (record.phase == "made" or record.was_lost)
    if was_made and tip is None:
        raise WorkspaceLost(
            f"the workspace {location.path} is gone, and so is its branch {location.branch};"
            " `paceline retry UNIT --fresh` starts the unit over"
        )
    start = tip or repository.commit_of(location.base or "")
    if start is None:
        raise WorkspaceError(f"the base commit {location.base} is no longer in the repository {repository.top}")
    was_lost = was_made or start != location.base
    if is_empty_or_missing(location.path):  # else it is not ours, and `create` refuses it
        check_room(location.path, _tree_bytes(repository, start))
        records.write(_new_record(location, was_lost=was_lost))
    worktree.create(has_branch=tip is not None)
    fill_submodules(repository.top, repository.common, worktree.git, lock_fd)
    uncommitted = (
        *copy_included(repository, location.path, settings.include),
        *write_included(location.path, sent),
    )
    made = _new_record(location, was_lost=was_lost)
    records.write(msgspec.structs.replace(made, phase="made", uncommitted=uncommitted))
    worktree.note_made()
    return Prepared(created=not was_lost, was_lost=was_lost, needs_setup=True, uncommitted=uncommitted)


def _found(
    worktree: Worktree, record: WorkspaceRecord | None, records: RecordFile, location: WorkspaceLocation
) -> Prepared:
    """Return the workspace as an earlier attempt left it, without lock files. Raise if it is not as it was made."""
    worktree.clear_locks()
    if record is None:
        record = msgspec.structs.replace(_new_record(location), phase="made")
        records.write(record)
    uncommitted = record.uncommitted if location.uncommitted is None else location.uncommitted
    return Prepared(created=False, needs_setup=not record.is_set_up, uncommitted=uncommitted)


def _prepare_copy(location: WorkspaceLocation, records: RecordFile) -> Prepared:
    record = records.read()
    source = location.repository
    assert source is not None
    if record is not None and record.phase == "making":
        delete_folder(_partial(location))
    elif record is not None:
        if os.path.isdir(location.path):
            return Prepared(created=False, needs_setup=not record.is_set_up)
        raise WorkspaceLost(
            f"the workspace {location.path} is gone, and a copy has no branch to make it from again;"
            " `paceline retry UNIT --fresh` starts the unit over"
        )
    if not os.path.isdir(source):
        raise WorkspaceError(f"the folder {source} is gone; put it back and retry")
    if record is None and not is_empty_or_missing(location.path):
        raise WorkspaceError(
            f"{location.path} exists already and is not a workspace of Paceline; move it away, or set `root`",
            is_campaigns=False,
        )
    left_out = os.path.dirname(os.path.dirname(location.path))
    check_room(location.path, size_of(source, os.path.realpath(left_out)))
    if is_empty_or_missing(location.path):
        records.write(_new_record(location))
        copy_folder(source, _partial(location), left_out)
        if os.path.isdir(location.path):
            os.rmdir(location.path)
        os.rename(_partial(location), location.path)
    records.write(msgspec.structs.replace(_new_record(location), phase="made"))
    return Prepared(created=True, needs_setup=True)


def _partial(location: WorkspaceLocation) -> str:
    """Return where a copy is made before it gets its name, so that a half-made one is never taken for a whole one."""
    return os.path.join(os.path.dirname(location.path), f".{os.path.basename(location.path)}.partial")


def check_nothing_is_lost(location: WorkspaceLocation) -> None:
    """Raise `UncommittedWork` if removing the workspace would lose work, and `WorkspaceError` if nobody can know."""
    record = records_of(location).read()
    if record is not None and record.phase == "making":
        repository = None if location.branch is None else open_repository(location.repository or "")
        if repository is None or not Worktree(repository, location).is_made():
            return
    if is_empty_or_missing(location.path):
        return
    check_no_link(location.path)
    if location.branch is None:
        raise UncommittedWork(f"{location.path} is a copy, whose changes are nowhere else; `--force` removes it")
    repository = repository_of(location)
    git = Worktree(repository, location).git
    contents = read_contents(location.path)
    if contents.unreadable:
        raise UncommittedWork(f"{location.path} has a folder that cannot be read: {contents.unreadable[0]}")
    submodules = checked_submodules(git, repository, location)
    check_no_repository(git, contents, submodules, also_ignored=True)
    check_objects(repository, location)
    pathspecs = pathspecs_without((*uncommitted_files(location), *(each.path for each in submodules)))
    with scratch_index(git) as call:
        show_all_changes(git, call)
        status = run_git(git, "status", "--porcelain=v1", "-z", "--", *pathspecs, call=call)
    if status.out:
        count = status.out.count(bytes(1))
        changes = "1 uncommitted change" if count == 1 else f"{count} uncommitted changes"
        raise UncommittedWork(f"{location.path} has {changes}; commit, or remove it with `--force`")
    head, branch = commit_in(git, "HEAD"), f"refs/heads/{location.branch}"
    if head is None or not run_git(repository.git, "for-each-ref", "--contains", head, "--count=1", branch).out:
        raise UncommittedWork(
            f"{location.path} has commits that are not in the branch {location.branch}; `--force` removes it with them"
        )
    new = (head, f"^{location.base}") if location.base else (head,)
    run_git(git, "rev-list", "--objects", "--quiet", *new)  # it raises if one of the objects is missing


def _is_taken(location: WorkspaceLocation) -> bool:
    if os.path.lexists(location.path):
        return True
    if location.branch is not None:
        git = open_repository(location.repository or "").git
        if run_git(git, "for-each-ref", f"refs/heads/{location.branch}").out:
            return True
    records = records_of(location)
    if records.read() is not None:
        with records.locked():
            records.delete()  # of a workspace whose folder and branch are gone
    return False


def _new_record(location: WorkspaceLocation, *, was_lost: bool = False) -> WorkspaceRecord:
    return WorkspaceRecord(path=location.path, branch=location.branch, was_lost=was_lost)


def records_of(location: WorkspaceLocation) -> RecordFile:
    if location.branch is None:
        return RecordFile(os.path.join(os.path.dirname(location.path), _COPY_RECORDS), location)
    if location.repository is None:
        raise WorkspaceError(
            f"no unit has the workspace {location.path} any more, and no campaign has its repository, so its work may"
            " be nowhere else; `paceline gc --force` removes it",
            is_campaigns=False,
        )
    return RecordFile(os.path.join(open_repository(location.repository or "").own_folder, "workspaces"), location)


def uncommitted_files(location: WorkspaceLocation) -> tuple[str, ...]:
    """Return the included files that are never committed. Those in the record count only if none are stored."""
    if location.uncommitted is not None:
        return location.uncommitted
    record = records_of(location).read()
    return record.uncommitted if record else ()


def repository_of(location: WorkspaceLocation) -> Repository:
    """Return the repository of the workspace, with the settings that were stored for it."""
    return open_repository(location.repository or "", location.git)


def _tree_bytes(repository: Repository, commit: str) -> int:
    """Return the size of all files of the commit."""
    if repository.settings.value("extensions.partialclone") is not None:
        return 0  # git would fetch every file to measure it
    return _measured(repository, commit)


@functools.lru_cache(maxsize=64)
def _measured(repository: Repository, commit: str) -> int:
    """Add up the sizes. Every unit of a campaign has the same base, so the sum is kept."""
    out = run_git(repository.git, "ls-tree", "-r", "-l", "-z", commit).out
    sizes = (line.split(b"\t", 1)[0].split()[-1] for line in out.split(b"\0") if line)
    return sum(int(size) for size in sizes if size.isdigit())

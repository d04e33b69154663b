"""The life of a workspace: it is made before the first attempt of a unit, found again by the next, and removed.

Every step can be interrupted by a crash and is safe to repeat. The record of the workspace, git and the disk decide
what is to be done. Only what the record calls half-made is deleted without being asked for.
"""

import contextlib
import functools
import os
from collections.abc import Collection
from typing import Final

import msgspec

from paceline.errors import UncommittedWork, WorkspaceError, WorkspaceLost
from paceline.store.interface import WorkspaceSettings
from paceline.workspaces.folders import (
    check_room,
    copy_folder,
    delete_folder,
    is_empty_or_missing,
    make_parent,
    size_of,
)
from paceline.workspaces.git import GitCall, run_git
from paceline.workspaces.included_files import IncludedFile, copy_included, write_included
from paceline.workspaces.places import WorkspacePlace
from paceline.workspaces.records import RecordFile, WorkspaceRecord, folder_error
from paceline.workspaces.repository import Repository, open_repository
from paceline.workspaces.submodules import fill_submodules
from paceline.workspaces.worktree import Worktree

_COPY_RECORDS: Final = ".paceline"
"""The folder beside copies that holds their records."""


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """How a workspace was found. `was_lost`: its folder had disappeared and was made again from its branch.

    `needs_setup`: the campaign's setup has not succeeded in it yet; call `finish_setup` when it has.
    """

    created: bool
    was_lost: bool = False
    needs_setup: bool = False


def prepare(place: WorkspacePlace, settings: WorkspaceSettings, sent: tuple[IncludedFile, ...] = ()) -> Prepared:
    """Make the workspace, or find it as an earlier attempt left it. A new one also gets the files that were `sent`.

    Raise `WorkspaceLost` if its folder and its branch are gone, `WorkspaceError` if it cannot be made, and
    `NoRoomForSession` if the disk is too full for it.
    """
    make_parent(place.path)
    records = place_records(place)
    try:
        with records.locked() as lock_fd:
            if place.branch is None:
                prepared = _prepare_copy(place, records)
            else:
                prepared = _prepare_worktree(place, settings, records, lock_fd, sent)
            os.makedirs(place.cwd, exist_ok=True)
    except OSError as error:
        raise folder_error(place.path, error) from error
    return msgspec.structs.replace(prepared, needs_setup=prepared.needs_setup and bool(settings.setup))


def finish_setup(place: WorkspacePlace) -> None:
    """Record that the setup of the campaign succeeded in the workspace."""
    records = place_records(place)
    with records.locked():
        record = records.read() or _new_record(place)
        records.write(msgspec.structs.replace(record, phase="made", is_set_up=True))


def unused_place(place: WorkspacePlace, taken: Collection[str] = ()) -> WorkspacePlace:
    """Return the place, with a number if an earlier campaign of the same name left a folder or a branch there.

    For units without a stored workspace: they must not continue the work of others by accident. `taken` are branches
    of other copies of the repository.
    """
    number, candidate = 1, place
    while candidate.branch in taken or _is_taken(candidate):
        number += 1
        cwd = os.path.relpath(place.cwd, place.path)
        path = f"{place.path}-{number}"
        candidate = msgspec.structs.replace(
            place,
            path=path,
            cwd=os.path.normpath(os.path.join(path, cwd)),
            branch=None if place.branch is None else f"{place.branch}-{number}",
        )
    return candidate


def remove(place: WorkspacePlace, *, force: bool) -> None:
    """Remove the folder of the workspace and its registration, never its branch. Removing it twice is harmless.

    Raise `UncommittedWork` if work in it is in no branch, unless `force`. A copy has no branch: it needs `force`.
    """
    try:
        records = place_records(place)
    except WorkspaceError:
        if not force:
            raise
        delete_folder(place.path)  # its repository is gone, and nothing but the folder is left
        return
    with records.locked() as lock_fd:
        if not force:
            check_nothing_is_lost(place)
        if place.branch is None:
            delete_folder(place.path)
            delete_folder(_partial(place))
        else:
            Worktree(_repository_of(place), place, lock_fd).delete()
        records.delete()


def delete_empty_parents(place: WorkspacePlace) -> None:
    """Delete the folder of the campaign that the removed workspace lay in, if nothing is left in it."""
    parent = os.path.dirname(place.path)
    for folder in (os.path.join(parent, _COPY_RECORDS), parent):
        with contextlib.suppress(OSError):  # missing, or not empty
            os.rmdir(folder)


def _prepare_worktree(
    place: WorkspacePlace,
    settings: WorkspaceSettings,
    records: RecordFile,
    lock_fd: int,
    sent: tuple[IncludedFile, ...],
) -> Prepared:
    repository = _repository_of(place)
    worktree = Worktree(repository, place, lock_fd)
    record = records.read()
    if record is not None and record.phase == "making":
        worktree.delete()
    elif not is_empty_or_missing(place.path) and (worktree.is_linked() or record is not None):
        return _found(worktree, record, records, place)
    assert place.branch is not None
    tip = repository.branch_tip(place.branch)
    was_made = record is not None and (record.phase == "made" or record.was_lost)
    if was_made and tip is None:
        raise WorkspaceLost(
            f"the workspace {place.path} is gone, and so is its branch {place.branch};"
            " `paceline retry UNIT --fresh` starts the unit over"
        )
    start = tip or repository.commit_of(place.base or "")
    if start is None:
        raise WorkspaceError(f"the base commit {place.base} is no longer in the repository {repository.top}")
    was_lost = was_made or start != place.base
    if is_empty_or_missing(place.path):  # else it is not ours, and `create` refuses it
        check_room(place.path, _tree_bytes(repository.top, start))
        records.write(_new_record(place, was_lost=was_lost))
    worktree.create(has_branch=tip is not None)
    fill_submodules(repository.top, repository.common, place.path, lock_fd)
    uncommitted = (
        *copy_included(repository.top, place.path, settings.include),
        *write_included(place.path, sent),
    )
    made = _new_record(place, was_lost=was_lost)
    records.write(msgspec.structs.replace(made, phase="made", uncommitted=uncommitted))
    return Prepared(created=not was_lost, was_lost=was_lost, needs_setup=True)


def _found(worktree: Worktree, record: WorkspaceRecord | None, records: RecordFile, place: WorkspacePlace) -> Prepared:
    """Return the workspace as an earlier attempt left it, registered and without lock files."""
    if not worktree.is_linked():
        worktree.relink()
    worktree.clear_locks()
    if record is None:
        record = msgspec.structs.replace(_new_record(place), phase="made")
        records.write(record)
    return Prepared(created=False, needs_setup=not record.is_set_up)


def _prepare_copy(place: WorkspacePlace, records: RecordFile) -> Prepared:
    record = records.read()
    source = place.repository
    assert source is not None
    if record is not None and record.phase == "making":
        delete_folder(_partial(place))
    elif record is not None:
        if os.path.isdir(place.path):
            return Prepared(created=False, needs_setup=not record.is_set_up)
        raise WorkspaceLost(
            f"the workspace {place.path} is gone, and a copy has no branch to make it from again;"
            " `paceline retry UNIT --fresh` starts the unit over"
        )
    if not os.path.isdir(source):
        raise WorkspaceError(f"the folder {source} is gone; put it back and retry")
    if record is None and not is_empty_or_missing(place.path):
        raise WorkspaceError(
            f"{place.path} exists already and is not a workspace of Paceline; move it away, or set `root`",
            is_campaigns=False,
        )
    left_out = os.path.dirname(os.path.dirname(place.path))
    check_room(place.path, size_of(source, os.path.realpath(left_out)))
    if is_empty_or_missing(place.path):
        records.write(_new_record(place))
        copy_folder(source, _partial(place), left_out)
        if os.path.isdir(place.path):
            os.rmdir(place.path)
        os.rename(_partial(place), place.path)
    records.write(msgspec.structs.replace(_new_record(place), phase="made"))
    return Prepared(created=True, needs_setup=True)


def _partial(place: WorkspacePlace) -> str:
    """Return where a copy is made before it gets its name, so that a half-made one is never taken for a whole one."""
    return os.path.join(os.path.dirname(place.path), f".{os.path.basename(place.path)}.partial")


def check_nothing_is_lost(place: WorkspacePlace) -> None:
    """Raise `UncommittedWork` if removing the workspace would lose work, and `WorkspaceError` if nobody can know."""
    record = place_records(place).read()
    is_half_made = record is not None and record.phase == "making"
    if not is_half_made and not is_empty_or_missing(place.path):
        _check_work(place, record)


def _check_work(place: WorkspacePlace, record: WorkspaceRecord | None) -> None:
    if place.branch is None:
        raise UncommittedWork(f"{place.path} is a copy, whose changes are nowhere else; `--force` removes it")
    uncommitted = record.uncommitted if record else ()
    left_out = [f":(exclude,top,literal){path}" for path in uncommitted]
    status = run_git(place.path, "status", "--porcelain=v1", "-z", "--", ".", *left_out)
    if status.out:
        count = status.out.count(bytes(1))
        changes = "1 uncommitted change" if count == 1 else f"{count} uncommitted changes"
        raise UncommittedWork(f"{place.path} has {changes}; commit, or remove it with `--force`")
    head = run_git(place.path, "for-each-ref", "--contains", "HEAD", "--count=1", "refs/heads", "refs/tags")
    if not head.out:
        raise UncommittedWork(f"{place.path} has commits that are in no branch; `--force` removes it with them")


def _is_taken(place: WorkspacePlace) -> bool:
    if os.path.lexists(place.path):
        return True
    if place.branch is None:
        taken = False
    else:
        repository = _repository_of(place)
        taken = bool(run_git(repository.top, "for-each-ref", f"refs/heads/{place.branch}").out)
    if not taken:
        records = place_records(place)
        if records.read() is not None:
            with records.locked():
                records.delete()  # of a workspace whose folder and branch are gone
    return taken


def _new_record(place: WorkspacePlace, *, was_lost: bool = False) -> WorkspaceRecord:
    return WorkspaceRecord(path=place.path, branch=place.branch, was_lost=was_lost)


def place_records(place: WorkspacePlace) -> RecordFile:
    if place.branch is None:
        return RecordFile(os.path.join(os.path.dirname(place.path), _COPY_RECORDS), place)
    return RecordFile(os.path.join(_repository_of(place).own_folder, "workspaces"), place)


def _repository_of(place: WorkspacePlace) -> Repository:
    assert place.repository is not None
    return open_repository(place.repository)


@functools.lru_cache(maxsize=64)
def _tree_bytes(top: str, commit: str) -> int:
    """Return the size of all files of the commit. Every unit of a campaign has the same base, so it is kept."""
    is_partial = run_git(top, "config", "--get", "extensions.partialClone", call=GitCall(accepted=(0, 1))).out
    if is_partial:
        return 0  # git would fetch every file to measure it
    out = run_git(top, "ls-tree", "-r", "-l", "-z", commit).out
    sizes = (line.split(b"\t", 1)[0].split()[-1] for line in out.split(b"\0") if line)
    return sum(int(size) for size in sizes if size.isdigit())

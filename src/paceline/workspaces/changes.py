"""The change of a unit: what is different in its workspace, as a commit, as numbers, and as a patch.

Commits are on their way between two machines in files that git calls bundles. A bundle is a list of commits that the
reader must have, a list of names with their commits, and a pack of what is missing between both. Never here: how the
file travels.
"""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from paceline.errors import UncommittedWork, WorkspaceError
from paceline.store.unit_result import GitSettings
from paceline.workspaces.contents import (
    check_filters,
    check_gitlinks,
    check_ignored,
    check_no_repository,
    check_objects,
    checked_submodules,
    pathspecs_without,
    read_contents,
    scratch_index,
    show_all_changes,
)
from paceline.workspaces.folders import WorkspaceLocation, check_no_link, folder_error, write_whole
from paceline.workspaces.preparation import records_of, remove, repository_of, uncommitted_files
from paceline.workspaces.repository import (
    OUTSIDE,
    PLAIN,
    GitCall,
    GitFolder,
    PlainFolder,
    Repository,
    commit_in,
    open_repository,
    run_git,
    stream_git,
)
from paceline.workspaces.worktree import Worktree

FALLBACK_NAME: Final = "Paceline"
FALLBACK_EMAIL: Final = "paceline@localhost"
"""Who commits where git does not know the user. A night must not end because of that."""
_NUMBERS: Final = ("--numstat", "-z", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty")
_PATCH: Final = (
    "--binary",
    "--full-index",
    "--find-renames",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--ignore-submodules=dirty",
)
_OF_COPIES: Final = GitCall(accepted=(0, 1), env=OUTSIDE)
"""Two folders are compared without any repository."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The change of a unit against its base. `commit` is the last commit of its branch, None if it has none."""

    commit: str | None = None
    files_changed: int = 0
    lines_added: int = 0
    lines_removed: int = 0


def commit_all(location: WorkspaceLocation, message: str) -> Change:
    """Commit everything in the workspace to its branch. With nothing to commit, the commits of the agent count.

    No hook runs and nothing is signed. Afterwards the workspace is on its branch, whatever the agent checked out. A
    copy is not committed; only its change is counted. Raise `WorkspaceError` if the workspace is not as it was made, or
    if the commit would not have all work in it, as it is; everything is kept then.
    """
    if location.branch is None:
        with _copy_pair(location) as folder:
            compare = ("diff", "--no-index", *_NUMBERS, "--no-renames", "a/", "b/")
            return _count(run_git(folder, *compare, call=_OF_COPIES).out)
    repository = repository_of(location)
    with records_of(location).locked() as lock_fd:
        worktree = Worktree(repository, location, lock_fd)
        worktree.clear_locks()
        git = worktree.git
        call = GitCall(pass_fds=(lock_fd,), env=identity(repository.settings))
        _leave_rebase(git, call)
        _stage_all(repository, location, git, call)
        _attach(git, location.branch, call)
        if run_git(git, "diff", "--cached", "--quiet", call=GitCall(accepted=(0, 1))).code == 1:
            text = message.strip().encode(errors="replace") or b"Work of a unit"
            commit = ("commit", "--quiet", "--no-verify", "--no-gpg-sign", "--cleanup=verbatim", "--file=-")
            run_git(git, *commit, call=msgspec.structs.replace(call, stdin=text))
    head = repository.branch_tip(location.branch)
    if head is None:
        raise WorkspaceError(
            f"the branch {location.branch} names no commit that is in {repository.top}, so the work in {location.path}"
            " cannot be committed; all files are kept: `paceline retry UNIT --fresh` starts the unit over in another"
            " folder",
            is_campaigns=False,
        )
    if head == location.base:
        return Change()
    git = msgspec.structs.replace(repository.git, is_units=True)
    numbers = run_git(git, "diff", *_NUMBERS, "--find-renames", location.base or head, head).out
    return msgspec.structs.replace(_count(numbers), commit=head)


def commit_and_remove(location: WorkspaceLocation, message: str | None) -> None:
    """Remove a workspace. With a message, what is in it is committed first."""
    if message is not None and os.path.isdir(location.path):
        commit_all(location, message)
    remove(location, force=False)


def diff(
    location: WorkspaceLocation, commit: str | None = None, *, is_here: bool = True
) -> Generator[bytes, None, None]:
    """Yield the change of a unit as a patch, piece by piece.

    With a `commit`, the change up to it. Else the change in the workspace as it is, with uncommitted work; without a
    folder on this machine, the change in the branch.
    """
    if location.branch is None and not is_here:
        raise WorkspaceError("a copy on another host is in no branch, so its change is only there", is_campaigns=False)
    if location.branch is None:
        with _copy_pair(location) as folder:
            yield from stream_git(folder, "diff", "--no-index", *_PATCH, "--no-prefix", "a/", "b/", call=_OF_COPIES)
        return
    base, repository = location.base or "HEAD", repository_of(location)
    if commit is None and is_here and os.path.lexists(location.path):
        git = Worktree(repository, location).git
        with scratch_index(git) as call:
            _stage_all(repository, location, git, call)
            yield from stream_git(git, "diff", "--cached", *_PATCH, base, call=call)
        return
    tip = commit or repository.branch_tip(location.branch)
    if tip is None:
        missing = f"a folder {location.path}" if is_here else "a folder on this machine"
        raise WorkspaceError(f"there is neither {missing} nor a branch {location.branch}", is_campaigns=False)
    yield from stream_git(repository.git, "diff", *_PATCH, base, tip)


def write_patch(location: WorkspaceLocation, file: Path) -> None:
    """Write the change of a unit into the file, whole or not at all. `git apply` reads it."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(str(file), diff(location), 0o644)
    except OSError as error:
        raise folder_error(str(file), error) from error


def identity(settings: GitSettings) -> dict[str, str]:
    """Return variables that name who commits, as far as the user's configuration does not."""
    name, email = configured_identity(settings)
    missing = {} if name else {"NAME": FALLBACK_NAME}
    missing |= {} if email else {"EMAIL": FALLBACK_EMAIL}
    return {f"GIT_{who}_{what}": value for what, value in missing.items() for who in ("AUTHOR", "COMMITTER")}


def configured_identity(settings: GitSettings) -> tuple[str, str]:
    """Return the name and the address of who commits, as the user configured them; '' where that is not so."""
    return settings.value("user.name") or "", settings.value("user.email") or ""


_AUTOSTASHES: Final = ("rebase-merge/autostash", "rebase-apply/autostash", "MERGE_AUTOSTASH")
"""Where git notes changes that it put aside during a rebase or a merge."""


def _leave_rebase(git: GitFolder, call: GitCall) -> None:
    """Forget a rebase that the agent did not finish: its files stay, and its branch gets what they contain.

    Raise `UncommittedWork` if changes were put aside for it: git would make them a stash of the user.
    """
    if any(os.path.lexists(os.path.join(git.git_dir, name)) for name in _AUTOSTASHES):
        raise UncommittedWork(
            f"a rebase or merge in {git.path} is unfinished, and git has put changes aside for it; all files are kept:"
            " finish it there, or take it back with `git rebase --abort`, then `paceline retry UNIT`"
        )
    if os.path.isdir(os.path.join(git.git_dir, "rebase-merge")):
        run_git(git, "rebase", "--quit", call=call)
    if os.path.isdir(os.path.join(git.git_dir, "rebase-apply")):
        run_git(git, "am", "--quit", call=msgspec.structs.replace(call, accepted=(0, 128)))


def _stage_all(repository: Repository, location: WorkspaceLocation, git: GitFolder, call: GitCall) -> None:
    """Stage everything. Raise if that is not all work, or not as the user's filters would write it."""
    base = location.base or "HEAD"
    contents = read_contents(location.path)
    submodules = checked_submodules(git, repository, location)
    check_no_repository(git, contents, submodules, also_ignored=False)
    check_objects(repository, location)
    show_all_changes(git, call)
    pathspecs = pathspecs_without((*uncommitted_files(location), *(each.path for each in submodules)))
    run_git(git, "add", "--all", "--", *pathspecs, call=call)
    for each in submodules:
        if not each.is_nested:
            head = commit_in(each.git, "HEAD") or each.commit
            run_git(git, "update-index", "--cacheinfo", f"160000,{head},{each.path}", call=call)
    check_gitlinks(git, base, submodules)
    check_filters(git, contents, base)
    check_ignored(git, contents, base, uncommitted_files(location))


def _attach(git: GitFolder, branch: str, call: GitCall) -> None:
    """Put the workspace on its branch, with all files as they are.

    Commits that the agent made elsewhere, on top of the branch, become commits of the branch. Otherwise the next commit
    brings the branch to what the files contain.
    """
    wanted = f"refs/heads/{branch}"
    if run_git(git, "symbolic-ref", "--quiet", "HEAD", call=GitCall(accepted=(0, 1))).line == wanted:
        return
    head, tip = commit_in(git, "HEAD"), commit_in(git, wanted)
    is_ahead = head is not None and (tip is None or is_ancestor(git, tip, head))
    if is_ahead and head is not None:
        run_git(git, "update-ref", wanted, head, call=call)
    run_git(git, "symbolic-ref", "HEAD", wanted, call=call)


@contextlib.contextmanager
def _copy_pair(location: WorkspaceLocation) -> Iterator[PlainFolder]:
    """Yield a folder in which the original is `a` and the copy is `b`, so that a patch has the usual paths."""
    check_no_link(location.path)
    for each in (location.repository or "", location.path):
        if not os.path.isdir(each):
            raise WorkspaceError(f"there is no folder {each} (any more)", is_campaigns=False)
    with tempfile.TemporaryDirectory(prefix="paceline-diff-") as folder:
        os.symlink(os.path.abspath(location.repository or ""), os.path.join(folder, "a"))
        os.symlink(os.path.abspath(location.path), os.path.join(folder, "b"))
        yield PlainFolder(folder)


def _count(numstat: bytes) -> Change:
    """Add up the lines of `git diff --numstat -z`. A renamed file has two more parts; a binary file has `-`."""
    files = added = removed = 0
    for part in numstat.split(b"\0"):
        numbers = part.split(b"\t")
        if len(numbers) >= 3:
            files += 1
            added += int(numbers[0]) if numbers[0].isdigit() else 0
            removed += int(numbers[1]) if numbers[1].isdigit() else 0
    return Change(files_changed=files, lines_added=added, lines_removed=removed)


# -- commits on their way between two machines -------------------------------------------------------

MOST_KNOWN: Final = 256
"""How many commits a reader names that it has. More hardly make a bundle smaller, and all go through one pipe."""
SHALLOW: Final = "refs/paceline/shallow/"
"""Names in a bundle for commits whose parents its writer does not have either."""
_INCOMING: Final = "refs/paceline/incoming/"
_HEADER: Final = {40: "# v2 git bundle\n", 64: "# v3 git bundle\n@object-format=sha256\n"}
"""The first lines of a bundle, by the length of a commit's name."""
_FETCH: Final = (
    "fetch",
    "--quiet",
    "--no-tags",
    "--no-prune",
    "--no-write-fetch-head",
    "--no-recurse-submodules",
    "--no-show-forced-updates",
)
_CHECKED: Final = ("fetch.fsckObjects=true", "fetch.writeCommitGraph=false")
"""What comes from another machine is checked: it may hold names that lead out of a work tree."""
_LONGEST_HEADER: Final = 1 << 20
"""Far more than the names of a bundle take."""
_MANY_OBJECTS: Final = 100
"""From here on they stay in one pack: git's own limit where it fetches."""


def write_bundle(top: str, refs: Mapping[str, str], have: Iterable[str], file: Path) -> None:
    """Write a bundle with the named commits, for a reader that has the commits `have`, as far as they are known here.

    Raise `WorkspaceError` if one of the named commits is not in the repository.
    """
    git = open_repository(top).git
    known = known_commits(git, have)[:MOST_KNOWN]
    missing = set(refs.values()) - set(known_commits(git, refs.values()))
    if missing:
        raise WorkspaceError(f"the commit {min(missing)} is no longer in the repository {top}")
    boundary = {f"{SHALLOW}{number}": commit for number, commit in enumerate(shallow_commits(top))}
    first = next(iter(refs.values()))
    lines = [f"-{commit}\n" for commit in known] + [
        f"{commit} {name}\n" for name, commit in {**refs, **boundary}.items()
    ]
    wanted = "\n".join((*refs.values(), "--not", *known, ""))
    pack = ("pack-objects", "--revs", "--thin", "--delta-base-offset", "--stdout", "--quiet")
    try:
        with open(file, "wb") as opened:
            opened.write((_HEADER[len(first)] + "".join(lines) + "\n").encode())
            for piece in stream_git(git, *pack, call=GitCall(stdin=wanted.encode())):
                opened.write(piece)
    except OSError as error:
        raise folder_error(str(file), error) from error


def take_bundle(top: str, file: Path, branch: str, commit: str) -> None:
    """Take the commits of a bundle into the repository, as its branch, which becomes `commit`.

    The branch is made, or moves forward. Raise `WorkspaceError` if it has other commits, if it is checked out, or if
    the file is damaged or is about something else; no branch has changed then.
    """
    repository = open_repository(top)
    if repository.branch_tip(branch) == commit:
        return  # the other machine works in this very repository, or it was taken before
    with _named_errors(repository, branch), _opened(file) as opened:
        header = _read_header(opened)
        _check_arrival(header.refs.get(f"refs/heads/{branch}"), commit)
        missing = sorted(set(header.prerequisites) - set(known_commits(repository.git, header.prerequisites)))
        if missing:
            raise WorkspaceError(f"it began at {missing[0]}, which is not in the repository (any more)")
        _unpack(repository.git, opened.fileno(), header)
        lines = "".join((f"{commit}\n", *(f"^{each}\n" for each in header.prerequisites)))
        # It raises if one of the objects is missing.
        run_git(repository.git, "rev-list", "--objects", "--quiet", "--stdin", call=GitCall(stdin=lines.encode()))
        _move_branch(repository, branch, commit)


def take_branch(top: str, remote: str, branch: str, commit: str) -> None:
    """Fetch a branch from another repository, as a branch of the same name, which becomes `commit`."""
    repository = open_repository(top)
    if repository.branch_tip(branch) == commit:
        return
    incoming = f"{_INCOMING}{hashlib.sha256(branch.encode()).hexdigest()[:16]}"
    try:
        with _named_errors(repository, branch):
            fetch_refs(top, remote, f"+refs/heads/{branch}:{incoming}", call=GitCall(uses_network=True))
            _check_arrival(repository.commit_of(incoming), commit)
            _move_branch(repository, branch, commit)
    finally:
        run_git(repository.git, "update-ref", "-d", incoming, call=GitCall(accepted=(0, 1, 128)))


def fetch_refs(top: str, source: str, *refspecs: str, call: GitCall = PLAIN) -> None:
    """Fetch from another repository or a bundle. What arrives is complete, or no name is changed."""
    call = msgspec.structs.replace(call, config=(*_CHECKED, *call.config))
    run_git(open_repository(top).git, *_FETCH, "--", source, *refspecs, call=call)


class _Header(msgspec.Struct, frozen=True):
    """The names of a bundle. Its pack begins at `offset`."""

    prerequisites: tuple[str, ...]
    refs: dict[str, str]
    offset: int


def _read_header(file: BinaryIO) -> _Header:
    data = file.read(_LONGEST_HEADER)
    text, end, _ = data.partition(b"\n\n")
    first, *lines = text.decode(errors="surrogateescape").split("\n")
    if not end or first not in ("# v2 git bundle", "# v3 git bundle"):
        raise WorkspaceError("what arrived is no bundle of git")
    prerequisites = tuple(line[1:].partition(" ")[0] for line in lines if line.startswith("-"))
    named = (line.partition(" ") for line in lines if not line.startswith(("-", "@")))
    return _Header(prerequisites, {name: commit for commit, _, name in named}, len(text) + len(end))


def _unpack(git: GitFolder, fd: int, header: _Header) -> None:
    """Take the objects of a bundle into the repository, checked. A few become files, so that packs do not pile up."""
    count = int.from_bytes(os.pread(fd, 4, header.offset + 8))
    os.lseek(fd, header.offset, os.SEEK_SET)
    how = ("unpack-objects", "-q") if count < _MANY_OBJECTS else ("index-pack", "--stdin", "--fix-thin")
    run_git(git, *how, "--strict", call=GitCall(stdin_fd=fd))


def _check_arrival(found: str | None, commit: str) -> None:
    if found != commit:
        raise WorkspaceError(f"it arrived at {found}, and not at {commit} as was reported")


@contextlib.contextmanager
def _named_errors(repository: Repository, branch: str) -> Iterator[None]:
    try:
        yield
    except WorkspaceError as error:
        text = f"the branch {branch} cannot be taken into {repository.top}: {error}"
        raise WorkspaceError(text, is_campaigns=False) from error


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[BinaryIO]:
    try:
        with open(file, "rb") as opened:
            yield opened
    except OSError as error:
        raise WorkspaceError(f"cannot read {file}: {error.strerror}") from error


def _move_branch(repository: Repository, branch: str, commit: str) -> None:
    with repository.locked() as call:
        tip = repository.branch_tip(branch)
        if tip == commit:
            return
        if tip is not None and not is_ancestor(repository.git, tip, commit):
            raise WorkspaceError(
                f"it has other commits here ({tip[:12]}, and there {commit[:12]}); rename or delete it, and retry"
            )
        folder = repository.checked_out().get(branch)
        if folder is not None:
            raise WorkspaceError(f"it is checked out in {folder}; check out another branch there, and retry")
        # With the tip of before: if somebody moves the branch at this moment, git refuses.
        run_git(repository.git, "update-ref", f"refs/heads/{branch}", commit, tip or "0" * len(commit), call=call)


def is_ancestor(git: GitFolder, commit: str, later: str) -> bool:
    """Return whether the later commit contains the other one."""
    return run_git(git, "merge-base", "--is-ancestor", commit, later, call=GitCall(accepted=(0, 1))).code == 0


def known_commits(git: GitFolder, commits: Iterable[str]) -> list[str]:
    """Return which of the commits are in the repository, each once."""
    asked = [commit for commit in dict.fromkeys(commits) if len(commit) in _HEADER and commit.isalnum()]
    lines = "".join(f"{commit}^{{commit}}\n" for commit in asked)
    out = run_git(git, "cat-file", "--batch-check=%(objectname)", call=GitCall(stdin=lines.encode())).out
    found = set(out.decode(errors="replace").split())
    return [commit for commit in asked if commit in found]


def shallow_commits(top: str) -> list[str]:
    """Return the commits whose parents the repository does not have, because it is a shallow clone."""
    try:
        with open(os.path.join(open_repository(top).common, "shallow"), encoding="ascii") as opened:
            return opened.read().split()
    except FileNotFoundError:
        return []

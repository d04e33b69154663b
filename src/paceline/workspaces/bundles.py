"""Commits on their way between two machines, in files that git calls bundles.

A bundle is a list of commits that the reader must have, a list of names with their commits, and a pack of what is
missing between both. Here: writing one, and taking one into a repository. Never here: how the file travels.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from paceline.errors import WorkspaceError
from paceline.workspaces.folders import folder_error
from paceline.workspaces.repository import GitCall, GitFolder, Repository, open_repository, run_git, stream_git

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


def write_bundle(
    top: str, refs: Mapping[str, str], have: Iterable[str], file: Path, *, call: GitCall | None = None
) -> None:
    """Write a bundle with the named commits, for a reader that has the commits `have`, as far as they are known here.

    Raise `WorkspaceError` if one of the named commits is not in the repository.
    """
    call = call or GitCall()
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
    call = GitCall(stdin=wanted.encode(), env=call.env, pass_fds=call.pass_fds)
    try:
        with open(file, "wb") as opened:
            opened.write((_HEADER[len(first)] + "".join(lines) + "\n").encode())
            for piece in stream_git(git, *pack, call=call):
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
        _check_complete(repository.git, commit, header.prerequisites)
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


def fetch_refs(top: str, source: str, *refspecs: str, call: GitCall | None = None) -> None:
    """Fetch from another repository or a bundle. What arrives is complete, or no name is changed."""
    call = call or GitCall()
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


def _check_complete(git: GitFolder, commit: str, known: Iterable[str]) -> None:
    lines = "".join((f"{commit}\n", *(f"^{each}\n" for each in known)))
    run_git(git, "rev-list", "--objects", "--quiet", "--stdin", call=GitCall(stdin=lines.encode()))


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

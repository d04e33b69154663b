"""The repositories that a worker makes workspaces from: the user's own clone on its machine, or a mirror.

A location names the repository on the machine of the leader. If the same path is a repository here that has the
commits, it is used. Else a bare mirror in the home of the worker is, which gets the missing commits from the leader.
"""

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from paceline.errors import WorkspaceError
from paceline.hosts.jobs import WANTED, LeaderRepository
from paceline.workspaces import WorkspaceLocation, unused_location
from paceline.workspaces.bundles import (
    MOST_KNOWN,
    SHALLOW,
    fetch_refs,
    is_ancestor,
    known_commits,
    shallow_commits,
)
from paceline.workspaces.contents import SubmoduleCommit
from paceline.workspaces.folders import locked, slug_of
from paceline.workspaces.preparation import records_of
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
            _touch(top)
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
        if self._is_mirror(top) and author is not None and _author_of(top) != author:
            with open_repository(top).locked() as call:
                for key, value in zip(("name", "email"), author, strict=True):
                    if value:
                        _config(top, f"user.{key}", value, call=call)

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


def _author_of(mirror: str) -> tuple[str, str]:
    """Return the name and the address in the configuration of a mirror."""
    name, email = (_config(mirror, "--get", f"user.{key}").line for key in ("name", "email"))
    return name, email


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


def _touch(mirror: str) -> None:
    with contextlib.suppress(OSError):
        os.utime(os.path.join(mirror, "HEAD"))


def _used_at(mirror: str) -> float:
    try:
        return os.stat(os.path.join(mirror, "HEAD")).st_mtime
    except OSError:
        return time.time()

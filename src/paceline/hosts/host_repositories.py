"""The repositories that a worker makes workspaces from: the user's own clone on its machine, or a mirror.

A place names the repository on the machine of the leader. If the same path is a repository here that has the commits,
it is used. Else a bare mirror in the home of the worker is, which gets the missing commits from the leader.
"""

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from paceline.errors import WorkspaceError
from paceline.hosts.host_jobs import WANTED, LeaderRepository
from paceline.workspaces import WorkspacePlace, unused_place
from paceline.workspaces.branches import branches_like
from paceline.workspaces.bundles import (
    MOST_KNOWN,
    SHALLOW,
    checked_out_in,
    fetch_refs,
    is_ancestor,
    known_commits,
    shallow_commits,
)
from paceline.workspaces.changes import configured_identity
from paceline.workspaces.git import GitCall, run_git
from paceline.workspaces.locks import locked
from paceline.workspaces.places import slug_of
from paceline.workspaces.preparation import place_records
from paceline.workspaces.repository import open_repository
from paceline.workspaces.submodules import SubmoduleCommit
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

    def in_use(self, place: WorkspacePlace) -> str | None:
        """Return the repository that the workspace was made from, or None if this machine has no such workspace."""
        found = [top for top in self._candidates(place.repository or "") if _is_repository(top)]
        for top in found:
            if linked_entry(open_repository(top), place.path) is not None:
                return top
        for top in found:
            if place_records(_at(place, top)).read() is not None:
                return top
        return next((top for top in found if open_repository(top).branch_tip(place.branch or "")), None)

    def holding(self, place: WorkspacePlace, leader: LeaderRepository) -> str | None:
        """Return the repository of the workspace, or one that has the commits that it begins with; None without one."""
        used = self.in_use(place)
        if used is not None and linked_entry(open_repository(used), place.path) is not None:
            return used
        needed = {place.base or "", leader.tip or place.base or ""}
        for top in dict.fromkeys((used or place.repository or "", *self._candidates(place.repository or ""))):
            has_commits = _is_repository(top) and set(known_commits(top, needed)) == needed
            if has_commits and (self._is_mirror(top) or not any(self.missing_submodules(top, leader))):
                return top
        return None

    def unused(self, place: WorkspacePlace, taken: tuple[str, ...]) -> WorkspacePlace:
        """Return the place, with a number if a folder or a branch is in its way, here or on the leader (`taken`)."""
        tops = [top for top in self._candidates(place.repository or "") if _is_repository(top)] or [self.mirror(place)]
        names = {*taken, *(name for top in tops for name in branches_like(top, place.branch or ""))}
        return _at(unused_place(_at(place, tops[0]), names), place.repository or "")

    def missing_submodules(self, top: str, leader: LeaderRepository) -> Iterator[tuple[int, SubmoduleCommit]]:
        """Yield the submodules, with their numbers, whose commits the repository does not have."""
        common = open_repository(top).common if leader.submodules else ""
        for number, submodule in enumerate(leader.submodules):
            clone = submodule.clone_in(common)
            if not _is_repository(clone) or not known_commits(clone, [submodule.commit]):
                yield number, submodule

    def mirror(self, place: WorkspacePlace) -> str:
        """Return the mirror of the repository, made if it is missing."""
        top = self._mirror_path(place.repository or "")
        with locked(f"{top}.lock"):
            if not os.path.isfile(os.path.join(top, "HEAD")):
                self._delete_unused()
                _make_bare(top, place.base or "")
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
        out = run_git(mirror, "for-each-ref", *order, "refs/heads", KEPT).out
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
        if self._is_mirror(top) and author is not None and configured_identity(top) != author:
            with open_repository(top).locked() as call:
                for key, value in zip(("name", "email"), author, strict=True):
                    if value:
                        run_git(top, "config", f"user.{key}", value, call=call)

    def bring_branch(self, top: str, place: WorkspacePlace, tip: str | None) -> None:
        """Let the branch begin where the leader has it, if this machine has no workspace with newer work."""
        branch = place.branch or ""
        if tip is None or os.path.lexists(place.path):
            return
        repository = open_repository(top)
        with repository.locked() as call:
            ours = repository.branch_tip(branch)
            is_behind = ours is None or is_ancestor(top, ours, tip)
            if is_behind and checked_out_in(top, branch) in (None, place.path):
                run_git(top, "update-ref", f"refs/heads/{branch}", tip, call=call)

    def forget_branch(self, top: str, branch: str, tip: str | None) -> None:
        """Delete the branch of a removed workspace from a mirror, if the leader has all its commits, and tidy up."""
        if not self._is_mirror(top):
            return  # the user's own clone
        repository = open_repository(top)
        with repository.locked() as call:
            ours = repository.branch_tip(branch)
            is_safe = ours is not None and tip is not None and bool(known_commits(top, [tip]))
            if is_safe and ours is not None and tip is not None and is_ancestor(top, ours, tip):
                run_git(top, "update-ref", "-d", f"refs/heads/{branch}", ours, call=call)
        run_git(top, "gc", "--auto", "--quiet", call=GitCall(config=_TIDYING))

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
                has_work = run_git(str(mirror), "for-each-ref", "--count=1", "refs/heads").out
                if age > UNUSED_SECONDS and not has_work and not any((mirror / "worktrees").glob("*")):
                    shutil.rmtree(mirror, ignore_errors=True)


def _is_repository(top: str) -> bool:
    """Return whether the folder itself is a repository that git lets us use."""
    marks = (".git", "HEAD") if os.path.isdir(top) else ()
    if not any(os.path.lexists(os.path.join(top, mark)) for mark in marks):
        return False
    try:
        return run_git(top, "rev-parse", "--git-dir", call=GitCall(accepted=(0, 128))).code == 0
    except WorkspaceError:
        return False


def _make_bare(top: str, commit: str) -> None:
    """Make a bare repository, whole or not at all."""
    shutil.rmtree(f"{top}.new", ignore_errors=True)
    os.makedirs(f"{top}.new", mode=0o700)
    length = "sha256" if len(commit) == 64 else "sha1"
    run_git(f"{top}.new", "init", "--quiet", "--bare", f"--object-format={length}", ".")
    os.rename(f"{top}.new", top)


def _at(place: WorkspacePlace, top: str) -> WorkspacePlace:
    return WorkspacePlace(path=place.path, cwd=place.cwd, branch=place.branch, base=place.base, repository=top)


def _note_shallow(mirror: str, bundle: Path) -> None:
    """Record commits whose parents the leader does not have either. git would else miss them."""
    out = run_git(mirror, "bundle", "list-heads", os.path.abspath(bundle)).out.decode(errors="replace")
    named = [line.partition(" ")[0] for line in out.splitlines() if line.partition(" ")[2].startswith(SHALLOW)]
    known = shallow_commits(mirror)
    new = [commit for commit in named if commit not in known and not known_commits(mirror, [commit])]
    if new:
        file = os.path.join(mirror, "shallow")
        with open(f"{file}.new", "w", encoding="ascii") as opened:
            opened.writelines(f"{commit}\n" for commit in (*known, *new))
        os.replace(f"{file}.new", file)


def _drop_old_names(mirror: str, call: GitCall) -> None:
    out = run_git(mirror, "for-each-ref", "--sort=-committerdate", "--format=%(refname)", KEPT).out
    for name in out.decode().split()[MOST_KEPT:]:
        run_git(mirror, "update-ref", "-d", name, call=call)


def _touch(mirror: str) -> None:
    with contextlib.suppress(OSError):
        os.utime(os.path.join(mirror, "HEAD"))


def _used_at(mirror: str) -> float:
    try:
        return os.stat(os.path.join(mirror, "HEAD")).st_mtime
    except OSError:
        return time.time()

"""Submodules of a worktree, filled from the clones that the main tree has. The network is never used.

A submodule that the main tree has not cloned, or whose commit is not in that clone, stays an empty folder, as git
leaves it.
"""

import os
from collections.abc import Iterator

import msgspec

from paceline.workspaces.git import GitCall, GitFolder, run_git
from paceline.workspaces.repository import Repository


class SubmoduleCommit(msgspec.Struct, frozen=True, kw_only=True):
    """A submodule that the main tree has cloned. `names` leads to it: more than one if it is nested."""

    names: tuple[str, ...]
    commit: str
    clone: str
    """The git folder of the clone."""

    def clone_in(self, common: str) -> str:
        """Return where a repository with that git folder has its clone."""
        return os.path.join(common, *(part for name in self.names for part in ("modules", name)))


class FilledSubmodule(msgspec.Struct, frozen=True, kw_only=True):
    """A submodule of a workspace, as `fill_submodules` has made it. `commit` is that of the base."""

    path: str
    git: GitFolder
    commit: str
    clone: str | None
    """The git folder of the user's own clone."""
    is_nested: bool
    """Whether it belongs to another submodule."""


def cloned_submodules(top: str, common: str, commit: str, names: tuple[str, ...] = ()) -> Iterator[SubmoduleCommit]:
    """Yield the submodules of a commit, also nested ones, whose commits the main tree has."""
    for name, path, wanted in _submodules_of_commit(_bare(common), commit):
        clone = _clone_of(top, common, name, path)
        if clone is not None and has_commit(clone, wanted):
            yield SubmoduleCommit(names=(*names, name), commit=wanted, clone=clone)
            yield from cloned_submodules(os.path.join(top, path), clone, wanted, (*names, name))


def fill_submodules(repository: Repository, git: GitFolder, lock_fd: int) -> None:
    """Check out every submodule of the workspace, also nested ones, whose commit the main tree has."""
    _fill(repository.top, repository.common, git, lock_fd)


def _fill(top: str, common: str, git: GitFolder, lock_fd: int) -> None:
    if not os.path.isfile(os.path.join(git.path, ".gitmodules")):
        return
    for name, path in _submodules(git, "--file=.gitmodules"):
        commit = _wanted_commit(git, path)
        clone = _clone_of(top, common, name, path)
        if commit is None or clone is None or not has_commit(clone, commit):
            continue
        call = GitCall(
            config=(f"submodule.{name}.url={clone}", "protocol.file.allow=always"),
            env={"GIT_ALLOW_PROTOCOL": "file"},
            pass_fds=(lock_fd,),
        )
        run_git(git, "submodule", "--quiet", "update", "--init", "--", path, call=call)
        filled = _filled_in(os.path.join(git.git_dir, "modules", name), os.path.join(git.path, path))
        if filled is not None:
            _fill(os.path.join(top, path), clone, filled, lock_fd)


def filled_submodules(repository: Repository, entry: str, workspace: str, base: str) -> Iterator[FilledSubmodule]:
    """Yield the submodules of the base that are filled in the workspace, also nested ones.

    A folder in which an agent has put another repository is left out.
    """
    if not os.path.isdir(os.path.join(entry, "modules")):
        return
    yield from _filled(_Level(repository.top, repository.common, entry, ""), workspace, _bare(repository.common), base)


class _Level(msgspec.Struct, frozen=True):
    """A repository with submodules: in the user's clone, and in the workspace, where `prefix` is its path."""

    top: str
    common: str
    entry: str
    prefix: str


def _filled(level: _Level, workspace: str, source: GitFolder, commit: str) -> Iterator[FilledSubmodule]:
    for name, path, wanted in _submodules_of_commit(source, commit):
        whole = os.path.join(level.prefix, path)
        git_dir = os.path.join(level.entry, "modules", name)
        git = _filled_in(git_dir, os.path.join(workspace, whole))
        if git is None:
            continue
        clone = _clone_of(level.top, level.common, name, path)
        yield FilledSubmodule(path=whole, git=git, commit=wanted, clone=clone, is_nested=bool(level.prefix))
        inner = _Level(os.path.join(level.top, path), clone or "", git_dir, whole)
        yield from _filled(inner, workspace, _bare(git_dir), wanted)


def _filled_in(git_dir: str, folder: str) -> GitFolder | None:
    """Return how to call git in a submodule of a workspace; None if it is not as it was made."""
    link = os.path.join(folder, ".git")
    try:
        if os.path.islink(link) or os.path.islink(folder) or not os.path.isfile(link):
            return None
        with open(link, encoding="utf-8", errors="surrogateescape") as opened:
            named = opened.read().rstrip("\n").removeprefix("gitdir: ")
    except OSError:
        return None
    is_own = os.path.realpath(os.path.join(folder, named)) == os.path.realpath(git_dir)
    if not is_own or os.path.islink(git_dir) or not os.path.isfile(os.path.join(git_dir, "HEAD")):
        return None
    return GitFolder(git_dir=git_dir, common=git_dir, work_tree=folder, is_units=True)


def _submodules_of_commit(git: GitFolder, commit: str) -> Iterator[tuple[str, str, str]]:
    """Yield name, path and commit of each submodule."""
    if run_git(git, "cat-file", "-e", f"{commit}:.gitmodules", call=GitCall(accepted=(0, 1, 128))).code != 0:
        return
    for name, path in _submodules(git, f"--blob={commit}:.gitmodules"):
        mode, _, rest = run_git(git, "ls-tree", commit, "--", path).line.partition(" ")
        if mode == "160000":
            yield name, path, rest.split()[1]


def _submodules(git: GitFolder, source: str) -> list[tuple[str, str]]:
    """Return name and path of each submodule. A name that leads out of its folder is left out, as git does."""
    call = GitCall(accepted=(0, 1))
    out = run_git(git, "config", "-z", source, "--get-regexp", r"^submodule\..*\.path$", call=call).out
    pairs = (os.fsdecode(entry).partition("\n") for entry in out.split(b"\0") if entry)
    named = [(key.removeprefix("submodule.").removesuffix(".path"), path) for key, _, path in pairs]
    return [(name, path) for name, path in named if _stays_inside(name) and _stays_inside(path)]


def _stays_inside(name: str) -> bool:
    return not name.startswith("/") and ".." not in name.split("/")


def _wanted_commit(git: GitFolder, path: str) -> str | None:
    mode, _, rest = run_git(git, "ls-files", "--stage", "--", path).line.partition(" ")
    return rest.split()[0] if mode == "160000" else None


def _clone_of(top: str, common: str, name: str, path: str) -> str | None:
    """Return the git folder of the submodule in the main tree, or None if it was not cloned."""
    for folder in (os.path.join(common, "modules", name), os.path.join(top, path, ".git")):
        if os.path.isfile(os.path.join(folder, "HEAD")):
            return folder
    return None


def has_commit(clone: str, commit: str) -> bool:
    """Return whether the clone with that git folder has the commit."""
    named = f"{commit}^{{commit}}"
    return run_git(_bare(clone), "cat-file", "-e", named, call=GitCall(accepted=(0, 1, 128))).code == 0


def _bare(git_dir: str) -> GitFolder:
    return GitFolder(git_dir=git_dir, common=git_dir)

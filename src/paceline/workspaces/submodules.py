"""Submodules of a worktree, filled from the clones that the main tree has. The network is never used.

A submodule that the main tree has not cloned, or whose commit is not in that clone, stays an empty folder, as git
leaves it.
"""

import os
from collections.abc import Iterator

import msgspec

from paceline.workspaces.git import GitCall, run_git


class SubmoduleCommit(msgspec.Struct, frozen=True, kw_only=True):
    """A submodule that the main tree has cloned. `names` leads to it: more than one if it is nested."""

    names: tuple[str, ...]
    commit: str
    clone: str
    """The git folder of the clone."""

    def clone_in(self, common: str) -> str:
        """Return where a repository with that git folder has its clone."""
        return os.path.join(common, *(part for name in self.names for part in ("modules", name)))


def cloned_submodules(top: str, common: str, commit: str, names: tuple[str, ...] = ()) -> Iterator[SubmoduleCommit]:
    """Yield the submodules of a commit, also nested ones, whose commits the main tree has."""
    if run_git(common, "cat-file", "-e", f"{commit}:.gitmodules", call=GitCall(accepted=(0, 1, 128))).code != 0:
        return
    for name, path in _submodules(common, f"--blob={commit}:.gitmodules"):
        clone = _clone_of(top, common, name, path)
        mode, _, rest = run_git(common, "ls-tree", commit, "--", path).line.partition(" ")
        if mode == "160000" and clone is not None and _has(clone, wanted := rest.split()[1]):
            yield SubmoduleCommit(names=(*names, name), commit=wanted, clone=clone)
            yield from cloned_submodules(os.path.join(top, path), clone, wanted, (*names, name))


def fill_submodules(top: str, common: str, workspace: str, lock_fd: int) -> None:
    """Check out every submodule of the workspace, also nested ones, whose commit the main tree has."""
    if not os.path.isfile(os.path.join(workspace, ".gitmodules")):
        return
    for name, path in _submodules(workspace, "--file=.gitmodules"):
        commit = _wanted_commit(workspace, path)
        clone = _clone_of(top, common, name, path)
        if commit is None or clone is None or not _has(clone, commit):
            continue
        call = GitCall(
            config=(f"submodule.{name}.url={clone}", "protocol.file.allow=always"),
            env={"GIT_ALLOW_PROTOCOL": "file"},
            pass_fds=(lock_fd,),
        )
        run_git(workspace, "submodule", "--quiet", "update", "--init", "--", path, call=call)
        fill_submodules(os.path.join(top, path), clone, os.path.join(workspace, path), lock_fd)


def _submodules(folder: str, source: str) -> list[tuple[str, str]]:
    """Return name and path of each submodule. A name that leads out of its folder is left out, as git does."""
    call = GitCall(accepted=(0, 1))
    out = run_git(folder, "config", "-z", source, "--get-regexp", r"^submodule\..*\.path$", call=call).out
    pairs = (os.fsdecode(entry).partition("\n") for entry in out.split(b"\0") if entry)
    named = [(key.removeprefix("submodule.").removesuffix(".path"), path) for key, _, path in pairs]
    return [(name, path) for name, path in named if not name.startswith("/") and ".." not in name.split("/")]


def _wanted_commit(workspace: str, path: str) -> str | None:
    mode, _, rest = run_git(workspace, "ls-files", "--stage", "--", path).line.partition(" ")
    return rest.split()[0] if mode == "160000" else None


def _clone_of(top: str, common: str, name: str, path: str) -> str | None:
    """Return the git folder of the submodule in the main tree, or None if it was not cloned."""
    for folder in (os.path.join(common, "modules", name), os.path.join(top, path, ".git")):
        if os.path.isfile(os.path.join(folder, "HEAD")):
            return folder
    return None


def _has(clone: str, commit: str) -> bool:
    return run_git(clone, "cat-file", "-e", f"{commit}^{{commit}}", call=GitCall(accepted=(0, 1, 128))).code == 0

"""Branches of units that are no longer needed, because everything in them is merged."""

import os
from collections.abc import Collection, Iterable

from paceline.errors import WorkspaceError
from paceline.workspaces.git import run_git
from paceline.workspaces.repository import open_repository


def delete_merged_branches(
    top: str, branches: Iterable[str], *, dry_run: bool = False, leaving: Collection[str] = ()
) -> tuple[str, ...]:
    """Delete those of the branches whose commits are all in what is checked out. Return them.

    A branch that is checked out in a worktree stays, unless the worktree is one of those that are `leaving`.
    """
    repository = open_repository(top)
    if repository.commit_of("HEAD") is None:
        return ()
    wanted = set(branches)
    format_ = "--format=%(refname:short)%00%(worktreepath)"
    with repository.locked() as call:
        out = run_git(top, "for-each-ref", "--merged=HEAD", format_, "refs/heads", call=call).out
        rows = (line.split("\0") for line in out.decode(errors="replace").splitlines())
        merged = tuple(name for name, worktree in rows if name in wanted and (not worktree or worktree in leaving))
        if not dry_run:
            for name in merged:
                run_git(top, "branch", "--quiet", "-D", "--", name, call=call)
    return merged


def branches_like(top: str, branch: str) -> tuple[str, ...]:
    """Return the names like the branch, with and without a number, that the repository uses for branches or folders."""
    patterns = (f"refs/heads/{branch}", f"refs/heads/{branch}-*", f"refs/heads/{branch}-*/**")
    out = run_git(top, "for-each-ref", "--format=%(refname:lstrip=2)", *patterns).out
    names = (os.fsdecode(line).removeprefix(branch).partition("/")[0] for line in out.splitlines())
    return tuple(sorted({branch + rest for rest in names}))


def abandoned_branch(path: str) -> str:
    """Return the branch that is checked out in a worktree which no unit knows any more; its name if there is none."""
    try:
        return run_git(path, "rev-parse", "--abbrev-ref", "HEAD").line
    except WorkspaceError:
        return "HEAD"

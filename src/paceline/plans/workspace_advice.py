"""Advice about the trees that units work in: those they share, and changes that their workspaces do not contain."""

import os
from collections import Counter
from collections.abc import Sequence

from paceline.errors import WorkspaceError
from paceline.plans.advice import Advice
from paceline.store import Campaign, UnitSpec
from paceline.workspaces import count_uncommitted


def workspace_advice(campaign: Campaign, units: Sequence[UnitSpec]) -> list[Advice]:
    """Return what would surprise the user about the trees of a campaign whose agents edit files."""
    if campaign.workspace is not None:
        return [advice for top in campaign.workspace.bases for advice in _dirty_advice(top)]
    if campaign.permissions == "read" or campaign.max_sessions == 1:
        return []
    trees = Counter(_tree_of(cwd) for cwd in (unit.cwd for unit in units))
    return [
        Advice(
            f"{count} units share the tree {tree}: those that run at the same time overwrite each other's changes",
            'give each its own: add [campaign.workspace] with kind = "worktree", or set max_sessions = 1',
        )
        for tree, count in trees.items()
        if tree is not None and count > 1
    ]


def _dirty_advice(top: str) -> list[Advice]:
    try:
        count = count_uncommitted(top)
    except WorkspaceError:
        return []  # reading the plan has found this repository; the engine reports it if it is gone
    if not count:
        return []
    files = "1 file" if count == 1 else f"{count} files"
    return [
        Advice(f"{top} has uncommitted changes in {files}, which the workspaces do not contain", "commit them first")
    ]


def _tree_of(cwd: str) -> str | None:
    """Return the git work tree that the folder lies in, or None."""
    folder = os.path.realpath(cwd)
    while not os.path.exists(os.path.join(folder, ".git")):
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent
    return folder

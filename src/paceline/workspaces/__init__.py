"""Workspaces: a folder and a branch for each unit, so that units that run at the same time do not meet.

    folders       where a workspace lies; its folder, its record and its lock on the disk
    preparation   its life: made, found again, removed; the files outside of git that it gets
    worktree      its registration in the repository, and the only way to git in it
    contents      its submodules, and what a commit of it would miss or change
    changes       its commit, its diff and its patch; commits on their way between two machines
    merges        what conflicts; merging finished units, and taking that back
    repository    the repository of the user, and calls of git that run nothing an agent may have written

Synchronous functions over real git; callers run them in threads. An agent can write to all of a workspace.
"""

from paceline.workspaces.changes import Change, commit_all, commit_and_remove, diff, write_patch
from paceline.workspaces.folders import (
    WorkspaceLocation,
    branch_mistake,
    location_of,
    mapped_path,
    patch_file,
    stored_location,
)
from paceline.workspaces.preparation import (
    Prepared,
    check_nothing_is_lost,
    finish_setup,
    include_mistake,
    prepare,
    remove,
    unused_location,
)
from paceline.workspaces.repository import count_uncommitted, delete_merged_branches, read_settings, resolve_base

__all__ = [
    "Change",
    "Prepared",
    "WorkspaceLocation",
    "branch_mistake",
    "check_nothing_is_lost",
    "commit_all",
    "commit_and_remove",
    "count_uncommitted",
    "delete_merged_branches",
    "diff",
    "finish_setup",
    "include_mistake",
    "location_of",
    "mapped_path",
    "patch_file",
    "prepare",
    "read_settings",
    "remove",
    "resolve_base",
    "stored_location",
    "unused_location",
    "write_patch",
]

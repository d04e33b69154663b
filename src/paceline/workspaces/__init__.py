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

from paceline.workspaces.changes import Change as Change
from paceline.workspaces.changes import commit_all as commit_all
from paceline.workspaces.changes import commit_and_remove as commit_and_remove
from paceline.workspaces.changes import diff as diff
from paceline.workspaces.changes import write_patch as write_patch
from paceline.workspaces.folders import WorkspaceLocation as WorkspaceLocation
from paceline.workspaces.folders import branch_mistake as branch_mistake
from paceline.workspaces.folders import location_of as location_of
from paceline.workspaces.folders import mapped_path as mapped_path
from paceline.workspaces.folders import patch_file as patch_file
from paceline.workspaces.folders import stored_location as stored_location
from paceline.workspaces.preparation import Prepared as Prepared
from paceline.workspaces.preparation import check_nothing_is_lost as check_nothing_is_lost
from paceline.workspaces.preparation import finish_setup as finish_setup
from paceline.workspaces.preparation import include_mistake as include_mistake
from paceline.workspaces.preparation import prepare as prepare
from paceline.workspaces.preparation import remove as remove
from paceline.workspaces.preparation import unused_location as unused_location
from paceline.workspaces.repository import count_uncommitted as count_uncommitted
from paceline.workspaces.repository import delete_merged_branches as delete_merged_branches
from paceline.workspaces.repository import read_settings as read_settings
from paceline.workspaces.repository import resolve_base as resolve_base

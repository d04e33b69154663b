"""Workspaces: a folder and a branch for each unit, so that units that run at the same time do not meet.

Synchronous functions over real git; callers run them in threads. `places.py` has the names, `preparation.py` the life
of a workspace, `changes.py` what came out of it.
"""

from paceline.workspaces.branches import delete_merged_branches as delete_merged_branches
from paceline.workspaces.changes import Change as Change
from paceline.workspaces.changes import commit_all as commit_all
from paceline.workspaces.changes import commit_and_remove as commit_and_remove
from paceline.workspaces.changes import diff as diff
from paceline.workspaces.changes import write_patch as write_patch
from paceline.workspaces.included_files import include_mistake as include_mistake
from paceline.workspaces.places import WorkspacePlace as WorkspacePlace
from paceline.workspaces.places import branch_mistake as branch_mistake
from paceline.workspaces.places import mapped_path as mapped_path
from paceline.workspaces.places import patch_file as patch_file
from paceline.workspaces.places import place_of as place_of
from paceline.workspaces.places import stored_place as stored_place
from paceline.workspaces.preparation import Prepared as Prepared
from paceline.workspaces.preparation import check_nothing_is_lost as check_nothing_is_lost
from paceline.workspaces.preparation import finish_setup as finish_setup
from paceline.workspaces.preparation import prepare as prepare
from paceline.workspaces.preparation import remove as remove
from paceline.workspaces.preparation import unused_place as unused_place
from paceline.workspaces.repository import count_uncommitted as count_uncommitted
from paceline.workspaces.repository import resolve_base as resolve_base

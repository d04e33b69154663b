"""Where the workspace of a unit lies: its folder, its branch, and the unit's own folder inside of it.

Here: names and paths. A unit's id may contain what git and file systems refuse, so both use a slug of it.
"""

import hashlib
import os
import re
from pathlib import Path
from typing import Final

import msgspec

from paceline.core.values.fields import fields_of
from paceline.errors import WorkspaceError
from paceline.store.interface import WorkspaceSettings
from paceline.store.unit_result import GitSettings, UnitResult

LONGEST_SLUG: Final = 80
"""Branch and folder names of this length stay readable, and leave room in a path for the files of the repository."""
_REFUSED: Final = re.compile(r"[^A-Za-z0-9._-]+")
_DIGITS: Final = re.compile(r"-[0-9a-f]{8}$")
_FORBIDDEN_IN_BRANCH: Final = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(?:/|$)|^[-/.]|[/.]$|^@$")


class WorkspaceLocation(msgspec.Struct, frozen=True, kw_only=True):
    """Where the workspace of a unit is.

    `cwd` is the unit's own folder, mapped into `path`. `repository` is the top folder that the workspace is made from.
    A copy has no branch and no base; its `repository` is the folder that was copied.
    """

    path: str
    cwd: str
    branch: str | None
    base: str | None
    repository: str | None
    git: GitSettings | None = None
    """What git may use of the user's configuration there. None: the workspace was made by an earlier version."""
    uncommitted: tuple[str, ...] | None = None
    """Included files that are never committed, as stored with the unit: an agent can write to the record of the
    workspace. None: it is not made yet, or was made by an earlier version."""


def location_of(
    settings: WorkspaceSettings,
    campaign_name: str,
    unit_name: str,
    unit_cwd: str,
    home: Path,
    stored: UnitResult,
) -> WorkspaceLocation:
    """Return where the workspace of the unit is. What is stored with the unit wins: a workspace never moves."""
    known = stored_location(stored)
    if known is not None:
        return msgspec.structs.replace(known, cwd=_mapped(unit_cwd, known.repository or "", known.path))
    root = os.path.abspath(os.path.expanduser(settings.root)) if settings.root else str(home / "workspaces")
    path = os.path.join(root, slug_of(campaign_name), slug_of(unit_name))
    if settings.kind == "copy":
        return WorkspaceLocation(path=path, cwd=path, branch=None, base=None, repository=os.path.abspath(unit_cwd))
    top, base = _base_of(settings, unit_cwd)
    branch = settings.branch.replace("{campaign}", slug_of(campaign_name)).replace("{id}", slug_of(unit_name))
    return WorkspaceLocation(
        path=path, cwd=_mapped(unit_cwd, top, path), branch=branch, base=base, repository=top, git=settings.git.get(top)
    )


def stored_location(stored: UnitResult) -> WorkspaceLocation | None:
    """Return where the workspace of a unit is, from what is stored alone; None if it has none."""
    if stored.workspace is None or stored.repository is None:
        return None
    return WorkspaceLocation(path=stored.workspace, cwd=stored.workspace, **fields_of(WorkspaceLocation, stored))


def mapped_path(location: WorkspaceLocation, path: str) -> str:
    """Return where a file or folder of the repository lies in the workspace. A path outside of it stays as it is."""
    top = location.repository
    return path if top is None or not _is_inside(path, top) else _mapped(path, top, location.path)


def patch_file(home: Path, campaign_name: str, unit_name: str) -> Path:
    """Return the file that the change of the unit is delivered to, where the plan asks for patches."""
    return home / "patches" / slug_of(campaign_name) / f"{slug_of(unit_name)}.patch"


def slug_of(name: str) -> str:
    """Return the name as one part of a path and of a branch.

    A name that must be altered gets 8 hex digits of its hash. So do names with capitals, which some file systems
    confuse, and names that already end like that. So two names never have the same slug.
    """
    slug = _REFUSED.sub("-", name)
    slug = re.sub(r"\.\.+", ".", slug).strip(".-")
    slug = re.sub(r"(?i:\.lock)+$", "", slug)[:LONGEST_SLUG].strip(".-")
    if slug == name and slug == slug.lower() and not _DIGITS.search(slug):
        return slug
    return f"{slug or 'unit'}-{hashlib.sha256(name.encode(errors='surrogateescape')).hexdigest()[:8]}"


def branch_mistake(template: str) -> str | None:
    """Return what is wrong with the template of a branch name, or None."""
    if "{id}" not in template:
        return "it must contain {id}: each unit needs a branch of its own"
    filled = template.replace("{campaign}", "campaign").replace("{id}", "id")
    if "{" in filled or "}" in filled:
        return "only {campaign} and {id} are filled in"
    found = _FORBIDDEN_IN_BRANCH.search(filled)
    return f"git refuses {found[0]!r} at this place in the name of a branch" if found else None


def _base_of(settings: WorkspaceSettings, cwd: str) -> tuple[str, str]:
    """Return the innermost repository that `cwd` lies in, and its base commit."""
    for folder in (os.path.abspath(cwd), os.path.realpath(cwd)):
        tops = [top for top in settings.bases if _is_inside(folder, top)]
        if tops:
            top = max(tops, key=len)
            return top, settings.bases[top]
    raise WorkspaceError(f"no base commit is known for the repository of {cwd}; add the plan again")


def _mapped(path: str, top: str, workspace: str) -> str:
    for each in (os.path.abspath(path), os.path.realpath(path)):
        if _is_inside(each, top):
            return os.path.normpath(os.path.join(workspace, os.path.relpath(each, top)))
    return workspace


def _is_inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")

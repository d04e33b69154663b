"""The keys of the [campaign.workspace] table: how each unit gets a folder of its own.

Here: their checks, and which commit each repository starts from. Never here: making a workspace.
"""

import os
from collections.abc import Iterable, Mapping

import msgspec

from paceline.config_files import checks
from paceline.config_files.documents import Check, Document, KeyPlace, Mistakes, checked_fields, table_at
from paceline.errors import InvalidInput
from paceline.store.interface import UnitSpec, WorkspaceSettings
from paceline.workspaces import branch_mistake, include_mistake, resolve_base

KINDS = ("worktree", "copy", "none")
KEEP = ("failed", "all", "none")
WORKSPACE = ("campaign", "workspace")


def command_list(value: object) -> tuple[str, ...]:
    """Check a command of the plan: a list of texts, of which the first names a program."""
    if not isinstance(value, list | tuple) or not value or not all(isinstance(each, str) for each in value):
        raise InvalidInput('must be a command as a list of texts, such as ["make", "test"]')
    if not value[0].strip() or any("\0" in each for each in value):
        raise InvalidInput("must begin with a program, and contain no NUL character")
    return tuple(value)


def _branch(value: object) -> str:
    branch = checks.text(value)
    if (mistake := branch_mistake(branch)) is not None:
        raise InvalidInput(f"cannot name the branches of units: {mistake}")
    return branch


def _include(value: object) -> tuple[str, ...]:
    patterns = checks.texts(value)
    for pattern in patterns:
        if (mistake := include_mistake(pattern)) is not None:
            raise InvalidInput(f"{pattern!r:.60} cannot be included: {mistake}")
    return patterns


def _root(value: object) -> str:
    root = os.path.expanduser(checks.text(value))
    if not os.path.isabs(root):
        raise InvalidInput("must be an absolute path, or begin with ~")
    return os.path.normpath(root)


WORKSPACE_FIELDS: Mapping[str, Check] = {
    "kind": checks.one_of(*KINDS),
    "base": checks.text,
    "branch": _branch,
    "include": _include,
    "setup": command_list,
    "keep": checks.one_of(*KEEP),
    "root": _root,
}


def read_workspace(document: Document, value: object, mistakes: Mistakes) -> WorkspaceSettings | None:
    """Return the settings of the [campaign.workspace] table; None for kind = "none". Stored settings stay so."""
    if isinstance(value, WorkspaceSettings):
        return value
    table = table_at(document, WORKSPACE, value, mistakes)
    fields = checked_fields(document, WORKSPACE, table, WORKSPACE_FIELDS, mistakes)
    kind = fields.get("kind", "none")
    if "kind" not in table:
        mistakes.add(KeyPlace(document, WORKSPACE), 'the workspace needs a kind: kind = "worktree", "copy" or "none"')
    if kind == "copy":
        for key in ("base", "branch", "include"):
            if key in table:
                place = KeyPlace(document, (*WORKSPACE, key))
                mistakes.add(place, f'{key} is for kind = "worktree"; a copy has no branch; remove it')
    return None if kind == "none" else msgspec.convert(fields, WorkspaceSettings)


def with_bases(
    settings: WorkspaceSettings, units: Iterable[UnitSpec], document: Document, mistakes: Mistakes
) -> WorkspaceSettings:
    """Return the settings with the commit that `base` means now in the repository of each unit."""
    if settings.kind == "copy":
        return settings
    bases: dict[str, str] = {}
    for cwd in dict.fromkeys(unit.cwd for unit in units):
        try:
            top, commit = resolve_base(cwd, settings.base)
        except InvalidInput as error:
            mistakes.add(KeyPlace(document, WORKSPACE), f"no worktree can be made for {cwd}: {error}")
            break  # the others fail alike
        bases[top] = commit
    return msgspec.structs.replace(settings, bases=bases)

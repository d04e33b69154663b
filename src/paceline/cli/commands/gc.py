"""`gc`: remove what the settings do not keep, now instead of in the engine's small steps."""

import functools
import time
from typing import Annotated, Any

import typer

from paceline.cli.control import counted, left_text
from paceline.cli.options import AsJson
from paceline.cli.output import print_value, say
from paceline.cli.wiring import Home, open_home, output_limits
from paceline.engine import command_log
from paceline.engine.event_retention import STEP_EVENTS
from paceline.engine.output_retention import attempts_of_unfinished, is_last_of_unfinished
from paceline.engine.workspace_retention import (
    RemovedWorkspaces,
    leave_workspaces,
    remove_workspaces,
    unneeded_workspaces,
)
from paceline.executors import IsNeeded, PruneResult
from paceline.executors.archive_pruner import ArchivePruner


def command(
    is_dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also remove workspaces with uncommitted work.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove prompts, output and events that are older than \\[retention] keeps, or too much for its max_disk.

    An engine does the same in small steps while it runs. The last attempt of a unit that is not done or cancelled is
    always kept, however old it is.

    Workspaces of done and cancelled units are removed too, and their branches once all their commits are merged.
    """
    with open_home() as home:
        removed = _remove_output(home, is_dry_run)
        events = 0 if is_dry_run else _remove_events(home)
        unneeded = unneeded_workspaces(home.store, home.path)
        folders = remove_workspaces(unneeded, force=force, dry_run=is_dry_run)
        left = leave_workspaces(home.store, unneeded, force=force, dry_run=is_dry_run)
        if not is_dry_run:
            counts: dict[str, Any] = {"outputs": removed.attempts, "events": events, "workspaces": folders.removed}
            command_log.send(home.store, "gc", now=time.time(), **counts)
        if as_json:
            outputs = {"attempts": removed.attempts, "bytes": removed.bytes}
            shown = {"outputs": outputs, "events": None if is_dry_run else events, "workspaces": folders}
            shown["left_to_hosts"] = left
            print_value({"ok": True, "dry_run": is_dry_run, **shown})
            return
        what = f"the output of {counted(removed.attempts, 'attempt')} ({_size_text(removed.bytes)})"
        say(f"would remove {what}" if is_dry_run else f"removed {what} and {counted(events, 'event')}")
        _print_workspaces(folders, is_dry_run)
        if left:
            say(left_text(left))


def _print_workspaces(folders: RemovedWorkspaces, is_dry_run: bool) -> None:
    if folders.removed or folders.branches:
        branches = f"{len(folders.branches)} merged {'branch' if len(folders.branches) == 1 else 'branches'}"
        what = f"{counted(folders.removed, 'workspace')} and {branches}"
        say(f"would remove {what}" if is_dry_run else f"removed {what}")
    for kept in folders.kept:
        say(f"kept {kept.path}: {kept.reason}")


def _remove_output(home: Home, is_dry_run: bool) -> PruneResult:
    pruner = ArchivePruner(home.spool(), is_dry_run=is_dry_run)
    return pruner.prune_all(output_limits(home.settings), _needed_attempts(home), time.time())


def _remove_events(home: Home) -> int:
    """Remove old events in transactions of a bounded size, so that an engine can write in between."""
    keep = home.settings.retention.events
    removed = 0
    while keep is not None:
        count = command_log.prune_history(home.store, before=time.time() - keep, limit=STEP_EVENTS)
        removed += count
        if count < STEP_EVENTS:
            break
    return removed


def _needed_attempts(home: Home) -> IsNeeded:
    """Return what decides about an attempt. Those of unknown units are looked up in all units, once."""
    unfinished = functools.cache(lambda: attempts_of_unfinished(home.store))

    def is_needed(attempt_id: str, unit_id: str | None) -> bool:
        if unit_id is None:
            return attempt_id in unfinished()
        return is_last_of_unfinished(home.store, attempt_id, unit_id)

    return is_needed


def _size_text(size: int) -> str:
    """Return a size in the unit that people would use: 4.0 kB, 12.3 MB."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} B"

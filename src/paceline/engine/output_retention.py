"""Retention of output: prompts and output of ended attempts are removed after a time, or if the disk is needed."""

import math
from collections.abc import Collection, Iterator
from typing import get_args

from paceline.core.unit_lifecycle import UnitState
from paceline.engine.campaign_lookup import find_campaign
from paceline.executors import Executor, OutputArchive, OutputLimits, PruneResult
from paceline.executors.archive_pruner import STEP_ATTEMPTS
from paceline.executors.spool import Spool
from paceline.store import Store, Unit

STEP_SECONDS = 1.0
"""How often a step is made: a busy engine makes many passes in a second, and none of them should pay for this."""
MANY_REMOVED = STEP_ATTEMPTS // 2
"""Attempts that one step removed, after which the next pass makes another: else thousands of short units in a minute
would fill the disk faster than it is cleaned."""
FINISHED = ("done", "cancelled")


class OutputRetention:
    """Removes output in small steps. The last attempt of a unit that is not finished is always kept."""

    def __init__(self, store: Store, executor: Executor, limits: OutputLimits) -> None:
        self._store = store
        self._archive = executor if isinstance(executor, OutputArchive) else None
        self._limits = limits
        self._next_at = -math.inf

    def step(self, now: float) -> bool:
        """Make a step, if it is time for one. Returns whether another one is due in this pass.

        Each attempt that was archived since the last step pays for a share of the reading. Else an engine that ends
        units faster than single steps read the archive would never come to the end of it.
        """
        if self._archive is None or self._next_at - STEP_SECONDS <= now < self._next_at:
            return False
        done = self._archive.prune(self._limits, self._is_needed, now)
        is_more_due = done.is_behind or done.attempts >= MANY_REMOVED
        self._next_at = now if is_more_due else now + STEP_SECONDS
        return done.is_behind

    def _is_needed(self, attempt_id: str, unit_id: str | None) -> bool:
        """Return whether the output must stay. That of an unknown unit stays: `paceline gc` finds out whose it is."""
        return unit_id is None or is_last_of_unfinished(self._store, attempt_id, unit_id)


def is_last_of_unfinished(store: Store, attempt_id: str, unit_id: str) -> bool:
    """Return whether the attempt is the last one of a unit that is neither done nor cancelled."""
    unit = store.unit(unit_id)
    return unit is not None and unit.attempt_id == attempt_id and unit.state not in FINISHED


def attempts_of_unfinished(store: Store) -> set[str]:
    """Return the last attempts of all units that are neither done nor cancelled. Reads all of them."""
    return {
        unit.attempt_id
        for state in get_args(UnitState)
        if state not in FINISHED
        for unit in all_units(store, state=state)
        if unit.attempt_id is not None
    }


def attempts_of_campaign(store: Store, campaign: str) -> set[str]:
    """Return the last attempt of each unit of the campaign. Reads all of them."""
    name = find_campaign(store, campaign).name
    return {unit.attempt_id for unit in all_units(store, campaign=name) if unit.attempt_id is not None}


def remove_campaign_output(spool: Spool, campaign: str, attempts: Collection[str], before: float) -> PruneResult:
    """Remove prompts and output of a deleted campaign, of all its attempts.

    The archive knows the unit of each attempt; `attempts` are those of earlier versions, which did not write it down.
    What ended after `before` belongs to another campaign that has got the name since.
    """
    removed = PruneResult()
    for name in spool.archived():
        if name in attempts or (spool.unit_of(name) or "").startswith(f"{campaign}/"):
            attempt = spool.archived_attempt(name)
            if attempt is not None and attempt.ended_at <= before:
                spool.remove_archived(name)
                removed += PruneResult(1, attempt.disk_bytes)
    return removed


def all_units(store: Store, *, campaign: str | None = None, state: UnitState | None = None) -> Iterator[Unit]:
    """Yield units page by page, so that a million of them need little memory."""
    cursor: str | None = None
    while True:
        page = store.units(campaign=campaign, state=state, cursor=cursor, limit=1000)
        yield from page.units
        cursor = page.cursor
        if cursor is None:
            return

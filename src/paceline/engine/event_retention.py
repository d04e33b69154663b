"""Retention of events: old ones are deleted in small steps, so that no pass is held up."""

import math

from paceline.engine.command_log import prune_history
from paceline.store import Store

STEP_EVENTS = 500
"""Events that one pass deletes at most: a few milliseconds."""
REST_SECONDS = 60.0
"""How often an engine that is up to date looks for old events."""


class EventRetention:
    """Deletes events that are older than `keep` seconds; none if it is None."""

    def __init__(self, store: Store, keep: float | None) -> None:
        self._store = store
        self._keep = keep
        self._next_at = -math.inf

    def step(self, now: float) -> None:
        """Delete some old events, if it is time to. Called once per pass."""
        if self._keep is None or self._next_at - REST_SECONDS <= now < self._next_at:
            return
        deleted = prune_history(self._store, before=now - self._keep, limit=STEP_EVENTS)
        self._next_at = now if deleted == STEP_EVENTS else now + REST_SECONDS

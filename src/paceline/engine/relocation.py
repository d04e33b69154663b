"""Units whose conversation has waited too long for its host: it is given up, and they begin again on any host."""

from collections.abc import Sequence

from paceline.agents.account import split_login
from paceline.engine.host_patience import Overdue
from paceline.engine.journal import EngineJournal
from paceline.engine.placement import host_scope
from paceline.events import Event
from paceline.store import Store

BATCH = 100
"""Units per pass: each is a write of its own, and a pass must not be held up by a host with many thousands."""


class Relocation:
    """Gives up conversations, a few per pass, each with its event."""

    def __init__(self, store: Store, journal: EngineJournal) -> None:
        self._store = store
        self._journal = journal

    def step(self, overdue: Sequence[Overdue], now: float) -> bool:
        """Give up the conversations that have waited too long. Returns whether there were any."""
        left = BATCH
        for each in overdue:
            unit_ids = self._store.bound_units(each.campaign, each.login, limit=left)
            scope = host_scope(split_login(each.login)[1])
            with self._journal.together():
                for unit_id in unit_ids:
                    self._store.forget_conversation(unit_id)
                    self._journal.append(Event("unit.requeued", now, scope, unit_id, self._fields(unit_id, each)))
            left -= len(unit_ids)
            if left <= 0:
                break
        return left < BATCH

    def _fields(self, unit_id: str, overdue: Overdue) -> dict[str, object]:
        unit = self._store.unit(unit_id)
        failures = 0 if unit is None else unit.counters.failures
        return {"reason": overdue.reason, "resume_at": None, "exit_code": None, "attempts": failures}

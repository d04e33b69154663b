"""Requests to end a session at its next turn and to continue its conversation later (`commands.end_at_turn`).

Here: storing them with their units. A turn end is where a session has nothing at work that could be lost
(`LiveSession.check_turn`). Sessions that show no turns, or cannot be resumed, run to their own end.
"""

import logging
from collections.abc import Mapping, Sequence

import msgspec

from paceline.engine.command_log import END_AT_TURN, PREFIX
from paceline.engine.journal import EngineJournal
from paceline.engine.session import LiveSession
from paceline.engine.workspace_preparation import Preparation, with_result
from paceline.events import Event
from paceline.store import Store, StoredEvent
from paceline.store.unit_result import EndRequest

log = logging.getLogger("paceline.engine")


class EndOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of the command."""

    unit: str
    attempt: str
    reason: str
    resume_at: float | None = None
    is_held: bool = False


class EndRequests:
    """Takes requests for attempts that run. Each is stored with its event, so it outlives the engine."""

    def __init__(
        self,
        store: Store,
        journal: EngineJournal,
        live: Mapping[str, LiveSession],
        prepared: Mapping[str, Preparation],
    ) -> None:
        self._store = store
        self._journal = journal
        self._live = live
        self._prepared = prepared

    def carry_out(self, commands: Sequence[StoredEvent], now: float) -> None:
        """Take the requests among the commands."""
        for command in commands:
            if command.event.name == PREFIX + END_AT_TURN:
                try:
                    order = msgspec.convert(command.event.fields, EndOrder)
                except msgspec.ValidationError as error:
                    log.warning("a command could not be carried out: %s: %s", command.event.name, error)
                    continue
                self._take(order, now)

    def _take(self, order: EndOrder, now: float) -> None:
        holder = self._live.get(order.unit) or self._prepared.get(order.unit)
        if holder is None or holder.unit.attempt_id != order.attempt:
            self._take_late(order, now)
            return
        request = EndRequest(
            attempt_id=order.attempt, reason=order.reason, resume_at=order.resume_at, is_held=order.is_held
        )
        self.request(holder, request, now)

    def request(self, holder: LiveSession | Preparation, request: EndRequest, now: float) -> None:
        """Store the request with its event, then let the session end at its next turn."""
        unit = with_result(holder.unit, end_request=request)
        fields: dict[str, object] = {"reason": request.reason, "resume_at": request.resume_at}
        with self._journal.together():
            is_current = self._store.save_progress(unit.id, unit.fence, phase=None, result=unit.result)
            if is_current:
                self._journal.append(Event("unit.ending", now, None, unit.id, fields))
        if not is_current:
            return  # it was cancelled
        if isinstance(holder, LiveSession):
            holder.ask_end(unit)
        else:
            holder.unit = unit

    def withdraw(self, session: LiveSession, now: float) -> None:
        """Let a session continue that was to end at its next turn."""
        unit = with_result(session.unit, end_request=None)
        fields: dict[str, object] = {"reason": "it continues: its window holds more", "resume_at": None}
        with self._journal.together():
            if not self._store.save_progress(unit.id, unit.fence, phase=None, result=unit.result):
                return  # it was cancelled
            self._journal.append(Event("unit.ending", now, None, unit.id, fields))
        session.ask_end(unit)

    def _take_late(self, order: EndOrder, now: float) -> None:
        """Hold a unit that a person paused just as its attempt ended. Otherwise that end counts as usual."""
        if order.is_held and self._store.hold_units([order.unit], order.reason, now=now):
            return
        log.info("%s has no session that could be ended: %s", order.unit, order.reason)

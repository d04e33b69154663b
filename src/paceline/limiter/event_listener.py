"""The delivery of events to a program's `on_event`: in the order they happened, and never able to stop admission."""

import logging
from collections import deque
from collections.abc import Callable, Iterable

from paceline.events import Event

log = logging.getLogger("paceline.limiter")


class EventListener:
    """One `on_event`. Events that happen while it runs are delivered after it returns."""

    def __init__(self, on_event: Callable[[Event], object]) -> None:
        self._on_event = on_event
        self._pending: deque[Event] = deque()
        self._is_delivering = False

    def deliver(self, events: Iterable[Event]) -> None:
        """Call `on_event` for each event, after those that are still pending."""
        self._pending.extend(events)
        if self._is_delivering:
            return
        self._is_delivering = True
        try:
            while self._pending:
                event = self._pending.popleft()
                try:
                    self._on_event(event)
                except Exception:
                    log.exception("on_event failed for %s", event.name)
        finally:
            self._is_delivering = False

    def emit(self, name: str, at: float, scope: str, fields: dict[str, object]) -> None:
        """Deliver one event of a slot; without the queue while it is empty, because every slot emits two."""
        event = Event(name, at, scope, None, fields)
        if self._is_delivering or self._pending:
            self.deliver((event,))
            return
        self._is_delivering = True
        try:
            self._on_event(event)
        except Exception:
            log.exception("on_event failed for %s", name)
        finally:
            self._is_delivering = False
        if self._pending:
            self.deliver(())

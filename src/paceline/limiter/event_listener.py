"""Whoever wants to hear of events: told in the order they happened, and never able to stop admission."""

import logging
from collections import deque
from collections.abc import Callable

from paceline.events import Event

log = logging.getLogger("paceline.limiter")


class Listener:
    """One `on_event`. What happens while it is being told waits its turn."""

    def __init__(self, on_event: Callable[[Event], object]) -> None:
        self._on_event = on_event
        self._untold: deque[Event] = deque()
        self._is_telling = False

    def tell(self, *events: Event) -> None:
        self._untold.extend(events)
        if self._is_telling:
            return
        self._is_telling = True
        try:
            while self._untold:
                event = self._untold.popleft()
                try:
                    self._on_event(event)
                except Exception:
                    log.exception("on_event failed for %s", event.name)
        finally:
            self._is_telling = False

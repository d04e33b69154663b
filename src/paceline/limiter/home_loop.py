"""The event loop that a limiter lives on: one at a time, and a private one for programs without a loop.

Here: which loop, and the move to another. Never here: what runs on it.
"""

import asyncio
import threading
from collections.abc import Callable

RETIRE_SECONDS = 5.0
"""How long a takeover waits for the private loop's thread. It only has to leave `run_forever`, so more means a hang."""


class HomeLoop:
    """The loop of one limiter. `is_idle` and `on_leave` connect it to the waiters, timers and polls on that loop."""

    def __init__(self, *, is_idle: Callable[[], bool], on_leave: Callable[[], object]) -> None:
        self.loop = running_loop()
        self._is_idle = is_idle
        self._on_leave = on_leave
        self._private_thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def move_to(self, loop: asyncio.AbstractEventLoop) -> None:
        """Live on this loop from now on. Tickets that waited on a loop that was closed are abandoned."""
        last = self.loop
        if last is not None and not last.is_closed():
            if self._private_thread is not None and self._is_idle():
                self._retire(last, self._private_thread)
            if not last.is_closed() and (last.is_running() or not self._is_idle()):
                raise RuntimeError("this limiter lives on another event loop; use limiter.from_thread from here")
        self.loop = loop
        self._private_thread = None
        self._on_leave()

    def open_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop to hand calls over to; start a private one where there is none."""
        with self._starting:
            loop = self.loop
            if loop is None or loop.is_closed():
                loop = self._start_private()
        if running_loop() is loop:
            raise RuntimeError("from_thread would block its own loop; use `async with limiter.slot(...)` here")
        return loop

    def _start_private(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        self.move_to(loop)
        self._private_thread = threading.Thread(target=loop.run_forever, name="paceline", daemon=True)
        self._private_thread.start()
        return loop

    def _retire(self, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
        """End the private loop: another loop takes over."""
        loop.call_soon_threadsafe(loop.stop)
        thread.join(RETIRE_SECONDS)
        if not thread.is_alive():
            loop.close()


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that this code runs on, if any."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None

"""Slots for code that is not on the limiter's event loop: other threads, and scripts without a loop.

    with limiter.from_thread.slot("anthropic/max-1/opus-4-6") as slot:
        ...

The limiter belongs to one loop. Calls from here are handed over to it; in a program without a
loop, a private one is started on a daemon thread at the first call.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from paceline.core.signals import Signal

if TYPE_CHECKING:
    from paceline.limiter import Limiter
    from paceline.slot import Slot

Result = TypeVar("Result")


class ThreadSlot:
    """A slot as seen from another thread; its calls return once the limiter has taken note."""

    __slots__ = ("_from_thread", "_slot")

    def __init__(self, from_thread: "FromThread", slot: "Slot") -> None:
        self._from_thread = from_thread
        self._slot = slot

    @property
    def id(self) -> str:
        return self._slot.id

    @property
    def scope(self) -> str:
        return self._slot.scope

    @property
    def lost(self) -> bool:
        return self._slot.lost

    def release(self) -> None:
        self._from_thread.call(self._slot.release)

    def renew(self) -> None:
        self._from_thread.call(self._slot.renew)

    def report(self, signal: Signal) -> None:
        self._from_thread.call(lambda: self._slot.report(signal))

    def rate_limited(self, retry_after: float | None = None) -> None:
        self._from_thread.call(lambda: self._slot.rate_limited(retry_after))


class FromThread:
    """The blocking face of one limiter."""

    def __init__(self, limiter: "Limiter") -> None:
        self._limiter = limiter
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting = threading.Lock()

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """The loop the limiter lives on."""
        self._loop = loop

    @contextmanager
    def slot(
        self,
        scope: str,
        *,
        session: str | None = None,
        priority: int = 0,
        since: float | None = None,
        timeout: float | None = None,
    ) -> Iterator[ThreadSlot]:
        """`with` a slot: blocks this thread until its turn comes."""
        entering = self._limiter._enter(scope, session, priority, since, timeout, None, leased=False)
        waiting = asyncio.run_coroutine_threadsafe(entering, self._home())
        try:
            slot = waiting.result()
        except BaseException:
            if not waiting.cancel() and waiting.exception() is None:
                self.call(waiting.result().release)
            raise
        try:
            yield ThreadSlot(self, slot)
        finally:
            self.call(slot.release)

    def call(self, function: Callable[[], Result]) -> Result:
        """Run a method of the limiter on its loop and wait for the answer."""

        async def run() -> Result:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self._home()).result()

    def _home(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None or self._loop.is_closed():
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="paceline", daemon=True).start()
        if running_loop() is self._loop:
            raise RuntimeError("from_thread would block its own loop; use `async with limiter.slot(...)` here")
        return self._loop


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop this code runs on, if any."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None

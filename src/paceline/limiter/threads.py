"""Slots for code that is not on the limiter's event loop: other threads, and scripts without a loop.

    with limiter.from_thread.slot("anthropic/max-1/opus-4-6") as slot:
        ...

The limiter belongs to one loop. Calls from here are handed over to it; in a program without a
loop, a private one is started on a daemon thread at the first call. It ends when another loop
takes the limiter over.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from typing import TypeVar

from paceline.core.signals import Overloaded, QuotaClosed, RateLimited, Signal
from paceline.errors import CapacityError
from paceline.limiter.home_loop import HomeLoop
from paceline.limiter.slot import AdmissionRequest, OnQueued, Slot

LOOP_CHECK_SECONDS = 0.5
"""How often a waiting thread checks that its loop still exists: rare enough to be free, soon enough for a person."""
Result = TypeVar("Result")


class ThreadSlot:
    """A slot for another thread. Its calls return once the limiter has carried them out."""

    __slots__ = ("_from_thread", "_slot")

    def __init__(self, from_thread: "FromThread", slot: Slot) -> None:
        self._from_thread = from_thread
        self._slot = slot

    @property
    def id(self) -> str:
        return self._slot.id

    @property
    def scope(self) -> str:
        return self._slot.scope

    @property
    def token(self) -> int:
        return self._slot.token

    @property
    def granted_at(self) -> float:
        return self._slot.granted_at

    @property
    def waited(self) -> float:
        return self._slot.waited

    @property
    def lost(self) -> bool:
        return self._slot.lost

    def release(self) -> None:
        self._from_thread.call(self._slot.release)

    def abandon(self) -> None:
        """Give the slot back and learn nothing from it: the call never reached the provider, or broke."""
        self._from_thread.call(self._slot.abandon)

    def renew(self) -> None:
        self._from_thread.call(self._slot.renew)

    def report(self, signal: Signal) -> None:
        self._from_thread.call(lambda: self._slot.report(signal))

    def rate_limited(self, retry_after: float | None = None) -> None:
        self.report(RateLimited(retry_after=retry_after))

    def overloaded(self, retry_after: float | None = None) -> None:
        self.report(Overloaded(retry_after=retry_after))

    def quota_closed(self, resets_at: float | None = None, window: str | None = None) -> None:
        self.report(QuotaClosed(resets_at=resets_at, window=window))

    def __repr__(self) -> str:
        return repr(self._slot)


class _Visit:
    """One `with` block of a thread. Only the loop touches its fields, so that an interrupt cannot lose a slot."""

    def __init__(self) -> None:
        self._slot: Slot | None = None
        self._is_over = False

    def take(self, slot: Slot) -> Slot:
        self._slot = slot
        if self._is_over:  # the thread was interrupted before it got the slot
            slot.abandon()
        return slot

    def end(self) -> None:
        self._is_over = True
        if self._slot is not None:
            self._slot.release()


class FromThread:
    """The blocking interface of one limiter: every call is handed over to the limiter's loop."""

    def __init__(
        self,
        home: HomeLoop,
        enter: Callable[[AdmissionRequest], Coroutine[None, None, Slot]],
        aclose: Callable[[], Coroutine[None, None, None]],
    ) -> None:
        self._home = home
        self._enter = enter
        self._aclose = aclose

    @contextmanager
    def slot(
        self,
        scope: str,
        *,
        session: str | None = None,
        priority: int = 0,
        since: float | None = None,
        tokens: int | None = None,
        timeout: float | None = None,
        on_queued: OnQueued = None,
    ) -> Iterator[ThreadSlot]:
        """Wait for a slot, blocking this thread, and release it at the end of the `with` block.

        `on_queued` is called on the limiter's loop.
        """
        visit = _Visit()
        request = AdmissionRequest(scope, session, priority, since, tokens, timeout, on_queued, leased=False)

        async def enter() -> Slot:
            return visit.take(await self._enter(request))

        loop = self._home.open_loop()
        waiting = None
        try:
            waiting = asyncio.run_coroutine_threadsafe(enter(), loop)
            yield ThreadSlot(self, _result(waiting, loop))
        finally:
            if waiting is not None:
                waiting.cancel()
            try:
                self.call(visit.end)
            except BaseException:  # interrupted again: the slot must come back, but is not waited for
                self._home.open_loop().call_soon_threadsafe(visit.end)
                raise

    def call(self, function: Callable[[], Result]) -> Result:
        """Run a function on the limiter's loop, and return its result."""

        async def run() -> Result:
            return function()

        loop = self._home.open_loop()
        work = run()
        try:
            return _result(asyncio.run_coroutine_threadsafe(work, loop), loop)
        finally:
            work.close()  # where its loop ended before it began

    def close(self) -> None:
        """Call `limiter.aclose()` from a thread. Waiting threads get `CapacityError`."""
        loop = self._home.open_loop()
        _result(asyncio.run_coroutine_threadsafe(self._aclose(), loop), loop)


def _result(answer: "Future[Result]", loop: asyncio.AbstractEventLoop) -> Result:
    """Wait for the result, but not forever on a loop that was closed or stopped meanwhile."""
    while True:
        try:
            return answer.result(LOOP_CHECK_SECONDS)
        except TimeoutError:
            if answer.done():
                return answer.result()  # the time-out was its own
            if loop.is_closed():
                raise CapacityError("the event loop of this limiter was closed") from None
            if not loop.is_running():
                answer.cancel()  # nobody waits for it any more when the loop runs again
                raise CapacityError("the event loop of this limiter is stopped: keep it running") from None
        except CancelledError:
            raise CapacityError("the event loop of this limiter ended meanwhile") from None

"""Slots for code that is not on the limiter's event loop: other threads, and scripts without a loop.

    with limiter.from_thread.slot("anthropic/max-1/opus-4-6") as slot:
        ...

The limiter belongs to one loop. Calls from here are handed over to it; in a program without a
loop, a private one is started on a daemon thread at the first call. It ends when another loop
takes the limiter over.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from typing import TypeVar, Unpack

from paceline.core.signals import Signal
from paceline.errors import CapacityError
from paceline.limiter.slot import AdmissionRequest, Slot, WaitOptions

LOOP_CHECK_SECONDS = 0.5
"""How often a waiting thread checks that its loop still exists: rare enough to be free, soon enough for a person."""
READ_TRIES = 1000
"""A status is read in microseconds, so two tries in a row seldom meet a change."""
Result = TypeVar("Result")
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

    @property
    def is_elsewhere(self) -> bool:
        """Whether the loop runs, and this code does not run on it."""
        return self.loop is not None and self.loop.is_running() and running_loop() is not self.loop

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


class _ThreadSlot:
    """The issuer of a slot for the `with` block of a thread. Its calls return once the limiter has carried them out.

    Only the loop touches its fields, so that an interrupt cannot lose a slot.
    """

    def __init__(self, call: Callable[[Callable[[], None]], None]) -> None:
        self._call = call
        self._slot: Slot | None = None
        self._is_over = False

    async def enter(self, enter: Callable[[], Coroutine[None, None, Slot]]) -> Slot:
        self._slot = await enter()
        if self._is_over:  # the thread was interrupted before it got the slot
            self._slot.abandon()
        return self._slot

    def end(self) -> None:
        self._is_over = True
        if self._slot is not None:
            self._slot.release()

    @property
    def _taken(self) -> Slot:
        assert self._slot is not None
        return self._slot

    def leave(self, _: Slot, *, learns: bool) -> None:
        self._call(self._taken.release if learns else self._taken.abandon)

    def renew(self, _: Slot) -> None:
        self._call(self._taken.renew)

    def report(self, _: Slot, signal: Signal) -> None:
        self._call(lambda: self._taken.report(signal))

    def is_held(self, _: Slot) -> bool:
        return not self._taken.lost

    def is_canary(self, _: Slot) -> bool:
        return self._taken.is_canary


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
    def slot(self, scope: str, **options: Unpack[WaitOptions]) -> Iterator[Slot]:
        """Wait for a slot, blocking this thread, and release it at the end of the `with` block.

        `on_queued` is called on the limiter's loop.
        """
        mine, request = _ThreadSlot(self.call), AdmissionRequest(scope, leased=False, **options)
        loop = self._home.open_loop()
        waiting = None
        try:
            waiting = asyncio.run_coroutine_threadsafe(mine.enter(lambda: self._enter(request)), loop)
            slot = _result(waiting, loop)
            yield Slot(mine, slot._granted, slot.scope, slot.session)
        finally:
            if waiting is not None:
                waiting.cancel()
            try:
                self.call(mine.end)
            except BaseException:  # interrupted again: the slot must come back, but is not waited for
                self._home.open_loop().call_soon_threadsafe(mine.end)
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


def read_beside_loop(read: Callable[[], Result]) -> Result:
    """Return what a thread reads of the state as it is, without waiting for a loop that may be busy.

    The loop may change a table while it is read. Then it is read again.
    """
    for _ in range(READ_TRIES):
        with suppress(RuntimeError):
            return read()
    return read()


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

"""The gate under a client: a transport that waits for a slot, sends, learns, and gives the slot back exactly once.

Here: the two courses of events, asyncio and blocking, for httpx and httpx2 alike. What anything means is decided in
`course.py` and below.
"""

import asyncio
import functools
import inspect
import logging
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from types import ModuleType
from typing import Any

from paceline.client import Client
from paceline.core.signals import Signal
from paceline.errors import DaemonError, InvalidInput, SlotLost, SlotTimeout
from paceline.integrations.limited_request import Course, HeldError, Request, Response, lowered, place_of, refuse_held
from paceline.limiter import Limiter
from paceline.limiter.threads import ThreadSlot
from paceline.protocols import AnswerReader, answer_reader

log = logging.getLogger("paceline.integrations")

DEFAULT_MAX_WAIT = 600.0
KEPT_CONNECTIONS = 100


class AsyncGate:
    """What `SlotTransport` does. A base class of httpx or httpx2 stands beside it."""

    def __init__(
        self,
        gate: Limiter | Client,
        account: str,
        *,
        provider: str | None = None,
        transport: Any = None,
        max_wait: float = DEFAULT_MAX_WAIT,
        session: str | None = None,
        priority: int = 0,
    ) -> None:
        if not isinstance(gate, Limiter | Client):
            raise InvalidInput(f"SlotTransport takes a Limiter or a Client first; got {gate!r:.80}")
        self._gate = gate
        self._now = gate.clock.now
        self._place = place_of(account, provider, max_wait, session, priority)
        self._inner = transport

    async def handle_async_request(self, request: Any) -> Any:
        course = Course(self._place, request, self._now())
        if self._inner is None:
            self._inner = course.library.AsyncHTTPTransport(limits=_limits(course.library))
        if (refused := course.login_refused()) is not None:
            return refused
        if not course.is_counted:
            return await self._inner.handle_async_request(request)
        while True:
            visit = self._slot(course)
            try:
                slot = await visit.__aenter__()
            except SlotTimeout as error:
                return course.ran_out(error, self._now())
            except HeldError as error:
                return course.own_answer(error.answer)
            ending, response = _AsyncEnding(visit, slot), None
            try:
                response = await self._inner.handle_async_request(request)
                if response.status_code < 400:
                    await ending.report(course.at_head(response, slot.waited, self._now()))
                    response.stream = self._counted(course, response, ending)
                    return response
                whole = course.whole(response, await self._read_error(course, response, ending))
                signals, is_again = course.judge(whole, self._now())
                await ending.report(signals)
            except BaseException:
                try:
                    if response is not None:
                        await response.aclose()
                finally:
                    await ending.abandon()
                raise
            await ending.close()
            if not is_again:
                return whole

    async def _read_error(self, course: Course, response: Response, ending: "_AsyncEnding") -> bytes:
        try:
            return await _read(response)
        except Exception:
            await ending.report(course.broken_off(response, self._now()))
            raise

    def _slot(self, course: Course) -> Any:
        options: dict[str, Any] = {
            "session": self._place.session,
            "priority": self._place.priority,
            "since": course.since,
            "timeout": course.seconds_left(self._now()),
            "on_queued": refuse_held,
        }
        if isinstance(self._gate, Limiter):  # the daemon is not told what a call expects to use
            options["tokens"] = course.tokens
        return self._gate.slot(course.scope, **options)

    def _counted(self, course: Course, response: Response, ending: "_AsyncEnding") -> Any:
        headers = lowered(response.headers)
        reader = answer_reader(headers)
        at_end = functools.partial(course.at_end, response.status_code, headers, reader)
        return _async_stream(course.library)(response.stream, reader, ending, lambda: at_end(self._now()))

    async def aclose(self) -> None:
        if self._inner is not None:
            await self._inner.aclose()


class _AsyncEnding:
    """The end of a slot, which comes once, whoever is the first to find that it has."""

    def __init__(self, visit: Any, slot: Any) -> None:
        self._visit = visit
        self._slot = slot
        self._is_over = False
        self._loop = asyncio.get_running_loop()

    async def report(self, signals: Iterable[Signal]) -> None:
        """A daemon that is away just then must not cost the program an answer that it has."""
        for signal in signals:
            try:
                told: Awaitable[None] | None = self._slot.report(signal)
                if inspect.isawaitable(told):
                    await told
            except (DaemonError, SlotLost) as error:
                log.warning("%r could not be told %s: %s", self._slot, type(signal).__name__, error)

    async def finish(self, at_end: Callable[[], list[Signal]]) -> None:
        """It went well, as far as it was wanted."""
        if not self._is_over:
            try:
                await self.report(at_end())
            finally:
                await self.close()

    async def close(self) -> None:
        if not self._is_over:
            self._is_over = True
            await self._visit.__aexit__(None, None, None)

    async def abandon(self) -> None:
        """The call broke: how it went at the provider is not known, least of all that it went well."""
        if self._is_over:
            return
        self._is_over = True
        try:
            told: Awaitable[None] | None = self._slot.abandon()
            if inspect.isawaitable(told):
                await told
        except DaemonError as error:
            log.warning("%r could not be given back yet: %s", self._slot, error)
        finally:
            await self._visit.__aexit__(None, None, None)

    def drop(self) -> None:
        """The answer was dropped without being closed; called by the garbage collector, on any thread."""
        if not self._is_over and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(lambda: self._loop.create_task(self.close()))


class _AsyncStream:
    """The bytes of an answer as they come, read in passing; the slot ends with them."""

    def __init__(self, inner: Any, reader: AnswerReader | None, ending: _AsyncEnding, at_end: Any) -> None:
        self._inner = inner
        self._reader = reader
        self._ending = ending
        self._at_end = at_end
        weakref.finalize(self, ending.drop).atexit = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._inner:
                if self._reader is not None:
                    self._reader.feed(chunk)
                yield chunk
            await self._ending.finish(self._at_end)
        except Exception:
            await self._ending.abandon()
            raise
        finally:
            await self._ending.close()

    async def aclose(self) -> None:
        """Also before its end, by who has read enough: what came until then went well."""
        try:
            await self._inner.aclose()
        finally:
            await self._ending.finish(self._at_end)


class SyncGate:
    """What `SyncSlotTransport` does: the same, blocking the thread that asks."""

    def __init__(
        self,
        limiter: Limiter,
        account: str,
        *,
        provider: str | None = None,
        transport: Any = None,
        max_wait: float = DEFAULT_MAX_WAIT,
        session: str | None = None,
        priority: int = 0,
    ) -> None:
        if not isinstance(limiter, Limiter):
            raise InvalidInput(f"SyncSlotTransport takes a Limiter first; got {limiter!r:.80}")
        self._limiter = limiter
        self._now = limiter.clock.now
        self._place = place_of(account, provider, max_wait, session, priority)
        self._inner = transport

    def handle_request(self, request: Request) -> Response:
        course = Course(self._place, request, self._now())
        if self._inner is None:
            self._inner = course.library.HTTPTransport(limits=_limits(course.library))
        if (refused := course.login_refused()) is not None:
            return refused
        if not course.is_counted:
            return self._inner.handle_request(request)
        while True:
            with ExitStack() as visit:
                try:
                    slot = visit.enter_context(self._slot(course))
                except SlotTimeout as error:
                    return course.ran_out(error, self._now())
                except HeldError as error:
                    return course.own_answer(error.answer)
                try:
                    response = self._inner.handle_request(request)
                    if response.status_code < 400:
                        _report(slot, course.at_head(response, slot.waited, self._now()))
                        response.stream = self._counted(course, response, _SyncEnding(visit.pop_all(), slot))
                        return response
                    whole = course.whole(response, self._read_error(course, response, slot))
                    signals, is_again = course.judge(whole, self._now())
                    _report(slot, signals)
                except BaseException:
                    slot.abandon()
                    raise
            if not is_again:
                return whole

    def _read_error(self, course: Course, response: Response, slot: ThreadSlot) -> bytes:
        try:
            return _read_blocking(response)
        except Exception:
            _report(slot, course.broken_off(response, self._now()))
            raise

    def _slot(self, course: Course) -> AbstractContextManager[ThreadSlot]:
        return self._limiter.from_thread.slot(
            course.scope,
            session=self._place.session,
            priority=self._place.priority,
            since=course.since,
            tokens=course.tokens,
            timeout=course.seconds_left(self._now()),
            on_queued=refuse_held,
        )

    def _counted(self, course: Course, response: Response, ending: "_SyncEnding") -> Any:
        headers = lowered(response.headers)
        reader = answer_reader(headers)
        at_end = functools.partial(course.at_end, response.status_code, headers, reader)
        return _sync_stream(course.library)(response.stream, reader, ending, lambda: at_end(self._now()))

    def close(self) -> None:
        if self._inner is not None:
            self._inner.close()


class _SyncEnding:
    def __init__(self, visit: ExitStack, slot: ThreadSlot) -> None:
        self._visit = visit
        self._slot = slot
        self._is_over = False

    def finish(self, at_end: Callable[[], list[Signal]]) -> None:
        if not self._is_over:
            try:
                _report(self._slot, at_end())
            finally:
                self.close()

    def close(self) -> None:
        self._is_over = True
        self._visit.close()  # once or more often

    def abandon(self) -> None:
        self._slot.abandon()  # nothing where it was given back before
        self.close()


class _SyncStream:
    """As `_AsyncStream`. One that is dropped without being closed takes its visit along, which then ends by itself."""

    def __init__(self, inner: Any, reader: AnswerReader | None, ending: _SyncEnding, at_end: Any) -> None:
        self._inner = inner
        self._reader = reader
        self._ending = ending
        self._at_end = at_end

    def __iter__(self) -> Iterator[bytes]:
        try:
            for chunk in self._inner:
                if self._reader is not None:
                    self._reader.feed(chunk)
                yield chunk
            self._ending.finish(self._at_end)
        except Exception:
            self._ending.abandon()
            raise
        finally:
            self._ending.close()

    def close(self) -> None:
        try:
            self._inner.close()
        finally:
            self._ending.finish(self._at_end)


def _report(slot: ThreadSlot, signals: Iterable[Signal]) -> None:
    for signal in signals:
        slot.report(signal)


async def _read(response: Response) -> bytes:
    """The body as it came, and the connection given back."""
    try:
        return b"".join([chunk async for chunk in response.stream])
    finally:
        await response.aclose()


def _read_blocking(response: Response) -> bytes:
    try:
        return b"".join(response.stream)
    finally:
        response.close()


def _limits(library: ModuleType) -> Any:
    """The slots bound how many run at once; connections need no second bound."""
    return library.Limits(max_connections=None, max_keepalive_connections=KEPT_CONNECTIONS)


@functools.cache
def _async_stream(library: ModuleType) -> type[_AsyncStream]:
    """Each library takes only streams of its own kind."""
    return type("SlotStream", (_AsyncStream, library.AsyncByteStream), {})


@functools.cache
def _sync_stream(library: ModuleType) -> type[_SyncStream]:
    return type("SlotStream", (_SyncStream, library.SyncByteStream), {})

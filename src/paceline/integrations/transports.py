"""Transports for httpx and httpx2 that wait for a slot, send, report signals, and release the slot exactly once.

Here: the two ways to wait and to send, asyncio and blocking. Their loops have the same steps, but one awaits each of
them. Never here: what anything means; `limited_request.py` and `paceline.protocols` decide that for both.
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

from paceline.client.daemon_client import Client
from paceline.core.signals import Signal
from paceline.errors import DaemonError, InvalidInput, SlotLost, SlotTimeout
from paceline.integrations.limited_request import (
    HeldError,
    LimitedRequest,
    Request,
    Response,
    lowered_headers,
    raise_if_held,
    transport_settings,
)
from paceline.limiter import Limiter
from paceline.limiter.threads import ThreadSlot
from paceline.protocols import ResponseReader, response_reader

log = logging.getLogger("paceline.integrations")

DEFAULT_MAX_WAIT = 600.0
"""Seconds. The same as the gateway's, and as long as the usual time-out of the SDKs."""
KEPT_CONNECTIONS = 100
"""Idle connections to keep. The slots bound how many are busy, so this only trades memory for new connections."""


class AsyncSlots:
    """The work of `SlotTransport`, which adds a base class of httpx or httpx2."""

    def __init__(
        self,
        limiter: Limiter | Client,
        account: str,
        *,
        provider: str | None = None,
        transport: Any = None,
        max_wait: float = DEFAULT_MAX_WAIT,
        session: str | None = None,
        priority: int = 0,
    ) -> None:
        if not isinstance(limiter, Limiter | Client):
            raise InvalidInput(f"SlotTransport takes a Limiter or a Client first; got {limiter!r:.80}")
        self._limiter = limiter
        self._now = limiter.clock.now
        self._settings = transport_settings(account, provider, max_wait, session, priority)
        self._inner = transport

    async def handle_async_request(self, request: Any) -> Any:
        limited = LimitedRequest(self._settings, request, self._now())
        if self._inner is None:
            self._inner = limited.library.AsyncHTTPTransport(limits=_connection_limits(limited.library))
        if (refused := limited.login_refused()) is not None:
            return refused
        if not limited.takes_slot:
            return await self._inner.handle_async_request(request)
        while True:
            context = self._slot(limited)
            try:
                slot = await context.__aenter__()
            except SlotTimeout as error:
                return limited.timed_out(error, self._now())
            except HeldError as error:
                return limited.own_response(error.response)
            holder, response = _AsyncSlotHolder(context, slot), None
            try:
                response = await self._inner.handle_async_request(request)
                if response.status_code < 400:
                    await holder.report(limited.signals_at_head(response, slot.waited, self._now()))
                    response.stream = self._counted(limited, response, holder)
                    return response
                whole = limited.with_body(response, await self._read_error(limited, response, holder))
                signals, is_retried = limited.judge(whole, self._now())
                await holder.report(signals)
            except BaseException:
                try:
                    if response is not None:
                        await response.aclose()
                finally:
                    await holder.abandon()
                raise
            await holder.release()
            if not is_retried:
                return whole

    async def _read_error(self, limited: LimitedRequest, response: Response, holder: "_AsyncSlotHolder") -> bytes:
        try:
            return await _read(response)
        except Exception:
            await holder.report(limited.signals_of_broken(response, self._now()))
            raise

    def _slot(self, limited: LimitedRequest) -> Any:
        options: dict[str, Any] = {
            "session": self._settings.session,
            "priority": self._settings.priority,
            "since": limited.since,
            "timeout": limited.seconds_left(self._now()),
            "on_queued": raise_if_held,
        }
        if isinstance(self._limiter, Limiter):  # the daemon's API takes no expected tokens
            options["tokens"] = limited.tokens
        return self._limiter.slot(limited.scope, **options)

    def _counted(self, limited: LimitedRequest, response: Response, holder: "_AsyncSlotHolder") -> Any:
        headers = lowered_headers(response.headers)
        reader = response_reader(headers)
        at_end = functools.partial(limited.signals_at_end, response.status_code, headers, reader)
        return _async_stream(limited.library)(response.stream, reader, holder, lambda: at_end(self._now()))

    async def aclose(self) -> None:
        if self._inner is not None:
            await self._inner.aclose()


class _AsyncSlotHolder:
    """A slot that is released exactly once, whichever caller is first."""

    def __init__(self, context: Any, slot: Any) -> None:
        self._context = context
        self._slot = slot
        self._is_released = False
        self._loop = asyncio.get_running_loop()

    async def report(self, signals: Iterable[Signal]) -> None:
        """Report the signals. If the daemon is away, log that: the program must still get its response."""
        for signal in signals:
            try:
                reported: Awaitable[None] | None = self._slot.report(signal)
                if inspect.isawaitable(reported):
                    await reported
            except (DaemonError, SlotLost) as error:
                log.warning("%s was not reported for %r: %s", type(signal).__name__, self._slot, error)

    async def finish(self, at_end: Callable[[], list[Signal]]) -> None:
        """Report the signals of a success and release the slot."""
        if not self._is_released:
            try:
                await self.report(at_end())
            finally:
                await self.release()

    async def release(self) -> None:
        if not self._is_released:
            self._is_released = True
            await self._context.__aexit__(None, None, None)

    async def abandon(self) -> None:
        """Release the slot of a call that broke. Its outcome at the provider is unknown, so it is no success."""
        if self._is_released:
            return
        self._is_released = True
        try:
            abandoned: Awaitable[None] | None = self._slot.abandon()
            if inspect.isawaitable(abandoned):
                await abandoned
        except DaemonError as error:
            log.warning("%r could not be released yet: %s", self._slot, error)
        finally:
            await self._context.__aexit__(None, None, None)

    def drop(self) -> None:
        """Release the slot of a response that was never closed. The garbage collector calls this on any thread."""
        if not self._is_released and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(lambda: self._loop.create_task(self.release()))


class _AsyncStream:
    """The bytes of a response as they come, read in passing. Its end releases the slot."""

    def __init__(self, inner: Any, reader: ResponseReader | None, holder: _AsyncSlotHolder, at_end: Any) -> None:
        self._inner = inner
        self._reader = reader
        self._holder = holder
        self._at_end = at_end
        weakref.finalize(self, holder.drop).atexit = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._inner:
                if self._reader is not None:
                    self._reader.feed(chunk)
                yield chunk
            await self._holder.finish(self._at_end)
        except Exception:
            await self._holder.abandon()
            raise
        finally:
            await self._holder.release()

    async def aclose(self) -> None:
        """Close the stream, possibly before its end. What came until then counts as a success."""
        try:
            await self._inner.aclose()
        finally:
            await self._holder.finish(self._at_end)


class SyncSlots:
    """The work of `SyncSlotTransport`: the same, blocking the calling thread."""

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
        self._settings = transport_settings(account, provider, max_wait, session, priority)
        self._inner = transport

    def handle_request(self, request: Request) -> Response:
        limited = LimitedRequest(self._settings, request, self._now())
        if self._inner is None:
            self._inner = limited.library.HTTPTransport(limits=_connection_limits(limited.library))
        if (refused := limited.login_refused()) is not None:
            return refused
        if not limited.takes_slot:
            return self._inner.handle_request(request)
        while True:
            with ExitStack() as context:
                try:
                    slot = context.enter_context(self._slot(limited))
                except SlotTimeout as error:
                    return limited.timed_out(error, self._now())
                except HeldError as error:
                    return limited.own_response(error.response)
                try:
                    response = self._inner.handle_request(request)
                    if response.status_code < 400:
                        _report(slot, limited.signals_at_head(response, slot.waited, self._now()))
                        response.stream = self._counted(limited, response, _SyncSlotHolder(context.pop_all(), slot))
                        return response
                    whole = limited.with_body(response, self._read_error(limited, response, slot))
                    signals, is_retried = limited.judge(whole, self._now())
                    _report(slot, signals)
                except BaseException:
                    slot.abandon()
                    raise
            if not is_retried:
                return whole

    def _read_error(self, limited: LimitedRequest, response: Response, slot: ThreadSlot) -> bytes:
        try:
            return _read_blocking(response)
        except Exception:
            _report(slot, limited.signals_of_broken(response, self._now()))
            raise

    def _slot(self, limited: LimitedRequest) -> AbstractContextManager[ThreadSlot]:
        return self._limiter.from_thread.slot(
            limited.scope,
            session=self._settings.session,
            priority=self._settings.priority,
            since=limited.since,
            tokens=limited.tokens,
            timeout=limited.seconds_left(self._now()),
            on_queued=raise_if_held,
        )

    def _counted(self, limited: LimitedRequest, response: Response, holder: "_SyncSlotHolder") -> Any:
        headers = lowered_headers(response.headers)
        reader = response_reader(headers)
        at_end = functools.partial(limited.signals_at_end, response.status_code, headers, reader)
        return _sync_stream(limited.library)(response.stream, reader, holder, lambda: at_end(self._now()))

    def close(self) -> None:
        if self._inner is not None:
            self._inner.close()


class _SyncSlotHolder:
    """A slot that is released exactly once, as `_AsyncSlotHolder`."""

    def __init__(self, context: ExitStack, slot: ThreadSlot) -> None:
        self._context = context
        self._slot = slot
        self._is_released = False

    def finish(self, at_end: Callable[[], list[Signal]]) -> None:
        if not self._is_released:
            try:
                _report(self._slot, at_end())
            finally:
                self.release()

    def release(self) -> None:
        self._is_released = True
        self._context.close()  # no effect when repeated

    def abandon(self) -> None:
        self._slot.abandon()  # no effect on a released slot
        self.release()


class _SyncStream:
    """As `_AsyncStream`. If it is dropped without being closed, its holder and context are collected with it."""

    def __init__(self, inner: Any, reader: ResponseReader | None, holder: _SyncSlotHolder, at_end: Any) -> None:
        self._inner = inner
        self._reader = reader
        self._holder = holder
        self._at_end = at_end

    def __iter__(self) -> Iterator[bytes]:
        try:
            for chunk in self._inner:
                if self._reader is not None:
                    self._reader.feed(chunk)
                yield chunk
            self._holder.finish(self._at_end)
        except Exception:
            self._holder.abandon()
            raise
        finally:
            self._holder.release()

    def close(self) -> None:
        try:
            self._inner.close()
        finally:
            self._holder.finish(self._at_end)


def _report(slot: ThreadSlot, signals: Iterable[Signal]) -> None:
    for signal in signals:
        slot.report(signal)


async def _read(response: Response) -> bytes:
    """Return the body as it came, and close the response."""
    try:
        return b"".join([chunk async for chunk in response.stream])
    finally:
        await response.aclose()


def _read_blocking(response: Response) -> bytes:
    try:
        return b"".join(response.stream)
    finally:
        response.close()


def _connection_limits(library: ModuleType) -> Any:
    """Return connection limits without a maximum: the slots already bound how many run at once."""
    return library.Limits(max_connections=None, max_keepalive_connections=KEPT_CONNECTIONS)


@functools.cache
def _async_stream(library: ModuleType) -> type[_AsyncStream]:
    """Return the stream class for a library, which accepts only subclasses of its own base class."""
    return type("SlotStream", (_AsyncStream, library.AsyncByteStream), {})


@functools.cache
def _sync_stream(library: ModuleType) -> type[_SyncStream]:
    return type("SlotStream", (_SyncStream, library.SyncByteStream), {})

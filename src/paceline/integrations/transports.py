"""Transports for httpx and httpx2 that wait for a slot, send, report signals, and release the slot exactly once.

Here: the one way of a request, and how asyncio and blocking transports wait and send. The steps of a blocking transport
never suspend, so that the same coroutine serves it. A `LimitedRequest` is what both share: what a request asks for, how
long it may wait, what its responses mean. `paceline.protocols` decides that for it.
"""

import asyncio
import functools
import inspect
import logging
import sys
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from types import ModuleType
from typing import Any, ClassVar, Generic, TypeVar

from paceline import protocols
from paceline.client.daemon_client import Client
from paceline.core.signals import Signal
from paceline.core.values.scopes import path_scopes
from paceline.core.values.tickets import Deferred
from paceline.core.values.validation import check_name, check_seconds
from paceline.errors import DaemonError, InvalidInput, SlotLost, SlotTimeout
from paceline.limiter import Limiter
from paceline.protocols.responses import should_retry, signals_at_end, signals_of, signals_of_broken, with_pause

Request = Any
"""A request of httpx or of httpx2: two libraries with the same interface."""
Response = Any
Header = tuple[bytes, bytes]

_LIBRARIES = ("httpx", "httpx2")


def raise_if_held(deferred: Deferred) -> None:
    """Raise `OwnError` when a request joins the queue of an account that is held until a person acts."""
    if (response := protocols.response_when_held(deferred)) is not None:
        raise response


class LimitedRequest:
    """One request on its way. `now` is always the limiter's own time."""

    def __init__(self, provider: str, account: str, request: Request, now: float, max_wait: float) -> None:
        self.library = library_of(request)
        self.since = now
        self.deadline = now + max_wait
        self.takes_slot = protocols.takes_slot(request.method, request.url.path)
        self.refused: Response | None = None
        """The last error response of the provider."""
        self.name = protocols.detect_name(provider)
        self._provider = provider
        self._headers = lowered_headers(request.headers)
        self._target: bytes = request.url.raw_path
        self._family: protocols.Family = protocols.family_of(provider, request.url.path)
        reader, self._can_repeat = protocols.RequestReader(), True
        try:
            body: bytes = request.content
        except self.library.RequestNotRead:  # it is streamed
            self._can_repeat = False
        else:
            reader.feed(body)
            if reader.needs_whole:
                reader.read_whole(body)
        self.tokens = reader.tokens()
        model = protocols.model_in_path(request.url.path) or reader.model
        self.scope = protocols.scope_of(provider, account, model)

    def login_refused(self) -> Response | None:
        """Return the response to a request with a subscription's login, which belongs to the vendor's own CLI."""
        for key in protocols.presented_keys(self._headers, self._target):
            if (message := protocols.login_refusal(key.value, self._provider)) is not None:
                return self.own_response(protocols.OwnError(403, "subscription", message))
        return None

    def timed_out(self, error: SlotTimeout, now: float) -> Response:
        """Return the response after the wait for a slot ran out: the provider's own refusal, if there was one."""
        if self.refused is not None:
            return self.refused
        return self.own_response(protocols.response_when_timed_out(str(error), error.deferred, now))

    def judge(self, response: Response, now: float) -> tuple[list[Signal], bool]:
        """Return the signals of an error response, and whether its request is to be sent again."""
        status, headers = response.status_code, lowered_headers(response.headers)
        signals = signals_of(self.name, status, headers, response.content, seen_at=now)
        is_retried = self._can_repeat and should_retry(signals, status, headers, now=now, deadline=self.deadline)
        self.refused = response
        return (with_pause(signals) if is_retried else signals), is_retried

    def with_body(self, response: Response, body: bytes) -> Response:
        """Return the response with its whole body, as it came."""
        kept = [header for header in response.headers.raw if header[0].lower() != b"transfer-encoding"]
        return self.library.Response(response.status_code, headers=kept, content=body, extensions=response.extensions)

    def own_response(self, response: protocols.OwnError) -> Response:
        """Return a response in the provider's shape, so that its SDK raises the matching exception."""
        body = protocols.error_body(self._family, response.status, response.code, str(response))
        headers = protocols.error_headers(response.status, response.retry_after)
        return self.library.Response(response.status, headers=headers, content=body)


def library_of(request: Request) -> ModuleType:
    """Return httpx or httpx2, whichever made the request: its response must come from the same library."""
    for kind in type(request).__mro__:
        if (name := kind.__module__.partition(".")[0]) in _LIBRARIES:
            return sys.modules[name]
    raise InvalidInput(f"SlotTransport takes requests of httpx and httpx2; got {type(request)!r:.80}")


def lowered_headers(headers: Any) -> list[Header]:
    return [(name.lower(), value) for name, value in headers.raw]


# -- the way of a request ---------------------------------------------------------------------------

log = logging.getLogger("paceline.integrations")

DEFAULT_MAX_WAIT = 600.0
"""Seconds. The same as the gateway's, and as long as the usual time-out of the SDKs."""
KEPT_CONNECTIONS = 100
"""Idle connections to keep. The slots bound how many are busy, so this only trades memory for new connections."""
Result = TypeVar("Result")
Source = TypeVar("Source", bound=Limiter | Client)


class _SlotHolder:
    """A slot that is released exactly once, whichever caller is first."""

    def __init__(self, enter: Callable[[], Any], leave: Callable[[None, None, None], Any]) -> None:
        self.slot: Any = None
        self._enter = enter
        self._leave = leave
        self._is_released = False

    async def enter(self) -> None:
        self.slot = await _settled(self._enter())

    async def report(self, signals: Iterable[Signal]) -> None:
        """Report the signals. If the daemon is away, log that: the program must still get its response."""
        for signal in signals:
            try:
                await _settled(self.slot.report(signal))
            except (DaemonError, SlotLost) as error:
                log.warning("%s was not reported for %r: %s", type(signal).__name__, self.slot, error)

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
            await _settled(self._leave(None, None, None))

    async def abandon(self) -> None:
        """Release the slot of a call that broke. Its outcome at the provider is unknown, so it is no success."""
        if self._is_released:
            return
        self._is_released = True
        try:
            await _settled(self.slot.abandon())
        except DaemonError as error:
            log.warning("%r could not be released yet: %s", self.slot, error)
        finally:
            await _settled(self._leave(None, None, None))


class _Stream:
    """The bytes of a response as they come, read in passing. Its end releases the slot."""

    def __init__(self, inner: Any, reader: protocols.ResponseReader | None, holder: _SlotHolder, at_end: Any) -> None:
        self._inner = inner
        self._reader = reader
        self._holder = holder
        self._at_end = at_end


class _AsyncStream(_Stream):
    def __init__(self, inner: Any, reader: protocols.ResponseReader | None, holder: _SlotHolder, at_end: Any) -> None:
        super().__init__(inner, reader, holder, at_end)
        weakref.finalize(self, _drop, holder, asyncio.get_running_loop()).atexit = False

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


def _drop(holder: _SlotHolder, loop: asyncio.AbstractEventLoop) -> None:
    """Release the slot of a response that was never closed. The garbage collector calls this on any thread."""
    if not holder._is_released and not loop.is_closed():
        loop.call_soon_threadsafe(lambda: loop.create_task(holder.release()))


class _SyncStream(_Stream):
    """As `_AsyncStream`. If it is dropped without being closed, its holder and context are collected with it."""

    def __iter__(self) -> Iterator[bytes]:
        try:
            for chunk in self._inner:
                if self._reader is not None:
                    self._reader.feed(chunk)
                yield chunk
            _run(self._holder.finish(self._at_end))
        except Exception:
            _run(self._holder.abandon())
            raise
        finally:
            _run(self._holder.release())

    def close(self) -> None:
        try:
            self._inner.close()
        finally:
            _run(self._holder.finish(self._at_end))


async def _settled(value: Any) -> Any:
    """Return what a part of a transport returned, once it is there."""
    return await value if inspect.isawaitable(value) else value


def _run(steps: Coroutine[Any, Any, Result]) -> Result:
    """Carry out the steps of a blocking transport."""
    try:
        steps.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    raise RuntimeError("a blocking transport cannot wait for an event loop")


@functools.cache
def _stream_of(kind: Any, library: ModuleType, base: str) -> type[_Stream]:
    """Return the stream class for a library, which accepts only subclasses of its own base class."""
    stream: type[_Stream] = type("SlotStream", (kind, getattr(library, base)), {})
    return stream


class _Slots(Generic[Source]):
    """The work of a transport. Its parts may return awaitables or, in a blocking transport, plain values."""

    _takes = "SyncSlotTransport takes a Limiter"
    _limiters: ClassVar[tuple[type, ...]] = (Limiter,)
    _transport = "HTTPTransport"
    """The plain transport of httpx and httpx2 alike."""
    _sending = "handle_request"
    _closing = "close"
    _stream: ClassVar[Any] = _SyncStream
    _stream_base = "SyncByteStream"

    def __init__(
        self,
        limiter: Source,
        account: str,
        *,
        provider: str | None = None,
        transport: Any = None,
        max_wait: float = DEFAULT_MAX_WAIT,
        session: str | None = None,
        priority: int = 0,
    ) -> None:
        if not isinstance(limiter, self._limiters):
            raise InvalidInput(f"{self._takes} first; got {limiter!r:.80}")
        path = check_name(account, "account") if provider is None else f"{provider}/{account}"
        if len(path_scopes(path)) != 2:
            raise InvalidInput(
                f'account must be "provider/account", such as "anthropic/work-key", or an account with provider=;'
                f" got {account!r:.80}"
            )
        if type(priority) is not int:
            raise InvalidInput(f"priority must be a whole number; got {priority!r:.80}")
        if session is not None:
            check_name(session, "session")
        self._limiter = limiter
        self._now = limiter.clock.now
        self._provider, self._account = path.split("/")
        self._max_wait = check_seconds(max_wait, "max_wait")
        self._session = session
        self._priority = priority
        self._inner = transport

    def _read(self, response: Response) -> Any:
        """Return the body as it came, and close the response."""
        raise NotImplementedError

    def _slot(self, scope: str, options: dict[str, Any]) -> "_SlotHolder":
        """Return the holder of a slot that is still to be entered."""
        raise NotImplementedError

    def _send(self, request: Request) -> Any:
        return getattr(self._inner, self._sending)(request)

    async def _handle(self, request: Request) -> Response:
        limited = LimitedRequest(self._provider, self._account, request, self._now(), self._max_wait)
        if self._inner is None:  # the slots already bound how many connections are busy
            limits = limited.library.Limits(max_connections=None, max_keepalive_connections=KEPT_CONNECTIONS)
            self._inner = getattr(limited.library, self._transport)(limits=limits)
        if (refused := limited.login_refused()) is not None:
            return refused
        if not limited.takes_slot:
            return await _settled(self._send(request))
        while True:
            options = {
                "session": self._session,
                "priority": self._priority,
                "since": limited.since,
                "tokens": limited.tokens,
                "timeout": max(0.0, limited.deadline - self._now()),
                "on_queued": raise_if_held,
            }
            holder, response = self._slot(limited.scope, options), None
            try:
                await holder.enter()
            except SlotTimeout as error:
                return limited.timed_out(error, self._now())
            except protocols.OwnError as error:
                return limited.own_response(error)
            try:
                response = await _settled(self._send(request))
                if response.status_code < 400:
                    return await self._counted(limited, response, holder)
                whole = limited.with_body(response, await self._read_error(limited, response, holder))
                signals, is_retried = limited.judge(whole, self._now())
                await holder.report(signals)
            except BaseException:
                try:
                    if response is not None:
                        await _settled(getattr(response, self._closing)())
                finally:
                    await holder.abandon()
                raise
            await holder.release()
            if not is_retried:
                return whole

    async def _read_error(self, limited: LimitedRequest, response: Response, holder: "_SlotHolder") -> bytes:
        try:
            body: bytes = await _settled(self._read(response))
        except Exception:
            headers = lowered_headers(response.headers)
            await holder.report(signals_of_broken(limited.name, response.status_code, headers, seen_at=self._now()))
            raise
        return body

    async def _counted(self, limited: LimitedRequest, response: Response, holder: "_SlotHolder") -> Response:
        """Return a success with Paceline's headers. Report its head now, and its tokens at its end."""
        response.headers["x-paceline-scope"] = limited.scope
        response.headers["x-paceline-waited-ms"] = str(round(holder.slot.waited * 1000))
        name, status, headers = limited.name, response.status_code, lowered_headers(response.headers)
        await holder.report(signals_of(name, status, headers, b"", seen_at=self._now()))
        reader = protocols.response_reader(headers)

        def at_end() -> list[Signal]:
            return signals_at_end(name, status, headers, error=b"", reader=reader, seen_at=self._now())

        stream = _stream_of(self._stream, limited.library, self._stream_base)
        response.stream = stream(response.stream, reader, holder, at_end)
        return response


class AsyncSlots(_Slots[Limiter | Client]):
    """The work of `SlotTransport`, which adds a base class of httpx or httpx2."""

    _takes, _limiters = "SlotTransport takes a Limiter or a Client", (Limiter, Client)
    _transport, _sending, _closing = "AsyncHTTPTransport", "handle_async_request", "aclose"
    _stream, _stream_base = _AsyncStream, "AsyncByteStream"

    async def handle_async_request(self, request: Any) -> Any:
        return await self._handle(request)

    async def aclose(self) -> None:
        if self._inner is not None:
            await self._inner.aclose()

    async def _read(self, response: Response) -> bytes:
        try:
            return b"".join([chunk async for chunk in response.stream])
        finally:
            await response.aclose()

    def _slot(self, scope: str, options: dict[str, Any]) -> _SlotHolder:
        if isinstance(self._limiter, Client):  # the daemon's API takes no expected tokens
            del options["tokens"]
        context = self._limiter.slot(scope, **options)
        return _SlotHolder(context.__aenter__, context.__aexit__)


class SyncSlots(_Slots[Limiter]):
    """The work of `SyncSlotTransport`: the same, blocking the calling thread."""

    def handle_request(self, request: Request) -> Response:
        return _run(self._handle(request))

    def close(self) -> None:
        if self._inner is not None:
            self._inner.close()

    def _read(self, response: Response) -> bytes:
        try:
            return b"".join(response.stream)
        finally:
            response.close()

    def _slot(self, scope: str, options: dict[str, Any]) -> _SlotHolder:
        context = self._limiter.from_thread.slot(scope, **options)
        return _SlotHolder(context.__enter__, context.__exit__)

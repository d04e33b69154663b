"""`FakeProvider`: a protocol module reads a request, the script or `capacity` decides, and the answer is sent.

Here: start and stop of the server, in a running loop or in plain code; HTTP, the script, the headers of an answer; and
the records of requests, for assertions. Never here: rules of capacity.
"""

import asyncio
import math
import re
import socket
import struct
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from fnmatch import fnmatchcase
from types import TracebackType
from typing import Any, Literal, Self

import msgspec
from aiohttp import web

from paceline.clock import Clock, SystemClock
from paceline.errors import InvalidInput
from paceline.simulation.provider import anthropic, capacity, gemini, openai_chat, openai_responses
from paceline.simulation.provider.errors import CLAIMS, NAMES, ErrorFacts, ProviderError, iso, refuse
from paceline.simulation.provider.protocol_module import (
    Json,
    MalformedCallError,
    ModelCall,
    ProtocolModule,
    ProtocolName,
    Reply,
)
from paceline.simulation.provider.scenario import Endpoint, Scenario, Step

Ending = Literal["served", "refused", "cut", "client_left"]


class RequestRecord(ModelCall, kw_only=True):
    """One model request. `status`, `ended_at` and `ending` are None while it runs."""

    path: str
    protocol: ProtocolName
    key: str
    input_tokens: int
    headers: dict[str, str]
    started_at: float
    status: int | None = None
    error: str | None = None
    output_tokens: int = 0
    ended_at: float | None = None
    ending: Ending | None = None


WARNING_RATIO = 0.9
_UNIFIED = "anthropic-ratelimit-unified"
_CODEX_SLOTS = ("primary", "secondary")


def reading_headers(
    protocol: ProtocolName, reading: capacity.AccountReading, now: float, *, refused: bool
) -> dict[str, str]:
    """Return the headers of a response."""
    match protocol:
        case "anthropic":
            return _anthropic_rates(reading) | _unified(reading.windows, refused)
        case "openai-chat" | "openai-responses":
            return _openai_rates(reading, now) | _codex(reading.windows, now)
        case "gemini":
            return {}


def _anthropic_rates(reading: capacity.AccountReading) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, rate in (("requests", reading.requests), ("tokens", reading.tokens)):
        if rate is not None:
            headers[f"anthropic-ratelimit-{name}-limit"] = str(rate.limit)
            headers[f"anthropic-ratelimit-{name}-remaining"] = str(rate.remaining)
            headers[f"anthropic-ratelimit-{name}-reset"] = iso(rate.full_at)
    return headers


def _unified(windows: tuple[capacity.WindowReading, ...], refused: bool) -> dict[str, str]:
    if not windows:
        return {}
    tightest = max(windows, key=lambda window: window.used_ratio)
    headers = {
        f"{_UNIFIED}-status": _status(tightest, refused),
        f"{_UNIFIED}-reset": str(int(tightest.resets_at)),
        f"{_UNIFIED}-representative-claim": CLAIMS.get(tightest.name, tightest.name),
    }
    for window in windows:
        headers[f"{_UNIFIED}-{window.name}-status"] = _status(window, refused)
        headers[f"{_UNIFIED}-{window.name}-reset"] = str(int(window.resets_at))
        headers[f"{_UNIFIED}-{window.name}-utilization"] = f"{window.used_ratio:.2f}"
    return headers


def _status(window: capacity.WindowReading, refused: bool) -> str:
    """Return the status of a window. The request that spends it is still served, so its response only warns."""
    if refused and window.used_ratio >= 1.0:
        return "rejected"
    return "allowed_warning" if window.used_ratio >= WARNING_RATIO else "allowed"


def _openai_rates(reading: capacity.AccountReading, now: float) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, rate in (("requests", reading.requests), ("tokens", reading.tokens)):
        if rate is not None:
            headers[f"x-ratelimit-limit-{name}"] = str(rate.limit)
            headers[f"x-ratelimit-remaining-{name}"] = str(rate.remaining)
            headers[f"x-ratelimit-reset-{name}"] = _short_duration(rate, now)
    return headers


def _short_duration(rate: capacity.RateReading, now: float) -> str:
    """Return a duration as OpenAI spells it: `20ms`, `1.2s`, `6m0s`."""
    seconds = max(0.0, rate.full_at - now)
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    if seconds < 60:
        return f"{seconds:.3g}s"
    return f"{int(seconds // 60)}m{int(seconds % 60)}s"


def _codex(windows: tuple[capacity.WindowReading, ...], now: float) -> dict[str, str]:
    headers: dict[str, str] = {}
    for slot, window in zip(_CODEX_SLOTS, windows, strict=False):  # Codex has two windows
        headers[f"x-codex-{slot}-used-percent"] = f"{min(100.0, window.used_ratio * 100):.1f}"
        headers[f"x-codex-{slot}-window-minutes"] = str(int(window.seconds // 60))
        headers[f"x-codex-{slot}-reset-at"] = str(int(window.resets_at))
        headers[f"x-codex-{slot}-reset-after-seconds"] = str(max(0, int(window.resets_at - now)))
    return headers


# -- the script: answers for the next requests, whatever the capacity is ------------------------------

OK = "ok"


class Script:
    """A queue of steps. A request gets the first one that matches it, and uses it up once it is answered with it."""

    def __init__(self, steps: tuple[Step, ...] = ()) -> None:
        self._steps: deque[Step] = deque()
        for step in steps:
            self.add(step)

    def add(self, step: Step) -> None:
        if step.error != OK and step.error not in NAMES:
            raise InvalidInput(f"no error is called {step.error!r}; there are: ok, {', '.join(sorted(NAMES))}")
        if step.times is None or step.times > 0:
            self._steps.append(step)

    def find(
        self, endpoint: Endpoint, model: str, key: str, answers: int = 0, prompts: tuple[str, ...] = ()
    ) -> Step | None:
        for step in self._steps:
            is_meant = fnmatchcase(model, step.models) and fnmatchcase(key, step.keys) and answers >= step.answers
            if step.endpoint == endpoint and is_meant and _is_about(prompts, step.prompts):
                return step
        return None

    def use(self, step: Step) -> None:
        """Use the step once: a request was answered with it."""
        if step.times is None:
            return
        index = next(index for index, each in enumerate(self._steps) if each is step)
        if step.times == 1:
            del self._steps[index]
        else:
            self._steps[index] = msgspec.structs.replace(step, times=step.times - 1)


def _is_about(prompts: tuple[str, ...], pattern: str) -> bool:
    return pattern == "*" or any(fnmatchcase(prompt, pattern) for prompt in prompts)


# -- the server ---------------------------------------------------------------------------------------

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

LARGEST_BODY_BYTES = 256 * 2**20
BYTES_PER_TOKEN = 4
SERVER = "fake-provider"
KEPT_PROMPT_CHARS = 2000
"""The record keeps only the end of each message, so that a soak test with huge prompts does not fill memory."""
SESSION_HEADERS = ("x-paceline-session", "x-claude-code-session-id", "session_id", "session-id")
SECRET_HEADERS = frozenset({"authorization", "x-api-key", "x-goog-api-key"})
ROUTES: tuple[tuple[str, ProtocolModule], ...] = (
    ("/v1/messages", anthropic),
    ("/v1/chat/completions", openai_chat),
    ("/chat/completions", openai_chat),
    ("/v1/responses", openai_responses),
    ("/responses", openai_responses),
    ("/backend-api/codex/responses", openai_responses),
    (r"/{version:v1|v1beta}/models/{model:[^/]+:(?:stream)?[gG]enerateContent}", gemini),
)


class ProviderExchange(msgspec.Struct, frozen=True, kw_only=True):
    """A request in progress: the call, its protocol, and its record."""

    request: web.Request
    protocol: ProtocolModule
    call: ModelCall
    record: RequestRecord


def words_of(call: ModelCall, length: int | None, text: str | None = None) -> tuple[str, ...]:
    """Return the words of the answer. They name how much of the conversation arrived, so that tests see a resume."""
    if text is not None:
        return tuple(re.findall(r"\s*\S+\s*", text)) or (text,)
    last = call.prompts[-1].strip().splitlines()[-1][:60] if call.prompts and call.prompts[-1].strip() else "nothing"
    sentence = f"Answer {call.answers + 1} to message {len(call.prompts)} of this conversation: {last}"
    words = sentence.split()
    if length is not None:
        words = [words[index] if index < len(words) else f"word{index}" for index in range(max(1, length))]
    return (*(f"{word} " for word in words[:-1]), words[-1])


def key_of(request: web.Request) -> str:
    """Return the API key, which is the account. Protocols send it in four different places."""
    headers = request.headers
    bearer = headers.get("authorization", "").removeprefix("Bearer ").strip()
    return headers.get("x-api-key") or headers.get("x-goog-api-key") or request.query.get("key") or bearer


def json_response(body: Json, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    response = web.Response(body=msgspec.json.encode(body), status=status, headers=headers)
    response.content_type = "application/json"
    response.headers["server"] = SERVER
    response.headers["request-id"] = response.headers["x-request-id"] = "req_fake"
    return response


def reset_connection(request: web.Request) -> None:
    """End the connection with a TCP reset, as a dying host or a firewall does."""
    transport = request.transport
    if transport is None:
        return
    connection = transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if isinstance(transport, asyncio.WriteTransport):
        transport.abort()


LOOPBACK = "127.0.0.1"
STOP_SECONDS = 0.2
"""How long open connections may take to finish when the provider stops."""


class FakeProvider:
    """An LLM provider on loopback: real HTTP, scripted limits.

    In a running loop it shares the loop with the test. With an injected clock, hours pass at once:

        async with FakeProvider(Scenario(concurrency=4, lag=0.35), clock=clock) as provider:
            ...  # any client, with base URL provider.url

    In plain code (`with FakeProvider() as provider:`) it runs on a thread of its own. As a process:
    `python -m paceline.testing.provider`.
    """

    def __init__(
        self,
        scenario: Scenario | None = None,
        *,
        clock: Clock | None = None,
        host: str = LOOPBACK,
        port: int = 0,
    ) -> None:
        self.scenario = scenario or Scenario()
        self._clock = clock or SystemClock()
        self._address = (host, port)
        self._script = Script(self.scenario.script)
        self.requests: list[RequestRecord] = []
        """Every model request so far, oldest first. Running ones have no `ended_at` yet."""
        self.in_flight = 0
        """How many requests are being served."""
        self.peak_concurrency = 0
        """The largest number of requests that were served at once."""
        self.usage_polls = 0
        self._waiting: set[asyncio.Future[None]] = set()
        self._capacity: capacity.ProviderCapacity
        """It counts from the start of the provider."""
        self._runner: web.AppRunner | None = None
        self._loop: asyncio.AbstractEventLoop
        self._thread: threading.Thread
        """In plain code: the loop that it runs on, and its thread."""

    @property
    def url(self) -> str:
        """Return the base URL, without a trailing slash."""
        if self._runner is None:
            raise RuntimeError("the provider is not running; use it as `async with FakeProvider() as provider:`")
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}"

    def script(self, error: str, **fields: Any) -> None:
        """Give the next matching model requests this error (`ok`: a normal answer). Steps add up.

        The other fields are those of `Step`: how many `times`, for which `models`, `keys` and so on.
        """
        self.add_step(Step(error=error, **fields))

    def add_step(self, step: Step) -> None:
        self._script.add(step)

    @property
    def rate_limited(self) -> int:
        """Return how many 429s it has sent."""
        return sum(record.status == 429 for record in self.requests)

    def _note_serving(self, change: Literal[1, -1]) -> None:
        self.in_flight += change
        self.peak_concurrency = max(self.peak_concurrency, self.in_flight)
        self._note_change()

    def _note_change(self) -> None:
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds, checked after every change: tests need not guess how long a client takes."""
        while not condition():
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(waiter)
            try:
                await waiter
            finally:
                self._waiting.discard(waiter)

    async def __aenter__(self) -> Self:
        self._capacity = capacity.ProviderCapacity(self.scenario, self._clock.now())
        # A client that disconnects must release its slot at once, so its handler is cancelled.
        runner = web.AppRunner(self._app(), access_log=None, handler_cancellation=True, shutdown_timeout=STOP_SECONDS)
        await runner.setup()
        await web.TCPSite(runner, *self._address).start()
        self._runner = runner
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake-provider", daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.__aenter__(), self._loop).result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self.__aexit__(kind, error, trace), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # -- the HTTP side -------------------------------------------------------------------------------

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=LARGEST_BODY_BYTES)
        for path, protocol in ROUTES:
            app.router.add_post(path, self._model_handler(protocol))
        app.router.add_post("/v1/messages/count_tokens", self._count_tokens)
        app.router.add_post(r"/{version:v1|v1beta}/models/{model:[^/]+}:countTokens", self._count_tokens)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/v1beta/models", self._models)
        app.router.add_get("/usage", self._usage)
        app.router.add_get("/", self._root)  # and HEAD, with which Claude Code checks the connection
        return app

    def _model_handler(self, protocol: ProtocolModule) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            body = await request.read()
            try:
                call = protocol.read_call(body, request.match_info.get("model"))
            except MalformedCallError as error:
                return self._malformed(protocol.NAME, str(error))
            record = self._begin(request, protocol, call, len(body))
            try:
                return await self._answer(
                    ProviderExchange(request=request, protocol=protocol, call=call, record=record)
                )
            finally:
                record.ended_at = self._clock.now()
                record.ending = record.ending or "client_left"
                self._note_change()

        return handle

    def _begin(self, request: web.Request, protocol: ProtocolModule, call: ModelCall, body_bytes: int) -> RequestRecord:
        hints = [call.session, *(request.headers.get(name) for name in SESSION_HEADERS)]
        call = msgspec.structs.replace(
            call,
            session=next((hint for hint in hints if hint), None),
            prompts=tuple(prompt[-KEPT_PROMPT_CHARS:] for prompt in call.prompts),
        )
        headers = {name.lower(): value for name, value in request.headers.items()}
        record = RequestRecord(
            **msgspec.structs.asdict(call),
            path=request.path_qs,
            protocol=protocol.NAME,
            key=key_of(request),
            input_tokens=max(1, body_bytes // BYTES_PER_TOKEN),
            headers={name: value for name, value in headers.items() if name not in SECRET_HEADERS},
            started_at=self._clock.now(),
        )
        self.requests.append(record)
        self._note_change()
        return record

    async def _answer(self, exchange: ProviderExchange) -> web.StreamResponse:
        record, now = exchange.record, self._clock.now()
        if self.scenario.keys is not None and record.key not in self.scenario.keys:
            return self._refused(exchange, self._scripted(exchange, Step(error="401")))
        step = self._script.find("model", record.model, record.key, record.answers, record.prompts)
        planned = None if step is None or step.error == OK else self._scripted(exchange, step)
        if step is not None and planned is not None and planned.place in ("before", "reset"):
            self._script.use(step)  # whatever the capacity is
        if planned is not None and planned.place == "before":
            return self._refused(exchange, planned)
        if planned is not None and planned.place == "reset":
            record.error, record.ending = planned.name, "cut"
            reset_connection(exchange.request)
            return web.Response()
        reply = self._reply(exchange, step or Step(error=OK))
        verdict = self._capacity.admit(record.key, record.model, record.input_tokens + reply.output_tokens, now)
        if isinstance(verdict, capacity.Refusal):
            return self._refused(exchange, self._over_capacity(exchange, verdict))
        if step is not None:
            self._script.use(step)
        return await self._serve(exchange, reply, verdict, planned)

    async def _serve(
        self, exchange: ProviderExchange, reply: Reply, admission: capacity.Admission, planned: ProviderError | None
    ) -> web.StreamResponse:
        self._note_serving(+1)
        try:
            await self._clock.sleep(self.scenario.latency * admission.slowdown)
            if exchange.call.stream:
                return await self._stream(exchange, reply, admission, planned)
            if planned is not None:
                return await self._cut_whole(exchange, planned)
            await self._clock.sleep(self._seconds_per_token(admission) * reply.output_tokens)
            return self._whole(exchange, reply)
        finally:
            self._capacity.finish(admission, self._clock.now())
            self._note_serving(-1)

    def _whole(self, exchange: ProviderExchange, reply: Reply) -> web.Response:
        self._served(exchange.record, reply.output_tokens)
        return json_response(exchange.protocol.whole(reply), 200, self._reading_headers(exchange))

    async def _cut_whole(self, exchange: ProviderExchange, planned: ProviderError) -> web.StreamResponse:
        """Return where an error belongs that would cut a stream: before the first byte of an answer in one piece."""
        if planned.place == "midstream":
            return self._refused(exchange, planned)
        exchange.record.error, exchange.record.ending = planned.name, "cut"
        reset_connection(exchange.request)
        return web.Response()

    async def _stream(
        self, exchange: ProviderExchange, reply: Reply, admission: capacity.Admission, planned: ProviderError | None
    ) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"cache-control": "no-cache", "server": SERVER} | self._reading_headers(exchange)
        )
        response.content_type = exchange.protocol.STREAM_TYPE
        exchange.record.status = 200
        await response.prepare(exchange.request)
        for chunk in exchange.protocol.stream(reply):
            if planned is not None and exchange.record.output_tokens >= reply.output_tokens // 2:
                return await self._cut_stream(exchange, response, reply, planned)
            if chunk.tokens:
                await self._clock.sleep(self._seconds_per_token(admission) * chunk.tokens)
            await response.write(chunk.data)
            exchange.record.output_tokens += chunk.tokens
        self._served(exchange.record, reply.output_tokens)
        return response

    async def _cut_stream(
        self, exchange: ProviderExchange, response: web.StreamResponse, reply: Reply, planned: ProviderError
    ) -> web.StreamResponse:
        exchange.record.error, exchange.record.ending = planned.name, "cut"
        if planned.place == "midstream":
            await response.write(exchange.protocol.error_event(planned.body, reply))
        elif planned.place == "midstream_reset":
            reset_connection(exchange.request)
        return response

    def _refused(self, exchange: ProviderExchange, refused: ProviderError) -> web.Response:
        exchange.record.status = refused.status
        exchange.record.error = refused.name
        exchange.record.ending = "refused"
        return json_response(refused.body, refused.status, refused.headers)

    def _scripted(self, exchange: ProviderExchange, step: Step) -> ProviderError:
        now = self._clock.now()
        facts = ErrorFacts(
            now=now,
            model=exchange.record.model,
            retry_after=step.retry_after,
            resets_at=now + step.resets_in,
            limit=step.limit,
            in_use=step.limit,
        )
        return refuse(exchange.protocol.NAME, step.error, facts)

    def _over_capacity(self, exchange: ProviderExchange, refusal: capacity.Refusal) -> ProviderError:
        refused = refuse(exchange.protocol.NAME, refusal.error, refusal.facts)
        headers = refused.headers | self._reading_headers(exchange, refused=True) if self.scenario.announce else {}
        return msgspec.structs.replace(refused, headers=headers)

    def _reading_headers(self, exchange: ProviderExchange, *, refused: bool = False) -> dict[str, str]:
        if not self.scenario.announce:
            return {}
        now = self._clock.now()
        reading = self._capacity.read(exchange.record.key, exchange.record.model, now)
        return reading_headers(exchange.protocol.NAME, reading, now, refused=refused)

    def _served(self, record: RequestRecord, output_tokens: int) -> None:
        record.status, record.ending, record.output_tokens = 200, "served", output_tokens

    def _seconds_per_token(self, admission: capacity.Admission) -> float:
        speed = self.scenario.tokens_per_second
        return admission.slowdown / speed if speed else 0.0

    def _reply(self, exchange: ProviderExchange, step: Step) -> Reply:
        return Reply(
            id=f"fake{len(self.requests):06d}",
            model=exchange.record.model,
            words=words_of(exchange.call, self.scenario.reply_tokens, step.text),
            input_tokens=exchange.record.input_tokens,
            created_at=int(self._clock.now()),
            tool=step.tool,
        )

    def _malformed(self, protocol: ProtocolName, reason: str) -> web.Response:
        now = self._clock.now()
        refused = refuse(protocol, "400_invalid", ErrorFacts(now=now, model="", resets_at=now))
        body = refused.body | {"error": refused.body["error"] | {"message": reason}}
        return json_response(body, refused.status, refused.headers)

    async def _usage(self, request: web.Request) -> web.StreamResponse:
        key, now = key_of(request), self._clock.now()
        self.usage_polls += 1
        self._note_change()
        step = self._script.find("usage", "", key)
        if step is not None:
            self._script.use(step)
        if step is not None and step.error != OK:
            refused = refuse("openai-chat", step.error, ErrorFacts(now=now, model="", resets_at=now + step.resets_in))
            return json_response(refused.body, refused.status, refused.headers)
        if not self.scenario.usage:
            return json_response({"error": "not found"}, 404)
        limit = self._capacity.limit(key, now)
        concurrency = {} if limit is None else {"concurrency": {"limit": limit, "hard_cap": limit}}
        usage = {"concurrent_sessions": self._capacity.in_use(key, now)}
        return json_response({"usage": usage, "limits": concurrency})

    async def _models(self, request: web.Request) -> web.Response:
        names = self.scenario.models
        if request.path.startswith("/v1beta"):
            return json_response({"models": [{"name": f"models/{name}", "displayName": name} for name in names]})
        kind = {"type": "model", "object": "model", "created": 0, "owned_by": "fake"}
        return json_response({"object": "list", "data": [{"id": name} | kind for name in names], "has_more": False})

    async def _count_tokens(self, request: web.Request) -> web.Response:
        tokens = max(1, len(await request.read()) // BYTES_PER_TOKEN)
        return json_response({"totalTokens": tokens} if "model" in request.match_info else {"input_tokens": tokens})

    async def _root(self, request: web.Request) -> web.Response:
        return web.Response(text="a fake provider\n")

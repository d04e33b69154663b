"""`FakeProvider`: start and stop of the server, in a running loop or in plain code, and what tests read from it."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Self

from aiohttp import web

from paceline.clock import SystemClock
from paceline.simulation.provider.journal import Journal, RequestRecord
from paceline.simulation.provider.scenario import Scenario, Step, ToolCall
from paceline.simulation.provider.server import ProviderClock, ProviderServer, Script

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
        clock: ProviderClock | None = None,
        host: str = LOOPBACK,
        port: int = 0,
    ) -> None:
        self.scenario = scenario or Scenario()
        self._clock = clock or SystemClock()
        self._address = (host, port)
        self._script = Script(self.scenario.script)
        self._journal = Journal()
        self._runner: web.AppRunner | None = None
        self._thread: _LoopThread | None = None

    @property
    def url(self) -> str:
        """Return the base URL, without a trailing slash."""
        if self._runner is None:
            raise RuntimeError("the provider is not running; use it as `async with FakeProvider() as provider:`")
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}"

    def script(
        self,
        error: str,
        *,
        times: int | None = 1,
        models: str = "*",
        keys: str = "*",
        answers: int = 0,
        tool: ToolCall | None = None,
        retry_after: float = 3.0,
        resets_in: float = 7200.0,
    ) -> None:
        """Give the next `times` matching model requests this error (`ok`: a normal answer). Steps add up."""
        self.add_step(
            Step(
                error=error,
                times=times,
                models=models,
                keys=keys,
                answers=answers,
                tool=tool,
                retry_after=retry_after,
                resets_in=resets_in,
            )
        )

    def add_step(self, step: Step) -> None:
        self._script.add(step)

    def clear_script(self) -> None:
        self._script.clear()

    @property
    def requests(self) -> list[RequestRecord]:
        """Return every model request so far, oldest first. Running ones have no `ended_at` yet."""
        return self._journal.requests

    @property
    def in_flight(self) -> int:
        """Return how many requests are being served."""
        return self._journal.in_flight

    @property
    def peak_concurrency(self) -> int:
        """Return the largest number of requests that were served at once."""
        return self._journal.peak_in_flight

    @property
    def rate_limited(self) -> int:
        """Return how many 429s it has sent."""
        return self._journal.count(429)

    @property
    def usage_polls(self) -> int:
        return self._journal.usage_polls

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds, so that tests need not guess how long a client takes."""
        await self._journal.until(condition)

    async def __aenter__(self) -> Self:
        server = ProviderServer(self.scenario, self._clock, self._script, self._journal)
        # A client that disconnects must release its slot at once, so its handler is cancelled.
        runner = web.AppRunner(server.app(), access_log=None, handler_cancellation=True, shutdown_timeout=STOP_SECONDS)
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
        self._thread = _LoopThread()
        self._thread.run(self.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.run(self.__aexit__(kind, error, trace))
            thread.stop()


class _LoopThread:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake-provider", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[None, None, object]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

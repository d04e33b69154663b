"""Blocking work of the engine, such as git, in a few threads. The pass starts it and collects what has ended."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

THREADS = 4
"""git waits for the disk most of the time, and more than a few checkouts at once only slow each other down."""

Value = TypeVar("Value")


class Job(Generic[Value]):
    """Work that was started. `result` raises what the work raised."""

    def __init__(self, future: "Future[Value]") -> None:
        self._future = future

    @property
    def is_over(self) -> bool:
        return self._future.done()

    async def wait(self) -> Value:
        """Return the result once the work is over. Who gives up waiting leaves the work alone."""
        return await asyncio.shield(asyncio.wrap_future(self._future))

    def result(self) -> Value:
        """Return the result of work that is over."""
        return self._future.result(timeout=0)


class BackgroundJobs:
    """Threads for blocking work. `on_over` is called in the event loop when a job has ended."""

    def __init__(self, on_over: Callable[[], None]) -> None:
        self._on_over = on_over
        self._pool: ThreadPoolExecutor | None = None

    def start(self, work: Callable[..., Value], *arguments: object) -> Job[Value]:
        """Start work in a thread."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="paceline-git")
        future: Future[Value] = self._pool.submit(work, *arguments)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return Job(future)  # without a loop the next pass finds it
        future.add_done_callback(lambda _: _wake(loop, self._on_over))
        return Job(future)

    def close(self) -> None:
        """Start nothing more. Work that has begun ends by itself."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


def _wake(loop: asyncio.AbstractEventLoop, on_over: Callable[[], Any]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(on_over)

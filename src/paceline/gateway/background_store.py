"""Reading a store in threads, so that a store that hangs holds up only the requests that need it.

Here: the thread of one reading, and a store that is open for readings alone: one of an engine belongs to its loop.
Never here: what is read.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from paceline.errors import StoreBusy
from paceline.store import HashedKey, SpendRow, Store

LONGEST_READ_SECONDS = 1.0
"""How long a request waits for a reading: a hundred times what a healthy store needs, and less than people notice."""

Answer = TypeVar("Answer")


def in_thread(read: Callable[[], Answer]) -> "asyncio.Future[Answer]":
    """Return the future result of a reading. Its thread does not keep the process alive, however long it hangs."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Answer] = loop.create_future()

    def settle(answer: Answer | None, error: Exception | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(answer)  # type: ignore[arg-type]
        else:
            future.set_exception(error)

    def run() -> None:
        answer, failure = None, None
        try:
            answer = read()
        except Exception as error:  # noqa: BLE001 - it is raised where the reading was asked for
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop may be closed by now
            loop.call_soon_threadsafe(settle, answer, failure)

    threading.Thread(target=run, name="paceline-store-reading", daemon=True).start()
    return future


async def read_soon(read: Callable[[], Answer]) -> Answer:
    """Return the result of a reading. Raise `StoreBusy` if it takes longer than a request may wait."""
    try:
        async with asyncio.timeout(LONGEST_READ_SECONDS):
            return await in_thread(read)
    except TimeoutError:
        raise StoreBusy(f"the store did not answer within {LONGEST_READ_SECONDS:g} s") from None


class BackgroundStore:
    """A store that is opened by the first reading, for one thread at a time."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open_store = open_store
        self._store: Store | None = None
        self._lock = threading.Lock()

    def client_keys(self) -> Sequence[HashedKey]:
        return self._read(lambda store: store.client_keys())

    def spend(self, *, since: str, key: str | None = None) -> Sequence[SpendRow]:
        return self._read(lambda store: store.spend(since=since, key=key))

    def close(self) -> None:
        """Close the store, unless a reading hangs: it ends with the process."""
        if self._lock.acquire(timeout=LONGEST_READ_SECONDS):
            try:
                if self._store is not None:
                    self._store.close()
            finally:
                self._lock.release()

    def _read(self, query: Callable[[Store], Answer]) -> Answer:
        if not self._lock.acquire(timeout=LONGEST_READ_SECONDS):
            raise StoreBusy("an earlier reading has not ended yet")
        try:
            if self._store is None:
                self._store = self._open_store()
            return query(self._store)
        finally:
            self._lock.release()

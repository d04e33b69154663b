"""Usage polls for a program without an event loop: each runs in a thread, and its answer is read later."""

import asyncio
import queue
import threading
from collections.abc import Iterator, Mapping

from paceline.core.signals import Usage
from paceline.limiter.usage_polls import UsagePolls, UsageSource


class ThreadPolls:
    """The polls of a host. The Governor keeps their time-out, so an answer that comes too late does no harm."""

    def __init__(self, sources: Mapping[str, UsageSource]) -> None:
        self._sources = sources
        self._answers: queue.SimpleQueue[tuple[int, str, Usage]] = queue.SimpleQueue()
        self._round = 0

    def ask(self, scope: str) -> None:
        """Begin a poll. The thread ends with the program."""
        if scope in self._sources:
            name = f"usage poll of {scope}"
            threading.Thread(target=self._poll, args=(self._round, scope), name=name, daemon=True).start()

    def answers(self) -> Iterator[tuple[str, Usage]]:
        """Yield the answers that have come."""
        while True:
            try:
                asked_in, scope, usage = self._answers.get_nowait()
            except queue.Empty:
                return
            if asked_in == self._round:
                yield scope, usage

    def forget(self) -> None:
        """Drop the answers to all polls so far: another Governor asked for them."""
        self._round += 1

    def _poll(self, asked_in: int, scope: str) -> None:
        polls = UsagePolls(self._sources, lambda answered, usage: self._answers.put((asked_in, answered, usage)))

        async def ask() -> None:
            polls.ask(scope, asyncio.get_running_loop())
            await asyncio.gather(*polls.asked.values())

        asyncio.run(ask())

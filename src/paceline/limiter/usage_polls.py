"""Polls of usage sources, which ask a provider how many sessions it counts. A failure means *unknown*."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from paceline.core.signals import Usage

log = logging.getLogger("paceline.usage")

UsageSource = Callable[[], Awaitable[Usage | None]]


class UsagePolls:
    """The polls that the Governor asked for: at most one per scope. The Governor keeps their time-out."""

    def __init__(self, sources: Mapping[str, UsageSource], on_answer: Callable[[str, Usage], object]) -> None:
        self._sources = sources
        self._on_answer = on_answer
        self.asked: dict[str, asyncio.Task[None]] = {}

    def ask(self, scope: str, loop: asyncio.AbstractEventLoop) -> None:
        """Poll the scope. The Governor has given up a poll of it that is still running, so that one is cancelled."""
        if (stale := self.asked.pop(scope, None)) is not None:
            stale.cancel()
        self.asked[scope] = loop.create_task(self._ask(scope))

    def cancel(self) -> list[asyncio.Task[None]]:
        """Cancel every running poll, and return them."""
        tasks, self.asked = list(self.asked.values()), {}
        for task in tasks:
            task.cancel()
        return tasks

    def forget(self) -> None:
        """Drop the polls of a loop that ended: they never run again."""
        self.asked.clear()

    async def _ask(self, scope: str) -> None:
        try:
            usage = await self._sources[scope]()
        except Exception:
            log.warning("the usage source of %s failed", scope, exc_info=True)
            usage = None
        if self.asked.get(scope) is not asyncio.current_task():
            return  # it was given up before, so its answer is outdated
        del self.asked[scope]
        self._on_answer(scope, usage if isinstance(usage, Usage) else Usage())

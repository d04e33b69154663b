"""Asking providers how many sessions they count. The Governor says when; answers reach it at the next pass."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from paceline.core.signals import Usage

log = logging.getLogger("paceline.engine")

UsageSource = Callable[[], Awaitable[Usage | None]]


class UsagePolls:
    """One question at a time per scope; any failure is *unknown*."""

    def __init__(self, sources: Mapping[str, UsageSource], on_answer: Callable[[], None]) -> None:
        self._sources = sources
        self._on_answer = on_answer
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._answers: list[tuple[str, Usage]] = []

    def ask(self, scope: str) -> None:
        """A question that is still out was given up by the Governor."""
        if (stale := self._asked.pop(scope, None)) is not None:
            stale.cancel()
        self._asked[scope] = asyncio.get_running_loop().create_task(self._ask(scope))

    def take_answers(self) -> list[tuple[str, Usage]]:
        answers, self._answers = self._answers, []
        return answers

    def close(self) -> None:
        for task in self._asked.values():
            task.cancel()

    async def _ask(self, scope: str) -> None:
        try:
            usage = await self._sources[scope]()
        except Exception:
            log.warning("the usage source of %s failed", scope, exc_info=True)
            usage = None
        self._answers.append((scope, usage or Usage()))
        self._asked.pop(scope, None)
        self._on_answer()

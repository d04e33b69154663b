"""Tasks that wait for slots of a limiter in virtual time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from paceline import Limiter, Slot
from paceline.testing import VirtualClock


@asynccontextmanager
async def limiter_with(clock: VirtualClock, **settings: object) -> AsyncIterator[Limiter]:
    """A limiter that must be quiet once closed: no task of ours is left pending."""
    before = asyncio.all_tasks()
    limiter = Limiter(clock=clock, **settings)  # type: ignore[arg-type]
    try:
        yield limiter
    finally:
        await limiter.aclose()
        await clock.advance(0)
        left = {task for task in asyncio.all_tasks() - before if not task.done()}
        assert left == set(), "closing leaves nothing pending"


class WaitingTasks:
    """Tasks that each wait for a slot, and who got one, in order."""

    def __init__(self, limiter: Limiter, clock: VirtualClock) -> None:
        self.limiter = limiter
        self.clock = clock
        self.entered: list[tuple[str, float]] = []
        self.tasks: dict[str, asyncio.Task[Slot]] = {}

    async def ask(self, *names: str, scope: str = "umans", **kwargs: object) -> None:
        for name in names:
            task = self.tasks[name] = asyncio.create_task(self._enter(name, scope, kwargs))
            task.add_done_callback(_retrieve)
            await self.clock.advance(0)

    async def _enter(self, name: str, scope: str, kwargs: dict[str, object]) -> Slot:
        slot = await self.limiter.acquire(scope, **kwargs)  # type: ignore[arg-type]
        self.entered.append((name, self.clock.now()))
        return slot

    def names(self) -> list[str]:
        return [name for name, _ in self.entered]

    def slot(self, name: str) -> Slot:
        return self.tasks[name].result()


def _retrieve(task: asyncio.Task[Slot]) -> None:
    """Take the error of a task whose limiter was closed. Else Python prints it whenever it collects the task."""
    if not task.cancelled():
        task.exception()


def in_flight(limiter: Limiter, scope: str = "umans") -> int:
    status = limiter.scope_status(scope)
    return 0 if status is None else status.in_flight

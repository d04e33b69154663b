"""The calls of the leader in progress: each is done once, and reported when it is done."""

import asyncio
from collections.abc import Awaitable, Callable

from paceline.hosts.messages import Call, CallReport
from paceline.worker.outbox import Outbox

KEPT_RESULTS = 256
"""Results that stay known, for a leader that asks again because the first answer was lost. Most are a few words."""

RunCall = Callable[[Call], Awaitable[CallReport]]
"""Does what a call asks for. An error is part of the report."""


class CallDesk:
    """Runs calls beside each other, each as a task."""

    def __init__(self, run: RunCall, outbox: Outbox) -> None:
        self._run = run
        self._outbox = outbox
        self._running: dict[str, asyncio.Task[None]] = {}
        self._done: dict[str, CallReport] = {}

    def take(self, call: Call) -> None:
        """Begin a call. One that runs is left alone; one that is done is reported again."""
        if call.call_id in self._running:
            return
        if (report := self._done.get(call.call_id)) is not None:
            self._outbox.add(report)
            return
        self._running[call.call_id] = asyncio.create_task(self._do(call))

    async def _do(self, call: Call) -> None:
        try:
            report = await self._run(call)
        finally:
            del self._running[call.call_id]
        if report.error is None:  # what failed may succeed when it is asked for again
            self._done[call.call_id] = report
        while len(self._done) > KEPT_RESULTS:
            del self._done[next(iter(self._done))]
        self._outbox.add(report)

    def close(self) -> None:
        """Give up what runs. Work in threads ends by itself, unreported."""
        for task in self._running.values():
            task.cancel()

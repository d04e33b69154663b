"""The journal of the provider, for assertions: every request with its facts, and counts. It decides nothing."""

import asyncio
from collections.abc import Callable
from typing import Literal

import msgspec

from paceline.simulation.provider.protocol_module import ProtocolName

Ending = Literal["served", "refused", "cut", "client_left"]


class RequestRecord(msgspec.Struct, kw_only=True):
    """One model request. `status`, `ended_at` and `ending` are None while it runs."""

    path: str
    protocol: ProtocolName
    key: str
    model: str
    stream: bool
    session: str | None
    prompts: tuple[str, ...]
    answers: int
    """Number of answers that the conversation already had."""
    input_tokens: int
    headers: dict[str, str]
    started_at: float
    status: int | None = None
    error: str | None = None
    output_tokens: int = 0
    ended_at: float | None = None
    ending: Ending | None = None


class Journal:
    """The records, and the tests that wait for them to change."""

    def __init__(self) -> None:
        self.requests: list[RequestRecord] = []
        self.in_flight = 0
        self.peak_in_flight = 0
        self.usage_polls = 0
        self._waiting: set[asyncio.Future[None]] = set()

    def begin(self, record: RequestRecord) -> RequestRecord:
        self.requests.append(record)
        self.changed()
        return record

    def end(self, record: RequestRecord, now: float) -> None:
        record.ended_at = now
        record.ending = record.ending or "client_left"
        self.changed()

    def serving(self, change: Literal[1, -1]) -> None:
        self.in_flight += change
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        self.changed()

    def count(self, status: int) -> int:
        return sum(record.status == status for record in self.requests)

    def changed(self) -> None:
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds. It is checked after every change."""
        while not condition():
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(waiter)
            try:
                await waiter
            finally:
                self._waiting.discard(waiter)

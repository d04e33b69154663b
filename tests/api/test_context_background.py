"""What follows the engine's events, over a store that cannot be read for a moment."""

import asyncio

from paceline.api.context import BackgroundReaders
from paceline.errors import StoreBusy
from paceline.store import SqliteStore, StoredEvent
from paceline.testing.engine_harness import EngineHarness


class BusyStore(SqliteStore):
    """Whose events cannot be read the first times."""

    failures = 1

    def events(self, *, after: int = 0, limit: int = 1000, unit: str | None = None) -> list[StoredEvent]:
        if limit == 1 and self.failures:
            self.failures -= 1
            raise StoreBusy("another process is writing")
        return super().events(after=after, limit=limit, unit=unit)


async def test_the_time_line_is_shown_once_the_store_can_be_read() -> None:
    store = BusyStore.in_memory()
    async with EngineHarness(store=store) as harness:
        await harness.run(60.0)
        readers = BackgroundReaders(harness.engine, {})
        asked = asyncio.create_task(readers.timeline(1.0))

        await harness.run(10.0)

        assert (asked.done(), store.failures) == (True, 0)
        assert (await asked).to == harness.clock.now() - 9.0
        readers.close()

"""A long plan is added beside all else that the loop has to do."""

import asyncio
from pathlib import Path

from paceline.events import Event
from paceline.plans.import_plan import import_in_steps
from paceline.plans.plan_file import Plan
from paceline.store import Added, Campaign, SqliteStore, UnitCounts, UnitSpec


async def test_a_long_plan_lets_others_have_their_turns(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "paceline.db")
    plan = Plan(campaign=Campaign(name="night"), units=tuple(UnitSpec(id=f"u{number}") for number in range(10_000)))
    seen: list[dict[str, UnitCounts]] = []

    async def look() -> None:
        while True:
            seen.append(store.counts())
            await asyncio.sleep(0)

    looking = asyncio.create_task(look())
    added = await import_in_steps(store, plan, update=False, now=0.0, events=[Event("control.campaigns", 0.0)])
    looking.cancel()

    assert (added, store.counts()) == (Added(added=10_000), {"night": UnitCounts(todo=10_000)})
    assert len(seen) >= 30
    assert seen == [{}] * len(seen)
    assert [stored.event.name for stored in store.events()] == ["control.campaigns"]
    store.close()

"""A store that is damaged or gone stops the engine at once; one that is only busy does not."""

import os
import sqlite3
from pathlib import Path

import pytest

from paceline.engine.capacity.governor_state import GOVERNOR_STATE
from paceline.errors import EngineBusy, StoreDamaged, StoreError, StoreGone
from paceline.executors.interface import Launch
from paceline.simulation.executor import Run
from paceline.store import SqliteStore
from paceline.testing.engine_harness import NOW, EngineHarness


def fail_once(launch: Launch) -> Run:
    return Run(seconds=10.0, exit_code=1 if launch.attempt_id.endswith("-1") else 0)


@pytest.mark.parametrize("kind", [StoreDamaged, StoreGone])
async def test_an_engine_whose_store_is_damaged_or_gone_stops_and_leaves_its_sessions(
    tmp_path: Path, kind: type[StoreError]
) -> None:
    path = tmp_path / "paceline.db"
    store = SqliteStore(path)
    harness = EngineHarness(store=store)
    harness.add("night", 8)
    await harness.run(1.0)
    if kind is StoreGone:
        os.rename(path, tmp_path / "moved.db")
    else:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("UPDATE campaigns SET body = 'garbage'")
        other.close()
        harness.send("campaigns")

    with pytest.raises(kind, match="restore a copy"):
        await harness.run(90.0)

    assert len(harness.executor.started) == 4
    store.close()


async def test_an_engine_reads_past_a_damaged_event_and_carries_out_the_commands_behind_it(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "paceline.db")
    async with EngineHarness(store=store) as harness:
        await harness.run(1.0)
        store.append_events([harness.events("engine.leading")[0]] * 2)
        other = sqlite3.connect(tmp_path / "paceline.db", isolation_level=None)
        other.execute("UPDATE events SET body = 'garbage' WHERE id = (SELECT max(id) FROM events)")
        other.close()
        harness.send("limit", "sessions", limit=1)

        await harness.run(60.0)

        assert harness.scope("sessions").limit == 1
    store.close()


async def test_an_engine_whose_lead_ran_out_and_was_taken_stores_nothing_more() -> None:
    harness = EngineHarness()
    await harness.run(1.0)
    harness.clock.step(90.0)  # it was stopped for longer than its lease
    assert harness.store.lead("another", until=NOW + 900.0, now=harness.clock.now())
    harness.send("limit", "sessions", limit=1)
    before = harness.store.load_state(GOVERNOR_STATE), harness.store.events()

    with pytest.raises(EngineBusy):
        await harness.run(60.0)

    assert (harness.store.load_state(GOVERNOR_STATE), harness.store.events()) == before


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_unit_that_backs_off_keeps_its_wait_when_the_clock_is_set_back(is_restarted: bool) -> None:
    async with EngineHarness(fail_once, heartbeat=1.0) as harness:
        harness.add("night", 1)
        await harness.run(12.0)
        (waiting,) = harness.store.units().units
        assert (waiting.counters.failures, waiting.resume_at) == (1, NOW + 15.0)
        if is_restarted:
            await harness.stop()
        harness.clock.step(-3600.0)
        harness.engine.wake()  # a real timer does not follow the clock
        await harness.run(8.0)

        assert harness.store.units().units[0].state == "running"

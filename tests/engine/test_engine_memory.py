"""What an engine keeps in memory is for the units that run or wait, not for those that have ended."""

import gc
import sqlite3
import types
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path

from paceline.executors.interface import Launch
from paceline.simulation.executor import Run, ScriptedExecutor
from paceline.store import SqliteStore, UnitCounts, UnitSpec
from paceline.testing.engine_harness import HOUR, NOW, EngineHarness

CODE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType, types.FrameType)


def entries_kept(root: object) -> Counter[str]:
    """Return how many entries all the containers have that the root keeps alive, by the container's type.

    Code and what it refers to does not count, nor does a container that is bounded by itself, such as the list of its
    last 200 cursors that a connection to SQLite keeps.
    """
    seen: dict[int, object] = {id(root): root}
    left = [root]
    while left:
        for each in gc.get_referents(left.pop()):
            if id(each) not in seen and not isinstance(each, (*CODE, sqlite3.Connection)):
                seen[id(each)] = each
                left.append(each)
    containers = [each for each in seen.values() if isinstance(each, dict | list | set | deque)]
    kept: Counter[str] = Counter()
    for each in containers:
        kept[type(each).__name__] += 0 if isinstance(each, deque) and each.maxlen is not None else len(each)
    return kept


def script() -> Callable[[Launch], Run]:
    """Most units end well. Of ten, one fails for good, one asks once to be tried later, and one prints a lot."""
    tried: set[str] = set()

    def run(launch: Launch) -> Run:
        unit = launch.env["PACELINE_UNIT"]
        match unit[-1]:
            case "3":
                return Run(stderr="boom\n", exit_code=3, seconds=5.0)
            case "5":
                return Run(stdout="line\n" * 1000, seconds=5.0)
            case "7" if unit not in tried:
                tried.add(unit)
                return Run(exit_code=75, seconds=5.0)
        return Run(seconds=5.0)

    return run


async def test_units_that_have_ended_leave_nothing_in_memory(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "paceline.db")
    async with EngineHarness(pool=25, store=store, heartbeat=300.0) as harness:
        harness.executor = ScriptedExecutor(script(), harness.clock, remember=False)
        harness.engine = harness.new_engine()
        kept = []
        for first, last in ((0, 100), (100, 200), (200, 400)):
            specs = [UnitSpec(id=f"u{number}") for number in range(first, last)]
            harness.add("night", specs, deadline=NOW + 1000 * HOUR, max_attempts=2)
            await harness.run(HOUR)
            gc.collect()
            kept.append(entries_kept(harness.engine))
            assert store.counts() == {"night": UnitCounts(done=last * 9 // 10, quarantined=last // 10)}
    store.close()

    most = kept[0] | kept[1]  # timers and futures of the moment come and go
    assert (kept[2] - most).total() < 5, kept  # 200 units were run, and 20 of them failed for good

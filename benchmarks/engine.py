"""The cost of the engine: draining units, idling with parked units, a restart with a million units, memory.

    python -m benchmarks.engine            100,000 units drained, a million stored; some minutes
    python -m benchmarks.engine --quick    5,000 drained, 50,000 stored

Drained means: from stored to all done through the whole engine (grants, claims, launches, output, outcomes, events).
Every transition is durable (`synchronous=FULL`), and sessions end at once. A bare WAL table with batched claims is
the upper bound; huey (if installed) is what people use. All run interleaved on one disk.
"""

import asyncio
import cProfile
import gc
import importlib.util
import pstats
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from benchmarks.store import SUCCEEDED, batches, claim, drain_bare_table, drain_huey, peak_megabytes, record
from benchmarks.store import Sizes as StoreSizes
from paceline.agents import load_agent
from paceline.clock import SystemClock
from paceline.core import GovernorSettings
from paceline.core.unit_lifecycle import AttemptOutcome
from paceline.engine.engine import Engine, collect_seldom
from paceline.engine.settings import EngineSettings
from paceline.executors.interface import Launch
from paceline.simulation.executor import Run
from paceline.store import Campaign, SqliteStore, Store, UnitSpec
from paceline.testing import ScriptedExecutor

POOL = 500
LIVE = 100
IDLE_SECONDS = 10.0
AT_ONCE = Run()
FOR_EVER = Run(seconds=1e9)


class Sizes(msgspec.Struct, frozen=True):
    """The amount of work. `one_by_one` is for contenders that commit each unit separately and are slower."""

    drained: int
    one_by_one: int
    rounds: int
    parked: int
    stored: int


FULL = Sizes(drained=100_000, one_by_one=2_000, rounds=3, parked=10_000, stored=1_000_000)
QUICK = Sizes(drained=5_000, one_by_one=300, rounds=2, parked=1_000, stored=50_000)


def new_engine(store: Store, executor: ScriptedExecutor, pool: int, owner: str = "bench") -> Engine:
    return Engine(
        EngineSettings(governor=GovernorSettings(limits={"sessions": pool})),
        store=store,
        executor=executor,
        clock=SystemClock(),
        agents=load_agent,
        environ={"PATH": "/usr/bin:/bin", "HOME": "/home/ada", "LANG": "C.UTF-8", "USER": "ada"},
        owner=owner,
    )


def fill(store: Store, units: int) -> None:
    campaign = Campaign(name="night", command=("true",))
    specs = (UnitSpec(id=f"unit-{number}", prompt="do it") for number in range(units))
    store.add_campaign(campaign, specs, update=False, now=time.time())


def at_once(_: Launch) -> Run:
    return AT_ONCE


def forever(_: Launch) -> Run:
    return FOR_EVER


# -- draining ---------------------------------------------------------------------------------------


def drain_engine(folder: Path, sizes: Sizes) -> float:
    """Return the units per second from stored to done."""
    store = SqliteStore(folder / "paceline.db")
    fill(store, sizes.drained)
    engine = new_engine(store, ScriptedExecutor(at_once, SystemClock(), remember=False), POOL)
    collect_seldom()  # as `paceline run` and `paceline up` do
    started = time.perf_counter()
    asyncio.run(engine.run(until_idle=True))
    seconds = time.perf_counter() - started
    assert store.counts()["night"].done == sizes.drained
    store.close()
    return sizes.drained / seconds


def compare_draining(sizes: Sizes) -> None:
    others = StoreSizes(sizes.drained, sizes.one_by_one, sizes.rounds, 0, 0)
    contenders: dict[str, Callable[[Path], float]] = {
        "bare WAL table, batched": lambda folder: drain_bare_table(folder, others),
        "engine": lambda folder: drain_engine(folder, sizes),
    }
    if importlib.util.find_spec("huey"):
        contenders["huey, SqliteHuey"] = lambda folder: drain_huey(folder, others)
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(sizes.rounds):
        for name, drain in contenders.items():
            with tempfile.TemporaryDirectory() as folder:
                rates[name].append(drain(Path(folder)))
    middle = {name: statistics.median(each) for name, each in rates.items()}
    print(f"{f'{sizes.drained:,} units drained, synchronous=FULL':44} {'units/s':>9}  the engine is")
    for name, rate in middle.items():
        print(f"{name:44} {rate:9,.0f}  {middle['engine'] / rate:.2f} times that")


# -- idling -----------------------------------------------------------------------------------------


async def idle(folder: Path, parked: int) -> None:
    """Measure the share of one processor that an engine uses while all units wait for a window."""
    store = SqliteStore(folder / "paceline.db")
    fill(store, parked)
    resume_at = time.time() + 9 * 3600.0
    for part in batches(parked, 1_000):
        record(store, claim(store, part), AttemptOutcome(ending="parked", reason="quota", resume_at=resume_at))
    engine = new_engine(store, ScriptedExecutor(at_once, SystemClock()), 4)
    running = asyncio.create_task(engine.run())
    await asyncio.sleep(1.0)
    processor, wall = time.process_time(), time.perf_counter()
    await asyncio.sleep(IDLE_SECONDS)
    share = (time.process_time() - processor) / (time.perf_counter() - wall)
    engine.stop()
    await running
    store.close()
    print(f"\nidle with {parked:,} parked units: {100 * share:.2f}% of one processor")


# -- a restart over a million -------------------------------------------------------------------------


def prepare_restart(folder: Path, stored: int) -> None:
    """Fill a store: three tenths of the units done, ten thousand parked, a hundred running, the rest waiting."""
    store = SqliteStore(folder / "paceline.db")
    fill(store, stored)
    for part in batches(stored * 3 // 10, 5_000):
        record(store, claim(store, part), SUCCEEDED)
    parked = AttemptOutcome(ending="parked", reason="quota", resume_at=time.time() + 9 * 3600.0)
    record(store, claim(store, min(10_000, stored // 10)), parked)
    claim(store, LIVE)
    store.close()


def restart(folder: Path) -> None:
    """Measure, in a separate process, the time and memory until the first pass after a restart."""
    executor = ScriptedExecutor(forever, SystemClock())
    for number in range(LIVE):
        executor.start(Launch(attempt_id=f"attempt-{number}", argv=("true",), env={}, cwd="/"))
    before = peak_megabytes()
    started = time.perf_counter()
    store = SqliteStore(folder / "paceline.db")
    engine = new_engine(store, executor, 2 * LIVE, owner="again")
    engine.start()
    list(engine.make_pass())
    seconds = time.perf_counter() - started
    adopted, launched = LIVE, len(executor.started) - LIVE
    for _ in range(50):
        list(engine.make_pass())
    peak = peak_megabytes()
    total = sum(each.todo + each.running + each.done for each in store.counts().values())
    store.close()
    print(f"restart with {total:,} units, {adopted} live sessions adopted: {seconds * 1000:.0f} ms to the first pass")
    print(f"({launched} launched in it); memory {peak:.0f} MB at most, {peak - before:.0f} MB of it for the engine")


def report_restart(stored: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        prepare_restart(Path(folder), stored)
        command = [sys.executable, "-m", "benchmarks.engine", "--restart", folder]
        print(subprocess.run(command, check=True, capture_output=True, text=True).stdout, end="")


def profile(units: int) -> None:
    """Profile the draining of units."""
    with tempfile.TemporaryDirectory() as folder, cProfile.Profile() as profiler:
        drain_engine(Path(folder), msgspec.structs.replace(QUICK, drained=units))
    pstats.Stats(profiler).sort_stats("tottime").print_stats(35)


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--restart"]:
        restart(Path(arguments[1]))
        return
    if arguments[:1] == ["--profile"]:
        profile(int(arguments[1]))
        return
    sizes = QUICK if "--quick" in arguments else FULL
    compare_draining(sizes)
    gc.collect()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(idle(Path(folder), sizes.parked))
    report_restart(sizes.stored)


if __name__ == "__main__":
    main(sys.argv[1:])

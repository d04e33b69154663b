"""The speed of the SQLite store: draining units, and claims from a million units against a thousand.

    python -m benchmarks.store            100,000 units drained, a million stored; some minutes
    python -m benchmarks.store --quick    5,000 drained, 50,000 stored

Drained means: claimed in batches and finished in batches, with every transition durable (`synchronous=FULL`). All
contenders run interleaved in one process on one disk, so the ratios hold even if the seconds do not. A bare WAL
table with batched claims is the upper bound; huey and persist-queue (if installed) are what people use.
"""

import importlib
import importlib.util
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from paceline.core.unit_lifecycle import AttemptOutcome, Policy, transition_after
from paceline.store import Campaign, OutcomeRecord, SqliteStore, Store, Unit, UnitSpec

BATCH = 100
CLAIM = 10
NOW = 1_000.0
SUCCEEDED = AttemptOutcome(ending="succeeded", reason="done", exit_code=0)
PARKED = AttemptOutcome(ending="parked", reason="quota", resume_at=NOW + 1e6)
POLICY = Policy()


class Sizes(msgspec.Struct, frozen=True):
    """The amount of work. `one_by_one` is for contenders that commit each unit separately and are slower."""

    drained: int
    one_by_one: int
    rounds: int
    small: int
    large: int


FULL = Sizes(drained=100_000, one_by_one=2_000, rounds=3, small=1_000, large=1_000_000)
QUICK = Sizes(drained=5_000, one_by_one=300, rounds=2, small=1_000, large=50_000)

Contender = Callable[[Path, Sizes], float]


# -- draining ---------------------------------------------------------------------------------------


def drain_store(folder: Path, sizes: Sizes) -> float:
    """Return the units per second through `SqliteStore`."""
    store = SqliteStore(folder / "paceline.db")
    add_units(store, sizes.drained)
    started = time.perf_counter()
    while units := claim(store, BATCH):
        record(store, units, SUCCEEDED)
    seconds = time.perf_counter() - started
    store.close()
    return sizes.drained / seconds


def drain_bare_table(folder: Path, sizes: Sizes) -> float:
    """Measure the upper bound: bare SQLite moving as many rows through the same states in the same batches."""
    connection = sqlite3.connect(folder / "bare.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY, state TEXT NOT NULL, prompt TEXT NOT NULL)")
    connection.execute("CREATE INDEX waiting ON jobs (id) WHERE state = 'todo'")
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO jobs VALUES (?, 'todo', 'do it')", ((each,) for each in range(sizes.drained)))
    connection.execute("COMMIT")
    started = time.perf_counter()
    while claimed := claim_bare(connection):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("UPDATE jobs SET state = 'done' WHERE id = ?", [(row[0],) for row in claimed])
        connection.execute("COMMIT")
    seconds = time.perf_counter() - started
    connection.close()
    return sizes.drained / seconds


def claim_bare(connection: sqlite3.Connection) -> list[tuple[int, str]]:
    connection.execute("BEGIN IMMEDIATE")
    rows = connection.execute(
        "SELECT id, prompt FROM jobs INDEXED BY waiting WHERE state = 'todo' ORDER BY id LIMIT ?", (BATCH,)
    ).fetchall()
    connection.executemany("UPDATE jobs SET state = 'running' WHERE id = ?", [(row[0],) for row in rows])
    connection.execute("COMMIT")
    return rows


def drain_huey(folder: Path, sizes: Sizes) -> float:
    """Measure huey on SQLite with the same `synchronous`. Its tasks run in this process."""
    queue = importlib.import_module("huey").SqliteHuey(filename=str(folder / "huey.db"), fsync=True, results=False)

    @queue.task()  # type: ignore[untyped-decorator]
    def do_nothing(prompt: str) -> None:
        pass

    for _ in range(sizes.one_by_one):
        do_nothing("do it")
    started = time.perf_counter()
    while (task := queue.dequeue()) is not None:
        queue.execute(task)
    seconds = time.perf_counter() - started
    queue.storage.close()
    return sizes.one_by_one / seconds


def drain_persist_queue(folder: Path, sizes: Sizes) -> float:
    """Measure persist-queue's queue with acknowledgements."""
    queue: Any = importlib.import_module("persistqueue").SQLiteAckQueue(str(folder / "persist"), auto_commit=True)
    for _ in range(sizes.one_by_one):
        queue.put("do it")
    started = time.perf_counter()
    for _ in range(sizes.one_by_one):
        queue.ack(queue.get())
    seconds = time.perf_counter() - started
    queue.close()
    return sizes.one_by_one / seconds


def contenders() -> dict[str, Contender]:
    found: dict[str, Contender] = {"bare WAL table, batched": drain_bare_table, "SqliteStore": drain_store}
    if importlib.util.find_spec("huey"):
        found["huey, SqliteHuey"] = drain_huey
    if importlib.util.find_spec("persistqueue"):
        found["persist-queue, SQLiteAckQueue"] = drain_persist_queue
    return found


def compare_draining(sizes: Sizes) -> None:
    rates: dict[str, list[float]] = {name: [] for name in contenders()}
    for _ in range(sizes.rounds):
        for name, drain in contenders().items():
            with tempfile.TemporaryDirectory() as folder:
                rates[name].append(drain(Path(folder), sizes))
    middle = {name: statistics.median(each) for name, each in rates.items()}
    store = middle["SqliteStore"]
    print(f"{'drained, synchronous=FULL':32} {'units/s':>9}  SqliteStore is")
    for name, rate in middle.items():
        print(f"{name:32} {rate:9,.0f}  {store / rate:.2f} times that")


# -- a million --------------------------------------------------------------------------------------


def compare_sizes(sizes: Sizes, folder: Path) -> None:
    """Compare the cost of a claim in a large and in a small store, in wall and processor time."""
    large = filled(folder / "large.db", sizes.large)
    small = filled(folder / "small.db", sizes.small)
    pairs = [(timed_claim(large), timed_claim(small)) for _ in range(sizes.small // (2 * CLAIM))]
    print(f"\n{f'claim of {CLAIM} units of':28} {sizes.large:14,} {sizes.small:14,}")
    for index, clock in enumerate(("wall", "processor")):
        cost = [statistics.median(pair[store][index] for pair in pairs) for store in (0, 1)]
        print(f"{clock:28} {cost[0] * 1e6:11,.0f} µs {cost[1] * 1e6:11,.0f} µs  ratio {cost[0] / cost[1]:.2f}")
    large.close()
    small.close()


def filled(path: Path, size: int) -> SqliteStore:
    """Fill a store: three tenths of the units done, one hundredth parked, the rest waiting."""
    store = SqliteStore(path)
    started = time.perf_counter()
    add_units(store, size)
    print(f"added {size:,} units in {time.perf_counter() - started:.1f} s")
    for part in batches(size * 3 // 10, 5_000):
        record(store, claim(store, part), SUCCEEDED)
    record(store, claim(store, size // 100), PARKED)
    return store


def batches(total: int, most: int) -> Iterator[int]:
    while total > 0:
        yield min(total, most)
        total -= most


def timed_claim(store: SqliteStore) -> tuple[float, float]:
    """Return the seconds of wall time and of processor time."""
    wall, processor = time.perf_counter(), time.process_time()
    units = claim(store, CLAIM)
    processor, wall = time.process_time() - processor, time.perf_counter() - wall
    assert len(units) == CLAIM
    return wall, processor


def report_restart(path: Path) -> None:
    """Measure, in a separate process, opening the store and the first queries of an engine."""
    command = [sys.executable, "-m", "benchmarks.store", "--restart", str(path)]
    print(subprocess.run(command, check=True, capture_output=True, text=True).stdout, end="")


def restart(path: Path) -> None:
    before = peak_megabytes()
    started = time.perf_counter()
    store = SqliteStore(path)
    running = len(store.running_units())
    counts, claimable = store.counts(), store.claimable()
    woken = store.wake_units(now=NOW)
    claimed = len(claim(store, BATCH))
    seconds = time.perf_counter() - started
    for _ in range(200):
        record(store, claim(store, BATCH), SUCCEEDED)
        store.units(state="done")
    peak = peak_megabytes()
    store.close()
    total = sum(each.todo + each.running + each.done for each in counts.values())
    print(f"\nrestart with {total:,} units, {running} running: {seconds * 1000:.0f} ms to the first claim")
    print(f"({claimed} claimed, {woken} woken, {sum(claimable.values()):,} claimable)")
    print(f"memory after {200 * BATCH:,} units more: {peak:.0f} MB at most, {peak - before:.0f} MB of it for the store")


def peak_megabytes() -> float:
    """Return the memory of this process. `getrusage` would include what its parent had at the fork."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return float("nan")


# -- steps ------------------------------------------------------------------------------------------


def add_units(store: Store, units: int) -> None:
    specs = (UnitSpec(id=f"unit-{number}", prompt="do it") for number in range(units))
    store.add_campaign(Campaign(name="night"), specs, update=False, now=NOW)


def claim(store: Store, limit: int) -> list[Unit]:
    attempts = [f"attempt-{number}" for number in range(limit)]
    return store.claim_units("night", "max-1", limit, attempt_ids=attempts, lease_until=NOW + 60.0, now=NOW)


def record(store: Store, units: list[Unit], outcome: AttemptOutcome) -> None:
    store.record_outcomes(
        [
            OutcomeRecord(
                unit_id=unit.id, fence=unit.fence, transition=transition_after(unit.counters, outcome, POLICY, NOW)
            )
            for unit in units
        ],
        now=NOW,
    )


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--restart"]:
        restart(Path(arguments[1]))
        return
    sizes = QUICK if "--quick" in arguments else FULL
    compare_draining(sizes)
    with tempfile.TemporaryDirectory() as folder:
        compare_sizes(sizes, Path(folder))
        report_restart(Path(folder) / "large.db")
        print(f"file: {os.path.getsize(Path(folder) / 'large.db') / sizes.large:.0f} bytes for each unit")


if __name__ == "__main__":
    main(sys.argv[1:])

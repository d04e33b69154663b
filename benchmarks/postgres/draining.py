"""Draining units that do nothing: our engine and our store, on PostgreSQL and on SQLite, beside the peers."""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import msgspec
import uvloop

from benchmarks.engine import POOL, at_once, fill, new_engine
from benchmarks.postgres import peers
from benchmarks.postgres.server import new_database
from benchmarks.store import NOW, SUCCEEDED, add_units, claim, record
from paceline.clock import SystemClock
from paceline.engine.engine import collect_seldom
from paceline.events import Event
from paceline.store import SqliteStore, Store
from paceline.store.postgres import PostgresStore
from paceline.testing import ScriptedExecutor

ENGINE, STORE = "our engine, PostgreSQL", "our store, PostgreSQL"
PGQUEUER = "pgqueuer, 2 managers, batches of 500"
PROCRASTINATE = "procrastinate, concurrency 10"


class Rates(msgspec.Struct, frozen=True):
    """The units per second of one contender in all rounds."""

    rounds: tuple[float, ...]

    @property
    def best(self) -> float:
        return max(self.rounds)


Contender = Callable[[], float]


@contextmanager
def postgres_store(url: str) -> Iterator[PostgresStore]:
    with new_database(url) as database:
        store = PostgresStore(database)
        try:
            yield store
        finally:
            store.close()


@contextmanager
def sqlite_store(place: str | None) -> Iterator[SqliteStore]:
    with tempfile.TemporaryDirectory(dir=place) as folder:
        store = SqliteStore(Path(folder) / "paceline.db")
        try:
            yield store
        finally:
            store.close()


def drain_engine(opened: AbstractContextManager[Store], units: int) -> float:
    """Return the units per second through the whole engine, with sessions that end at once."""
    with opened as store:
        fill(store, units)
        engine = new_engine(store, ScriptedExecutor(at_once, SystemClock(), remember=False), POOL)
        collect_seldom()  # as `paceline run` and `paceline up` do
        started = time.perf_counter()
        uvloop.run(engine.run(until_idle=True))
        seconds = time.perf_counter() - started
        assert store.counts()["night"].done == units
    return units / seconds


def drain_store(opened: AbstractContextManager[Store], units: int) -> float:
    """Return the units per second through the verbs of a store: claims, outcomes and the events of both."""
    with opened as store:
        add_units(store, units)
        started = time.perf_counter()
        while claimed := claim(store, POOL):
            store.append_events([Event("unit.started", NOW, None, unit.id) for unit in claimed])
            with store.together():
                record(store, claimed, SUCCEEDED)
                store.append_events([Event("unit.done", NOW, None, unit.id) for unit in claimed])
        seconds = time.perf_counter() - started
        assert store.counts()["night"].done == units
    return units / seconds


def contenders(url: str, place: str | None, units: int, one_by_one: int) -> dict[str, Contender]:
    def with_database(drain: Callable[[str], float]) -> Contender:
        def drain_new() -> float:
            with new_database(url) as database:
                return drain(database)

        return drain_new

    found: dict[str, Contender] = {
        ENGINE: lambda: drain_engine(postgres_store(url), units),
        STORE: lambda: drain_store(postgres_store(url), units),
        "our engine, SQLite": lambda: drain_engine(sqlite_store(place), units),
        "our store, SQLite": lambda: drain_store(sqlite_store(place), units),
    }
    if peers.are_installed():
        found |= {
            PGQUEUER: with_database(lambda given: peers.drain_pgqueuer(given, units, managers=2, batch=500)),
            "pgqueuer, 1 manager, batches of 10 (default)": with_database(
                lambda given: peers.drain_pgqueuer(given, units // 5, managers=1, batch=10)
            ),
            PROCRASTINATE: with_database(lambda given: peers.drain_procrastinate(given, one_by_one, concurrency=10)),
        }
    return found


def compare_draining(url: str, place: str | None, units: int, one_by_one: int, rounds: int) -> Mapping[str, Rates]:
    """Measure all contenders in turn, so that they meet the same load of the machine."""
    rates: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, drain in contenders(url, place, units, one_by_one).items():
            rates.setdefault(name, []).append(drain())
    return {name: Rates(tuple(each)) for name, each in rates.items()}


def print_draining(rates: Mapping[str, Rates], units: int) -> None:
    store, engine = rates[STORE].best, rates[ENGINE].best
    print(f"{f'{units:,} units drained':46} {'units/s':>8} {'(all rounds)':>18}  our store is  our engine is")
    for name, each in rates.items():
        spread = f"{min(each.rounds):,.0f}..{each.best:,.0f}"
        print(f"{name:46} {each.best:8,.0f} {spread:>18} {store / each.best:11.2f} x {engine / each.best:11.2f} x")
    print(f"median over rounds of store / {PGQUEUER}: ", end="")
    if PGQUEUER in rates:
        pairs = zip(rates[STORE].rounds, rates[PGQUEUER].rounds, strict=True)
        print(f"{statistics.median(ours / theirs for ours, theirs in pairs):.2f}")
    else:
        print("not installed")

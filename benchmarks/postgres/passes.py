"""How long a pass of the engine keeps its loop, with a hundred live sessions: it waits for every statement."""

import contextlib
import random
import statistics
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import psycopg

from benchmarks.engine import LIVE, fill, new_engine
from benchmarks.postgres.server import new_database
from benchmarks.postgres.slow_link import slow_link
from paceline.clock import SystemClock
from paceline.executors.interface import Launch
from paceline.simulation.executor import Run
from paceline.store.postgres import PostgresStore
from paceline.testing import ScriptedExecutor

PASSES = 200
NETWORK_SECONDS = 0.002
SESSION_SECONDS = 2.0
BETWEEN_SECONDS = 0.02
"""So that one of the hundred sessions, which take one to three seconds each, ends in every pass, and another starts."""


class PassCost(msgspec.Struct, frozen=True):
    """Milliseconds of a pass, and the statements in it."""

    kind: str
    p50: float
    p99: float
    statements: float


def measure_passes(url: str) -> list[PassCost]:
    costs = []
    for network, seconds in (("loopback", 0.0), (f"{NETWORK_SECONDS * 1000:g} ms of network", NETWORK_SECONDS)):
        for kind, length in (("sessions run", 1e6), ("sessions end", SESSION_SECONDS)):
            with new_database(url) as database, _link(database, seconds) as link:
                costs.append(_measure(link, f"{network}, {kind}", length))
    return costs


@contextlib.contextmanager
def _link(url: str, seconds: float) -> Iterator[str]:
    if not seconds:
        yield url
        return
    with slow_link(url, seconds) as link:
        yield link


def _measure(url: str, kind: str, session_seconds: float) -> PassCost:
    store = PostgresStore(url)
    fill(store, 20_000)
    seed = random.Random(1)

    def script(_: Launch) -> Run:
        return Run(seconds=session_seconds * seed.uniform(0.5, 1.5))

    engine = new_engine(store, ScriptedExecutor(script, SystemClock(), remember=False), LIVE)
    engine.start()
    for _ in range(10):
        list(engine.make_pass())
        time.sleep(session_seconds / 10 if session_seconds < 60 else BETWEEN_SECONDS)
    times = []
    with counted_statements() as counted:
        for _ in range(PASSES):
            begun = time.perf_counter()
            list(engine.make_pass())
            times.append(time.perf_counter() - begun)
            time.sleep(BETWEEN_SECONDS)
    engine.close()
    store.close()
    times.sort()
    p99 = times[int(len(times) * 0.99)]
    return PassCost(kind, statistics.median(times) * 1000, p99 * 1000, counted[0] / PASSES)


@contextlib.contextmanager
def counted_statements() -> Iterator[list[int]]:
    """Count the statements of this process: each is a trip to the server."""
    counted = [0]
    execute = psycopg.Cursor.execute

    def count(self: Any, *arguments: Any, **options: Any) -> Any:
        counted[0] += 1
        return execute(self, *arguments, **options)

    psycopg.Cursor.execute = count  # type: ignore[method-assign]
    try:
        yield counted
    finally:
        psycopg.Cursor.execute = execute  # type: ignore[method-assign]


def print_passes(costs: list[PassCost]) -> None:
    print(f"\n{f'a pass with {LIVE} live sessions':40} {'p50':>8} {'p99':>11} {'statements':>12}")
    for cost in costs:
        print(f"{cost.kind:40} {cost.p50:5.1f} ms {cost.p99:8.1f} ms {cost.statements:12.1f}")

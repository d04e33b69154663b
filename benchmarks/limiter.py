"""What a slot costs, beside `asyncio.Semaphore` and other limiters in the same run. `python -m benchmarks.limiter`

Leases and events are on: the numbers are those of production. Each figure is the best of interleaved
rounds in CPU time (latency: wall time), so that a noisy neighbour hits all contenders alike.
"""

import argparse
import asyncio
import gc
import random
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import anyio
from aiolimiter import AsyncLimiter
from rich.console import Console
from rich.table import Table

from paceline import Event, Limiter, Slot
from paceline.core import Governor, GovernorSettings, Ticket
from paceline.core.signals import Budget

PATH = "anthropic/max-1/opus-4-6"
FOUR_SCOPES = ("runs", "anthropic", "anthropic/max-1", PATH)
Rows = list[tuple[str, str, str, str]]


def ignore(event: Event) -> None:
    """A listener, so that events are made and delivered."""


def limiter(runs: int | None = 50) -> Limiter:
    return Limiter(max_parallel_runs=runs, limits={"anthropic/*/haiku-*": 24}, on_event=ignore)


async def best(contenders: dict[str, Callable[[], Awaitable[float]]], rounds: int) -> dict[str, float]:
    """The shortest time of each contender over interleaved rounds."""
    shortest = dict.fromkeys(contenders, float("inf"))
    for _ in range(rounds):
        for name, measure in contenders.items():
            gc.collect()
            shortest[name] = min(shortest[name], await measure())
    return shortest


# -- one slot, nobody else -----------------------------------------------------------------------


async def uncontended(rows: Rows, rounds: int) -> None:
    count = 2000
    ours, semaphore = limiter(), asyncio.Semaphore(50)
    bucket, capacity = AsyncLimiter(1e9, 1), anyio.CapacityLimiter(50)

    def entering(enter: Callable[[], AbstractAsyncContextManager[object]]) -> Callable[[], Awaitable[float]]:
        async def measure() -> float:
            started = time.process_time()
            for _ in range(count):
                async with enter():
                    pass
            return time.process_time() - started

        return measure

    async def acquire_ours() -> float:
        started = time.process_time()
        for _ in range(count):
            slot = await ours.acquire(PATH)
            slot.release()
        return time.process_time() - started

    async def acquire_semaphore() -> float:
        started = time.process_time()
        for _ in range(count):
            await semaphore.acquire()
            semaphore.release()
        return time.process_time() - started

    times = await best(
        {
            "asyncio.Semaphore, async with": entering(lambda: semaphore),
            "paceline, async with slot": entering(lambda: ours.slot(PATH)),
            "aiolimiter, async with": entering(lambda: bucket),
            "anyio.CapacityLimiter, async with": entering(lambda: capacity),
            "asyncio.Semaphore, acquire + release": acquire_semaphore,
            "paceline, acquire + release": acquire_ours,
        },
        rounds,
    )
    for name, seconds in times.items():
        kind = name.split(", ")[1].replace(" slot", "")
        ratio = times[f"asyncio.Semaphore, {kind}"] / seconds
        target = ">= 0.15" if name.startswith("paceline") else ""
        rows.append((f"uncontended, 4 scopes: {name}", f"{seconds / count * 1e6:.2f} us", f"{ratio:.2f}", target))


# -- many who wait -------------------------------------------------------------------------------


async def drain(rows: Rows, rounds: int) -> None:
    count = 10_000

    async def through(enter: Callable[[], AbstractAsyncContextManager[object]]) -> float:
        async def one() -> None:
            async with enter():
                await asyncio.sleep(0)

        started = time.process_time()
        await asyncio.gather(*[one() for _ in range(count)])
        return time.process_time() - started

    async def ours() -> float:
        fresh = limiter()
        return await through(lambda: fresh.slot(PATH))

    async def semaphore() -> float:
        fresh = asyncio.Semaphore(50)
        return await through(lambda: fresh)

    async def capacity() -> float:
        fresh = anyio.CapacityLimiter(50)
        return await through(lambda: fresh)

    times = await best({"asyncio.Semaphore": semaphore, "paceline": ours, "anyio.CapacityLimiter": capacity}, rounds)
    for name, seconds in times.items():
        ratio = times["asyncio.Semaphore"] / seconds
        target = ">= 0.6" if name == "paceline" else ""
        rows.append((f"10,000 tasks through 50: {name}", f"{seconds / count * 1e6:.1f} us", f"{ratio:.2f}", target))


def grant_cost(waiters: int, scope_sets: int) -> float:
    """Seconds per release that lets the next one in."""
    governor = Governor(GovernorSettings(limits={"runs": 50}), now=0.0)
    sets = [("runs", "anthropic", "anthropic/max-1", f"anthropic/max-1/model-{n}") for n in range(scope_sets)]
    for n in range(50 + waiters):
        governor.request(Ticket(f"t{n}", sets[n % scope_sets]), now=0.0)
    governor.advance(now=0.0)
    measured = 900
    gc.collect()
    started = time.process_time()
    for n in range(measured):
        governor.release(f"t{n}", now=1.0)
        governor.advance(now=1.0)
    return (time.process_time() - started) / measured


def grant_growth(rows: Rows, rounds: int) -> None:
    few = many = sets = float("inf")
    for _ in range(max(3, rounds // 4)):
        few = min(few, grant_cost(1_000, 1))
        many = min(many, grant_cost(100_000, 1))
        sets = min(sets, grant_cost(1_000, 200))
    rows.append(("grant, 1,000 waiters, one scope set", f"{few * 1e6:.1f} us", "1.00", ""))
    rows.append(("grant, 100,000 waiters", f"{many * 1e6:.1f} us", f"{many / few:.2f}", "<= 1.3"))
    rows.append(("grant, 1,000 waiters, 200 scope sets", f"{sets * 1e6:.1f} us", f"{sets / few:.2f}", "<= 3"))


async def wake_latency(rows: Rows) -> None:
    """From `release` to the waiter running, with 10,000 parked."""
    parked, samples = 10_000, 2_000

    async def through(acquire: Callable[[], Awaitable[object]], release: Callable[[object], None]) -> float:
        woken: list[float] = []
        held = [await acquire() for _ in range(50)]

        async def wait() -> None:
            held.append(await acquire())
            woken.append(time.perf_counter())

        tasks = [asyncio.create_task(wait()) for _ in range(parked)]
        await asyncio.sleep(0)
        delays = []
        for n in range(samples):
            started = time.perf_counter()
            release(held.pop())
            while len(woken) <= n:  # noqa: ASYNC110 -- the point is to yield as little as possible
                await asyncio.sleep(0)
            delays.append(woken[n] - started)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return sorted(delays)[samples // 2]

    def release_slot(slot: object) -> None:
        assert isinstance(slot, Slot)
        slot.release()

    semaphore, ours = asyncio.Semaphore(50), limiter()
    theirs = await through(semaphore.acquire, lambda _: semaphore.release())
    mine = await through(lambda: ours.acquire(PATH), release_slot)
    rows.append(("release to wake, 10,000 parked, p50: asyncio.Semaphore", f"{theirs * 1e6:.1f} us", "1.00", ""))
    rows.append(
        ("release to wake, 10,000 parked, p50: paceline", f"{mine * 1e6:.1f} us", f"{mine / theirs:.2f}", "<= 3")
    )


async def cancel_cost(rows: Rows) -> None:
    """Waiters that give up in random order."""

    async def each(waiters: int) -> float:
        ours = limiter()
        for _ in range(50):
            await ours.acquire(PATH)
        tasks = [asyncio.create_task(ours.acquire(PATH)) for _ in range(waiters)]
        await asyncio.sleep(0)
        random.Random(1).shuffle(tasks)
        gc.collect()
        started = time.process_time()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return (time.process_time() - started) / waiters

    few, many = await each(3_000), await each(30_000)
    rows.append(("cancel in random order, 3,000 waiters", f"{few * 1e6:.1f} us", "1.00", ""))
    rows.append(
        ("cancel in random order, 30,000 waiters", f"{many * 1e6:.1f} us", f"{many / few:.2f}", "< 15 us, linear")
    )


async def memory(rows: Rows) -> None:
    """What one waiting task adds, its coroutine and future included."""
    ours = limiter()
    for _ in range(50):
        await ours.acquire(PATH)
    waiters = 10_000
    gc.collect()
    tracemalloc.start()
    tasks = [asyncio.create_task(ours.acquire(PATH)) for _ in range(waiters)]
    await asyncio.sleep(0)
    gc.collect()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    rows.append(("memory of a waiting task", f"{used / waiters:.0f} B", "", "<= 2048 B"))


def governor_alone(rows: Rows, rounds: int) -> None:
    """The core without a shell: plain, and with a quota window that is known and open in one of the scopes."""
    count = 5_000
    plain, windowed = (Governor(GovernorSettings(limits={"runs": 50}), now=0.0) for _ in range(2))
    reading = Budget(window="5h", used_ratio=0.4, resets_at=10_000.0)
    windowed.report("anthropic/max-1", reading, now=0.0)
    shortest = {plain: float("inf"), windowed: float("inf")}
    for _ in range(rounds):
        for governor in shortest:
            started = time.process_time()
            for _ in range(count):
                governor.request(Ticket("t", FOUR_SCOPES), now=0.0)
                governor.release("t", now=0.0)
            shortest[governor] = min(shortest[governor], time.process_time() - started)
            governor.advance(now=0.0)
    each = {governor: seconds / count * 1e6 for governor, seconds in shortest.items()}
    what = "Governor alone, request + release"
    rows.append((what, f"{each[plain]:.2f} us", f"{1e6 / each[plain]:,.0f}/s", ""))
    ratio = each[windowed] / each[plain]
    rows.append((f"{what}, one open window", f"{each[windowed]:.2f} us", f"{ratio:.2f}", "<= 1.5"))


async def measure(rounds: int) -> Rows:
    rows: Rows = []
    await uncontended(rows, rounds * 8)
    await drain(rows, rounds)
    grant_growth(rows, rounds)
    await wake_latency(rows)
    await cancel_cost(rows)
    await memory(rows)
    governor_alone(rows, rounds * 4)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=12, help="more rounds, less noise")
    rows = asyncio.run(measure(parser.parse_args().rounds))
    table = Table("what", "each", "ratio", "target", title="Raw cost, leases and events on")
    for row in rows:
        table.add_row(*row)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()

"""The cost of readers of `/v1/events` for the engine: no readers against 200, in one run.

    python -m benchmarks.api_feed             the table
    python -m benchmarks.api_feed --quick     with fewer and shorter rounds

The server is the whole daemon with its database in the temporary folder. A hundred scripted sessions run at once and
all end at the same moments. Every measured pass therefore does the same work: it records a hundred outcomes, launches
a hundred sessions and stores two hundred events. The readers run in their own process. Rounds with and without them
take turns, so that both meet the same load of the machine. The table shows how long those passes took, how much of
that they were busy (the rest is waiting for the disk or the processor), and what the whole server used.
"""

import argparse
import asyncio
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import uvloop

from paceline.agents import load_agent
from paceline.api.app import create_app
from paceline.api.context import ApiContext
from paceline.api.server import serve
from paceline.api.tokens import load_tokens
from paceline.clock import SystemClock
from paceline.core import GovernorSettings
from paceline.daemon.home import open_home
from paceline.engine.engine import Engine
from paceline.engine.settings import EngineSettings
from paceline.executors.interface import Launch
from paceline.metrics import PASS_BOUNDS, Histogram, MetricsRegistry
from paceline.simulation.executor import Run
from paceline.store import Campaign, UnitSpec
from paceline.testing import ScriptedExecutor

READERS = 200
SESSIONS = 100
BEAT_SECONDS = 0.5
UNITS = 50_000
MOST_EXTRA = 0.05


class Passes(Histogram):
    """The duration and the busy time of each pass that ended and launched all sessions."""

    __slots__ = ("_metrics", "busy", "seconds")

    def __init__(self, metrics: MetricsRegistry) -> None:
        super().__init__(PASS_BOUNDS)
        self._metrics = metrics
        self.seconds: list[float] = []
        self.busy: list[float] = []

    @contextmanager
    def timed(self) -> Iterator[None]:
        granted, began, busy = self._metrics.grants, time.perf_counter(), time.thread_time()
        with super().timed():
            yield
        if self._metrics.grants - granted > 0.95 * SESSIONS:
            self.busy.append(time.thread_time() - busy)
            self.seconds.append(time.perf_counter() - began)


class Round(msgspec.Struct):
    """The measurements of one round. Passes and processor time are in seconds."""

    mean: float
    median: float
    busy: float
    passes: int
    events: int
    processor: float


# -- the server --------------------------------------------------------------------------------------


async def measure(folder: Path, rounds: int, seconds: float) -> dict[int, list[Round]]:
    variables = {"HOME": str(folder), "PATH": os.environ["PATH"], "PACELINE_HOME": str(folder / "home")}
    found: dict[int, list[Round]] = {0: [], READERS: []}
    with open_home(variables, folder) as home:
        units = (UnitSpec(id=f"unit-{number}", prompt="do it") for number in range(UNITS))
        home.store.add_campaign(Campaign(name="night", command=("true",)), units, update=False, now=time.time())
        engine = Engine(
            EngineSettings(governor=GovernorSettings(limits={"sessions": SESSIONS})),
            store=home.store,
            executor=ScriptedExecutor(until_the_next_beat, SystemClock(), remember=False),
            clock=SystemClock(),
            agents=load_agent,
            environ=variables,
            owner="bench",
        )
        engine.metrics.pass_seconds = passes = Passes(engine.metrics)
        engine.start()
        context = ApiContext(
            engine,
            settings=home.settings,
            spool=home.spool(),
            zone=home.zone,
            environ=variables,
            folder=folder,
            since=time.time(),
        )
        tokens = load_tokens(home.path)
        running = asyncio.create_task(engine.run())
        async with serve(create_app(context, tokens=tokens, host="127.0.0.1")) as served:
            for _ in range(rounds):
                for readers in found:
                    with reading(served.port, tokens.full, readers):
                        while context.background.stream.readers != readers:  # noqa: ASYNC110
                            await asyncio.sleep(0.01)
                        found[readers].append(await one_round(engine, passes, seconds))
            context.close()
        engine.stop()
        await running
    return found


def until_the_next_beat(_: Launch) -> Run:
    """Return a run that ends at the next beat, so that all sessions end together."""
    now = time.time()
    return Run(seconds=BEAT_SECONDS * math.ceil(now / BEAT_SECONDS + 0.3) - now)


async def one_round(engine: Engine, passes: Passes, seconds: float) -> Round:
    """Run a round. Repeat it if the machine was too busy for the sessions to end in one pass."""
    passes.seconds.clear()
    passes.busy.clear()
    first, processor = engine.store.append_events([]), time.process_time()
    await asyncio.sleep(seconds)
    if not passes.seconds:
        return await one_round(engine, passes, seconds)
    return Round(
        mean=statistics.fmean(passes.seconds),
        median=statistics.median(passes.seconds),
        busy=statistics.median(passes.busy),
        passes=len(passes.seconds),
        events=engine.store.append_events([]) - first,
        processor=time.process_time() - processor,
    )


# -- the readers -------------------------------------------------------------------------------------


@contextmanager
def reading(port: int, token: str, readers: int) -> Iterator[None]:
    command = [sys.executable, "-m", "benchmarks.api_feed", "--read", str(port), token, str(readers)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    try:
        yield
    finally:
        process.communicate()
        assert process.returncode == 0


async def read(port: int, token: str, readers: int) -> None:
    """Read all events on every connection until standard input is closed."""
    head = f"GET /v1/events HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer {token}\r\n\r\n".encode()

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head)
        answer = await reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in answer
        while await reader.read(1 << 16):
            pass

    tasks = [asyncio.create_task(one()) for _ in range(readers)]
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    assert not any(task.done() for task in tasks), "a stream ended too early"
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# -- the table ---------------------------------------------------------------------------------------


def report(found: dict[int, list[Round]], seconds: float) -> None:
    middle = {readers: _middle(rounds) for readers, rounds in found.items()}
    print(
        f"{'readers':>8} {'pass: median':>13} {'mean':>9} {'busy':>9} {'passes/s':>9} {'events/s':>9} {'processor':>10}"
    )
    for readers, each in middle.items():
        times = f"{1000 * each.median:10.2f} ms {1000 * each.mean:6.2f} ms {1000 * each.busy:6.2f} ms"
        rates = f"{each.passes / seconds:9.0f} {each.events / seconds:9.0f}"
        print(f"{readers:8} {times} {rates} {100 * each.processor / seconds:8.1f} %")
    none, all_of_them = middle[0], middle[READERS]
    for name, before, after in (
        ("busy time of a pass", none.busy, all_of_them.busy),
        ("mean pass", none.mean, all_of_them.mean),
        ("median pass", none.median, all_of_them.median),
    ):
        extra = after / before - 1
        verdict = "within" if extra < MOST_EXTRA else "more than"
        print(f"{READERS} readers change the {name} by {100 * extra:+.1f} %, {verdict} {100 * MOST_EXTRA:.0f} %")
    print(
        f"each costs the server {1e6 * (all_of_them.processor - none.processor) / seconds / READERS:.0f} µs per second"
    )


def _middle(rounds: list[Round]) -> Round:
    """Return the median of each number."""
    names = Round.__struct_fields__
    return Round(**{name: statistics.median(getattr(each, name) for each in rounds) for name in names})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--read", nargs=3, metavar=("PORT", "TOKEN", "READERS"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.read:
        port, token, readers = given.read
        uvloop.run(read(int(port), token, int(readers)))
        return
    rounds, seconds = (3, 3.0) if given.quick else (10, 5.0)
    with tempfile.TemporaryDirectory() as folder:
        report(uvloop.run(measure(Path(folder), rounds, seconds)), seconds)


if __name__ == "__main__":
    main()

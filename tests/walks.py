"""Walks: how many functions and modules of Paceline a call passes, counted by a tracer.

    python -m tests.walks             # print the table
    python -m tests.walks --write     # write it into docs/design.md

A function counts once, however often it is called. Lambdas and comprehensions do not count.
"""

import asyncio
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple, Self

from tests.daemon import daemon_in
from tests.gateway.gateway_harness import run_loop, until
from tests.gateway.raw_http import connect, post
from tests.gateway.test_key_pools import TEAM, team
from tests.hosts.leader.fleet_harness import FleetHarness

import paceline
from paceline import Limiter
from paceline.engine.commands import digest_of_key
from paceline.gateway import ClientKeys
from paceline.settings import HostSettings
from paceline.store import ClientKey, SqliteStore
from paceline.testing.engine_harness import EngineHarness

ROOT = f"{Path(paceline.__file__).parent}/"
PAGE = Path(__file__).parents[1] / "docs" / "design.md"
START, END = "<!-- walks: generated -->", "<!-- /walks -->"
SCOPE = "anthropic/max-1/opus-4-6"
CALL = b"x-api-key: pk-paceline-docs"
STORE_AND_DETECTION = ("store/", "detect/", "agents/stream/", "simulation/", "testing/")
"""What the walk of a unit leaves out: the store, the reading of output, and the test kit."""
HOSTS = ("hosts/", "engine/dispatch/placement.py")


TURNS = 200
"""Turns of the loop until what follows from earlier requests is over."""


class Bar(NamedTuple):
    """The most functions and modules that a walk may pass. `goal` is where it should get to."""

    functions: int
    modules: int
    goal: tuple[int, int]


BARS = {
    "slot with room": Bar(8, 5, (8, 5)),
    "slot that waits, with its grant": Bar(67, 15, (62, 16)),
    "unit, without store and detection": Bar(248, 48, (200, 42)),
    "idle heartbeat": Bar(67, 24, (75, 25)),
    "gateway call with key and pool, without its slot": Bar(204, 22, (130, 20)),
    "pause of a unit, from request to answer": Bar(90, 26, (90, 26)),
    "remote unit, the part of hosts": Bar(94, 8, (85, 14)),
}
"""These may only fall. A walk that has become shorter lowers its bar in the same commit."""


class Tracer:
    """Notes the functions of Paceline that are called in its block, but not those of the tasks that it leaves out."""

    def __init__(self, *, leaving_out: "frozenset[asyncio.Task[Any] | None]" = frozenset()) -> None:
        self.called: set[tuple[str, str]] = set()
        self._leaving_out = leaving_out

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        code: CodeType = frame.f_code
        if event != "call" or not code.co_filename.startswith(ROOT) or not code.co_flags & 1 or "<" in code.co_name:
            return
        if not self._leaving_out or asyncio.current_task() not in self._leaving_out:
            self.called.add((code.co_filename.removeprefix(ROOT), code.co_qualname))

    def __enter__(self) -> Self:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def count(self, keeps: Callable[[str], bool] = lambda _: True) -> tuple[int, int]:
        """Return the number of functions, and of their modules."""
        kept = [module for module, _ in self.called if keeps(module)]
        return len(kept), len(set(kept))


async def _slots() -> dict[str, tuple[int, int]]:
    limiter = Limiter(limits={SCOPE: 1}, cooldown=0.0)
    async with limiter.slot(SCOPE):
        pass
    with Tracer() as enter:
        first = limiter.slot(SCOPE)
        await first.__aenter__()

    async def wait() -> None:
        async with limiter.slot(SCOPE):
            pass

    with Tracer() as waiting:
        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await first.__aexit__(None, None, None)
        await task
    return {"slot with room": enter.count(), "slot that waits, with its grant": waiting.count()}


async def _unit() -> dict[str, tuple[int, int]]:
    async with EngineHarness() as harness:
        await harness.run(1)
        with Tracer() as unit:
            harness.add("docs", 1)
            await harness.run(200)
        assert harness.states() == {"docs/u0": "done"}
        with Tracer() as idle:
            await harness.run(31)
    return {
        "unit, without store and detection": unit.count(lambda name: not name.startswith(STORE_AND_DETECTION)),
        "idle heartbeat": idle.count(),
    }


async def _gateway() -> dict[str, tuple[int, int]]:
    async with team() as at:
        store = SqliteStore.in_memory()
        store.create_client_key(ClientKey(name="docs", models=("opus-*",)), digest_of_key(CALL.rpartition(b" ")[2]))
        at.harness.gateway.access.keys = ClientKeys(store.client_keys)
        async with await connect(at.harness.port) as client:
            client.send(post(path=TEAM, key=CALL))
            await client.read_message()
            with Tracer() as call:
                client.send(post(path=TEAM, key=CALL))
                await client.read_message()
                await until(lambda: not at.harness.gateway.live)
    name = "gateway call with key and pool, without its slot"
    return {name: call.count(lambda module: not module.startswith(("core/", "limiter/")))}


async def _pause() -> dict[str, tuple[int, int]]:
    with tempfile.TemporaryDirectory() as folder:
        async with daemon_in(Path(folder), "[pool]\nsessions = 1\n") as daemon:
            daemon.add("docs", "sleep 30", "a", "b")
            await daemon.until(lambda: daemon.counts("docs").running == 1)
            await daemon.ask("POST", "/v1/units/docs/b/pause")  # the first request of its kind also imports
            await daemon.ask("POST", "/v1/units/docs/b/resume")
            await run_loop(TURNS)
            # The pass that it wakes, and what else goes on meanwhile, is no part of the answer.
            others = frozenset(asyncio.all_tasks() - {asyncio.current_task()})
            with Tracer(leaving_out=others) as pause:
                await daemon.ask("POST", "/v1/units/docs/b/pause")
            await daemon.ask("POST", "/v1/campaigns/docs/cancel")
    return {"pause of a unit, from request to answer": pause.count()}


async def _remote_unit() -> dict[str, tuple[int, int]]:
    with tempfile.TemporaryDirectory() as folder:
        hosts = {"box1": HostSettings(name="box1", max_sessions=2)}
        async with FleetHarness(Path(folder), hosts, pool=4) as harness:
            harness.machines["box1"].start_worker()
            await harness.run(10)
            with Tracer() as unit:
                harness.add("docs", 1, hosts=("box1",))
                for _ in range(20):
                    await harness.run(10)
            assert harness.states() == {"docs/u0": "done"}
    return {"remote unit, the part of hosts": unit.count(lambda module: module.startswith(HOSTS))}


WALKS: tuple[Callable[[], Coroutine[Any, Any, dict[str, tuple[int, int]]]], ...] = (
    _slots,
    _unit,
    _gateway,
    _pause,
    _remote_unit,
)


def count_walks() -> dict[str, tuple[int, int]]:
    """Return the functions and modules of each walk, by its name."""
    found: dict[str, tuple[int, int]] = {}
    for walk in WALKS:
        found |= asyncio.run(walk())
    return {name: found[name] for name in BARS}


def table() -> str:
    """Return the table of the page: the bars of the walks, which the suite keeps to, and their goals."""
    rows = [
        f"| {name} | {bar.functions} / {bar.modules} | {bar.goal[0]} / {bar.goal[1]} |" for name, bar in BARS.items()
    ]
    return "\n".join(["| walk | functions / modules, at most | goal |", "|---|---|---|", *rows])


def with_table(page: str) -> str:
    """Return the page with the present table."""
    before, _, rest = page.partition(START)
    return f"{before}{START}\n{table()}\n{END}{rest.partition(END)[2]}"


def main() -> None:
    for name, (functions, modules) in count_walks().items():
        print(f"{name:50} {functions:4} / {modules:3}   bar {BARS[name].functions} / {BARS[name].modules}")
    if "--write" in sys.argv:
        PAGE.write_text(with_table(PAGE.read_text()))


if __name__ == "__main__":
    main()

"""Response times of the API with a full store, compared with a plain static route in the same run.

    python -m benchmarks.api            a million units in the store, 1,000 scopes; half a minute to fill it
    python -m benchmarks.api --quick    50,000 units

The server is the whole daemon in its own process, with a running engine. Requests of all kinds take turns on one
keep-alive connection, so that all meet the same load of the machine.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import uvloop

from benchmarks.api_slots import Connection, percentile, run_server
from paceline.daemon.home import open_home
from paceline.store import Campaign, UnitSpec

UNITS = 1_000_000
QUICK_UNITS = 50_000
SCOPES = 1000
ROUNDS = 1000
WARM_UP = 50
TARGET_SECONDS = 0.010
STATIC = "/assets/mark.svg"
PATHS = (STATIC, "/concurrency/status", "/v1/status", "/v1/overview", "/v1/units?limit=100")
HELD_TO_TARGET = ("/concurrency/status", "/v1/status")


def fill(folder: Path, units: int) -> None:
    """Store a paused campaign with many units, and write settings that limit many scopes."""
    limits = "".join(f'"acme/a{number}" = 4\n' for number in range(SCOPES))
    (folder / "paceline.toml").write_text(f"[limits]\n{limits}")
    specs = (UnitSpec(id=f"unit-{number}", prompt="do it", cwd=str(folder)) for number in range(units))
    with open_home({"HOME": str(folder), "PACELINE_HOME": str(folder / "home")}, folder) as home:
        campaign = Campaign(name="night", command=("true",), state="paused")
        home.store.add_campaign(campaign, specs, update=False, now=time.time())


async def measure(port: int, token: str) -> dict[str, list[float]]:
    """Return the seconds of each request by path, sorted."""
    connection = Connection(*(await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)), token)
    taken: dict[str, list[float]] = {path: [] for path in PATHS}
    for number in range(WARM_UP + ROUNDS):
        for path in PATHS:
            begun = time.perf_counter()
            status, answer = await connection.ask(f"GET {path}".encode())
            seconds = time.perf_counter() - begun
            assert status == 200, answer
            if number >= WARM_UP:
                taken[path].append(seconds)
    await connection.close()
    return {path: sorted(seconds) for path, seconds in taken.items()}


def tell(taken: dict[str, list[float]]) -> bool:
    """Print the table. Returns whether the targets are met."""
    bare = statistics.median(taken[STATIC])
    bare_late = percentile(taken[STATIC], 99)
    print(f"{'GET':28}{'p50':>10}{'p99':>10}   beside the static route")
    for path, seconds in taken.items():
        middle, late = statistics.median(seconds), percentile(seconds, 99)
        ratios = f"{middle / bare:.1f} times its p50, {late / bare_late:.1f} times its p99"
        print(f"{path:28}{middle * 1000:7.2f} ms{late * 1000:7.2f} ms   {ratios}")
    met = all(percentile(taken[path], 99) < TARGET_SECONDS for path in HELD_TO_TARGET)
    print(f"p99 of {' and '.join(HELD_TO_TARGET)} under {TARGET_SECONDS * 1000:.0f} ms: {'yes' if met else 'NO'}")
    return met


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="fewer units")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve is not None:
        uvloop.run(run_server(given.serve))
        return
    units = QUICK_UNITS if given.quick else UNITS
    with tempfile.TemporaryDirectory() as folder:
        fill(Path(folder), units)
        command = [sys.executable, "-m", "benchmarks.api", "--serve", folder]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            port, token = server.stdout.readline().split()
            print(f"{units:,} units, {SCOPES:,} scopes, {ROUNDS:,} requests of each kind")
            tell(uvloop.run(measure(int(port), token)))


if __name__ == "__main__":
    main()

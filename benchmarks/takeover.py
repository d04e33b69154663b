"""How long a fleet stands still after its leader was killed with `kill -9`.

    python -m benchmarks.takeover                 50 take-overs, in 5 fleets of 2 engines at once; three minutes
    python -m benchmarks.takeover --runs 10       fewer
    python -m benchmarks.takeover --json FILE     the figures as JSON as well

Every fleet has a PostgreSQL database of its own, and engines (`paceline up`) with homes of their own that run units of
half a second. The leader is killed at a random moment of its lease. Measured from there: until another engine says that
it leads, until it grants a slot to a client of the survivor, and until it has started a unit. Then an engine is started
in place of the killed one. A lease lasts 10 s, and a take-over should take less than 15 s.
"""

import argparse
import contextlib
import random
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import msgspec
from tests.fleet import Fleet, Member, fleet_in, until

from benchmarks.postgres.server import as_address, durable_server, new_database

TARGET_SECONDS = 15.0
UNITS = 20_000
PLAN = "date +%s.%N >> starts; sleep 0.5"
SLOT = {"scope": "acme/main/large", "ttl": 60.0}
SETTINGS = "[pool]\nsessions = 2\n"
LONGEST_STEADY_SECONDS = 4.0
"""The leader renews its lease every third of it. So it is killed at any age of the lease."""
LEASE_IS_YOUNG_SECONDS = 2.0
"""No other engine can lead before. What starts until then was started by the killed one."""


class TakeOver(msgspec.Struct, frozen=True):
    """Seconds from the kill."""

    leads: float
    grants: float
    starts: float


def run_fleet(url: str, runs: int, seed: int) -> list[TakeOver]:
    """Kill the leader of a fleet again and again."""
    dice = random.Random(seed)
    with (
        new_database(url) as database,
        tempfile.TemporaryDirectory(prefix="fleet-") as folder,
        fleet_in(Path(folder), as_address(database)) as fleet,
    ):
        (Path(folder) / "paceline.toml").write_text(SETTINGS)
        leader, survivor = fleet.up("home-0"), fleet.up("home-1")
        until(lambda: leader.state == "leading")
        fleet.run("add", fleet.plan(PLAN, UNITS), env=leader.env)
        until(lambda: fleet.lines("starts"))
        found = []
        for number in range(runs):
            time.sleep(dice.uniform(0.0, LONGEST_STEADY_SECONDS))
            found.append(take_over(fleet, leader, survivor))
            leader.process.communicate()
            leader.http.close()
            fleet.members.remove(leader)
            leader, survivor = survivor, fleet.up(f"home-{number + 2}")
        return found


def take_over(fleet: Fleet, leader: Member, survivor: Member) -> TakeOver:
    killed_at = time.time()
    leader.process.kill()
    until(lambda: is_leading(survivor))
    leads = time.time() - killed_at
    until(lambda: survivor.http.post("/v1/slots", json=SLOT).status_code == 201)
    grants = time.time() - killed_at
    started_at = until(lambda: first_start(fleet, killed_at + LEASE_IS_YOUNG_SECONDS))
    return TakeOver(leads=leads, grants=grants, starts=started_at - killed_at)


def is_leading(member: Member) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return member.state == "leading"
    return False


def first_start(fleet: Fleet, after: float) -> float | None:
    return next((at for line in fleet.lines("starts") if line and (at := float(line)) > after), None)


def print_table(found: Iterable[TakeOver]) -> None:
    runs = list(found)
    print(f"{len(runs)} take-overs after kill -9{'':11}{'min':>8}{'median':>8}{'p99':>8}{'max':>8}   (seconds)")
    for name, what in (
        ("leads", "another engine leads"),
        ("grants", "it grants a slot"),
        ("starts", "it starts a unit"),
    ):
        times = sorted(getattr(each, name) for each in runs)
        p99 = times[min(len(times) - 1, round(len(times) * 0.99))]
        figures = "".join(f"{each:8.2f}" for each in (times[0], times[len(times) // 2], p99, times[-1]))
        print(f"{what:36}{figures}   {'under' if p99 < TARGET_SECONDS else 'NOT UNDER'} {TARGET_SECONDS:g} s")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.takeover")
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--fleets", type=int, default=5, help="fleets at once")
    parser.add_argument("--place", help="the folder for the database")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    given = parser.parse_args()
    each, rest = divmod(given.runs, given.fleets)
    with durable_server(given.place) as url, ThreadPoolExecutor(given.fleets) as threads:
        shares = [each + (number < rest) for number in range(given.fleets)]
        running = [threads.submit(run_fleet, url, share, seed) for seed, share in enumerate(shares) if share]
        found = [one for future in running for one in future.result()]
    print_table(found)
    if given.json:
        given.json.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2))


if __name__ == "__main__":
    main()

"""The speed of the PostgreSQL store, compared with SQLite, procrastinate and pgqueuer in one run.

    python -m benchmarks.postgres                     100,000 units drained, claims up to a million; some minutes
    python -m benchmarks.postgres --quick             a tenth of it
    python -m benchmarks.postgres --only draining     or claims, or passes
    python -m benchmarks.postgres --place /dev/shm    all databases in memory, to measure processors and no disk
    python -m benchmarks.postgres --json figures.json the figures as JSON as well

Every contender is durable: the server runs with `fsync` and `synchronous_commit` on, SQLite with `synchronous=FULL`.
All data is below one folder (`--place`, else the temporary folder), so on one disk. `PACELINE_BENCH_POSTGRES` names
another server. The peers are `pip install procrastinate pgqueuer asyncpg`; without them only we are measured.
"""

import argparse
import platform
import sys
from pathlib import Path

import msgspec

from benchmarks.postgres import peers
from benchmarks.postgres.claims import ClaimCost, measure_claims, print_claims
from benchmarks.postgres.draining import Rates, compare_draining, print_draining
from benchmarks.postgres.passes import PassCost, measure_passes, print_passes
from benchmarks.postgres.server import durable_server, run

PARTS = ("draining", "claims", "passes")


class Sizes(msgspec.Struct, frozen=True):
    """The amount of work. `one_by_one` is for contenders that commit each unit separately and are slower."""

    drained: int
    one_by_one: int
    rounds: int
    stored: tuple[int, ...]


FULL = Sizes(drained=100_000, one_by_one=2_000, rounds=3, stored=(1_000, 10_000, 100_000, 1_000_000))
QUICK = Sizes(drained=10_000, one_by_one=1_000, rounds=2, stored=(1_000, 10_000, 100_000))


class Figures(msgspec.Struct):
    """Everything that was measured."""

    server: str
    machine: str
    draining: dict[str, Rates] = {}
    claims: list[ClaimCost] = []
    passes: list[PassCost] = []


def measure(url: str, place: str | None, sizes: Sizes, parts: tuple[str, ...]) -> Figures:
    version = str(run(url, "SHOW server_version")[0][0])
    figures = Figures(server=version, machine=f"{platform.machine()}, Python {platform.python_version()}")
    print(f"PostgreSQL {version}; {peers.versions() if peers.are_installed() else 'no peers installed'}\n")
    if "draining" in parts:
        rates = compare_draining(url, place, sizes.drained, sizes.one_by_one, sizes.rounds)
        figures.draining = dict(rates)
        print_draining(rates, sizes.drained)
    if "claims" in parts:
        figures.claims = measure_claims(url, sizes.stored)
        print_claims(figures.claims)
    if "passes" in parts:
        figures.passes = measure_passes(url)
        print_passes(figures.passes)
    return figures


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.postgres")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    parser.add_argument("--only", choices=PARTS, help="measure only this part")
    parser.add_argument("--place", help="the folder for all databases")
    parser.add_argument("--rounds", type=int, help="rounds of draining")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    given = parser.parse_args(arguments)
    sizes = QUICK if given.quick else FULL
    if given.rounds:
        sizes = msgspec.structs.replace(sizes, rounds=given.rounds)
    with durable_server(given.place) as url:
        figures = measure(url, given.place, sizes, (given.only,) if given.only else PARTS)
    if given.json:
        given.json.write_bytes(msgspec.json.format(msgspec.json.encode(figures), indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])

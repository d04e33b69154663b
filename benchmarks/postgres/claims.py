"""The cost of a claim with a thousand and with a million units in the database."""

import contextlib
import statistics
import time
from collections.abc import Iterable, Iterator

import msgspec

from benchmarks.postgres.server import new_database, run
from benchmarks.store import CLAIM, SUCCEEDED, add_units, claim, record
from paceline.store.postgres import PostgresStore

CLAIMS = 80
WARM_UP = 10
"""The first claims fill caches."""
KINDS = ("most todo", "most done")


class ClaimCost(msgspec.Struct, frozen=True):
    """Microseconds of one claim of `CLAIM` units with its outcomes, in the middle and in the slow cases."""

    units: int
    kind: str
    claim_p50: float
    claim_p99: float
    record_p50: float


def measure_claims(url: str, sizes: Iterable[int]) -> list[ClaimCost]:
    """Fill a database of each size, then claim from all of them in turn: all meet the same load of the machine."""
    with contextlib.ExitStack() as opened:
        stores = {(size, kind): opened.enter_context(_filled(url, size, kind)) for size in sizes for kind in KINDS}
        times = {each: [_timed(store)] for each, store in stores.items()}
        for _ in range(CLAIMS):
            for each, store in stores.items():
                times[each].append(_timed(store))
    return [_cost(size, kind, found[WARM_UP:]) for (size, kind), found in times.items()]


@contextlib.contextmanager
def _filled(url: str, size: int, kind: str) -> Iterator[PostgresStore]:
    with new_database(url) as database, contextlib.closing(PostgresStore(database)) as store:
        add_units(store, size)
        if kind == "most done":
            left = CLAIM * (CLAIMS + 1)
            run(database, f"UPDATE units SET state = 'done' WHERE key & {(1 << 40) - 1} < {size - left}")
        run(database, "VACUUM ANALYZE")  # as the server does by itself within minutes
        yield store


def _cost(size: int, kind: str, times: list[tuple[float, float]]) -> ClaimCost:
    claims, records = sorted(each[0] for each in times), [each[1] for each in times]
    return ClaimCost(
        units=size,
        kind=kind,
        claim_p50=statistics.median(claims) * 1e6,
        claim_p99=claims[-1] * 1e6,
        record_p50=statistics.median(records) * 1e6,
    )


def _timed(store: PostgresStore) -> tuple[float, float]:
    begun = time.perf_counter()
    units = claim(store, CLAIM)
    claimed = time.perf_counter()
    record(store, units, SUCCEEDED)
    assert len(units) == CLAIM
    return claimed - begun, time.perf_counter() - claimed


def print_claims(costs: list[ClaimCost]) -> None:
    print(f"\n{f'a claim of {CLAIM} units of':>20} {'':12} {'p50':>8} {'longest':>9} {'its outcomes':>13}  ratio (p50)")
    for cost in costs:
        first = next(each for each in costs if each.kind == cost.kind)
        ratio = cost.claim_p50 / first.claim_p50
        print(
            f"{cost.units:>20,} {cost.kind:12} {cost.claim_p50:5,.0f} µs {cost.claim_p99:6,.0f} µs"
            f" {cost.record_p50:10,.0f} µs  {ratio:.2f}"
        )

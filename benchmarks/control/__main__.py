"""Policies on the same seeded days. Prints one line per day and a mean; with --out it writes figures, table and plots.

    python -m benchmarks.control --family leases --scenario drift --policy paceline --seeds 0-3
    python -m benchmarks.control --out benchmarks/control/results --seeds 1000-1001

Seeds below 1000 are for tuning. The family `replicas` is never tuned on.
"""

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from itertools import groupby
from pathlib import Path
from statistics import mean

import msgspec

from benchmarks.control.families import FAMILIES
from benchmarks.control.report import Cell, write_plots, write_table
from benchmarks.control.run import LATE, ORACLE, POLICIES, Figures, Task, simulate
from benchmarks.control.scenarios import SCENARIOS

READERS = ("paceline", LATE, "minus one on 429", "min(platform, configured)")
"""Policies that use usage readings. For all others an informed day equals a blind one."""


def main() -> None:
    options = _options()
    tasks = _tasks(options)
    cells: list[Cell] = []
    figures = None
    if options.out is not None:
        out = Path(options.out)
        out.mkdir(parents=True, exist_ok=True)
        figures = out / "figures.json"
        if figures.exists() and options.resume:
            cells = msgspec.json.decode(figures.read_bytes(), type=list[Cell])
    done = {cell.task: cell.figures.work for cell in cells}
    tasks = [task for task in tasks if task not in done]
    days = [day for day in dict.fromkeys(map(_oracle_of, tasks)) if day not in done]
    tasks = [*days, *(task for task in tasks if task not in days)]
    with ProcessPoolExecutor(options.jobs) as pool:
        found = pool.map(_simulate, tasks, [options.hours * 3600.0] * len(tasks))
        for task, figure in zip(tasks, found, strict=True):
            done[task] = figure.work
            cells.append(Cell(*task, figure.work / done[_oracle_of(task)], figure))
            print(cells[-1].line(), flush=True)
            if figures is not None:
                figures.write_bytes(msgspec.json.format(msgspec.json.encode(cells), indent=1))
    _print_means(cells)
    if options.out is not None:
        cells.sort(key=_place)
        write_table(cells, out / "table.md")
        write_plots(cells, out)


def _oracle_of(task: Task) -> Task:
    """Return the oracle's day, by which that of a policy is judged."""
    return task._replace(policy=ORACLE, informed=False)


def _place(cell: Cell) -> tuple[int, ...]:
    """Return where a cell stands in the table, whenever it was measured."""
    orders = (list(FAMILIES), list(SCENARIOS), ["paceline", ORACLE, *POLICIES])
    places = [order.index(name) for order, name in zip(orders, (cell.family, cell.scenario, cell.policy), strict=True)]
    return (*places, cell.informed, cell.seed)


def _print_means(cells: list[Cell]) -> None:
    def group(cell: Cell) -> tuple[str, str, str, bool]:
        return (cell.family, cell.scenario, cell.policy, cell.informed)

    for (family, scenario, policy, informed), days in groupby(sorted(cells, key=group), group):
        same = list(days)
        share, refused = 100 * mean(c.share for c in same), mean(c.figures.refused_per_1000 for c in same)
        kind = "informed" if informed else "blind"
        print(f"mean of {len(same)}: {family:8} {scenario:11} {policy:26} {kind:9} {share:6.1f} / {refused:.2f}")


def _tasks(options: argparse.Namespace) -> list[Task]:
    """Return the days to run. One policy's days are next to each other, so that a stopped run has whole rows."""
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    return [
        Task(family, scenario, seed, policy, informed)
        for family in options.family
        for scenario in options.scenario
        for policy in options.policy
        for informed in _kinds(options, policy)
        for seed in seeds
    ]


def _kinds(options: argparse.Namespace, policy: str) -> tuple[bool, ...]:
    if options.out is not None:
        return (False, True) if policy in READERS else (False,)
    return (options.informed,)


def _simulate(task: Task, until: float) -> Figures:
    return simulate(task, until=until)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.control", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--family", nargs="+", default=list(FAMILIES), choices=list(FAMILIES))
    parser.add_argument("--scenario", nargs="+", default=list(SCENARIOS), choices=list(SCENARIOS))
    parser.add_argument("--policy", nargs="+", default=["paceline"], choices=[ORACLE, *POLICIES])
    parser.add_argument("--every-policy", dest="policy", action="store_const", const=[ORACLE, *POLICIES])
    parser.add_argument("--seeds", default="1000-1001", help="one seed, or first-last; below 1000 for tuning")
    parser.add_argument("--informed", action="store_true", help="give usage readings and headers to the policy")
    parser.add_argument("--hours", type=float, default=24.0, help="length of a day")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="days at a time")
    parser.add_argument("--out", help="folder for figures, table and plots: blind and informed days")
    parser.add_argument("--resume", action="store_true", help="keep the figures that --out has already")
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""All policies on the same held-out days. Writes the numbers, the table and the plots."""

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.control.report import Cell, write_plots, write_table
from benchmarks.control.run import POLICIES, Figures, simulate
from benchmarks.control.scenarios import HELD_OUT, SCENARIOS

READERS = ("paceline", "minus one on 429", "min(platform, configured)")
"""Policies that use usage readings. For all others an informed day equals a blind one."""


class Task(NamedTuple):
    scenario: str
    seed: int
    policy: str
    informed: bool


def main() -> None:
    options = _options()
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    figures = out / "figures.json"
    cells = msgspec.json.decode(figures.read_bytes(), type=list[Cell]) if figures.exists() and options.resume else []
    done = {Task(cell.scenario, cell.seed, cell.policy, cell.informed) for cell in cells}
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    days = [(scenario, seed) for scenario in options.scenarios for seed in seeds]
    with ProcessPoolExecutor(options.jobs) as pool:
        oracles = dict(zip(days, pool.map(_simulate, [Task(*day, "oracle", False) for day in days]), strict=True))
        tasks = [task for task in _tasks(days, options.policies) if task not in done]
        for task, day in zip(tasks, pool.map(_simulate, tasks), strict=True):
            cells.append(Cell(*task, day.work / oracles[task.scenario, task.seed].work, day))
            figures.write_bytes(msgspec.json.format(msgspec.json.encode(cells), indent=1))
            print(cells[-1].line(), flush=True)
    write_table(cells, out / "table.md")
    write_plots(cells, out)


def _tasks(days: list[tuple[str, int]], policies: list[str]) -> list[Task]:
    return [
        Task(*day, policy, informed)
        for day in days
        for policy in policies
        for informed in ((False, True) if policy in READERS else (False,))
    ]


def _simulate(task: Task) -> Figures:
    return simulate(task.scenario, task.seed, task.policy, informed=task.informed)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.control", description=__doc__)
    parser.add_argument("--out", default="benchmarks/control/results", help="folder for figures, table and plots")
    parser.add_argument("--seeds", type=int, default=5, help="days per scenario and policy")
    parser.add_argument("--first-seed", type=int, default=HELD_OUT, help="seeds below 1000 are those tuned on")
    parser.add_argument("--scenarios", nargs="*", default=list(SCENARIOS), choices=list(SCENARIOS))
    parser.add_argument("--policies", nargs="*", default=list(POLICIES), choices=list(POLICIES))
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="days at a time")
    parser.add_argument("--resume", action="store_true", help="keep the figures that are there already")
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""Every policy on the same held-out days: writes the figures, the table and the plots."""

import argparse
from pathlib import Path

import msgspec

from benchmarks.control.report import Cell, write_plots, write_table
from benchmarks.control.run import POLICIES, simulate
from benchmarks.control.scenarios import HELD_OUT, SCENARIOS

READERS = ("paceline", "minus one on 429", "min(platform, configured)")
"""Policies that make use of readings: for all others an informed day is a blind one."""


def main() -> None:
    options = _options()
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    figures = out / "figures.json"
    cells = msgspec.json.decode(figures.read_bytes(), type=list[Cell]) if figures.exists() and options.resume else []
    done = {(cell.scenario, cell.seed, cell.policy, cell.informed) for cell in cells}
    for scenario in options.scenarios:
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            oracle = simulate(scenario, seed, "oracle")
            for policy in options.policies:
                for informed in (False, True) if policy in READERS else (False,):
                    if (scenario, seed, policy, informed) in done:
                        continue
                    day = oracle if policy == "oracle" else simulate(scenario, seed, policy, informed=informed)
                    cells.append(Cell(scenario, seed, policy, informed, day.work / oracle.work, day))
                    figures.write_bytes(msgspec.json.format(msgspec.json.encode(cells), indent=1))
                    print(cells[-1].line(), flush=True)
    write_table(cells, out / "table.md")
    write_plots(cells, out)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.control", description=__doc__)
    parser.add_argument("--out", default="benchmarks/control/results", help="folder for figures, table and plots")
    parser.add_argument("--seeds", type=int, default=5, help="days per scenario and policy")
    parser.add_argument("--first-seed", type=int, default=HELD_OUT, help="seeds below 1000 are those tuned on")
    parser.add_argument("--scenarios", nargs="*", default=list(SCENARIOS), choices=list(SCENARIOS))
    parser.add_argument("--policies", nargs="*", default=list(POLICIES), choices=list(POLICIES))
    parser.add_argument("--resume", action="store_true", help="keep the figures that are there already")
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""examples/overnight: a whole night of forty units, and the morning after it, as a person types it."""

import os
import re
import subprocess
import sys
from pathlib import Path

from paceline.store import SqliteStore, Unit

EXAMPLE = Path(__file__).parents[2] / "examples" / "overnight"
PATIENCE_SECONDS = 600
"""The night takes 20 s of CPU time: it starts some three hundred processes. Much else may run on the machine."""
LINES_OF_A_NIGHT = [
    "metric: 20 done",
    "science: 19 done, 1 unverified",
    "left out metric/metres_to_yards: it conflicts in README.md",
    "conflict: metric/feet_to_metres and metric/metres_to_yards: README.md",
    "merged 19 units into main",
    "left out metric/metres_to_yards: it conflicts in README.md",
    "took back 19 units from main",
    "merged 19 units into main",
    "left out metric/metres_to_yards: it conflicts in README.md",
    "CONFLICT (content): Merge conflict in README.md",
    "science/is_leap_year is done: accepted without a passed check",
    "merged 20 units into main",
]


def spend_night(folder: Path) -> str:
    """Run the example in a folder that stays, and return what it prints."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PACELINE_")}
    environ |= {"HOME": str(folder), "COLUMNS": "200"}
    command = [sys.executable, str(EXAMPLE / "night.py"), str(folder / "night")]
    ended = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def units_of(home: Path) -> dict[str, Unit]:
    store = SqliteStore(home / "paceline.db")
    try:
        names = [unit.id for campaign in ("metric", "science") for unit in store.units(campaign=campaign).units]
        return {name.rpartition("/")[2]: unit for name in names if (unit := store.unit(name)) is not None}
    finally:
        store.close()


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", folder, *arguments], capture_output=True, text=True, check=True).stdout


def test_a_night_of_forty_units_is_checked_repaired_and_merged(tmp_path: Path) -> None:
    output = spend_night(tmp_path)
    folder, repository = tmp_path / "night", tmp_path / "night" / "measures"
    units = units_of(folder / "home")
    exit_codes = {name: [check.exit_code for check in unit.result.checks] for name, unit in units.items()}

    printed = [re.sub(r"main of .*", "main", line) for line in output.splitlines()]
    assert [line for line in printed if line in LINES_OF_A_NIGHT] == LINES_OF_A_NIGHT
    assert len(units) == 40
    assert {unit.state for unit in units.values()} == {"done"}
    assert {name: codes for name, codes in exit_codes.items() if codes != [0]} == {
        "acres_to_hectares": [1, 0],
        "gallons_to_litres": [1, 0],
        "circle_area": [1, 0],
        "is_leap_year": [1, 1, 1],
    }
    written = {path.stem for path in (repository / "measures").glob("*.py")} - {"__init__"}
    assert written == set(units)
    assert (repository / "README.md").read_text().splitlines()[-2:] == ["- feet_to_metres", "- metres_to_yards"]
    assert git(repository, "status", "--porcelain") == ""
    assert git(repository, "worktree", "list").count("\n") == 1
    assert git(repository, "branch", "--list", "paceline/*") == ""
    assert "metric: 20 of 20 done" in (folder / "metric.html").read_text()

"""The night of examples/overnight with the unmodified Claude Code and Codex CLIs: forty units of two agents."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.agents.agent_cli import AGENTS, IS_INSTALLED, base_environ

EXAMPLE = Path(__file__).parents[2] / "examples" / "overnight"
NIGHT_SECONDS = 1800
"""Four sessions at once take three minutes on two free cores."""

pytestmark = [pytest.mark.agents, pytest.mark.skipif(not IS_INSTALLED, reason="no agent CLIs here: make agents")]


def run(folder: Path, program: str, *arguments: str) -> str:
    """Run a program of the example, and return what it printed."""
    environ = base_environ(folder, AGENTS["claude-newest"], AGENTS["codex"])
    path = os.pathsep.join((str(Path(sys.executable).parent), environ["PATH"]))
    command = [sys.executable, str(EXAMPLE / program), str(folder / "night"), *arguments]
    ended = subprocess.run(
        command, env=environ | {"PATH": path}, capture_output=True, text=True, timeout=NIGHT_SECONDS, check=False
    )
    return ended.stdout + ended.stderr


def test_forty_units_are_checked_repaired_and_reported_with_their_conflict(tmp_path: Path) -> None:
    run(tmp_path, "repository.py")
    paceline = ("fake_models.py", "--", sys.executable, "-m", "paceline")

    night = run(tmp_path, *paceline, "run", "metric.toml", "science.toml")
    report = run(tmp_path, *paceline, "apply", "metric", "--dry-run")

    assert ("metric: 20 done" in night, "science: 19 done, 1 unverified" in night) == (True, True), night
    requeued = re.findall(r"requeued (\S+): the check failed", night)
    assert sorted(requeued) == [
        "metric/acres_to_hectares",
        "metric/gallons_to_litres",
        "science/circle_area",
        "science/is_leap_year",
        "science/is_leap_year",
    ]
    assert "conflict: metric/feet_to_metres and metric/metres_to_yards: README.md" in report

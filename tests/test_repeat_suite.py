"""`make test-repeat` prints what each run was, and is red for a failure, a skipped test or a run that is not whole."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "repeat_suite.py"
PYTEST = """#!/bin/sh
# Stands in for the Python that runs pytest. Each run prints the next of the given ends.
echo run >> runs
number=$(wc -l < runs)
cat end-$number
exit $(cat code-$number)
"""
GOOD = (0, "9 passed in 2.00s")
BAD = {
    "a failure": (1, "FAILED tests/x.py::test_y\n1 failed, 8 passed in 2.00s", ["8", "1", "0"]),
    "an error": (1, "ERROR tests/x.py::test_y\n8 passed, 1 error in 2.00s", ["8", "1", "0"]),
    "a skipped test": (0, "SKIPPED [1] tests/x.py:3: no x here\n8 passed, 1 skipped in 2.00s", ["8", "0", "1"]),
    "fewer tests": (0, "8 passed in 2.00s", ["8", "0", "0"]),
    "an end without a summary": (3, "INTERNALERROR", ["0", "0", "0"]),
}


def repeat(folder: Path, *ends: tuple[int, str], **env: str) -> tuple[int, list[list[str]]]:
    """Run it with runs that end like this. Returns its exit code and the counts of each run."""
    python = folder / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTEST)
    python.chmod(0o755)
    script = folder / "scripts" / SCRIPT.name
    script.parent.mkdir()
    shutil.copy(SCRIPT, script)
    for number, (code, text) in enumerate(ends, 1):
        (folder / f"end-{number}").write_text(f"{text}\n")
        (folder / f"code-{number}").write_text(f"{code}\n")
    done = subprocess.run(
        ["nohup", sys.executable, script, str(len(ends))],
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(folder), **env},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr.replace("nohup: ignoring input\n", "") == ""
    rows = [line.split()[-4:-1] for line in done.stdout.splitlines()[1:] if line[:4].strip().isdigit()]
    return done.returncode, rows


def test_good_runs_are_green(tmp_path: Path) -> None:
    assert repeat(tmp_path, GOOD, GOOD, GOOD) == (0, [["9", "0", "0"]] * 3)


@pytest.mark.parametrize("kind", BAD)
def test_one_bad_run_makes_it_red(kind: str, tmp_path: Path) -> None:
    code, text, counts = BAD[kind]

    assert repeat(tmp_path, GOOD, (code, text), GOOD) == (1, [["9", "0", "0"], counts, ["9", "0", "0"]])


def test_as_many_skipped_tests_as_are_allowed_are_green(tmp_path: Path) -> None:
    code, text, counts = BAD["a skipped test"]

    assert repeat(tmp_path, (code, text), SKIPS="1") == (0, [counts])

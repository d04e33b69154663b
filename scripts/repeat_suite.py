"""Run all tests again and again: 10 times, or as often as the first argument says.

Every second run is in a random order beside two busy cores. Prints one line for each run and keeps the output of those
that are not good. Fails if a test failed, if more tests were skipped than SKIPS allows (0 unless it is set), or if a
run had fewer tests than the first. It is no shell script: where process ids come round quickly, bash takes the id of
a new child for that of an old one and prints errors of its own.
"""

import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROW = "{:>4}  {:>6}  {:12}  {:>7}  {:>7}  {:>7}  {:>8}"
BUSY = "while True: pass"


def run_suite(output: Path, *options: str) -> int:
    """Run all tests with their output in a file. Returns the exit code."""
    command = [".venv/bin/python", "-m", "pytest", "-n", os.environ.get("WORKERS", "3"), "--dist", "worksteal", "-rfEs"]
    with output.open("wb") as file:
        parts = [*command, *os.environ.get("NO_HANG", "").split(), *options]
        return subprocess.run(parts, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, check=False).returncode


def count(summary: str, ending: str) -> int:
    """Return how many tests ended in this way, by the last line of pytest."""
    found = re.search(rf"(\d+) {ending}", summary)
    return int(found[1]) if found else 0


def repeat(runs: int) -> bool:
    """Run the tests so many times. Returns whether all runs were good."""
    folder = Path(tempfile.mkdtemp())
    skips_allowed = int(os.environ.get("SKIPS", "0"))
    print(ROW.format("run", "seed", "load", "passed", "failed", "skipped", "seconds"), flush=True)
    first_total, is_good = 0, True
    for run in range(1, runs + 1):
        seed, load, options, busy = "-", "none", (), []
        if run % 2 == 0:
            seed, load = str(random.randrange(32768)), "2 busy cores"
            options = ("--shuffle", seed)
            busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(2)]
        output = folder / f"run-{run}"
        begun = time.monotonic()
        try:
            code = run_suite(output, *options)
        finally:
            for process in busy:
                process.kill()
                process.wait()
        lines = output.read_text("utf-8", "replace").splitlines()
        summary = lines[-1] if lines else ""
        passed, skipped = count(summary, "passed"), count(summary, "skipped")
        failed = count(summary, "failed") + count(summary, "errors?")
        print(ROW.format(run, seed, load, passed, failed, skipped, round(time.monotonic() - begun)), flush=True)
        first_total = first_total or passed + skipped
        if code != 0 or skipped > skips_allowed or passed + skipped < first_total:
            is_good = False
            print(f"      not good (exit code {code}): {output}")
            print(*(line for line in lines if line.startswith(("FAILED ", "ERROR ", "SKIPPED "))), sep="\n", flush=True)
    return is_good


if __name__ == "__main__":
    sys.exit(not repeat(int(sys.argv[1]) if len(sys.argv) > 1 else 10))

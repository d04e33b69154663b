"""A long life: many tiny units through one real engine, and what it costs as they add up.

    python -m benchmarks.long_life [UNITS] [POOL]

Prints one row per tenth of the units: memory and open files of the engine, size of the database and of the spool, and
its CPU time per unit since the row before. What must stay flat is the memory, the CPU time and, beyond the limit of
the settings (`OUTPUT_AGE_SECONDS` here), the spool.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from paceline.store import SqliteStore

UNITS, POOL = 10_000, 8
ROWS = 10
OUTPUT_AGE_SECONDS = 60
"""Output is kept this long, so that a run of minutes shows what a home of months looks like."""
POLL_SECONDS = 0.5
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
PROMPT = "Write a docstring for every public function of the module. " * 7


def write_plan(folder: Path, units: int, pool: int) -> Path:
    """Write the units, the plan and the settings. Each unit prints ten bytes."""
    with open(folder / "units.jsonl", "w") as file:
        for number in range(units):
            file.write(json.dumps({"id": f"u{number}", "prompt": PROMPT}) + "\n")
    (folder / "paceline.toml").write_text(
        f'[pool]\nsessions = {pool}\n[retention]\noutputs = "{OUTPUT_AGE_SECONDS}s"\n'
    )
    plan = folder / "plan.toml"
    plan.write_text(
        '[campaign]\nname = "life"\nagent = "command"\ncommand = ["echo", "123456789"]\n'
        '[units]\njsonl = "units.jsonl"\nid = "{id}"\nprompt = "{prompt}"\n'
    )
    return plan


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


def memory_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1000


def disk_mb(path: Path) -> float:
    return int(subprocess.run(["du", "-sk", path], capture_output=True, check=False).stdout.split()[0]) / 1000


def done_units(store: SqliteStore) -> int:
    counts = store.counts()
    return counts["life"].done if "life" in counts else 0


def main(units: int, pool: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        home = folder / "home"
        plan = write_plan(folder, units, pool)
        environ = {**os.environ, "PACELINE_HOME": str(home)}
        command = [sys.executable, "-m", "paceline", "run", str(plan)]
        began = time.monotonic()
        with subprocess.Popen(command, cwd=folder, env=environ, stdout=subprocess.DEVNULL) as engine:
            watch(engine, home, units, began)
        print(f"exit code {engine.returncode} after {time.monotonic() - began:.0f} s")


def watch(engine: "subprocess.Popen[bytes]", home: Path, units: int, began: float) -> None:
    """Print a row whenever another tenth of the units is done."""
    print(
        "| units | RSS MB | open files | db MB | spool MB | CPU ms/unit | s |\n|---|---|---|---|---|---|---|",
        flush=True,
    )
    seen, cpu, due = 0, 0.0, units // ROWS
    while not (home / "paceline.db").exists():
        time.sleep(POLL_SECONDS)
    store = SqliteStore(home / "paceline.db")
    while engine.poll() is None:
        done = done_units(store)
        if done >= due:
            try:
                used, rss = cpu_seconds(engine.pid), memory_mb(engine.pid)
                files = len(os.listdir(f"/proc/{engine.pid}/fd"))
            except (OSError, StopIteration):
                break
            database = sum(path.stat().st_size for path in home.glob("paceline.db*")) / 1e6
            per_unit = (used - cpu) * 1000 / max(1, done - seen)
            cells = f"{done} | {rss:.1f} | {files} | {database:.1f} | {disk_mb(home / 'spool'):.1f} | {per_unit:.1f}"
            print(f"| {cells} | {time.monotonic() - began:.0f} |", flush=True)
            seen, cpu, due = done, used, due + units // ROWS
        time.sleep(POLL_SECONDS)
    store.close()


if __name__ == "__main__":
    arguments = [int(each) for each in sys.argv[1:]]
    main(*(arguments + [UNITS, POOL][len(arguments) :]))

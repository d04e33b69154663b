"""A long life: many tiny units through one real engine, and what it costs as they add up.

    python -m benchmarks.long_life [UNITS] [POOL]
    python -m benchmarks.long_life [UNITS] [POOL] --without-processes

Prints one row per tenth of the units: memory and open files of the engine, size of the home, of its database and of its
spool, and the engine's CPU time per unit since the row before. What must stay flat is the memory, the CPU time and,
beyond the limit of the settings (`OUTPUT_AGE_SECONDS` here), the spool.

A supervisor and an agent cost more than the engine's own part of a unit, so 100,000 of them take hours. With
`--without-processes` the engine writes the folder of each session as its supervisor would have left it, and finds it
ended. All the rest is the same `paceline run`: claims, outcomes and events in its database, the reading of output,
the archive, and its retention.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from paceline.cli import main as paceline
from paceline.daemon.home import Home
from paceline.executors.interface import Handle, Launch
from paceline.executors.proc_table import boot_id
from paceline.executors.process import ProcessExecutor
from paceline.executors.spool import spool_root, take_lock, write_input
from paceline.executors.spool_writer import Value, shrink, write_emergency_record, write_status
from paceline.store import SqliteStore

UNITS, POOL = 10_000, 8
ROWS = 10
OUTPUT_AGE_SECONDS = 60
"""Output is kept this long, so that a run of minutes shows what a home of months looks like."""
POLL_SECONDS = 0.5
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
PROMPT = "Write a docstring for every public function of the module. " * 7
PRINTED = "123456789"
WITHOUT_PROCESSES = "--without-processes"
ENGINE = "--engine"
"""Makes this program the engine of a run without processes."""
ROOT = Path(__file__).parents[1]


def write_plan(folder: Path, units: int, pool: int) -> Path:
    """Write the units, the plan and the settings. Each unit prints ten bytes."""
    with open(folder / "units.jsonl", "wb") as file:
        for number in range(units):
            file.write(msgspec.json.encode({"id": f"u{number}", "prompt": PROMPT}) + b"\n")
    (folder / "paceline.toml").write_text(
        f'[pool]\nsessions = {pool}\n[retention]\noutputs = "{OUTPUT_AGE_SECONDS}s"\n'
    )
    plan = folder / "plan.toml"
    plan.write_text(
        f'[campaign]\nname = "life"\nagent = "command"\ncommand = ["echo", "{PRINTED}"]\n'
        '[units]\njsonl = "units.jsonl"\nid = "{id}"\nprompt = "{prompt}"\n'
    )
    return plan


# -- an engine without processes ----------------------------------------------------------------------


class WrittenSessions(ProcessExecutor):
    """Sessions without processes: the folder of each is written as its supervisor would have left it."""

    def _start_supervisor(self, launch: Launch, folder: str) -> int | None:
        began = time.time()
        lock = take_lock(folder)
        write_input(folder, launch.stdin)
        Path(folder, "stdout").write_text(f"{PRINTED}\n")
        Path(folder, "stderr").touch()
        Path(folder, "supervisor.log").touch()
        status: dict[str, Value] = {
            "phase": "ended",
            "boot_id": boot_id(),
            "started_at": began,
            "monotonic_at": time.monotonic(),
            "unit": launch.env["PACELINE_UNIT"],
            "grace": launch.grace,
            "exit_code": 0,
            "cause": "exit",
            "ended_at": time.time(),
        }
        write_emergency_record(lock, status, is_final=True)
        shrink(lock)
        write_status(status, folder=folder, sync=False)
        os.close(lock)
        return None

    async def wait_ended(self, timeout: float) -> list[Handle]:
        """Return what was started: it is over. There is no process whose end could wake the engine."""
        if not self._handles:
            return await super().wait_ended(timeout)
        await asyncio.sleep(0)
        return self.take_ended()


def written_sessions(home: Home) -> ProcessExecutor:
    return WrittenSessions(spool_root(home.path))


def run_without_processes(plan: str) -> None:
    """Be `paceline run PLAN`, but for the processes."""
    Home.executor = written_sessions  # type: ignore[method-assign, assignment]
    sys.argv = ["paceline", "run", plan]
    paceline()


# -- watching it --------------------------------------------------------------------------------------


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


def main(units: int, pool: int, *, has_processes: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        home = folder / "home"
        plan = write_plan(folder, units, pool)
        environ = {**os.environ, "PACELINE_HOME": str(home), "PYTHONPATH": str(ROOT)}
        program = ["paceline", "run"] if has_processes else ["benchmarks.long_life", ENGINE]
        command = [sys.executable, "-m", *program, str(plan)]
        began = time.monotonic()
        with subprocess.Popen(command, cwd=folder, env=environ, stdout=subprocess.DEVNULL) as engine:
            watch(engine, home, units, began)
        print(f"exit code {engine.returncode} after {time.monotonic() - began:.0f} s")


def watch(engine: "subprocess.Popen[bytes]", home: Path, units: int, began: float) -> None:
    """Print a row whenever another tenth of the units is done. The CPU time of the import is not counted."""
    print(
        "| units | RSS MB | open files | home MB | db MB | spool MB | CPU ms/unit | s |\n"
        "|---|---|---|---|---|---|---|---|",
        flush=True,
    )
    while not (home / "paceline.db").exists():
        time.sleep(POLL_SECONDS)
    store = SqliteStore(home / "paceline.db")
    while engine.poll() is None and not done_units(store):
        time.sleep(POLL_SECONDS)
    seen, cpu, due = done_units(store), cpu_seconds(engine.pid), units // ROWS
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
            disk = f"{disk_mb(home):.1f} | {database:.1f} | {disk_mb(home / 'spool'):.1f}"
            print(
                f"| {done} | {rss:.1f} | {files} | {disk} | {per_unit:.2f} | {time.monotonic() - began:.0f} |",
                flush=True,
            )
            seen, cpu, due = done, used, due + units // ROWS
        time.sleep(POLL_SECONDS)
    store.close()


if __name__ == "__main__":
    if ENGINE in sys.argv:
        run_without_processes(sys.argv[-1])
    else:
        numbers = [int(each) for each in sys.argv[1:] if each != WITHOUT_PROCESSES]
        main(*(numbers + [UNITS, POOL][len(numbers) :]), has_processes=WITHOUT_PROCESSES not in sys.argv)

"""The cost of workspaces: units in worktrees of a large repository, compared with a bare loop of `git worktree add`.

    python -m benchmarks.workspaces [UNITS] [FILES] [POOL]

Both make the same number of worktrees of the same repository, in the same run. Each unit writes one file, which
Paceline commits. Meanwhile `/healthz` is asked every 20 ms: the pass must not wait for git.
"""

import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

UNITS, FILES, POOL = 200, 20_000, 16
FILES_PER_FOLDER = 100
PORT = 8791
QUIET_GIT = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True, env=os.environ | QUIET_GIT)


def make_repository(folder: Path, files: int) -> Path:
    repository = folder / "repository"
    repository.mkdir()
    git(repository, "init", "-q", "-b", "main")
    for number in range(files):
        file = repository / f"part{number // FILES_PER_FOLDER}" / f"module{number}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f'"""Module {number}."""\n\nVALUE = {number}\n')
    git(repository, "add", "-A")
    git(repository, "-c", "user.name=bench", "-c", "user.email=bench@localhost", "commit", "-qm", "files")
    return repository


def bare_seconds(repository: Path, units: int) -> float:
    """Return the seconds per `git worktree add`, one after the other."""
    begun = time.perf_counter()
    for number in range(units):
        git(repository, "worktree", "add", "-q", "-b", f"bare{number}", str(repository.parent / f"bare{number}"))
    return (time.perf_counter() - begun) / units


def write_plan(folder: Path, repository: Path, units: int, pool: int) -> Path:
    """Write the plan and the settings. The folders stay, as those of the bare loop do."""
    (repository / "paceline.toml").write_text(f"[pool]\nsessions = {pool}\n")
    plan = repository / "plan.toml"
    lines = ['[campaign]\nname = "bench"\ncommand = ["sh", "-c", "echo done > result.txt"]']
    lines += [f'[campaign.workspace]\nkind = "worktree"\nkeep = "all"\nroot = "{folder / "workspaces"}"']
    lines += [f'[[unit]]\nid = "u{number}"' for number in range(units)]
    plan.write_text("\n".join(lines) + "\n")
    return plan


class HealthProbe(threading.Thread):
    """Asks `/healthz` until it is stopped, and keeps how long each answer took."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.seconds: list[float] = []
        self.is_stopped = False
        self._port = port

    def run(self) -> None:
        while not self.is_stopped:
            begun = time.perf_counter()
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
            try:
                connection.request("GET", "/healthz")
                connection.getresponse().read()
                self.seconds.append(time.perf_counter() - begun)
            except OSError:
                pass  # it has not started yet, or has ended
            finally:
                connection.close()
            time.sleep(0.02)


def engine_seconds(folder: Path, repository: Path, units: int, pool: int) -> tuple[float, HealthProbe]:
    """Return the seconds per unit from the start of the engine to the last commit."""
    plan = write_plan(folder, repository, units, pool)
    environ = os.environ | QUIET_GIT | {"PACELINE_HOME": str(folder / "home"), "PACELINE_POOL": str(pool)}
    command = [sys.executable, "-m", "paceline"]
    subprocess.run([*command, "add", str(plan)], check=True, capture_output=True, env=environ, cwd=repository)
    probe = HealthProbe(PORT)
    with subprocess.Popen(
        [*command, "up", "--port", str(PORT)], env=environ, cwd=repository, stdout=subprocess.DEVNULL
    ) as engine:
        probe.start()
        begun = time.perf_counter()
        while _done(command, environ, repository) < units:
            time.sleep(0.5)
        seconds = (time.perf_counter() - begun) / units
        probe.is_stopped = True
        engine.terminate()
    return seconds, probe


def _done(command: list[str], environ: dict[str, str], folder: Path) -> int:
    shown = subprocess.run(
        [*command, "status", "--json"], check=True, capture_output=True, env=environ, cwd=folder, text=True
    )
    return int(json.loads(shown.stdout)["units"]["done"])


def main(arguments: list[str]) -> None:
    units, files, pool = (*map(int, arguments), *(UNITS, FILES, POOL)[len(arguments) :])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        repository = make_repository(folder, files)
        bare = bare_seconds(repository, units)
        seconds, probe = engine_seconds(folder, repository, units, pool)
    slowest = statistics.quantiles(probe.seconds, n=100)[98]
    print(f"{units} units in worktrees of {files:,} files, pool {pool}")
    print(f"git worktree add, one by one    {bare * 1000:8.0f} ms each")
    print(f"paceline, with commit           {seconds * 1000:8.0f} ms each, {seconds / bare:.2f} times that")
    print(f"/healthz meanwhile              {slowest * 1000:8.1f} ms at p99, of {len(probe.seconds)} answers")


if __name__ == "__main__":
    main(sys.argv[1:])

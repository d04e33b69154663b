"""A night of forty units in worktrees, and the morning after it: every command that docs/overnight.md shows.

python examples/overnight/night.py             # in a temporary folder, 30 seconds
python examples/overnight/night.py FOLDER      # keeps the folder, to look around in it

A script stands in for the agents (`repository.STAND_IN`), so this needs no login and no network. Three units fail their
check at first and repair their work, one never passes, and two change the same line.
"""

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from repository import make_night

ALL_WELL, NEEDS_YOU = 0, 1
IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Ada"), ("EMAIL", "a@b.c"))
}


class Night:
    """A folder with a home of its own, in which commands run as in a shell."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = os.environ | IDENTITY | {"PACELINE_HOME": str(folder / "home")}

    def paceline(self, command: str, *, code: int = ALL_WELL) -> None:
        """Run a command of Paceline, print it with its output, and require its exit code."""
        self._run(["paceline", *shlex.split(command)], [sys.executable, "-m", "paceline"], self.folder, code)

    def git(self, command: str, *, code: int = ALL_WELL) -> None:
        self._run(["git", *shlex.split(command)], ["git"], self.folder / "measures", code)

    def _run(self, shown: list[str], program: list[str], folder: Path, code: int) -> None:
        print(f"\n$ {shlex.join(shown)}", flush=True)
        ended = subprocess.run([*program, *shown[1:]], cwd=folder, env=self.environ, check=False)
        if ended.returncode != code:
            raise SystemExit(f"{shlex.join(shown)} ended with {ended.returncode}, not {code}")


def work(night: Night) -> None:
    night.paceline("doctor")
    night.paceline("preview metric.toml")
    night.paceline("run metric.toml science.toml", code=NEEDS_YOU)


def look(night: Night) -> None:
    night.paceline("summary science")
    night.paceline("summary metric --html metric.html")
    night.paceline("results metric")
    night.paceline("show science/is_leap_year")
    night.paceline("diff metric/gallons_to_litres")


def merge(night: Night) -> None:
    night.paceline("apply metric --dry-run", code=NEEDS_YOU)
    night.paceline("apply metric", code=NEEDS_YOU)
    night.paceline("apply metric --undo")
    night.paceline("apply metric", code=NEEDS_YOU)
    resolve_conflict(night)
    night.paceline("accept science/is_leap_year")
    night.paceline("apply science")
    night.paceline("gc --dry-run")
    night.paceline("gc")


def resolve_conflict(night: Night) -> None:
    """Merge the unit that conflicts by hand: both of its lines are wanted."""
    night.git("merge paceline/metric/metres_to_yards", code=NEEDS_YOU)
    readme = night.folder / "measures" / "README.md"
    lines = [line for line in readme.read_text().splitlines() if not line.startswith(("<<<<<<<", "=======", ">>>>>>>"))]
    readme.write_text("\n".join(lines) + "\n")
    night.git("commit -qam 'Merge unit metric/metres_to_yards'")


def spend(folder: Path) -> None:
    make_night(folder, has_stand_in=True)
    night = Night(folder)
    work(night)
    look(night)
    merge(night)


def main() -> None:
    if len(sys.argv) > 1:
        spend(Path(sys.argv[1]).resolve())
        return
    with tempfile.TemporaryDirectory(prefix="paceline-night-") as folder:
        spend(Path(folder).resolve())


if __name__ == "__main__":
    main()

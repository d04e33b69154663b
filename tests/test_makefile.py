"""`make` finds a Python that is new enough, and replaces an environment that is of no use. Nothing is installed."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAMES = ("python3.11", "python3.12", "python3.13", "python3.14", "python3")
PYTHON = """#!/bin/sh
# Stands in for an installed Python: it notes what it was asked, and makes an environment of itself.
name=$(basename "$0")
test "$1" = -c && exit CODE
echo "$name $*" >> calls
test "$2" = venv || exit 0
mkdir -p .venv/bin
cp "$0" .venv/bin/python
"""
INSTALL = "python -m pip install --quiet"
UPGRADE, RUNTIME, ALL = (
    f"{INSTALL} --upgrade pip>=25.1",
    f"{INSTALL} --editable .",
    f"{INSTALL} --editable . --group dev",
)


class Clone:
    """A clone on a machine where only some Pythons are of use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs = folder / "programs"
        self.programs.mkdir()
        for name in ("Makefile", "pyproject.toml"):
            shutil.copy(ROOT / name, folder)
        self.install()

    def install(self, *good: str) -> None:
        """Let these be new enough. The others are names that lead nowhere."""
        for name in NAMES:
            write_python(self.programs / name, works=name in good)

    def make(self, *arguments: str) -> tuple[int, list[str]]:
        """Run make. Returns its exit code, and what was asked of Pythons."""
        calls = self.folder / "calls"
        calls.unlink(missing_ok=True)
        env = {"PATH": f"{self.programs}:/usr/bin:/bin", "HOME": str(self.folder)}
        done = subprocess.run(
            ["make", *arguments], cwd=self.folder, env=env, capture_output=True, text=True, check=False
        )
        self.said = done.stderr
        return done.returncode, calls.read_text().splitlines() if calls.exists() else []


def write_python(path: Path, *, works: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(PYTHON.replace("CODE", "0" if works else "1"))
    path.chmod(0o755)


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


@pytest.mark.parametrize("found", NAMES)
def test_any_python_that_is_new_enough_is_found(clone: Clone, found: str) -> None:
    clone.install(found)

    first, again = clone.make("env"), clone.make("env")

    assert first == (0, [f"{found} -m venv --clear .venv", UPGRADE, RUNTIME, ALL])
    assert again == (0, [])


def test_the_demo_installs_no_tools_of_developers(clone: Clone) -> None:
    clone.install("python3.11")

    code, calls = clone.make("demo")

    assert (code, ALL in calls, calls[-2:]) == (0, False, [RUNTIME, "python -m paceline demo"])


def test_an_environment_that_is_too_old_or_does_not_run_is_made_again(clone: Clone) -> None:
    clone.install("python3.12")
    clone.make("env")
    write_python(clone.folder / ".venv/bin/python", works=False)

    assert clone.make("env") == (0, ["python3.12 -m venv --clear .venv", UPGRADE, RUNTIME, ALL])


def test_an_environment_that_works_is_kept_when_the_dependencies_change(clone: Clone) -> None:
    clone.install("python3.11")
    clone.make("env")
    changed = (clone.folder / ".venv/.made").stat().st_mtime + 10
    clone.install()
    os.utime(clone.folder / "pyproject.toml", (changed, changed))

    assert clone.make("env") == (0, [UPGRADE, RUNTIME, ALL])


@pytest.mark.parametrize("arguments", [(), ("PYTHON=python3.13",), ("PYTHON=/nowhere/python",)])
def test_without_a_python_that_is_new_enough_it_says_what_is_needed(clone: Clone, arguments: tuple[str, ...]) -> None:
    code, calls = clone.make("demo", *arguments)

    assert (code, calls, (clone.folder / ".venv").exists()) == (2, [], False)
    what = arguments[0].removeprefix("PYTHON=") + " is not that" if arguments else "None was found"
    assert clone.said.splitlines()[:2] == [
        "Paceline needs Python 3.11 or newer with venv (on Debian: apt install python3-venv).",
        f"{what}; name one: make PYTHON=python3.12 demo",
    ]

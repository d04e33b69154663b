"""The docs run: every Python block of the README and of docs/library.md, and the examples."""

import re
import runpy
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from typer.testing import CliRunner

import paceline
from paceline.cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "docs" / "library.md")
BLOCK = re.compile(r"^```python\n(.*?)^```", re.S | re.M)
README_LINES = 15


def blocks_of(page: Path) -> list[tuple[str, str]]:
    return [(f"{page.name}-{number}", code) for number, code in enumerate(BLOCK.findall(page.read_text("utf-8")), 1)]


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


@pytest.mark.parametrize(("name", "code"), BLOCKS, ids=[name for name, _ in BLOCKS])
def test_a_block_runs_as_it_stands(name: str, code: str, tmp_path: Path) -> None:
    script = tmp_path / f"{name}.py"
    script.write_text(code, "utf-8")

    runpy.run_path(str(script), run_name="__main__")


def test_the_library_is_shown_in_a_few_lines() -> None:
    (_, code), *_ = blocks_of(ROOT / "README.md")

    assert len([line for line in code.splitlines() if line.strip()]) <= README_LINES


def test_the_readme_shows_what_detect_really_prints(runner: CliRunner) -> None:
    shown = re.search(
        r"""    \$ echo "(.*?)" \| paceline detect -\n(.*?)\n\n""", (ROOT / "README.md").read_text("utf-8"), re.S
    )
    assert shown is not None

    said = runner.invoke(
        app, ["detect", "-", "--tz", "UTC", "--seen-at", "2026-11-15T12:00:00Z"], input=shown[1]
    ).stdout

    assert said.splitlines() == textwrap.dedent(shown[2]).splitlines()


def test_every_public_name_is_explained() -> None:
    shown = (ROOT / "docs" / "library.md").read_text("utf-8")

    assert [name for name in paceline.__all__ if name not in shown] == []


@pytest.mark.parametrize("example", sorted(ROOT.glob("examples/*.py")), ids=lambda path: path.stem)
def test_an_example_runs(example: Path) -> None:
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout

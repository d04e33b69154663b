"""The generated pages of docs/reference/ are those of the code."""

import subprocess
import sys
from pathlib import Path

import pytest
from scripts.make_reference import FOLDER, PAGES


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages as a process of their own makes them. Here, types of other tests would have the names of answers."""
    folder = tmp_path_factory.mktemp("reference")
    script = FOLDER.parents[1] / "scripts" / "make_reference.py"
    subprocess.run([sys.executable, str(script), str(folder)], check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_current(made: Path, name: str) -> None:
    stored, new = ((folder / name).read_text("utf-8") for folder in (FOLDER, made))

    assert stored == new, f"docs/reference/{name} is stale: run python scripts/make_reference.py"


def test_every_route_and_command_has_its_entry(made: Path) -> None:
    assert "\n### PUT /v1/pool\n" in (made / "http-api.md").read_text("utf-8")
    assert "\n### paceline hosts add\n" in (made / "cli.md").read_text("utf-8")

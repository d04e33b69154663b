"""A home of its own for each golden test."""

from pathlib import Path

import pytest
from tests.golden.command import Home, Script
from tests.golden.plans import SETTINGS


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    made.write("paceline.toml", SETTINGS)
    return made


@pytest.fixture
def script(home: Home) -> Script:
    return Script(home)

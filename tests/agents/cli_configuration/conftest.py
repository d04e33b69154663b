"""The fixture of all inspections."""

from pathlib import Path

import pytest
from tests.agents.cli_configuration.fake_machine import FakeMachine


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)

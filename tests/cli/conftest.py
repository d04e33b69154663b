"""What the tests of the command line share: a runner that sees the same width and zone on every machine."""

import pytest
from typer.testing import CliRunner


@pytest.fixture
def runner() -> CliRunner:
    return CliRunner(env={"TZ": "UTC", "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"})

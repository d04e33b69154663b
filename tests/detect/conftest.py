"""A test run over the sample messages ends with a report of how far the rules carry beyond them."""

import pytest
from tests.detect.held_out import report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    ran = (entry for entries in terminalreporter.stats.values() for entry in entries)
    if any("test_observation_reader.py" in getattr(entry, "nodeid", "") for entry in ran):
        terminalreporter.section("held out")
        for line in report():
            terminalreporter.write_line(line)

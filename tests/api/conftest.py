"""Fixtures of the API tests: a daemon in the loop of the test."""

from tests.daemon import daemon as daemon
from tests.daemon import run_daemon as run_daemon

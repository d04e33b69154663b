"""The daemon of the API's tests, with a limit of one in `acme`, and clients of it."""

from collections.abc import AsyncIterator

import pytest
from tests.daemon import Daemon, RunDaemon
from tests.daemon import run_daemon as run_daemon

from paceline import Client

SETTINGS = '[limits]\n"acme" = 1\n[providers.acme]\ncooldown = "0s"\n'


@pytest.fixture
async def daemon(run_daemon: RunDaemon) -> AsyncIterator[Daemon]:
    async with run_daemon(SETTINGS) as made:
        yield made


@pytest.fixture
async def client(daemon: Daemon) -> AsyncIterator[Client]:
    async with Client(daemon.url, daemon.tokens.full) as made:
        yield made

"""Fixtures of the view tests: a daemon in the loop of the test, and commands of the CLI in its home."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.daemon import Daemon, RunDaemon
from tests.daemon import daemon as daemon
from tests.daemon import run_daemon as run_daemon
from typer.testing import CliRunner

from paceline.cli.main import app

Ask = Callable[..., Any]


class TwoFaces:
    """One daemon, read over HTTP and with the CLI."""

    def __init__(self, daemon: Daemon, environ: dict[str, str]) -> None:
        self.daemon = daemon
        self._environ = environ

    async def http(self, path: str) -> Any:
        """Return the JSON of the API."""
        return await self.daemon.get(path)

    async def cli(self, *argv: str) -> Any:
        """Return the JSON of a command, which reads the same home in a thread of its own."""
        runner = CliRunner(env=self._environ)
        result = await asyncio.to_thread(runner.invoke, app, [*argv, "--json"])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)


@pytest.fixture
def settings() -> str:
    """The paceline.toml of the daemon; a test module may have its own."""
    return ""


@pytest.fixture
async def faces(run_daemon: RunDaemon, settings: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TwoFaces]:
    async with run_daemon(settings) as made:
        folder = made.context.folder
        monkeypatch.chdir(folder)
        yield TwoFaces(made, {"PACELINE_HOME": str(made.home.path), "HOME": str(folder), "TZ": "UTC"})

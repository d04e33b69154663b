"""The whole daemon in this process: a real home, a real engine with `command` agents, a real server on a free port.

    async def test_something(daemon: Daemon) -> None:
        daemon.add("docs", "echo {id}", "a", "b")             # a campaign of shell commands
        await daemon.until(lambda: daemon.counts("docs").done == 2)
        status = await daemon.get("/v1/status")               # JSON of a 200; `code=` for another status
        answer = await daemon.client.get("/v1/units")         # an httpx client that has the token

    async def test_a_restart(run_daemon: RunDaemon) -> None:  # the same, as often and with what settings it takes
        async with run_daemon("[pool]\\nsessions = 2\\n") as daemon: ...
        async with run_daemon() as daemon: ...                # the same home again

`daemon.engine`, `daemon.store`, `daemon.context` and `daemon.url` are there to be looked at. `until` looks whenever the
engine has stored something, and every 20 ms.
"""

import asyncio
import contextlib
import json
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import httpx
import pytest

from paceline.api.app import create_app
from paceline.api.context import ApiContext
from paceline.api.server import serve
from paceline.api.tokens import AccessTokens, join_fleet
from paceline.core.unit_lifecycle import AttemptOutcome, Policy, transition_after
from paceline.daemon.engines import leading_engine
from paceline.daemon.home import Home, open_home
from paceline.engine import command_log as control
from paceline.engine.engine import Engine
from paceline.store import Campaign, OutcomeRecord, Store, Unit, UnitCounts, UnitSpec

PATIENCE_SECONDS = 60.0
POLL_SECONDS = 0.02
CERTIFICATES = ssl.create_default_context()  # nobody asks for them here, and each client would read them again


class Daemon:
    """What `paceline up` is, in the loop of the test."""

    def __init__(self, home: Home, context: ApiContext, tokens: AccessTokens, url: str) -> None:
        self.home = home
        self.context = context
        self.tokens = tokens
        self.url = url
        self.client = self.new_client(tokens.full)

    @property
    def engine(self) -> Engine:
        assert isinstance(self.context.engine, Engine)
        return self.context.engine

    @property
    def store(self) -> Store:
        return self.context.store

    def new_client(self, token: str | None = None, **options: Any) -> httpx.AsyncClient:
        """An HTTP client, with a token or without."""
        headers = {"authorization": f"Bearer {token}"} if token is not None else {}
        return httpx.AsyncClient(
            base_url=self.url,
            headers=headers,
            trust_env=False,
            timeout=PATIENCE_SECONDS,
            verify=CERTIFICATES,
            **options,
        )

    # -- what is asked ---------------------------------------------------------------------------

    async def get(self, path: str, *, code: int = 200) -> Any:
        return await self.ask("GET", path, code=code)

    async def ask(self, method: str, path: str, body: object = None, *, code: int = 200) -> Any:
        """The JSON of an answer that has this status."""
        content = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"} if content is not None else {}
        answer = await self.client.request(method, path, content=content, headers=headers)
        assert answer.status_code == code, answer.text
        return answer.json()

    # -- what is there ---------------------------------------------------------------------------

    def add(self, name: str, command: str, *units: str, **settings: Any) -> None:
        """A campaign of shell commands, as from the CLI; `{id}` and `{prompt}` are filled in."""
        campaign = Campaign(name=name, command=("sh", "-c", command), **settings)
        folder = str(self.home.path.parent)
        specs = [UnitSpec(id=unit, prompt=f"do {unit}", cwd=folder) for unit in units]
        self.store.add_campaign(campaign, specs, update=False, now=time.time())
        control.send(self.store, "campaigns", now=time.time())
        self.engine.apply_commands()

    def park(self, campaign: str, until: float) -> None:
        """Park one unit of a campaign without accounts, as the engine does when a quota window is spent."""
        now = time.time()
        (unit,) = self.store.claim_units(campaign, "", 1, attempt_ids=["parked-1"], lease_until=now + 60, now=now)
        outcome = AttemptOutcome(ending="parked", reason="the quota window is spent", resume_at=until)
        transition = transition_after(unit.counters, outcome, Policy(), now)
        self.store.record_outcomes([OutcomeRecord(unit_id=unit.id, fence=unit.fence, transition=transition)], now=now)

    def counts(self, campaign: str) -> UnitCounts:
        return self.store.counts()[campaign]

    def unit(self, unit_id: str) -> Unit:
        unit = self.store.unit(unit_id)
        assert unit is not None
        return unit

    async def until(self, is_so: Callable[[], object]) -> None:
        """Wait for it; a test whose condition never comes true fails."""
        changed = asyncio.Event()
        unlisten = self.engine.listen(changed.set)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not is_so():
                    changed.clear()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(changed.wait(), 0.02)
        finally:
            unlisten()


class RunDaemon(Protocol):
    def __call__(
        self, toml: str = "", environ: Mapping[str, str] | None = None, *, port: int = 0
    ) -> contextlib.AbstractAsyncContextManager[Daemon]: ...


@contextlib.asynccontextmanager
async def daemon_in(
    folder: Path, toml: str = "", environ: Mapping[str, str] | None = None, *, port: int = 0
) -> AsyncIterator[Daemon]:
    """The daemon in a folder whose home is `home`; settings and variables as given."""
    (folder / "paceline.toml").write_text(toml)
    variables = {
        "HOME": str(folder),
        "PATH": os.environ["PATH"],
        "PACELINE_HOME": str(folder / "home"),
        **(environ or {}),
    }
    with open_home(variables, folder) as home, leading_engine(home) as engine:
        tokens = join_fleet(home.store, home.path)
        engine.start()
        leader = home.engine_leader()
        assert leader is not None
        context = ApiContext(
            engine,
            settings=home.settings,
            spool=home.spool(),
            zone=home.zone,
            environ=variables,
            folder=folder,
            since=leader.since,
        )
        app = create_app(context, tokens=tokens, host="127.0.0.1")
        running = asyncio.create_task(engine.run())
        try:
            async with serve(app, port=port) as served:
                daemon = Daemon(home, context, tokens, served.url)
                async with daemon.client:
                    try:
                        yield daemon
                    finally:
                        context.close()
        finally:
            engine.stop()
            await running
            await _end_sessions(home)  # last: a running engine would start the next ones in their place


@pytest.fixture
def run_daemon(tmp_path: Path) -> RunDaemon:
    """Start the daemon in the test's folder."""

    def run(
        toml: str = "", environ: Mapping[str, str] | None = None, *, port: int = 0
    ) -> contextlib.AbstractAsyncContextManager[Daemon]:
        return daemon_in(tmp_path, toml, environ, port=port)

    return run


async def _end_sessions(home: Home) -> None:
    """Nothing outlives its test, not even a session that was just started: its supervisor is asked once it is there."""
    executor = home.executor()
    executor.sweep(())
    async with asyncio.timeout(PATIENCE_SECONDS):
        while executor.spool.unarchived():
            await executor.wait_ended(POLL_SECONDS)
    executor.close()


@pytest.fixture
async def daemon(run_daemon: RunDaemon) -> AsyncIterator[Daemon]:
    async with run_daemon() as made:
        yield made

"""What happens in the demo: a fake provider on loopback, two campaigns in a home of their own, one engine.

All of it is the real thing in small: HTTP, a SQLite store, supervised processes, output that is read as it comes.
Only time is short: a five-hour window lasts seconds.
"""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import cycle
from pathlib import Path

import msgspec

from paceline.agents import AgentProfile
from paceline.cli.demo.dashboard import dashboard
from paceline.cli.demo.progress import Batch, Ledger, Piece
from paceline.cli.inputs import local_zone
from paceline.cli.wiring import engine_settings
from paceline.clock import SystemClock
from paceline.core import GovernorSettings, ScopeStatus
from paceline.core.values.scopes import SESSIONS
from paceline.engine.engine import Engine
from paceline.engine.governor_state import load_governor
from paceline.executors.process import ProcessExecutor
from paceline.settings import AccountSettings, ConfiguredLimit, EngineTable, Settings, governor_settings
from paceline.simulation.provider import FakeProvider, Scenario, Step, Window
from paceline.store import Campaign, SqliteStore, Store, Unit, UnitSpec

PROVIDER, ACCOUNT, AGENT = "anthropic", "max-1", "demo"
SCOPE = f"{PROVIDER}/{ACCOUNT}"
CAMPAIGNS = {"review": 1, "docs": 0}
"""Their priorities: one level up is twice the share."""
MODULES = (
    "auth", "billing", "cart", "catalog", "email", "export", "invoice", "login", "orders", "pricing", "search", "users",
)  # fmt: skip
EXTENTS = ("", " and its tests", " for a reader in a hurry", " in one sentence", " and of all that calls it")
"""Tasks, and so answers, differ in length: sessions that all end in one moment would be a special case."""
TOO_LONG_SECONDS = 120.0
"""A demo that has not ended by then never will."""
HEARTBEAT_SECONDS = 0.2
GRACE_SECONDS = 2.0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of the story. Times are seconds."""

    units: int = len(MODULES)
    """Per campaign."""
    steps: int = 5
    """Requests that a unit makes, one after the other, in one conversation."""
    sessions: int = 8
    latency: float = 0.2
    words_per_second: float = 24.0
    busy_after: int = 30
    """After so many requests a conversation in progress meets a 429."""
    busy_seconds: float = 2.0
    window_requests: int = 62
    window_seconds: float = 20.0


class Stage:
    """One performance. `ledger` and `provider` are there to be looked at while it runs, and the page at `url`."""

    def __init__(
        self,
        plan: Plan,
        provider: FakeProvider,
        ledger: Ledger,
        store: Store,
        engine: Engine,
        settings: GovernorSettings,
        url: str,
    ) -> None:
        self.plan = plan
        self.url = url
        self.provider = provider
        self.ledger = ledger
        self._store = store
        self._engine = engine
        self._settings = settings
        self._heard = 0

    async def run(self) -> None:
        """Until every unit is done."""
        async with asyncio.timeout(TOO_LONG_SECONDS):
            await self._engine.run(until_idle=True)

    def look(self) -> ScopeStatus:
        """Catch up with the engine by what it stored, as any other process could."""
        news = self._store.events(after=self._heard)
        if news:
            self._heard = news[-1].id
        # Of one moment the reason is told before what follows from it.
        for event in sorted((stored.event for stored in news), key=lambda event: (event.at, event.unit is not None)):
            self.ledger.hear(event)
        now = time.time()
        status = load_governor(self._store, self._settings, now).status(SCOPE, now=now)
        assert status is not None
        return status

    def units(self) -> tuple[Unit, ...]:
        """What the store says of them."""
        return self._store.units(limit=self.plan.units * len(CAMPAIGNS)).units


@asynccontextmanager
async def staged(plan: Plan) -> AsyncIterator[Stage]:
    """The provider, the home and the engine, ready to start; afterwards all is gone, processes and files."""
    async with FakeProvider(scenario_of(plan)) as provider:
        with tempfile.TemporaryDirectory(prefix="paceline-demo-") as folder:
            home = Path(folder)
            settings = _settings(plan, provider, home)
            store, executor = SqliteStore(home / "paceline.db"), ProcessExecutor(str(home / "spool"))
            try:
                ledger = Ledger(_add_campaigns(store, plan, home), time.time())
                engine = _engine(settings, store, executor)
                async with dashboard(engine, settings, executor.spool) as url:
                    yield Stage(plan, provider, ledger, store, engine, governor_settings(settings), url)
            finally:
                await _end_sessions(store, executor)
                executor.close()
                store.close()


def scenario_of(plan: Plan) -> Scenario:
    # `late`: headers tell the reset in whole seconds, so a window that opened on the dot would refuse the canary.
    window = Window(name="5h", seconds=plan.window_seconds, requests=plan.window_requests, late=-1.0)
    return Scenario(
        latency=plan.latency,
        tokens_per_second=plan.words_per_second,
        windows=(window,),
        script=(
            Step(error="ok", times=plan.busy_after),
            Step(error="429_retry_after", answers=1, retry_after=plan.busy_seconds),
        ),
    )


def _add_campaigns(store: Store, plan: Plan, home: Path) -> list[Batch]:
    """The higher one first."""
    (home / "work").mkdir()
    batches = []
    for name, priority in CAMPAIGNS.items():
        specs = [
            UnitSpec(id=module, prompt=f"{name} of {module}.py{extent}", cwd=str(home / "work"))
            for module, extent in zip(MODULES[: plan.units], cycle(EXTENTS), strict=False)
        ]
        campaign = Campaign(name=name, priority=priority, agent=AGENT, accounts=(ACCOUNT,))
        store.add_campaign(campaign, specs, update=False, now=time.time())
        batches.append(Batch(name, priority, {spec.id: Piece(f"{name}/{spec.id}") for spec in specs}))
    return batches


def _settings(plan: Plan, provider: FakeProvider, home: Path) -> Settings:
    """What a paceline.toml would say."""
    conversations = home / "conversations"
    conversations.mkdir()
    env = {
        "ANTHROPIC_BASE_URL": provider.url,
        "CLAUDE_CODE_OAUTH_TOKEN": "demo",
        "CLAUDE_CONFIG_DIR": str(conversations),
        "DEMO_STEPS": str(plan.steps),
    }
    limits = [ConfiguredLimit(scope, plan.sessions, "demo") for scope in (SESSIONS, SCOPE)]
    return Settings(
        home=home,
        limits={limit.scope: limit for limit in limits},
        accounts={ACCOUNT: AccountSettings(name=ACCOUNT, provider=PROVIDER, kind="subscription", env=env)},
        engine=EngineTable(heartbeat=HEARTBEAT_SECONDS),
        store_url=f"sqlite:///{home / 'paceline.db'}",
        agents={AGENT: _profile()},
    )


def _engine(settings: Settings, store: Store, executor: ProcessExecutor) -> Engine:
    return Engine(
        engine_settings(settings, local_zone()),
        store=store,
        executor=executor,
        clock=SystemClock(),
        agents=settings.agent,
        environ={"PATH": os.defpath},
        owner="demo",
    )


def _profile() -> AgentProfile:
    """How the built-in agent is started and resumed. It speaks Claude Code's language."""
    program = (sys.executable, "-I", "-S", str(Path(__file__).with_name("agent.py")))
    return AgentProfile(
        name=AGENT,
        provider="claude-code",
        stream="json",
        start=(*program, "{prompt}"),
        resume=(*program, "{prompt}", "--resume", "{session_id}"),
    )


async def _end_sessions(store: Store, executor: ProcessExecutor) -> None:
    """Sessions outlive their engine by design; those of a demo that was broken off must not."""
    attempts = [unit.attempt_id for unit in store.running_units() if unit.attempt_id is not None]
    live = [handle for attempt in attempts if (handle := executor.adopt(attempt)) is not None]
    for handle in live:
        executor.stop(handle, grace=GRACE_SECONDS / 2)
    give_up_at = time.monotonic() + GRACE_SECONDS
    while any(not handle.state().is_over for handle in live) and time.monotonic() < give_up_at:
        await executor.wait_ended(GRACE_SECONDS / 10)
    for handle in live:
        if not handle.state().is_over:
            executor.kill(handle)

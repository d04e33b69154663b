"""The scenario of the demo: a fake provider on loopback, two campaigns in a temporary home, one engine.

Everything is real, but small: HTTP, a SQLite store, supervised processes, output that is read as it is printed. Only
time is short: a five-hour window lasts seconds.
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
from paceline.cli.demo.progress import CampaignProgress, DemoProgress, UnitProgress
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
"""Their priorities: one level more is twice the share."""
MODULES = (
    "auth", "billing", "cart", "catalog", "email", "export", "invoice", "login", "orders", "pricing", "search", "users",
)  # fmt: skip
EXTENTS = ("", " and its tests", " for a reader in a hurry", " in one sentence", " and of all that calls it")
"""Suffixes of the prompts. Answers differ in length with them, so that sessions do not all end at the same moment."""
TOO_LONG_SECONDS = 120.0
"""Several times the length of a demo: one that runs longer hangs."""
HEARTBEAT_SECONDS = 0.2
"""Much shorter than in a real home, like all times of the demo."""
GRACE_SECONDS = 2.0
"""How long interrupted sessions may take to end before they are killed."""


class DemoPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of the demo. Times are seconds."""

    units: int = len(MODULES)
    """Per campaign."""
    steps: int = 5
    """Requests of a unit, one after the other, in one conversation."""
    sessions: int = 8
    latency: float = 0.2
    words_per_second: float = 24.0
    busy_after: int = 30
    """After this many requests a conversation meets a 429."""
    busy_seconds: float = 2.0
    window_requests: int = 62
    window_seconds: float = 20.0


class Demo:
    """One run of the demo. `progress` and `provider` can be read while it runs; `url` opens the dashboard."""

    def __init__(
        self,
        plan: DemoPlan,
        provider: FakeProvider,
        progress: DemoProgress,
        store: Store,
        engine: Engine,
        settings: GovernorSettings,
        url: str,
    ) -> None:
        self.plan = plan
        self.url = url
        self.provider = provider
        self.progress = progress
        self._store = store
        self._engine = engine
        self._settings = settings
        self._last_event = 0

    async def run(self) -> None:
        """Run until every unit is done. Raises TimeoutError if that takes too long."""
        async with asyncio.timeout(TOO_LONG_SECONDS):
            await self._engine.run(until_idle=True)

    def refresh(self) -> ScopeStatus:
        """Read the events that the engine has stored since the last call, and return the state of the account."""
        news = self._store.events(after=self._last_event)
        if news:
            self._last_event = news[-1].id
        # At the same moment, events of the account come before those of units: they are the reason.
        for event in sorted((stored.event for stored in news), key=lambda event: (event.at, event.unit is not None)):
            self.progress.record(event)
        now = time.time()
        status = load_governor(self._store, self._settings, now).status(SCOPE, now=now)
        assert status is not None
        return status

    def units(self) -> tuple[Unit, ...]:
        """Return all units, as stored."""
        return self._store.units(limit=self.plan.units * len(CAMPAIGNS)).units


@asynccontextmanager
async def open_demo(plan: DemoPlan) -> AsyncIterator[Demo]:
    """Set up the provider, the home and the engine. On exit all processes and files are removed."""
    async with FakeProvider(scenario_of(plan)) as provider:
        with tempfile.TemporaryDirectory(prefix="paceline-demo-") as folder:
            home = Path(folder)
            settings = _settings(plan, provider, home)
            store, executor = SqliteStore(home / "paceline.db"), ProcessExecutor(str(home / "spool"))
            try:
                progress = DemoProgress(_add_campaigns(store, plan, home), time.time())
                engine = _engine(settings, store, executor)
                async with dashboard(engine, settings, executor.spool) as url:
                    yield Demo(plan, provider, progress, store, engine, governor_settings(settings), url)
            finally:
                await _end_sessions(store, executor)
                executor.close()
                store.close()


def scenario_of(plan: DemoPlan) -> Scenario:
    # `late`: headers have the reset in whole seconds, so a window that opens exactly then would refuse the canary.
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


def _add_campaigns(store: Store, plan: DemoPlan, home: Path) -> list[CampaignProgress]:
    """Store the campaigns, the one with the higher priority first."""
    (home / "work").mkdir()
    campaigns = []
    for name, priority in CAMPAIGNS.items():
        specs = [
            UnitSpec(id=module, prompt=f"{name} of {module}.py{extent}", cwd=str(home / "work"))
            for module, extent in zip(MODULES[: plan.units], cycle(EXTENTS), strict=False)
        ]
        campaign = Campaign(name=name, priority=priority, agent=AGENT, accounts=(ACCOUNT,))
        store.add_campaign(campaign, specs, update=False, now=time.time())
        campaigns.append(
            CampaignProgress(name, priority, {spec.id: UnitProgress(f"{name}/{spec.id}") for spec in specs})
        )
    return campaigns


def _settings(plan: DemoPlan, provider: FakeProvider, home: Path) -> Settings:
    """Return the settings that a paceline.toml would have."""
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
        engine_settings(settings, local_zone(), settings.home),
        store=store,
        executor=executor,
        clock=SystemClock(),
        agents=settings.agent,
        environ={"PATH": os.defpath},
        owner="demo",
    )


def _profile() -> AgentProfile:
    """Return how the agent of the demo is started and resumed. It prints what Claude Code prints."""
    program = (sys.executable, "-I", "-S", str(Path(__file__).with_name("agent.py")))
    return AgentProfile(
        name=AGENT,
        provider="claude-code",
        stream="json",
        start=(*program, "{prompt}"),
        resume=(*program, "{prompt}", "--resume", "{session_id}"),
    )


async def _end_sessions(store: Store, executor: ProcessExecutor) -> None:
    """End the sessions of an interrupted demo. Sessions outlive their engine by design; these must not."""
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

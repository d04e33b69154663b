"""The engine harness: an engine in virtual time over a store, scripted sessions and accounts, with crashes."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Self, TypeVar

from paceline.agents import Account, load_agent
from paceline.core import GovernorSettings, ScopeStatus
from paceline.core.unit_lifecycle import Policy
from paceline.engine import command_log as control
from paceline.engine.engine import Engine
from paceline.engine.settings import EngineSettings
from paceline.errors import StoreFull
from paceline.events import Event
from paceline.executors.interface import Launch
from paceline.hosts.jobs import BackgroundJobs
from paceline.limiter.governor_driver import UsageSource
from paceline.simulation.clock import VirtualClock
from paceline.simulation.executor import Run, ScriptedExecutor
from paceline.store import Campaign, SqliteStore, Store, Unit, UnitSpec

Value = TypeVar("Value")


class InlineJob(Future[Value]):
    """Work that is done when its result is asked for."""

    def __init__(self, work: Callable[..., Value], arguments: tuple[object, ...]) -> None:
        super().__init__()
        self._work = work
        self._arguments = arguments

    def done(self) -> bool:
        return True

    def result(self, timeout: float | None = None) -> Value:
        return self._work(*self._arguments)


class InlineJobs(BackgroundJobs):
    """Starts no threads."""

    def start(self, work: Callable[..., Value], *arguments: object) -> Future[Value]:
        return InlineJob(work, arguments)


# -- the engine ---------------------------------------------------------------------------------------

NOW = 1_794_705_600.0  # 2026-11-15 01:20 UTC
HOUR = 3600.0
MAX_1 = Account(name="max-1", provider="anthropic", kind="subscription")
MAX_2 = Account(name="max-2", provider="anthropic", kind="subscription")

Script = Callable[[Launch], Run]


def succeed(_: Launch) -> Run:
    """Return a session that takes a minute and succeeds."""
    return Run(seconds=60.0)


class EngineHarness:
    """A store, an executor and a clock that outlive the engines on top of them."""

    def __init__(
        self,
        script: Script = succeed,
        *,
        pool: int | None = 4,
        limits: Mapping[str, int] | None = None,
        accounts: Iterable[Account] = (MAX_1, MAX_2),
        reserves: Mapping[str, float] | None = None,
        heartbeat: float = 30.0,
        lease: float = 60.0,
        policy: Policy | None = None,
        store: Store | None = None,
        usage: Mapping[str, UsageSource] | None = None,
    ) -> None:
        self.usage = dict(usage or {})
        self.clock = VirtualClock(NOW)
        self.store: Store = SqliteStore.in_memory() if store is None else store
        self.executor = ScriptedExecutor(script, self.clock)
        self.settings = EngineSettings(
            governor=GovernorSettings(
                limits={"sessions": pool, **(limits or {})},
                reserves=dict(reserves or {}),
                usage_scopes=tuple(self.usage),
            ),
            accounts={account.name: account for account in accounts},
            heartbeat=heartbeat,
            lease=lease,
            policy=policy or Policy(),
        )
        self.engine_parts: dict[str, Any] = {}
        """Parts of engines that a test replaces, by the parameters of `Engine`."""
        self.disk_full_until = 0.0
        """Until then engines can store nothing."""
        self.starts = 0
        self.engine = self.new_engine()
        self._running: asyncio.Task[None] | None = None

    # -- what a person does -------------------------------------------------------------------------

    def add(self, name: str, units: int | Iterable[UnitSpec], **settings: object) -> None:
        specs = [UnitSpec(id=f"u{n}", prompt=f"do {n}") for n in range(units)] if isinstance(units, int) else units
        campaign = Campaign(name=name, **({"command": ("work", "{id}")} | settings))  # type: ignore[arg-type]
        self.store.add_campaign(campaign, specs, update=False, now=self.clock.now())
        self.send("campaigns", action="add", target=name)

    def add_claude(self, name: str, units: int | Iterable[UnitSpec], **settings: object) -> None:
        """Add a campaign of Claude Code, on max-1 unless `settings` say otherwise."""
        defaults: dict[str, object] = {"agent": "claude", "model": "opus-4-6", "accounts": ("max-1",), "command": ()}
        self.add(name, units, **(defaults | settings))

    def change(self, name: str, **settings: object) -> None:
        (campaign,) = [each for each in self.store.campaigns() if each.name == name]
        fields = {field: getattr(campaign, field) for field in campaign.__struct_fields__}
        self.store.set_campaign(Campaign(**(fields | settings)))
        self.send("campaigns")

    def send(self, command: str, scope: str | None = None, **fields: object) -> None:
        control.send(self.store, command, now=self.clock.now(), scope=scope, **fields)

    # -- time and engines ---------------------------------------------------------------------------

    def new_engine(self, owner: str | None = None) -> Engine:
        self.starts += 1
        self._link = _StoreLink(self.store, lambda: self.clock.now() < self.disk_full_until)
        parts: dict[str, Any] = {"make_jobs": InlineJobs, "elapsed": self.clock.now, **self.engine_parts}
        return Engine(
            self.settings,
            store=self._link,  # type: ignore[arg-type]
            executor=self.executor,
            clock=self.clock,
            agents=load_agent,
            environ={"HOME": "/home/ada", "ANTHROPIC_API_KEY": "sk-secret"},
            owner=owner or f"engine{self.starts}",
            usage=self.usage,
            **parts,
        )

    async def run(self, seconds: float) -> None:
        """Move time forward with a running engine; start one if none runs."""
        if self._running is None:
            self._running = asyncio.create_task(self.engine.run())
        await self.clock.advance(seconds)
        if self._running.done():
            await self._running

    async def stop(self) -> None:
        """Stop the engine as Ctrl-C does; sessions continue."""
        assert self._running is not None
        self.engine.stop()
        await self._running
        self._running = None
        self.engine = self.new_engine()

    async def crash(self) -> None:
        """Kill the engine as `kill -9` does: it stores nothing more. Then start a new one in the same home."""
        assert self._running is not None
        self._link.cut()
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        self.start_over()

    def start_over(self) -> None:
        """Create the next engine. It need not wait for the lease of the last one, which is known to be gone."""
        self._running = None
        self.store.resign(f"engine{self.starts}")
        self.engine = self.new_engine()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._running is not None and not self._running.done():
            await self.stop()

    # -- what tests read ----------------------------------------------------------------------------

    def unit(self, unit_id: str) -> Unit:
        unit = self.store.unit(unit_id)
        assert unit is not None
        return unit

    def states(self) -> dict[str, str]:
        return {unit.id: unit.state for unit in self.store.units(limit=10_000).units}

    def failures(self) -> int:
        """Return the number of charged failures."""
        return sum(unit.counters.failures for unit in self.store.units(limit=10_000).units)

    def running(self) -> list[str]:
        return [unit.id for unit in self.store.running_units()]

    def launched(self) -> list[str]:
        """Return the units in the order of their start."""
        return [launch.env["PACELINE_UNIT"] for launch in self.executor.started]

    def events(self, *names: str) -> list[Event]:
        found: list[Event] = []
        after = 0
        while page := self.store.events(after=after):
            found += [stored.event for stored in page]
            after = page[-1].id
        return [event for event in found if event.name in names]

    def scope(self, scope: str) -> ScopeStatus:
        status = self.engine.limiter.scope_status(scope)
        assert status is not None
        return status


_POSSIBLE_ON_A_FULL_DISK = frozenset(
    {
        *("campaigns", "counts", "unit", "units", "running_units", "next_resume_at", "claimable", "events", "slots"),
        *("load_state", "leader", "subscribe", "check", "close"),
        "together",  # the first write in it fails
        *("lead", "renew_units", "resign"),  # a page that is written again and again finds room in SQLite's log
    }
)


class _StoreLink:
    """The way from one engine to the store. Once it is cut, the engine is like a killed process: it stores nothing.

    While the disk is full, it reads but stores nothing either: every write raises.
    """

    def __init__(self, store: Store, is_disk_full: Callable[[], bool]) -> None:
        self._store = store
        self._is_cut = False
        self._is_disk_full = is_disk_full

    def cut(self) -> None:
        self._is_cut = True

    def __getattr__(self, name: str) -> object:
        if self._is_cut:
            raise asyncio.CancelledError(name)
        if name not in _POSSIBLE_ON_A_FULL_DISK and self._is_disk_full():
            raise StoreFull(f"{name}: the disk is full")
        return getattr(self._store, name)

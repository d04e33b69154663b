"""A home, a fake provider and an engine for one real agent CLI, on a clock that only the test moves."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from tests.agents.agent_cli import AGENTS, InstalledAgent, base_environ

from paceline.agents import Account, load_agent
from paceline.core import GovernorSettings, ScopeStatus
from paceline.engine.capacity.governor_state import load_governor
from paceline.engine.engine import Engine
from paceline.engine.settings import EngineSettings
from paceline.events import Event
from paceline.executors.process import ProcessExecutor
from paceline.store import Campaign, SqliteStore, Unit, UnitSpec
from paceline.testing import VirtualClock

PATIENCE_SECONDS = 900.0
"""Far more than the slowest CLI needs on a busy machine: what is tested is what it does, not how fast."""
LOOK_SECONDS = 0.1
PROMPT = "Say how many files there are here."


class AgentEngine:
    """One campaign, `work`, of one unit, `a`. The CLI finds an empty home and what `environ` says, nothing else."""

    def __init__(
        self,
        folder: Path,
        clock: VirtualClock,
        *,
        agent: str,
        account: Account,
        environ: dict[str, str] | None = None,
        plan: Callable[[Path], dict[str, object]] = lambda _: {},
    ) -> None:
        """`plan` gets the folder of the work and returns more settings of the campaign."""
        self.folder = folder
        self.clock = clock
        self.account = account
        self.store = SqliteStore(folder / "paceline.db")
        self._executor = ProcessExecutor(str(folder / "spool"))
        self._events: list[Event] = []
        self._settings = GovernorSettings(limits={"sessions": 2})
        self._engine = Engine(
            EngineSettings(governor=self._settings, accounts={account.name: account}, home=str(folder / "paceline")),
            store=self.store,
            executor=self._executor,
            clock=clock,
            agents=load_agent,
            environ=base_environ(folder, AGENTS[agent]) | (environ or {}),
            owner="test",
        )
        work = folder / "work"
        work.mkdir()
        campaign = msgspec.structs.replace(self._campaign(AGENTS[agent]), **plan(work))
        unit = UnitSpec(id="a", prompt=PROMPT, cwd=str(work))
        self.store.add_campaign(campaign, [unit], update=False, now=clock.now())

    def _campaign(self, agent: InstalledAgent) -> Campaign:
        return Campaign(
            name="work",
            agent=agent.profile,
            accounts=(self.account.name,),
            max_attempts=1,
            model=agent.model,
            args=agent.args,
        )

    async def __aenter__(self) -> Self:
        self._engine.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for unit in self.store.running_units():
            handle = self._executor.adopt(unit.attempt_id or "")
            if handle is not None:
                self._executor.kill(handle)
        self._engine.close()
        self._events = [stored.event for stored in self.store.events()]
        self._executor.close()
        self.store.close()

    async def run_until(self, condition: Callable[[Unit], bool]) -> Unit:
        """Pass after pass, until the unit is as it should be."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not condition(self.unit):
                    list(self._engine.make_pass())
                    await self._executor.wait_ended(LOOK_SECONDS)
        except TimeoutError:
            raise AssertionError(f"the unit is {self.unit}\n{self._output()}") from None
        return self.unit

    async def make_passes(self, count: int) -> None:
        for _ in range(count):
            list(self._engine.make_pass())
            await self._executor.wait_ended(LOOK_SECONDS)

    @property
    def unit(self) -> Unit:
        unit = self.store.unit("work/a")
        assert unit is not None
        return unit

    def events(self, name: str) -> list[Event]:
        """The events of this name, also when all is over."""
        return [event for event in self._events if event.name == name]

    def _output(self) -> str:
        """All that the CLI printed, for a test that failed."""
        spool = self.folder / "spool"
        return "\n".join(path.read_text(errors="replace") for path in sorted(spool.rglob("std*")))

    def scope(self) -> ScopeStatus:
        now = self.clock.now()
        name = f"{self.account.provider}/{self.account.name}"
        status = load_governor(self.store, self._settings, now).status(name, now=now)
        assert status is not None
        return status

"""One future of a plan: the engine that production runs, over a memory store, with sessions that take as long as known.

Never here: what Paceline does with a limit; that is the engine's own code.
"""

import asyncio
import math
import random
from collections.abc import Callable, Mapping

import msgspec

from paceline.agents import load_agent
from paceline.agents.launch import Account
from paceline.core import Snapshot
from paceline.core.scopes import SESSIONS
from paceline.engine import control
from paceline.engine.engine import Engine
from paceline.engine.engine_settings import EngineSettings
from paceline.engine.remembered import GOVERNOR_STATE
from paceline.executors import Launch
from paceline.store import Campaign, MemoryStore, UnitSpec
from paceline.testing.clock import VirtualClock
from paceline.testing.executor import Run, ScriptedExecutor
from paceline.testing.world import claude_says

HEARTBEAT_SECONDS = 30.0
LONGEST_DAYS = 60
NOTICE_SECONDS = 5.0
EPSILON_SECONDS = 0.01


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign and how long each of its units will take."""

    campaign: Campaign
    seconds: tuple[float, ...]


class WindowSize(msgspec.Struct, frozen=True, kw_only=True):
    """What a quota window of an account holds."""

    name: str
    session_seconds: float
    length: float


class Future(msgspec.Struct, frozen=True, kw_only=True):
    """How it would go. `finished_at` is None where it does not end within two months."""

    finished_at: float | None
    parks: int
    closings: tuple[tuple[str, float, float | None], ...]
    """Scope, when it closes, and the reset."""
    busy: float
    """The share of the pool that was used, to the end."""


class _Account:
    """A simulated account: counts the seconds of sessions in its window, and ends them when it is spent."""

    def __init__(self, size: WindowSize, clock: VirtualClock, on_spent: Callable[[str, float], None]) -> None:
        self._size = size
        self._clock = clock
        self._on_spent = on_spent
        self._ends: dict[str, float] = {}
        self._opened_at = -math.inf
        self._counted_at = 0.0
        self._used = 0.0

    def start(self, attempt: str, seconds: float) -> tuple[float, float]:
        """A session begins: how much of the window is used, and when it resets."""
        self._count()
        if self._clock.now() >= self._resets_at:
            self._opened_at, self._used = self._clock.now(), 0.0
        if self._left > 0:
            self._ends[attempt] = self._clock.now() + seconds
            self._clock.call_at(self._clock.now() + self._left / len(self._ends), self._look)
        return self._used / self._size.session_seconds, self._resets_at

    @property
    def _left(self) -> float:
        return self._size.session_seconds - self._used

    @property
    def _resets_at(self) -> float:
        return self._opened_at + self._size.length

    def _look(self) -> None:
        """Whether it is spent; a session that ended since has left more for the others."""
        self._count()
        if self._left > EPSILON_SECONDS and self._ends:
            self._clock.call_at(self._clock.now() + self._left / len(self._ends), self._look)
        elif self._left <= EPSILON_SECONDS:
            self._used = self._size.session_seconds
            spent, self._ends = list(self._ends), {}
            for attempt in spent:
                self._on_spent(attempt, self._resets_at)

    def _count(self) -> None:
        now = self._clock.now()
        self._used += sum(max(0.0, min(now, end) - self._counted_at) for end in self._ends.values())
        self._ends = {attempt: end for attempt, end in self._ends.items() if end > now}
        self._counted_at = now


class Simulation:
    """One play of it."""

    def __init__(
        self,
        works: list[Work],
        *,
        settings: EngineSettings,
        snapshot: Snapshot,
        windows: Mapping[str, WindowSize],
        pool: int | None,
        now: float,
        seed: int,
    ) -> None:
        self._clock = VirtualClock(now)
        self._store = MemoryStore()
        self._store.save_state(GOVERNOR_STATE, msgspec.json.encode(snapshot))
        self._dice = random.Random(seed)
        self._left: dict[str, float] = {}
        for work in works:
            self._add(work)
        control.send(self._store, "limit", now=now, scope=SESSIONS, limit=pool)
        self._accounts = {name: _Account(size, self._clock, self._spent) for name, size in windows.items()}
        self._begun: dict[str, tuple[str, str, float]] = {}
        self._busy_seconds = sum(self._left.values())
        self._executor = ScriptedExecutor(self._script, self._clock, remember=False)
        self._engine = Engine(
            msgspec.structs.replace(settings, heartbeat=HEARTBEAT_SECONDS),
            store=self._store,
            executor=self._executor,
            clock=self._clock,
            agents=lambda name: load_agent("claude"),  # whoever runs, its limits are told in words that are understood
            environ=dict.fromkeys(_key_names(settings.accounts), "x"),
            owner="forecast",
        )

    async def run(self, campaign: str) -> Future:
        """Until the campaign is done."""
        began = self._clock.now()
        engine = asyncio.create_task(self._engine.run())
        for _ in range(LONGEST_DAYS * 24):
            await self._clock.advance(3600.0)
            if self._is_over(campaign):
                break
        self._engine.stop()
        await engine
        return self._told(campaign, began)

    def _add(self, work: Work) -> None:
        durations = list(work.seconds)
        self._dice.shuffle(durations)
        specs = [UnitSpec(id=f"{n:06d}", prompt="x") for n in range(len(durations))]
        self._store.add_campaign(work.campaign, specs, update=False, now=self._clock.now())
        self._left |= {f"{work.campaign.name}/{spec.id}": each for spec, each in zip(specs, durations, strict=True)}

    def _script(self, launch: Launch) -> Run:
        unit = self._store.unit(launch.env["PACELINE_UNIT"])
        assert unit is not None
        session, seconds = unit.session_id or unit.id, self._left[unit.id]
        self._begun[launch.attempt] = unit.id, session, self._clock.now()
        says = claude_says.init(session)
        if (account := self._accounts.get(unit.account or "")) is not None:
            used, resets_at = account.start(launch.attempt, seconds)
            if used >= 1.0:
                return Run(stdout=says + claude_says.rejected(resets_at, session), exit_code=1, seconds=1.0)
            says += claude_says.warned(used, resets_at, session)
        says += claude_says.answer(session)
        return Run(stdout=says, later=((seconds, claude_says.done(session)),), seconds=seconds)

    def _spent(self, attempt: str, resets_at: float) -> None:
        """The window is spent under it: what it has done is kept."""
        unit, session, began = self._begun[attempt]
        self._left[unit] = max(1.0, self._left[unit] - (self._clock.now() - began))
        self._executor.cut(attempt, claude_says.rejected(resets_at, session), after=NOTICE_SECONDS)

    def _is_over(self, campaign: str) -> bool:
        counts = self._store.counts()[campaign]
        return counts.todo + counts.running == 0

    def _told(self, campaign: str, began: float) -> Future:
        ends, closings, parks = [began], [], 0
        after = 0
        while page := self._store.events(after=after):
            after = page[-1].id
            for event in (stored.event for stored in page):
                if event.name == "unit.done" and (event.unit or "").startswith(f"{campaign}/"):
                    ends.append(event.at)
                elif event.name == "unit.parked":
                    parks += 1
                elif event.name == "window.closed":
                    resets_at = event.fields.get("resets_at")
                    closings.append((event.scope or "", event.at, resets_at if isinstance(resets_at, float) else None))
        end = max(ends)
        pool = self._engine.limiter.get_limit(SESSIONS)
        room = (pool or 1) * max(1.0, end - began)
        is_over = self._is_over(campaign)
        return Future(
            finished_at=end if is_over else None,
            parks=parks,
            closings=tuple(closings),
            busy=min(1.0, self._busy_seconds / room),
        )


def _key_names(accounts: Mapping[str, Account]) -> list[str]:
    return [account.key_env for account in accounts.values() if account.key_env is not None]

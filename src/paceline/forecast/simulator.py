"""One simulated run of a plan: the real engine over a memory store, with sessions of known durations.

Never here: how Paceline reacts to a limit; that is the engine's own code.
"""

import asyncio
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from paceline.agents import load_agent
from paceline.core import Snapshot
from paceline.core.values.scopes import SESSIONS
from paceline.engine import command_log as control
from paceline.engine.capacity.governor_state import GOVERNOR_STATE
from paceline.engine.engine import Engine
from paceline.engine.settings import EngineSettings
from paceline.executors.interface import DEFAULT_GRACE_SECONDS, Handle, Launch
from paceline.simulation import agent_transcripts as transcripts
from paceline.simulation.clock import VirtualClock, VirtualTimer
from paceline.simulation.executor import Run, ScriptedExecutor
from paceline.store import Campaign, SqliteStore, UnitSpec

HEARTBEAT_SECONDS = 1800.0
"""Every event wakes the engine at its own time, so passes in between would only cost time."""
LEASE_SECONDS = 3 * HEARTBEAT_SECONDS
LONGEST_DAYS = 31
"""A forecast beyond a month says nothing useful."""
NOTICE_SECONDS = 5.0
"""How long an agent takes to end after it has met a spent window."""
EPSILON_SECONDS = 0.01
"""Less than this is left of a window by rounding only."""
REPORTED_SHARE = 0.05
"""Sessions report their window after each further twentieth of it."""
CLAUDE_WINDOWS = {"weekly": "seven_day"}


Closing = tuple[str, float, float | None]
"""Scope, time of closing, and reset."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign, the duration of each of its units' sessions, and the time of each unit's setup and checks."""

    campaign: Campaign
    seconds: tuple[float, ...]
    beside_seconds: float = 0.0


class WindowSize(msgspec.Struct, frozen=True, kw_only=True):
    """What a quota window of an account holds, and what is used of its open period."""

    name: str
    session_seconds: float
    length: float
    used_seconds: float = 0.0
    resets_at: float | None = None


class ForecastOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one run. `finished_at` is None if it does not finish within a month."""

    finished_at: float | None
    parks: int
    busy: float
    """The share of the pool that is in use, until the end."""


class _Window:
    """One window, and how much of its open period is used."""

    def __init__(self, size: WindowSize) -> None:
        self.size = size
        self.used = size.used_seconds
        self.resets_at = -math.inf if size.resets_at is None else size.resets_at

    @property
    def left(self) -> float:
        return self.size.session_seconds - self.used

    @property
    def is_spent(self) -> bool:
        return self.left <= EPSILON_SECONDS

    @property
    def claude_name(self) -> str:
        return CLAUDE_WINDOWS.get(self.size.name, "five_hour")

    def open_next(self, now: float) -> None:
        """Open the next period if the reset has passed: the first use after it does that."""
        if now >= self.resets_at:
            self.resets_at, self.used = now + self.size.length, 0.0


class _Account:
    """A simulated account: it counts seconds of sessions in its windows, reports their use, and ends sessions."""

    def __init__(self, sizes: Sequence[WindowSize], clock: VirtualClock, sessions: "_Sessions") -> None:
        self._windows = [_Window(size) for size in sizes]
        self._clock = clock
        self._sessions = sessions
        self._ends: dict[str, float] = {}
        self._names: dict[str, str] = {}
        self._counted_at = clock.now()
        self._timer: VirtualTimer | None = None

    def start(self, attempt: str, seconds: float, session: str) -> tuple[str, bool]:
        """Start a session. Returns what the account prints about its windows, and whether the session may continue."""
        self._count()
        for window in self._windows:
            window.open_next(self._clock.now())
        if (refusal := self._refusal(session)) is not None:
            return refusal, False
        self._ends[attempt] = self._clock.now() + seconds
        self._check_later()
        self._names[attempt] = session
        return self._reports(session), True

    def end(self, attempt: str) -> None:
        """Forget a session that was ended early."""
        self._count()
        self._ends.pop(attempt, None)

    def _refusal(self, session: str) -> str | None:
        """Return the refusal of the spent window with the latest reset."""
        last = max((each for each in self._windows if each.is_spent), key=lambda each: each.resets_at, default=None)
        return None if last is None else transcripts.rejected(last.resets_at, session, last.claude_name)

    def _reports(self, session: str) -> str:
        return "".join(
            transcripts.warned(each.used / each.size.session_seconds, each.resets_at, session, each.claude_name)
            for each in self._windows
        )

    def _check_later(self) -> None:
        """Schedule a check for when the running sessions will have used the next share of a window, or all of it."""
        if self._timer is not None:
            self._timer.cancel()
        soonest = min(min(each.left, each.size.session_seconds * REPORTED_SHARE) for each in self._windows)
        self._timer = self._clock.call_at(self._clock.now() + soonest / len(self._ends), self._check)

    def _check(self) -> None:
        self._count()
        for attempt in list(self._ends):
            if (refusal := self._refusal(self._names[attempt])) is not None:
                self._sessions.refuse(attempt, refusal)
        if self._ends:
            reporter = next(iter(self._ends))
            self._sessions.report(reporter, self._reports(self._names[reporter]))
            self._check_later()

    def _count(self) -> None:
        """Add the use since the last call. A reset that has come meanwhile opens the next period."""
        now = self._clock.now()
        for window in self._windows:
            since = self._counted_at
            if self._ends and since < window.resets_at <= now:
                since = window.resets_at
                window.open_next(since)
            window.used += sum(max(0.0, min(now, end) - since) for end in self._ends.values())
        self._ends = {attempt: end for attempt, end in self._ends.items() if end > now}
        self._counted_at = now


class _Sessions(ScriptedExecutor):
    """The sessions of all units. A unit that was ended early continues where it was."""

    def __init__(self, script: Callable[[Launch], Run], clock: VirtualClock, on_news: Callable[[], object]) -> None:
        super().__init__(script, clock, remember=False)
        self._now = clock.now
        self._on_news = on_news
        self._begun: dict[str, tuple[str, float, _Account | None]] = {}
        self.left: dict[str, float] = {}
        """The seconds that are left of each unit, also of those that are running."""

    def begin(self, attempt: str, unit: str, account: "_Account | None") -> None:
        self._begun[attempt] = unit, self._now(), account

    def report(self, attempt: str, text: str) -> None:
        self.print_output(attempt, text)
        self._on_news()

    def refuse(self, attempt: str, text: str) -> None:
        """End a session whose window is spent."""
        self._keep(attempt)
        self.cut(attempt, text, after=NOTICE_SECONDS)

    def stop(self, handle: Handle, grace: float = DEFAULT_GRACE_SECONDS) -> None:
        """End a session for the engine: for a reserve, or because another session was refused."""
        self._keep(handle.attempt_id)
        super().stop(handle, grace)

    def _keep(self, attempt: str) -> None:
        """Keep what a unit has done, once."""
        unit, began, account = self._begun.pop(attempt, ("", 0.0, None))
        if unit:
            self.left[unit] = max(1.0, self.left[unit] - (self._now() - began))
        if account is not None:
            account.end(attempt)


class Simulation:
    """One run of the given work."""

    def __init__(
        self,
        works: list[Work],
        *,
        settings: EngineSettings,
        snapshot: Snapshot,
        windows: Mapping[str, Sequence[WindowSize]],
        pool: int | None,
        now: float,
        seed: int,
    ) -> None:
        self._clock = VirtualClock(now)
        self._store = SqliteStore.in_memory()
        self._store.save_state(GOVERNOR_STATE, msgspec.json.encode(snapshot))
        self._random = random.Random(seed)
        self._beside = {work.campaign.name: work.beside_seconds for work in works}
        self._sessions = _Sessions(self._script, self._clock, lambda: self._engine.wake())
        for work in works:
            self._add(work)
        control.send(self._store, "limit", now=now, scope=SESSIONS, limit=pool)
        self._accounts = {name: _Account(sizes, self._clock, self._sessions) for name, sizes in windows.items()}
        self._busy_seconds = sum(self._sessions.left.values())
        self._engine = Engine(
            msgspec.structs.replace(settings, heartbeat=HEARTBEAT_SECONDS, lease=LEASE_SECONDS),
            store=self._store,
            executor=self._sessions,
            clock=self._clock,
            agents=lambda name: load_agent("claude"),  # every simulated session prints as Claude Code does
            environ={each.key_env: "x" for each in settings.accounts.values() if each.key_env is not None},
            owner="forecast",
        )

    async def run(self, campaign: str) -> tuple[ForecastOutcome, tuple[Closing, ...]]:
        """Run until the campaign is done, or for a month. Returns the result, and when windows closed."""
        began = self._clock.now()
        engine = asyncio.create_task(self._engine.run())
        for _ in range(LONGEST_DAYS * 24):
            await self._clock.advance(3600.0)
            if self._is_over(campaign):
                break
        self._engine.stop()
        await engine
        return self._result(campaign, began)

    def _add(self, work: Work) -> None:
        durations = list(work.seconds)
        self._random.shuffle(durations)
        specs = [UnitSpec(id=f"{n:06d}", prompt="x") for n in range(len(durations))]
        campaign = msgspec.structs.replace(
            work.campaign,
            timeout=None,  # known durations were within the timeout
            workspace=None,  # no git runs here; its setup is part of the simulated check
            check=("check",) if work.beside_seconds else (),
            check_timeout=work.beside_seconds + 1.0,
        )
        self._store.add_campaign(campaign, specs, update=False, now=self._clock.now())
        for spec, seconds in zip(specs, durations, strict=True):
            self._sessions.left[f"{campaign.name}/{spec.id}"] = seconds

    def _script(self, launch: Launch) -> Run:
        unit = self._store.unit(launch.env["PACELINE_UNIT"])
        assert unit is not None
        if launch.attempt_id != unit.attempt_id:  # its check
            return Run(seconds=self._beside[unit.campaign])
        session, seconds = unit.conversation_id or unit.id, self._sessions.left[unit.id]
        printed = transcripts.init(session)
        account = self._accounts.get(unit.account or "")
        if account is not None:
            reports, may_go_on = account.start(launch.attempt_id, seconds, session)
            printed += reports
            if not may_go_on:
                return Run(stdout=printed, exit_code=1, seconds=1.0)
        self._sessions.begin(launch.attempt_id, unit.id, account)
        printed += transcripts.answer(session)
        return Run(stdout=printed, later=((seconds, transcripts.done(session)),), seconds=seconds)

    def _is_over(self, campaign: str) -> bool:
        counts = self._store.counts()[campaign]
        return counts.todo + counts.running == 0

    def _result(self, campaign: str, began: float) -> tuple[ForecastOutcome, tuple[Closing, ...]]:
        ends, parks, after = [began], 0, 0
        closings: list[Closing] = []
        while page := self._store.events(after=after):
            after = page[-1].id
            for event in (stored.event for stored in page):
                if event.name == "unit.done":
                    self._sessions.left.pop(event.unit or "", None)
                    ends += [event.at] if (event.unit or "").startswith(f"{campaign}/") else []
                elif event.name == "unit.parked":
                    parks += 1
                elif event.name == "window.closed":
                    resets_at = event.fields.get("resets_at")
                    closings.append((event.scope or "", event.at, resets_at if isinstance(resets_at, float) else None))
        end = max(ends)
        pool = self._engine.limiter.get_limit(SESSIONS)
        is_over = self._is_over(campaign)
        room = (pool or 1) * max(1.0, (end if is_over else self._clock.now()) - began)
        busy = min(1.0, (self._busy_seconds - sum(self._sessions.left.values())) / room)
        outcome = ForecastOutcome(finished_at=end if is_over else None, parks=parks, busy=round(busy, 3))
        return outcome, _once_each(closings)


def _once_each(closings: Iterable[Closing]) -> tuple[Closing, ...]:
    """Return each closing once: every refused session repeats it, and every canary that came too early."""
    first: dict[tuple[str, float | None], Closing] = {}
    for scope, at, resets_at in closings:
        first.setdefault((scope, resets_at), (scope, at, resets_at))
    return tuple(first.values())

"""A whole engine in a simulated night: campaigns, unreliable accounts, crashes, and checkers outside of it.

The engine is the real one, over a memory store, with scripted sessions. Never here: a copy of anything that the engine
decides.
"""

import errno
import logging
import math
import random
from collections import Counter

import msgspec

from paceline.agents.account import Account
from paceline.core.values.scopes import path_scopes
from paceline.engine.dispatch.ticket_queues import split_queue_name
from paceline.errors import StoreFull
from paceline.executors import Launch
from paceline.simulation.executor import Run
from paceline.store import Campaign, Unit
from paceline.testing.engine_harness import NOW, EngineHarness
from paceline.testing.world.accounts import (
    HOUR,
    LONGEST_SESSION,
    AccountTroubles,
    SimulatedAccount,
    calm_account,
    draw_faults,
    draw_troubles,
)
from paceline.testing.world.scenario import WorldScenario

HEARTBEAT = 20.0
SHORTEST_SESSION = 240.0
MODELS = ("opus-4-6", "sonnet-4-5")
MOST_POOL = 6
SHORTEST_STEP = 2 * HEARTBEAT
"""The engine reads commands from the store at the next heartbeat."""
LONGEST_STEP = 900.0
DRAIN_HOURS = 40
LONGEST_WAIT = 8 * 24 * HOUR
NOISE = "npm warn deprecated: this module leaks memory. Do not use it.\n" * 6_000
"""What a talkative session prints beside its work: six pieces, which is more than one pass reads of a session."""
TIMED_REASONS = ("paused", "cooldown", "window_closed", "pacing", "reserve", "unreachable")


class FleetFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to the units in a world with an engine. `refused` sessions were refused at their start."""

    units: int
    done: int
    quarantined: int
    launches: int
    refused: int
    parks: int
    crashes: int
    unreached: int
    """Sessions that nobody answered, or whose program was away."""
    adopted: int
    unstored: int
    """Passes in which nothing could be stored, because the disk was full."""
    seconds: float


class Fleet:
    """An engine harness, random trouble, and the checks of the promises."""

    def __init__(self, rng: random.Random, scenario: WorldScenario) -> None:
        self._random = rng
        self.scenario = scenario
        names = [f"max-{n + 1}" for n in range(rng.randint(1, 3))]
        hours = scenario.steps * LONGEST_STEP / 2 / HOUR
        self._accounts = {name: SimulatedAccount(_draw_account(rng, scenario, hours)) for name in names}
        self._limits = {"sessions": rng.randint(2, MOST_POOL), "anthropic": rng.randint(2, 8)}
        for name in names:
            self._limits[f"anthropic/{name}"] = rng.randint(1, 4)
        self._was_limits = dict(self._limits)
        self.harness = EngineHarness(
            self._script,
            pool=self._limits["sessions"],
            limits={scope: limit for scope, limit in self._limits.items() if scope != "sessions"},
            accounts=[Account(name=name, provider="anthropic", kind="subscription") for name in names],
            reserves={f"anthropic/{name}": rng.choice((0.1, 0.5)) for name in names} if scenario.pacing else None,
            heartbeat=HEARTBEAT,
        )
        self._scopes_of: dict[str, tuple[str, ...]] = {}
        self._unit_of: dict[str, str] = {}
        self._failed: Counter[str] = Counter()
        self._crashes = 0
        self._unreached = 0
        self._adopted: dict[str, int] = {}
        """How many canaries had gone when the session was adopted."""
        self._away_until = 0.0
        self._is_calm = False
        self._errors = _Errors()
        self.step = 0

    # -- the night -------------------------------------------------------------------------------------

    async def live(self) -> None:
        """Run the night of trouble, then a calm day in which everything must finish."""
        logger = logging.getLogger("paceline")
        logger.addHandler(self._errors)
        try:
            async with self.harness:
                self._add_campaigns()
                await self.harness.run(HEARTBEAT)
                while self.step < self.scenario.steps:
                    self.step += 1
                    await self._disturb()
                    self._was_limits = dict(self._limits)
                    if self.harness.clock.now() >= self.harness.disk_full_until + HEARTBEAT:
                        self._check_waits()
                await self._drain()
                self._check_end()
        finally:
            logger.removeHandler(self._errors)

    def _add_campaigns(self) -> None:
        for n in range(self.scenario.groups + 1):
            priority = self._random.randrange(self.scenario.priorities)
            units = self._random.randint(5, 20)
            if self._random.random() < 0.3:
                self.harness.add(f"tasks-{n}", units, priority=priority, max_attempts=4, **self._draw_pace())
            else:
                accounts = tuple(
                    self._random.sample(sorted(self._accounts), self._random.randint(1, len(self._accounts)))
                )
                settings = {"accounts": accounts, "model": self._random.choice(MODELS), **self._draw_pace()}
                self.harness.add_claude(f"talks-{n}", units, priority=priority, **settings)

    def _draw_pace(self) -> dict[str, object]:
        if not self.scenario.pacing:
            return {}
        hours = self._random.choice((1.0, 5.0, 20.0))
        deadline = self._random.choice((None, NOW + hours * HOUR))
        return {"strategy": self._random.choice(("rush", "spread")), "deadline": deadline}

    async def _disturb(self) -> None:
        """Do one thing that people, machines or providers do, then move time forward."""
        rng, harness, scenario = self._random, self.harness, self.scenario
        match rng.randrange(10):
            case 0 | 1 if scenario.restarts:
                await self._end_engine(rng.choice(("stop", "crash", "reboot")))
            case 2 if scenario.restarts:
                for attempt in harness.executor.live()[:1]:
                    harness.executor.lose(attempt)
            case 3 if scenario.settings:
                scope = rng.choice(sorted(self._limits))
                self._limits[scope] = rng.randint(1, MOST_POOL)
                harness.send("limit", scope, limit=self._limits[scope])
            case 4 if scenario.settings:
                campaign = rng.choice(harness.store.campaigns())
                harness.change(campaign.name, state=rng.choice(("paused", "active")))
            case 5 if scenario.clock_steps:
                harness.clock.step(rng.choice((600.0, HOUR)))
                harness.engine.wake()
            case 6 if scenario.signals:
                self._away_until = harness.clock.now() + rng.uniform(60.0, 900.0)
            case 7 if scenario.signals:
                harness.disk_full_until = harness.clock.now() + rng.uniform(30.0, 900.0)
        await harness.run(rng.uniform(SHORTEST_STEP, LONGEST_STEP))

    async def _end_engine(self, how: str) -> None:
        self._crashes += 1
        self.harness.disk_full_until = 0.0  # whoever starts an engine again has made room
        if how == "stop":
            await self.harness.stop()
        else:
            await self.harness.crash()
        canaries = len(self.harness.events("window.canary"))
        self._adopted |= dict.fromkeys(self.harness.executor.unarchived(), canaries)
        if how == "reboot":
            self.harness.executor.reboot()
        if self._random.random() < 0.3:  # nobody reads what sessions print meanwhile
            await self.harness.clock.advance(self._random.uniform(0.1, 4.0) * HOUR)

    async def _drain(self) -> None:
        """Resume everything that was paused, with healthy providers."""
        self._is_calm = True
        self._away_until = self.harness.disk_full_until = 0.0
        for campaign in self.harness.store.campaigns():
            if campaign.state == "paused":
                self.harness.change(campaign.name, state="active")
        for _ in range(DRAIN_HOURS):
            await self.harness.run(HOUR)
            if self.harness.engine.is_idle():
                return

    # -- what sessions do ------------------------------------------------------------------------------

    def _script(self, launch: Launch) -> Run:
        """Return what the next session does. Every launch is checked first."""
        unit = self.harness.unit(launch.env["PACELINE_UNIT"])
        campaign = self._campaign(unit)
        scopes = self._scopes(unit, campaign)
        if self.harness.clock.now() < self.harness.disk_full_until:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._check_launch(unit, scopes)
        self._scopes_of[launch.attempt_id], self._unit_of[launch.attempt_id] = scopes, unit.id
        seconds = min(LONGEST_SESSION, SHORTEST_SESSION * self._random.paretovariate(1.2))
        if not self._is_calm and self._random.random() < 0.05:
            self._failed[unit.id] += 1
            return Run(stderr="it broke\n", exit_code=1, seconds=seconds)
        if campaign.agent == "command":
            return Run(seconds=seconds)
        if self.harness.clock.now() < self._away_until:
            self._unreached += 1
            return Run(not_started="claude: no such program")
        account = unit.account or ""
        session = unit.conversation_id or f"talk-{unit.counters.attempts}-{unit.spec.id}"
        live = sum(f"anthropic/{account}" in self._scopes_of[attempt] for attempt in self._live()) - 1
        run = self._accounts[account].run(session, seconds, live, self.harness.clock.now())
        return msgspec.structs.replace(run, stderr=NOISE) if self._random.random() < 0.03 else run

    def _live(self) -> list[str]:
        return [attempt for attempt in self.harness.executor.live() if attempt in self._scopes_of]

    def _campaign(self, unit: Unit) -> Campaign:
        return next(campaign for campaign in self.harness.store.campaigns() if campaign.name == unit.campaign)

    def _scopes(self, unit: Unit, campaign: Campaign) -> tuple[str, ...]:
        path = path_scopes(f"anthropic/{unit.account}/{campaign.model}") if campaign.agent != "command" else ()
        return ("sessions", *path)

    # -- the promises ----------------------------------------------------------------------------------

    def _check_launch(self, unit: Unit, scopes: tuple[str, ...]) -> None:
        """Check that a launch was stored first, is the only one of its unit, and is within every limit in force."""
        assert unit.id not in {self._unit_of[attempt] for attempt in self._live()}, f"two sessions of {unit.id} at once"
        assert unit.state == "running", f"{unit.id} was launched before it was stored"
        for scope in scopes:
            limit = max(self._limits.get(scope, 1 << 30), self._was_limits.get(scope, 0))
            live = sum(scope in self._scopes_of[attempt] for attempt in self._live())
            assert live < limit, f"{scope} has {live} sessions of {limit}, and {unit.id} was launched"

    def _check_waits(self) -> None:
        """Check that every waiting unit has a reason, and a time at which it is tried again."""
        now = self.harness.clock.now()
        why = self.harness.engine.wait_reasons()
        todo = self.harness.store.units(state="todo", limit=10_000).units
        ready = Counter(unit.campaign for unit in todo if unit.resume_at is None)
        for campaign in self.harness.store.campaigns():
            reasons = [reason for line, reason in why.items() if split_queue_name(line)[0] == campaign.name]
            if campaign.state == "active" and ready[campaign.name]:
                assert reasons, f"{ready[campaign.name]} units of {campaign.name} wait without a reason"
            for reason in reasons:
                assert reason.detail, f"{campaign.name} waits for {reason.reason} without a detail"
                since = now - HEARTBEAT if reason.reason == "pacing" else now  # each pass computes the pace
                has_time = reason.retry_at is not None and since <= reason.retry_at < now + LONGEST_WAIT
                assert has_time or reason.reason not in TIMED_REASONS, f"{campaign.name}: {reason} has no end"
        for unit in todo:
            if unit.resume_at is not None:
                overdue, far = now - unit.resume_at, unit.resume_at - now
                assert overdue <= HEARTBEAT, f"{unit.id} should have resumed {overdue:.0f} s ago"
                assert math.isfinite(far), f"{unit.id} is parked forever"
                assert far < LONGEST_WAIT, f"{unit.id} is parked for {far:.0f} s"

    def _check_end(self) -> None:
        """Check that no unit was lost or charged for a refusal, and that nothing is left over."""
        units = self.harness.store.units(limit=10_000).units
        stuck = {unit.id: (unit.state, unit.reason) for unit in units if unit.state not in ("done", "quarantined")}
        assert not stuck, f"after {DRAIN_HOURS} calm hours these have not come to an end: {stuck}"
        for unit in units:
            charged, failed = unit.counters.failures, self._failed[unit.id]
            assert charged <= failed, f"{unit.id} was charged {charged} attempts and failed {failed} times"
            assert unit.state == "done" or failed, f"{unit.id} is quarantined and never failed"
        twice = [unit for unit, count in Counter(e.unit for e in self.harness.events("unit.done")).items() if count > 1]
        assert not twice, f"done more than once: {twice}"
        assert not self.harness.executor.live(), "sessions run without a unit"
        assert not self.harness.executor.unarchived(), "results were never stored"
        assert self.harness.scope("sessions").in_flight == 0, "places are taken without a holder"
        canaries = [str(event.fields["ticket"]) for event in self.harness.events("window.canary")]
        for attempt, before in self._adopted.items():
            assert attempt not in canaries[before:], f"the adopted {attempt} became the canary of a closed window"
        assert not self._errors.messages, f"the engine logged an error: {self._errors.messages[0]}"

    def figures(self) -> FleetFigures:
        units = self.harness.store.units(limit=10_000).units
        states = Counter(unit.state for unit in units)
        return FleetFigures(
            units=len(units),
            done=states["done"],
            quarantined=states["quarantined"],
            launches=len(self.harness.executor.started),
            refused=sum(account.refused for account in self._accounts.values()),
            parks=sum(unit.counters.parks for unit in units),
            crashes=self._crashes,
            unreached=self._unreached + sum(account.unreached for account in self._accounts.values()),
            adopted=len(self._adopted),
            unstored=self._errors.unstored,
            seconds=self.harness.clock.now() - NOW,
        )


def _draw_account(rng: random.Random, scenario: WorldScenario, hours: float) -> AccountTroubles:
    if scenario.faults:
        return draw_faults(rng, NOW, hours)
    return draw_troubles(rng, NOW, hours) if scenario.signals else calm_account(NOW, 100)


class _Errors(logging.Handler):
    """A log handler that fails the world. In production the next pass repairs a failed one."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []
        self.unstored = 0

    def emit(self, record: logging.LogRecord) -> None:
        if any(isinstance(each, StoreFull) for each in (record.args or ())):
            self.unstored += 1  # an outage begins: what could not be stored is repeated when there is room
        if record.levelno < logging.ERROR:
            return
        self.messages.append(f"{record.getMessage()} {record.exc_info[1] if record.exc_info else ''}")

"""A whole engine in a simulated night: campaigns, unreliable accounts, crashes, and checkers outside of it.

The engine is the real one, over a memory store, with scripted sessions. The announcements of the simulated provider
cannot be trusted: resets that move, strangers, a wrong Retry-After. The troubles of an account are drawn when it is
created, so the same seed gives the same night. Never here: a copy of anything that the engine decides, or what the
Governor believes. All times are elapsed time; only announced resets are wall time.
"""

import errno
import logging
import math
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from paceline.agents.account import Account
from paceline.core.signals import AnySignal, QuotaClosed, RateLimited, Succeeded
from paceline.core.values.scopes import path_scopes
from paceline.engine.dispatch.ticket_queues import split_queue_name
from paceline.errors import StoreFull
from paceline.executors.interface import Launch
from paceline.simulation import agent_transcripts as transcripts
from paceline.simulation.executor import Run
from paceline.store import Campaign, Unit
from paceline.testing.engine_harness import NOW, EngineHarness
from paceline.testing.world_scenario import WorldScenario

WINDOW_SECONDS = 5 * 3600.0
WRONG_ADVICE = (None, 0.0, 0.01, 3600.0, 86400.0, 1e18, -5.0)
"""What a wrong Retry-After says: nothing, far too little, far too much, and what cannot be meant."""


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """A period of trouble. `announced` is the end that the provider announces, if it does."""

    begins: float
    ends: float
    announced: float | None = None
    moves_by: float | None = 0.0
    """By how much the announced end moves once it is reached and the trouble has not ended; None: it says no more."""
    places: int = 1
    """Places of the account that somebody else takes meanwhile."""

    def announced_at(self, now: float) -> float | None:
        if self.announced is None or now < self.announced:
            return self.announced
        return None if self.moves_by is None else self.announced + self.moves_by


class FaultyProvider:
    """One account. It has a cap that strangers share, and windows that close after some calls.

    `moved` counts refusals at or after an announced reset, `crowded` refusals because of strangers, and `misled`
    refusals with a wrong Retry-After.
    """

    def __init__(self, rng: random.Random, start: float) -> None:
        self._random = rng
        self._cap = rng.randint(1, 5)
        self._visits = _draw_visits(rng, start, self._cap)
        self._lies = rng.random() < 0.7
        self._calls_left = rng.randint(5, 40)
        self._window: Trouble | None = None
        self.moved = self.crowded = self.misled = 0

    def answer(self, ticket: str, live: int, elapsed: float, wall: float) -> AnySignal:
        """Return the signal of one call, made while `live` tickets hold a place on the account."""
        if self._window is not None and elapsed >= self._window.ends:
            self._window, self._calls_left = None, self._random.randint(5, 40)
        if self._window is None and self._calls_left <= 0:
            self._window = _draw_window(self._random, elapsed)
        if self._window is not None:
            return self._closed(self._window, ticket, elapsed, wall)
        strangers = strangers_at(self._visits, elapsed)
        if live + strangers > self._cap:
            self.crowded += live <= self._cap
            return RateLimited(retry_after=self._advice(), cause="concurrency", ticket=ticket)
        self._calls_left -= 1
        return Succeeded(ticket=ticket, tokens=self._random.randrange(5000))

    def _closed(self, window: Trouble, ticket: str, elapsed: float, wall: float) -> AnySignal:
        self.moved += window.announced is not None and elapsed >= window.announced
        announced = window.announced_at(elapsed)
        resets_at = None if announced is None else wall + announced - elapsed
        return QuotaClosed(resets_at=resets_at, window="5h", ticket=ticket, source="field")

    def _advice(self) -> float | None:
        if not self._lies:
            return 5.0
        self.misled += 1
        return self._random.choice(WRONG_ADVICE)


def strangers_at(visits: Iterable[Trouble], now: float) -> int:
    """Return how many places strangers take."""
    return sum(visit.places for visit in visits if visit.begins <= now < visit.ends)


def _draw_visits(rng: random.Random, start: float, cap: int) -> tuple[Trouble, ...]:
    """Draw visits of strangers. One of them may take all places."""
    visits, at = [], start
    for _ in range(rng.randint(0, 6)):
        at += rng.expovariate(1 / 200.0)
        visits.append(Trouble(begins=at, ends=at + rng.uniform(5.0, 600.0), places=rng.randint(1, cap)))
        at = visits[-1].ends
    return tuple(visits)


def _draw_window(rng: random.Random, now: float) -> Trouble:
    """Draw a closed window that reopens as announced, earlier, minutes late, or without an announcement.

    A late one announces one whole window later once its time is reached, or says nothing more.
    """
    announced = now + rng.choice((60.0, 900.0, 3600.0, WINDOW_SECONDS))
    match rng.randrange(5):
        case 0:
            ends, moves_by = announced, None
        case 1:
            ends, moves_by = now + (announced - now) * rng.random(), None
        case 2:
            ends, moves_by = announced + rng.uniform(30.0, 1800.0), WINDOW_SECONDS
        case 3:
            ends, moves_by = announced + rng.uniform(30.0, 1800.0), None
        case _:
            return Trouble(begins=now, ends=announced)
    return Trouble(begins=now, ends=ends, announced=announced, moves_by=moves_by)


HOUR = 3600.0
LONGEST_SESSION = 2 * HOUR
ODD_WAITS = (0.0, 0.05, 2.0, 600.0, 86400.0, 1e15, -3.0)
"""What a wrong Retry-After announces: far too little, far too much, and what cannot be meant."""
NOTICE_SECONDS = 30.0
"""How long a session continues after it has met its limit, before it ends by itself."""


class AccountTroubles(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the provider will do to an account, whatever is requested."""

    caps: tuple[tuple[float, int], ...]
    closed: tuple[Trouble, ...] = ()
    overloads: tuple[Trouble, ...] = ()
    foreign: tuple[Trouble, ...] = ()
    lag: float = 0.0
    penalty: float = 0.0
    burst: int | None = None
    outages: tuple[Trouble, ...] = ()
    retry_after: tuple[float, ...] = (2.0,)
    """What refusals announce, one after the other."""
    contradicts: bool = False
    """Whether a refusal for too many at once is reported as a spent window, which is reported open."""


def calm_account(start: float, cap: int) -> AccountTroubles:
    return AccountTroubles(caps=((start, cap),))


def draw_troubles(rng: random.Random, start: float, hours: float) -> AccountTroubles:
    """Draw a night of trouble, after which the account is healthy."""
    end = start + hours * HOUR
    cap = rng.randint(2, 6)
    drifts = sorted(rng.uniform(start, end) for _ in range(rng.randint(0, 4)))
    return AccountTroubles(
        caps=((start, cap), *((at, max(1, cap + rng.randint(-2, 2))) for at in drifts), (end, cap)),
        closed=_draw_closed(rng, start, end),
        overloads=_draw_troubles(rng, start, end, most=2, longest=900.0),
        foreign=_draw_troubles(rng, start, end, most=3, longest=2 * HOUR),
        lag=rng.choice((0.0, 0.0, 2.0, 10.0)),
        penalty=rng.choice((0.0, 5.0, 60.0)),
        burst=rng.choice((None, None, 2, 3)),
        outages=_draw_troubles(rng, start, end, most=2, longest=HOUR),
        contradicts=rng.random() < 0.3,
    )


def draw_faults(rng: random.Random, start: float, hours: float) -> AccountTroubles:
    """Draw a night of trouble with announcements that are wrong: moving resets, crowds of strangers, odd waits."""
    end = start + hours * HOUR
    troubles = draw_troubles(rng, start, hours)
    visits, at = list(troubles.foreign), start
    while (at := at + rng.uniform(600.0, 2 * HOUR)) < end:
        ends = min(end, at + rng.uniform(300.0, 2 * HOUR))
        visits.append(Trouble(begins=at, ends=ends, places=rng.randint(1, 6)))
    return msgspec.structs.replace(
        troubles,
        closed=_draw_moving(rng, start, end),
        foreign=tuple(visits),
        retry_after=tuple(rng.choice(ODD_WAITS) for _ in range(7)),
        contradicts=False,
    )


def _draw_moving(rng: random.Random, start: float, end: float) -> tuple[Trouble, ...]:
    """Draw closed windows that reopen early, or minutes late and then announce one whole window later."""
    troubles: list[Trouble] = []
    at = start
    while (at := at + rng.uniform(0.1, 1.0) * HOUR) < end:
        announced = at + rng.choice((600.0, HOUR, 3 * HOUR))
        ends = announced + rng.uniform(30.0, 1800.0) if rng.random() < 0.7 else at + rng.random() * (announced - at)
        troubles.append(Trouble(begins=at, ends=min(end, ends), announced=announced, moves_by=5 * HOUR))
        at = ends
    return tuple(troubles)


def _draw_troubles(rng: random.Random, start: float, end: float, *, most: int, longest: float) -> tuple[Trouble, ...]:
    begins = [rng.uniform(start, end) for _ in range(rng.randint(0, most))]
    return tuple(Trouble(begins=at, ends=min(end, at + rng.uniform(30.0, longest))) for at in begins)


def _draw_closed(rng: random.Random, start: float, end: float) -> tuple[Trouble, ...]:
    """Draw closed windows that reopen as announced, early, late, or unannounced."""
    troubles: list[Trouble] = []
    at = start
    while (at := at + rng.uniform(0.1, 2.0) * HOUR) < end:
        ends = min(end, at + rng.choice((600.0, HOUR, 3 * HOUR)))
        announced = rng.choice((ends, ends, ends - 300.0, ends + 900.0, at + 60.0, None))
        troubles.append(Trouble(begins=at, ends=ends, announced=announced))
        at = ends
    return tuple(troubles)


class SimulatedAccount:
    """An account that decides what each session meets. `refused` counts sessions that were refused at their start."""

    def __init__(self, troubles: AccountTroubles) -> None:
        self._troubles = troubles
        self._starts: list[float] = []
        self._ends: list[float] = []
        self._penalty_until = 0.0
        self.refused = 0
        self.unreached = 0

    def run(self, session: str, seconds: float, live: int, now: float) -> Run:
        """Return what a session does that would take `seconds`, while `live` others run on the account."""
        if _trouble_at(self._troubles.outages, now) is not None:
            self.unreached += 1
            return _ended_by_outage(session, after=0.0, printed=transcripts.init(session))
        window = _trouble_at(self._troubles.closed, now)
        if window is not None:
            self.refused += 1
            return _ended_by_window(session, window.announced_at(now), after=0.0, printed=transcripts.init(session))
        if (trouble := self._trouble(session, live, now)) is not None:
            self.refused += 1
            return trouble
        self._starts.append(now)
        begun = transcripts.init(session) + transcripts.answer(session)
        closing = next((trouble for trouble in self._troubles.closed if now < trouble.begins < now + seconds), None)
        outage = next((trouble for trouble in self._troubles.outages if now < trouble.begins < now + seconds), None)
        if outage is not None and (closing is None or outage.begins < closing.begins):
            self.unreached += 1
            return _ended_by_outage(session, after=outage.begins - now, printed=begun)
        if closing is not None:
            return _ended_by_window(session, closing.announced, after=closing.begins - now, printed=begun)
        self._ends.append(now + seconds)
        return Run(stdout=begun, later=((seconds, transcripts.done(session)),), seconds=seconds)

    def _trouble(self, session: str, live: int, now: float) -> Run | None:
        troubles = self._troubles
        if _trouble_at(troubles.overloads, now) is not None:
            printed = transcripts.init(session) + transcripts.retry(5.0, nth=10, status=529, session=session)
            return Run(stdout=printed, exit_code=1, seconds=1.0)
        lagging = sum(end <= now < end + troubles.lag for end in self._ends)
        foreign = strangers_at(troubles.foreign, now)
        recent = sum(now - 1.0 < start for start in self._starts)
        is_full = live + lagging + foreign >= troubles.caps[bisect_right(troubles.caps, (now, 1 << 30)) - 1][1]
        is_burst = troubles.burst is not None and recent >= troubles.burst
        if not (is_full or is_burst or now < self._penalty_until):
            return None
        self._penalty_until = max(self._penalty_until, now + troubles.penalty)
        if troubles.contradicts:
            refusal = transcripts.contradicting(now + 5 * HOUR, session)
        else:
            seconds = troubles.retry_after[self.refused % len(troubles.retry_after)]
            refusal = transcripts.retry(seconds, nth=10, session=session)
        return Run(stdout=transcripts.init(session) + refusal, exit_code=1, seconds=1.0)


def _trouble_at(troubles: Sequence[Trouble], now: float) -> Trouble | None:
    return next((trouble for trouble in troubles if trouble.begins <= now < trouble.ends), None)


def _ended_by_window(session: str, end: float | None, *, after: float, printed: str) -> Run:
    notice = transcripts.limit_without_a_time() if end is None else transcripts.rejected(end, session)
    return Run(stdout=printed, later=((after, notice),), exit_code=1, seconds=after + NOTICE_SECONDS)


def _ended_by_outage(session: str, *, after: float, printed: str) -> Run:
    """Return a session that nobody answers: the CLI tries for a while, and gives up."""
    seconds = after + NOTICE_SECONDS
    return Run(stdout=printed, later=((seconds, transcripts.offline(session)),), exit_code=1, seconds=seconds)


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

"""The World: seeded random trouble for a Governor, in simulated time, with every promise checked.

Also short calls, thousands a second, whose every answer states a budget: nobody may wait without a next check. The
shape of the statement is drawn: true, nearly full at each answer, used up, by a clock that is ahead or behind, in whole
seconds, without some of its parts.
"""

import asyncio
import heapq
import random
from collections import defaultdict
from heapq import heappop, heappush
from typing import Any, cast

import msgspec

from paceline.core import Governor, GovernorSettings, Granted, Snapshot, Ticket, signals
from paceline.core.values.scopes import path_scopes
from paceline.testing.checked_governor import CheckedGovernor
from paceline.testing.fleet import FaultyProvider, Fleet, FleetFigures
from paceline.testing.world_scenario import PATHS, WorldScenario, draw_scenario, draw_settings

SCOPE = "openai/main-key/gpt-5"
CALLERS = 32
CALL_SECONDS = 0.0005
LONGEST_STREAM_SECONDS = 0.02
"""The end of an answer comes up to so long after its head."""
LONGEST_WITHOUT_A_START = 1_000.0
"""After a quarter of an hour one run looks, whatever was stated."""


class BudgetShape(msgspec.Struct, frozen=True):
    """How one provider states its budgets. Without a list of what is `left`, it states what is true of its bucket."""

    names: tuple[str, ...]
    limit: int
    left: tuple[int, ...]
    reset_seconds: float
    is_whole: bool
    clock_ahead: float
    missing: str | None

    def reading(self, level: float, rng: random.Random, now: float) -> signals.Budget:
        """Return the headers of an answer, after which `level` is left in the bucket."""
        left = rng.choice(self.left) if self.left else int(level)
        seconds = self.reset_seconds if self.left else self.reset_seconds * (1.0 - level / self.limit)
        reset_at = now + self.clock_ahead + seconds
        parts: dict[str, Any] = {"limit": self.limit, "remaining": left, "reset_at": reset_at}
        if self.is_whole:
            parts["reset_at"] = float(round(reset_at))
        stated = {name: value for name, value in parts.items() if name != self.missing}
        return signals.Budget(**{f"{what}_{name}": value for what in self.names for name, value in stated.items()})


def draw_shape(rng: random.Random) -> BudgetShape:
    limit = rng.choice((4, 60, 10_000))
    return BudgetShape(
        names=rng.choice((("requests",), ("requests",), ("tokens",), ("requests", "tokens"))),
        limit=limit,
        left=rng.choice(((), (), (limit - 1,), (0,), (0, 1, limit // 2, limit))),
        reset_seconds=rng.choice((0.001, 0.006, 0.02, 1.0, 60.0)),
        is_whole=rng.random() < 0.2,
        clock_ahead=rng.choice((0.0, 0.0, 0.0, 5.0, -5.0)),
        missing=rng.choice((None, None, None, "limit", "remaining", "reset_at")),
    )


class FastCallers:
    """Callers that soon ask again when they were served. The head of an answer comes before its end."""

    def __init__(self, rng: random.Random, start: float) -> None:
        self._random = rng
        self._shape = draw_shape(rng)
        self._level, self._level_at = float(self._shape.limit), start
        limits: dict[str, int | None] = {SCOPE: rng.choice((8, None, None))}
        settings = GovernorSettings(limits=limits, first_ramp=0.0, slot_timeout=86_400.0)
        self.checked = CheckedGovernor(Governor(settings, now=start), settings, start)
        self._running: set[str] = set()
        self._next: list[tuple[float, str, str]] = []
        self._started_at = start
        self.asked = self.released = 0

    def run(self, calls: int) -> None:
        """Let the callers make so many calls, and wait for the last of them."""
        for _ in range(CALLERS):
            self._plan(1.0, "ask", "")
        while self.released < calls:
            self._move_on(calls)

    def _plan(self, seconds: float, what: str, ticket_id: str) -> None:
        heappush(self._next, (self.checked.wall + seconds * self._random.uniform(0.0, 1.2), what, ticket_id))

    def _move_on(self, calls: int) -> None:
        """Carry out what comes first: a wake-up, or something planned."""
        checked, wakeup = self.checked, self.checked.governor.next_wakeup()
        planned_at = self._next[0][0] if self._next else None
        if wakeup is None and planned_at is None:
            checked.fail(f"{len(checked.expected.waiting)} wait, nobody has a slot, and there is no next check")
        if planned_at is None or (wakeup is not None and wakeup < planned_at):
            checked.move_clock(max(wakeup or 0.0, checked.wall))
        else:
            _, what, ticket_id = heappop(self._next)
            checked.move_clock(max(planned_at, checked.wall))
            match what:
                case "ask" if self.asked < calls:
                    self.asked += 1
                    checked.request(Ticket(f"t{self.asked}", ("runs", "openai", "openai/main-key", SCOPE)))
                case "head":
                    self._read_head(ticket_id)
                case "end":
                    self._running.discard(ticket_id)
                    self.released += 1
                    checked.release(ticket_id)
                    self._plan(CALL_SECONDS, "ask", "")
        self._note_started()
        is_idle = not self._running and checked.expected.waiting
        if is_idle and checked.wall > self._started_at + LONGEST_WITHOUT_A_START:
            checked.fail(f"nobody has entered since {self._started_at}, although nobody has a slot")

    def _note_started(self) -> None:
        for ticket_id in sorted(self.checked.expected.held.keys() - self._running):
            self._running.add(ticket_id)
            self._started_at = self.checked.wall
            self._plan(CALL_SECONDS, "head", ticket_id)

    def _read_head(self, ticket_id: str) -> None:
        now, shape = self.checked.wall, self._shape
        refilled = (now - self._level_at) * shape.limit / shape.reset_seconds
        self._level, self._level_at = max(0.0, min(shape.limit, self._level + refilled) - 1.0), now
        reading = shape.reading(self._level, self._random, now)
        self.checked.report(SCOPE, msgspec.structs.replace(reading, ticket=ticket_id))
        self._plan(min(shape.reset_seconds, LONGEST_STREAM_SECONDS), "end", ticket_id)


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What happened in a world. `jain` is the fairness of the shares, if they were measured.

    In a world with an engine, `fleet` has the figures of its units, and the tickets are its sessions.
    """

    seed: int
    steps: int
    asked: int
    granted: int
    granted_from_queue: int
    released: int
    expired: int = 0
    reports: int = 0
    polls: int = 0
    restarts: int = 0
    seconds: float
    moved_resets: int = 0
    """Refusals at an announced reset or after it."""
    crowded_out: int = 0
    """Refusals because strangers took the places."""
    misled: int = 0
    """Refusals with a wrong Retry-After."""
    jain: float | None = None
    fleet: FleetFigures | None = None


# -- shares: with full queues, slot-seconds must follow `2 ** priority` ----------------------------------

QUEUE_LENGTH = 3
SLOT_SECONDS = (3.0, 10.0, 30.0)
FAIREST = 0.98


def run_saturated(rng: random.Random, scenario: WorldScenario, seed: int) -> Figures:
    """Run a world in which every group always has waiting tickets, each with its usual duration."""
    bench = _Bench(rng, scenario)
    figures = bench.run(seed, scenario.steps)
    assert figures.jain is not None
    assert figures.jain >= FAIREST, f"shares {dict(bench.used)} have a fairness of only {figures.jain:.4f}"
    return figures


class _Bench:
    def __init__(self, rng: random.Random, scenario: WorldScenario) -> None:
        self._random = rng
        self.now = 0.0
        places = rng.randint(1, 12)
        settings = GovernorSettings(limits={"runs": places}, slot_timeout=1e6)
        self.governor = Governor(settings, now=self.now)
        names = [f"campaign-{n}" for n in range(max(2, scenario.groups))]
        self._priority = {name: rng.randrange(scenario.priorities) for name in names}
        self._mean_seconds = {name: rng.choice(SLOT_SECONDS) for name in names}
        self._tickets: dict[str, str] = {}
        self._ending: list[tuple[float, str, float]] = []
        self.used: defaultdict[str, float] = defaultdict(float)
        self._asked = self._granted = self._released = 0

    def run(self, seed: int, steps: int) -> Figures:
        for name in self._priority:
            for _ in range(QUEUE_LENGTH):
                self._ask(name)
        for _ in range(steps):
            self._end_next()
        self._charge_those_still_running()
        return Figures(
            seed=seed,
            steps=steps,
            asked=self._asked,
            granted=self._granted,
            granted_from_queue=self._granted,
            released=self._released,
            seconds=self.now,
            jain=self._jain(),
        )

    def _ask(self, name: str) -> None:
        self._asked += 1
        ticket = Ticket(f"t{self._asked}", ("runs",), name, self._priority[name])
        self._tickets[ticket.id] = name
        verdict = self.governor.request(ticket, now=self.now)
        if isinstance(verdict, Granted):
            self._start(verdict)

    def _start(self, granted: Granted) -> None:
        self._granted += 1
        name = self._tickets[granted.ticket_id]
        seconds = self._random.uniform(0.5, 1.5) * self._mean_seconds[name]
        heapq.heappush(self._ending, (self.now + seconds, granted.ticket_id, self.now))
        self._ask(name)  # refill the queue at once, so that the group stays saturated

    def _end_next(self) -> None:
        self.now, ticket_id, started = heapq.heappop(self._ending)
        self.used[self._tickets[ticket_id]] += self.now - started
        self._released += 1
        self.governor.release(ticket_id, now=self.now)
        for effect in self.governor.advance(now=self.now):
            if isinstance(effect, Granted):
                self._start(effect)

    def _charge_those_still_running(self) -> None:
        for _, ticket_id, started in self._ending:
            self.used[self._tickets[ticket_id]] += self.now - started

    def _jain(self) -> float:
        shares = [self.used[name] / 2.0**priority for name, priority in self._priority.items()]
        return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))


# -- twins: two Governors that get the same calls, of which one is stored and restored meanwhile --------


def restarted(governor: Governor, now: float) -> Governor:
    """Return the Governor after storing and restoring it, through JSON as a store does."""
    snapshot = governor.snapshot()
    stored = msgspec.json.encode(snapshot)
    return Governor.restore(msgspec.json.decode(stored, type=type(snapshot)), now=now)


class TwinGovernors:
    """A pair with the verbs of a Governor. Each call goes to both, and their answers are compared."""

    def __init__(self, governor: Governor, now: float) -> None:
        self.never_stopped = governor
        self.restarted = restarted(governor, now)

    def restart(self, now: float) -> None:
        self.restarted = restarted(self.restarted, now)

    def snapshot(self) -> Snapshot:
        """Return the snapshot of one of them. Their answers must be alike, not their snapshots."""
        return self.never_stopped.snapshot()

    def next_wakeup(self) -> float | None:
        """Return the later one. A Governor may ask for a wake-up that is no longer needed, but never too late."""
        first, second = self.never_stopped.next_wakeup(), self.restarted.next_wakeup()
        return None if first is None or second is None else max(first, second)

    def __getattr__(self, verb: str) -> Any:
        def both(*args: Any, **kwargs: Any) -> Any:
            first = getattr(self.never_stopped, verb)(*args, **kwargs)
            second = getattr(self.restarted, verb)(*args, **kwargs)
            if first != second and not _are_alike(first, second):
                raise AssertionError(f"{verb} answered {first!r}, but {second!r} after a restart")
            return first

        return both

    def as_governor(self) -> Governor:
        """Return the pair for callers that expect one Governor."""
        return cast(Governor, self)


def _are_alike(first: Any, second: Any) -> bool:
    """Return whether answers are alike. Only the order of grants matters, not that of other effects."""
    if not isinstance(first, list) or not isinstance(second, list):
        return False
    if [e for e in first if isinstance(e, Granted)] != [e for e in second if isinstance(e, Granted)]:
        return False
    return sorted(map(repr, first)) == sorted(map(repr, second))


def restart(governor: Governor, now: float) -> Governor:
    """Restart a governor, or the one of a pair that may be restarted."""
    if isinstance(governor, TwinGovernors):
        governor.restart(now)
        return governor.as_governor()
    return restarted(governor, now)


# -- the World ----------------------------------------------------------------------------------------

START = 1_700_000_000.0
AUDIT_EVERY = 16
EXACT_DRAIN_ROUNDS = 200
MOST_DRAIN_ROUNDS = 5_000
DRAIN_HOP_SECONDS = 60.0
ODD_WAITS = (float("nan"), float("-inf"), float("inf"), -1.0, 0.0, 40 * 86400.0, 1e18)


class World:
    """`World(seed, **scenario).run()` drives a Governor with random calls and checks every promise.

    The same seed and scenario give the same calls. A broken promise raises an AssertionError with
    one line that repeats it: `World(seed=17, steps=500).run()  # step 212: scope umans has ...`.
    The options are the fields of `WorldScenario`; what is left out is drawn from the seed.
    """

    def __init__(self, seed: int, **scenario: Any) -> None:
        self.seed = seed
        self._asked = scenario
        self._random = random.Random(seed)
        self.scenario: WorldScenario = draw_scenario(self._random, scenario)
        self._step = 0

    def run(self) -> Figures:
        """Run the world and return its figures. Raises an AssertionError that says how to repeat it."""
        try:
            if self.scenario.engine:
                return self._run_engine()
            if self.scenario.fast:
                return self._run_fast()
            if self.scenario.saturated:
                return run_saturated(self._random, self.scenario, self.seed)
            return self._run_mixed()
        except AssertionError as broken:
            asked = "".join(f", {name}={value!r}" for name, value in self._asked.items())
            line = f"World(seed={self.seed}{asked}).run()  # step {self._step}: {broken}"
            raise AssertionError(line) from broken

    def _run_engine(self) -> Figures:
        fleet = Fleet(self._random, self.scenario)
        try:
            asyncio.run(fleet.live())
        finally:
            self._step = fleet.step
        figures = fleet.figures()
        return Figures(
            seed=self.seed,
            steps=self.scenario.steps,
            asked=figures.launches,
            granted=figures.launches,
            granted_from_queue=figures.launches,
            released=figures.launches,
            reports=figures.refused,
            restarts=figures.crashes,
            seconds=figures.seconds,
            fleet=figures,
        )

    def _run_fast(self) -> Figures:
        calls = FastCallers(self._random, START)
        try:
            calls.run(self.scenario.steps)
        finally:
            self._step = calls.released
        return Figures(
            seed=self.seed,
            steps=self.scenario.steps,
            asked=calls.asked,
            granted=calls.checked.granted,
            granted_from_queue=calls.checked.grants_from_queue,
            released=calls.released,
            reports=calls.released,
            seconds=calls.checked.elapsed - START,
        )

    def _run_mixed(self) -> Figures:
        life = RandomCaller(self._random, self.scenario)
        while self._step < self.scenario.steps:
            self._step += 1
            life.live_one_step()
            if self._step % AUDIT_EVERY == 0:
                life.checked.audit()
        life.drain()
        return life.figures(self.seed)


class RandomCaller:
    """The random caller: agents that request, hold, renew, fail and vanish, and an unreliable provider."""

    def __init__(self, rng: random.Random, scenario: WorldScenario) -> None:
        self._random = rng
        self.scenario = scenario
        settings = draw_settings(rng, scenario)
        governor = Governor(settings, now=START)
        if scenario.twins:
            governor = TwinGovernors(governor, START).as_governor()
        self.checked = CheckedGovernor(governor, settings, START, is_calm=scenario.is_calm)
        self._paths = PATHS[: scenario.paths]
        self._silent: set[str] = set()
        self._asked = self._reports = self._polls = self._restarts = self._released = 0
        self._providers = {path: FaultyProvider(rng, START) for path in self._paths} if scenario.faults else {}
        self._verbs, self._weights = zip(*self._menu(), strict=True)

    def _menu(self) -> list[tuple[Any, int]]:
        menu = [(self._ask, 38), (self._release, 26), (self._let_time_pass, 18), (self._cancel, 4), (self._renew, 3)]
        if self.scenario.settings:
            menu.append((self._change_settings, 2))
        if self.scenario.signals:
            menu.append((self._report, 8))
        if self.scenario.faults:
            menu.append((self._call, 20))
        if self.scenario.usage:
            menu.append((self._answer_poll, 12))
        if self.scenario.clock_steps:
            menu.append((self._step_clock_back, 1))
        if self.scenario.restarts:
            menu.append((self._restart, 2))
        return menu

    def live_one_step(self) -> None:
        verb = self._random.choices(self._verbs, self._weights)[0]
        verb()

    # -- agents -----------------------------------------------------------------------------------------

    def _ask(self) -> None:
        ticket = self._draw_ticket()
        self._asked += 1
        if self._random.random() < 0.1:
            self.checked.try_request(ticket)
        else:
            self.checked.request(ticket)
        if self._random.random() < 0.05:
            self._ask_again()
        if self._random.random() < self.scenario.silent:
            self._silent.add(ticket.id)

    def _ask_again(self) -> None:
        tickets = [held.ticket for held in self.checked.expected.held.values()]
        tickets += [waiting.ticket for waiting in self.checked.expected.waiting.values()]
        if tickets:
            self.checked.ask_again(self._random.choice(tickets))

    def _draw_ticket(self) -> Ticket:
        group = self._random.randrange(self.scenario.groups + 1)
        name = f"campaign-{group}" if group else ""
        priority = (group if group else self._random.randrange(4)) % self.scenario.priorities - 1
        label = (f"campaign:{name}",) if name else ()
        ticket_id = f"t{self._asked + 1}"
        session = self._draw_session()
        if session is not None:
            scopes = ("runs", *session.scopes[1:])
            return Ticket(ticket_id, scopes, session.group, session.priority, self._draw_since(), session.id)
        first = "sessions" if self._random.random() < self.scenario.sessions else "runs"
        scopes = (first, *label, *path_scopes(self._random.choice(self._paths)))
        spread = self.scenario.pacing and self._random.random() < 0.5
        return Ticket(ticket_id, scopes, name, priority, self._draw_since(), spread=spread)

    def _draw_session(self) -> Ticket | None:
        if not self.scenario.sessions or self._random.random() < 0.4:
            return None
        sessions = [h.ticket for h in self.checked.expected.held.values() if "sessions" in h.ticket.scopes]
        return self._random.choice(sessions) if sessions else None

    def _draw_since(self) -> float | None:
        now = self.checked.wall
        return self._random.choice((None, now, now - self._random.uniform(0, 100), now - 9, now + 50, now * 1000))

    def _release(self) -> None:
        if not self.checked.expected.held:
            return
        held = self._random.choice(list(self.checked.expected.held.values()))
        if self._random.random() < 0.2:
            self.checked.report(
                held.ticket.scopes[-1], signals.Succeeded(ticket=held.ticket.id, tokens=self._random.randrange(5000))
            )
        self.end_slot(held.ticket.id)
        if self._random.random() < 0.05:
            self.checked.release(held.ticket.id)  # a second release must be a no-op

    def end_slot(self, ticket_id: str) -> None:
        """End a slot, after all runs inside it."""
        for waiting in list(self.checked.expected.waiting.values()):
            if waiting.ticket.parent == ticket_id:
                self.checked.cancel(waiting.ticket.id)
        for held in list(self.checked.expected.held.values()):
            if held.ticket.parent == ticket_id:
                self.end_slot(held.ticket.id)
        self._released += ticket_id in self.checked.expected.held
        self.checked.release(ticket_id)

    def _cancel(self) -> None:
        if self.checked.expected.waiting:
            ticket_id = self._random.choice(list(self.checked.expected.waiting))
            self.checked.cancel(ticket_id)
            self.checked.cancel(ticket_id)

    def _renew(self) -> None:
        if self.checked.expected.held:
            self.checked.renew(self._random.choice(list(self.checked.expected.held)))
        self.checked.renew("nobody")

    # -- time ---------------------------------------------------------------------------------------------

    def _let_time_pass(self) -> None:
        seconds = self._random.expovariate(1 / self._random.choice((0.2, 1.0, 1.0, 5.0, 5.0, 40.0)))
        if self._random.random() < 0.02:
            seconds = self._random.uniform(60, 4000)
        if self._random.random() < 0.05:
            self.checked.move_clock(self.checked.wall + seconds)  # the machine was suspended: it missed every wake-up
        else:
            self.pass_time(seconds)

    def pass_time(self, seconds: float) -> None:
        """Move time forward, while every holder that is not silent renews its lease in time."""
        until = self.checked.wall + seconds
        pause = self.checked.settings.slot_timeout / 3
        while self.checked.wall < until:
            self._renew_all()
            self.checked.run_until(min(until, self.checked.wall + pause))

    def _renew_all(self) -> None:
        for ticket_id, held in list(self.checked.expected.held.items()):
            is_due = self.checked.elapsed - held.renewed_at > self.checked.settings.slot_timeout / 2
            if (
                is_due
                and held.lost_at is None
                and ticket_id not in self._silent
                and ticket_id in self.checked.expected.held
            ):
                self.checked.renew(ticket_id)

    def _step_clock_back(self) -> None:
        self.checked.move_clock(self.checked.wall - self._random.uniform(2, 200))

    def _restart(self) -> None:
        self._restarts += 1
        self.checked.governor = restart(self.checked.governor, self.checked.wall)

    # -- the person -----------------------------------------------------------------------------------------

    def _change_settings(self) -> None:
        scope = self._random.choice(
            ("runs", "sessions", *path_scopes(self._random.choice(self._paths)), "anthropic/*/opus-*")
        )
        kind = self._random.randrange(4)
        if kind == 0:
            self.checked.remove_limit(scope)
        elif kind == 1 and self.scenario.cooldowns and scope not in ("runs", "sessions") and "*" not in scope:
            self.checked.set_cooldown(scope, self._random.choice((0.0, 0.35, 3.0)))
        else:
            self.checked.set_limit(scope, self._random.choice((None, 1, 2, 3, 5, 8)))

    # -- the provider -----------------------------------------------------------------------------------------

    def _report(self) -> None:
        self._reports += 1
        held = list(self.checked.expected.held.values())
        ticket = self._random.choice(held).ticket if held and self._random.random() < 0.7 else None
        path = ticket.scopes[-1] if ticket is not None else self._random.choice(self._paths)
        self.checked.report(path, self._draw_signal(ticket.id if ticket else None))
        if self.checked.gates.held and self._random.random() < 0.5:
            self.checked.lift_hold(self._random.choice(sorted(self.checked.gates.held)))

    def _call(self) -> None:
        """Let a held ticket call its provider. Most tickets end after a refusal, others keep their slot."""
        if not self.checked.expected.held:
            return
        self._reports += 1
        ticket = self._random.choice(list(self.checked.expected.held.values())).ticket
        path = ticket.scopes[-1]
        live = self.checked.expected.occupied()[path]
        signal = self._providers[path].answer(ticket.id, live, self.checked.elapsed, self.checked.wall)
        self.checked.report(path, signal)
        if not isinstance(signal, signals.Succeeded) and self._random.random() < 0.8:
            self.end_slot(ticket.id)

    def _draw_signal(self, ticket: str | None) -> signals.AnySignal:
        now, rng = self.checked.wall, self._random
        reach: signals.Reach | None = rng.choice((None, None, "model", "account", "provider"))
        wait = rng.choice((None, rng.uniform(0.5, 20), rng.uniform(1, 90), rng.choice(ODD_WAITS)))
        cause: signals.Cause | None = rng.choice((None, "concurrency", "requests", "tokens", "starts"))
        match rng.choices(range(9), (30, 10, 8, 8, 10, 2, 10, 3, 8))[0]:
            case 0:
                return signals.RateLimited(retry_after=wait, cause=cause, ticket=ticket, reach=reach)
            case 1:
                return signals.Overloaded(retry_after=wait, ticket=ticket, reach=reach)
            case 2:
                resets_at = rng.choice((None, now + rng.uniform(1, 4000), now + 18_000, now - 100, now * 1000))
                window = rng.choice((None, "5h", "weekly"))
                return signals.QuotaClosed(
                    resets_at=resets_at, window=window, ticket=ticket, reach=reach, source="field"
                )
            case 3:
                return signals.PlatformLimit(
                    limit=rng.choice((None, -1, 0, 1, 2, 4)), in_use=rng.randrange(6), reach=reach
                )
            case 4:
                return signals.Succeeded(ticket=ticket, tokens=rng.choice((None, 100, 9000)))
            case 5:
                return rng.choice(
                    (
                        signals.BillingStop(detail="no credit", reach=reach),
                        signals.AuthFailed(detail="key", reach=reach),
                    )
                )
            case 6:
                return _draw_budget(rng, now)
            case 8:
                return signals.Unreachable(retry_after=wait, ticket=ticket, reach=reach)
            case _:
                return signals.Usage(
                    concurrent_sessions=rng.choice((None, -5, 0, 2, 9)), limit=rng.choice((None, 3, 0))
                )

    def _answer_poll(self) -> None:
        if self.checked.polls:
            scope = self.checked.polls.pop(self._random.randrange(len(self.checked.polls)))
            self._polls += 1
            if self._random.random() < 0.8:
                self.answer(scope, strangers=self._random.choice((0, 0, 0, 1, 2)))

    def answer(self, scope: str, strangers: int) -> None:
        """Report the usage of the provider: what runs here and elsewhere. Sometimes there is no answer."""
        if self._random.random() < 0.2 and strangers:
            self.checked.report(scope, signals.Usage())
            return
        count = self.checked.expected.occupied()[scope] + strangers
        self.checked.report(scope, signals.Usage(concurrent_sessions=count))

    # -- the end ----------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """End the trouble. Every waiting ticket must then be granted, one wake-up after another."""
        self.checked.audit()
        for rounds in range(MOST_DRAIN_ROUNDS):
            for scope in sorted(self.checked.gates.held):
                self.checked.lift_hold(scope)
            for ticket_id in list(self.checked.expected.held):
                self.end_slot(ticket_id)
            while self.checked.polls:
                self.answer(self.checked.polls.pop(), strangers=0)
            if not self.checked.expected.waiting and not self.checked.expected.held:
                return
            if self.scenario.pacing and rounds > EXACT_DRAIN_ROUNDS:
                self._report_empty_windows()
            wakeup = self.checked.governor.next_wakeup()
            if wakeup is None and not self.checked.expected.held:
                break
            if wakeup is not None:
                at_least = self.checked.wall + (DRAIN_HOP_SECONDS if rounds > EXACT_DRAIN_ROUNDS else 0.0)
                self.checked.move_clock(max(wakeup, at_least))
        stuck = next(iter(self.checked.expected.waiting))
        self.checked.fail(f"{stuck} never gets in: {self.checked.governor.why(stuck, now=self.checked.wall)!r}")

    def _report_empty_windows(self) -> None:
        """Report all windows as empty. What was learned about them in trouble could hold tickets for weeks."""
        for scope in sorted({scope for path in self._paths for scope in path_scopes(path)}):
            status = self.checked.governor.status(scope, now=self.checked.wall)
            for window in status.windows if status is not None else ():
                budget = signals.Budget(used_ratio=0.0, window=window.name, resets_at=self.checked.wall + 3000.0)
                self.checked.report(scope, budget)

    def figures(self, seed: int) -> Figures:
        return Figures(
            seed=seed,
            steps=self.scenario.steps,
            asked=self._asked,
            granted=self.checked.granted,
            granted_from_queue=self.checked.grants_from_queue,
            released=self._released,
            expired=len(self.checked.expired),
            reports=self._reports,
            polls=self._polls,
            restarts=self._restarts,
            seconds=self.checked.elapsed - START,
            moved_resets=sum(provider.moved for provider in self._providers.values()),
            crowded_out=sum(provider.crowded for provider in self._providers.values()),
            misled=sum(provider.misled for provider in self._providers.values()),
        )


def _draw_budget(rng: random.Random, now: float) -> signals.Budget:
    return signals.Budget(
        requests_remaining=rng.choice((None, 0, 1, 50)),
        requests_reset_at=rng.choice((None, now + rng.uniform(0.1, 30), now - 5)),
        tokens_remaining=rng.choice((None, 0, 1000, 90_000)),
        tokens_reset_at=rng.choice((None, now + rng.uniform(0.1, 30))),
        used_ratio=rng.choice((None, 0.1, 0.99)),
        window=rng.choice((None, "5h")),
        resets_at=rng.choice((None, now + 3000)),
        requests_limit=rng.choice((None, 60, 10)),
        tokens_limit=rng.choice((None, 100_000)),
    )

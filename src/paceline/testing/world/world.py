"""World: a seed's worth of trouble for a Governor, in simulated time, under watch."""

import asyncio
import random
from typing import Any

import msgspec

from paceline.core import Governor, Ticket
from paceline.core.signals import (
    AnySignal,
    AuthFailed,
    BillingStop,
    Budget,
    Cause,
    Overloaded,
    PlatformLimit,
    QuotaClosed,
    RateLimited,
    Reach,
    Succeeded,
    Usage,
)
from paceline.testing.world.checked_governor import CheckedGovernor
from paceline.testing.world.fleet import Fleet, FleetFigures
from paceline.testing.world.restart_twins import TwinGovernors, restart
from paceline.testing.world.scenario import PATHS, WorldScenario, draw_scenario, draw_settings
from paceline.testing.world.share_check import run_saturated

START = 1_700_000_000.0
AUDIT_EVERY = 16
EXACT_DRAIN_ROUNDS = 200
MOST_DRAIN_ROUNDS = 5_000
DRAIN_HOP_SECONDS = 60.0
ODD_WAITS = (float("nan"), float("-inf"), float("inf"), -1.0, 0.0, 1e18)


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What happened in a world. `jain` is the fairness of the shares, where they were measured.

    In a world with an engine `fleet` tells what became of its units, and what was asked and granted are its sessions.
    """

    seed: int
    steps: int
    asked: int
    granted: int
    granted_from_queue: int
    released: int
    expired: int
    reports: int
    polls: int
    restarts: int
    seconds: float
    jain: float | None = None
    fleet: FleetFigures | None = None


class World:
    """`World(seed, **scenario).run()` drives a Governor through a random life and checks every promise.

    The same seed and scenario give the same life. A broken promise raises an AssertionError that
    reads as one line to repeat it: `World(seed=17, steps=500).run()  # step 212: scope umans has ...`.
    The knobs are the fields of `WorldScenario`; what is left out is drawn from the seed.
    """

    def __init__(self, seed: int, **scenario: Any) -> None:
        self.seed = seed
        self._asked = scenario
        self._dice = random.Random(seed)
        self.scenario: WorldScenario = draw_scenario(self._dice, scenario)
        self._step = 0

    def run(self) -> Figures:
        """Live it; figures, or an AssertionError that says how to repeat it."""
        try:
            if self.scenario.engine:
                return self._run_engine()
            return self._run_saturated() if self.scenario.saturated else self._run_mixed()
        except AssertionError as broken:
            asked = "".join(f", {name}={value!r}" for name, value in self._asked.items())
            line = f"World(seed={self.seed}{asked}).run()  # step {self._step}: {broken}"
            raise AssertionError(line) from broken

    def _run_engine(self) -> Figures:
        fleet = Fleet(self._dice, self.scenario)
        try:
            asyncio.run(fleet.live())
        finally:
            self._step = fleet.step
        told = fleet.figures()
        return Figures(
            seed=self.seed,
            steps=self.scenario.steps,
            asked=told.launches,
            granted=told.launches,
            granted_from_queue=told.launches,
            released=told.launches,
            expired=0,
            reports=told.refused,
            polls=0,
            restarts=told.crashes,
            seconds=told.seconds,
            fleet=told,
        )

    def _run_saturated(self) -> Figures:
        shares = run_saturated(self._dice, self.scenario)
        return Figures(
            seed=self.seed,
            steps=self.scenario.steps,
            asked=shares.asked,
            granted=shares.granted,
            granted_from_queue=shares.granted,
            released=shares.released,
            expired=0,
            reports=0,
            polls=0,
            restarts=0,
            seconds=shares.seconds,
            jain=shares.jain,
        )

    def _run_mixed(self) -> Figures:
        life = Life(self._dice, self.scenario)
        while self._step < self.scenario.steps:
            self._step += 1
            life.live_one_step()
            if self._step % AUDIT_EVERY == 0:
                life.watched.audit()
        life.drain()
        return life.figures(self.seed)


class Life:
    """The random caller: agents that ask, hold, renew, fail and vanish, and a provider that has moods."""

    def __init__(self, dice: random.Random, scenario: WorldScenario) -> None:
        self._dice = dice
        self.scenario = scenario
        settings = draw_settings(dice, scenario)
        governor = Governor(settings, now=START)
        if scenario.twins:
            governor = TwinGovernors(governor, START).as_governor()
        self.watched = CheckedGovernor(governor, settings, START, is_calm=scenario.is_calm)
        self._paths = PATHS[: scenario.paths]
        self._silent: set[str] = set()
        self._asked = self._reports = self._polls = self._restarts = self._released = 0
        self._verbs, self._weights = zip(*self._menu(), strict=True)

    def _menu(self) -> list[tuple[Any, int]]:
        menu = [(self._ask, 38), (self._release, 26), (self._let_time_pass, 18), (self._cancel, 4), (self._renew, 3)]
        if self.scenario.settings:
            menu.append((self._change_settings, 2))
        if self.scenario.signals:
            menu.append((self._report, 8))
        if self.scenario.usage:
            menu.append((self._answer_poll, 12))
        if self.scenario.clock_steps:
            menu.append((self._step_clock_back, 1))
        if self.scenario.restarts:
            menu.append((self._restart, 2))
        return menu

    def live_one_step(self) -> None:
        verb = self._dice.choices(self._verbs, self._weights)[0]
        verb()

    # -- agents -----------------------------------------------------------------------------------------

    def _ask(self) -> None:
        ticket = self._draw_ticket()
        self._asked += 1
        if self._dice.random() < 0.1:
            self.watched.try_request(ticket)
        else:
            self.watched.request(ticket)
        if self._dice.random() < 0.05:
            self._ask_again()
        if self._dice.random() < self.scenario.silent:
            self._silent.add(ticket.id)

    def _ask_again(self) -> None:
        tickets = [held.ticket for held in self.watched.books.held.values()]
        tickets += [waiting.ticket for waiting in self.watched.books.waiting.values()]
        if tickets:
            self.watched.ask_again(self._dice.choice(tickets))

    def _draw_ticket(self) -> Ticket:
        group = self._dice.randrange(self.scenario.groups + 1)
        name = f"campaign-{group}" if group else ""
        priority = (group if group else self._dice.randrange(4)) % self.scenario.priorities - 1
        label = (f"campaign:{name}",) if name else ()
        ticket_id = f"t{self._asked + 1}"
        session = self._draw_session()
        if session is not None:
            scopes = ("runs", *session.scopes[1:])
            return Ticket(ticket_id, scopes, session.group, session.priority, self._draw_since(), session.id)
        first = "sessions" if self._dice.random() < self.scenario.sessions else "runs"
        scopes = (first, *label, *prefixes(self._dice.choice(self._paths)))
        spread = self.scenario.pacing and self._dice.random() < 0.5
        return Ticket(ticket_id, scopes, name, priority, self._draw_since(), spread=spread)

    def _draw_session(self) -> Ticket | None:
        if not self.scenario.sessions or self._dice.random() < 0.4:
            return None
        sessions = [h.ticket for h in self.watched.books.held.values() if "sessions" in h.ticket.scopes]
        return self._dice.choice(sessions) if sessions else None

    def _draw_since(self) -> float | None:
        now = self.watched.wall
        return self._dice.choice((None, now, now - self._dice.uniform(0, 100), now - 9, now + 50, now * 1000))

    def _release(self) -> None:
        if not self.watched.books.held:
            return
        held = self._dice.choice(list(self.watched.books.held.values()))
        if self._dice.random() < 0.2:
            self.watched.report(
                held.ticket.scopes[-1], Succeeded(ticket=held.ticket.id, tokens=self._dice.randrange(5000))
            )
        self.end_slot(held.ticket.id)
        if self._dice.random() < 0.05:
            self.watched.release(held.ticket.id)  # twice is once

    def end_slot(self, ticket_id: str) -> None:
        """End a slot, and before it all that runs inside it."""
        for waiting in list(self.watched.books.waiting.values()):
            if waiting.ticket.parent == ticket_id:
                self.watched.cancel(waiting.ticket.id)
        for held in list(self.watched.books.held.values()):
            if held.ticket.parent == ticket_id:
                self.end_slot(held.ticket.id)
        self._released += ticket_id in self.watched.books.held
        self.watched.release(ticket_id)

    def _cancel(self) -> None:
        if self.watched.books.waiting:
            ticket_id = self._dice.choice(list(self.watched.books.waiting))
            self.watched.cancel(ticket_id)
            self.watched.cancel(ticket_id)

    def _renew(self) -> None:
        if self.watched.books.held:
            self.watched.renew(self._dice.choice(list(self.watched.books.held)))
        self.watched.renew("nobody")

    # -- time ---------------------------------------------------------------------------------------------

    def _let_time_pass(self) -> None:
        seconds = self._dice.expovariate(1 / self._dice.choice((0.2, 1.0, 1.0, 5.0, 5.0, 40.0)))
        if self._dice.random() < 0.02:
            seconds = self._dice.uniform(60, 4000)
        if self._dice.random() < 0.05:
            self.watched.move_clock(self.watched.wall + seconds)  # asleep: every wake-up in between was missed
        else:
            self.pass_time(seconds)

    def pass_time(self, seconds: float) -> None:
        """Time passes in which every holder that is not silent renews its lease in good time."""
        until = self.watched.wall + seconds
        pause = self.watched.settings.slot_timeout / 3
        while self.watched.wall < until:
            self._renew_all()
            self.watched.run_until(min(until, self.watched.wall + pause))

    def _renew_all(self) -> None:
        for ticket_id, held in list(self.watched.books.held.items()):
            is_due = self.watched.elapsed - held.renewed_at > self.watched.settings.slot_timeout / 2
            if (
                is_due
                and held.lost_at is None
                and ticket_id not in self._silent
                and ticket_id in self.watched.books.held
            ):
                self.watched.renew(ticket_id)

    def _step_clock_back(self) -> None:
        self.watched.move_clock(self.watched.wall - self._dice.uniform(2, 200))

    def _restart(self) -> None:
        self._restarts += 1
        self.watched.governor = restart(self.watched.governor, self.watched.wall)

    # -- the person -----------------------------------------------------------------------------------------

    def _change_settings(self) -> None:
        scope = self._dice.choice(("runs", "sessions", *prefixes(self._dice.choice(self._paths)), "anthropic/*/opus-*"))
        kind = self._dice.randrange(4)
        if kind == 0:
            self.watched.remove_limit(scope)
        elif kind == 1 and self.scenario.cooldowns and scope not in ("runs", "sessions") and "*" not in scope:
            self.watched.set_cooldown(scope, self._dice.choice((0.0, 0.35, 3.0)))
        else:
            self.watched.set_limit(scope, self._dice.choice((None, 1, 2, 3, 5, 8)))

    # -- the provider -----------------------------------------------------------------------------------------

    def _report(self) -> None:
        self._reports += 1
        held = list(self.watched.books.held.values())
        ticket = self._dice.choice(held).ticket if held and self._dice.random() < 0.7 else None
        path = ticket.scopes[-1] if ticket is not None else self._dice.choice(self._paths)
        self.watched.report(path, self._draw_signal(ticket.id if ticket else None))
        if self.watched.gates.held and self._dice.random() < 0.5:
            self.watched.lift_hold(self._dice.choice(sorted(self.watched.gates.held)))

    def _draw_signal(self, ticket: str | None) -> AnySignal:
        now, dice = self.watched.wall, self._dice
        reach: Reach | None = dice.choice((None, None, "model", "account", "provider"))
        wait = dice.choice((None, dice.uniform(0.5, 20), dice.uniform(1, 90), dice.choice(ODD_WAITS)))
        cause: Cause | None = dice.choice((None, "concurrency", "requests", "tokens", "starts"))
        match dice.choices(range(8), (30, 10, 8, 8, 10, 2, 10, 3))[0]:
            case 0:
                return RateLimited(retry_after=wait, cause=cause, ticket=ticket, reach=reach)
            case 1:
                return Overloaded(retry_after=wait, ticket=ticket, reach=reach)
            case 2:
                resets_at = dice.choice((None, now + dice.uniform(1, 4000), now + 18_000, now - 100, now * 1000))
                window = dice.choice((None, "5h", "weekly"))
                return QuotaClosed(resets_at=resets_at, window=window, ticket=ticket, reach=reach, source="field")
            case 3:
                return PlatformLimit(limit=dice.choice((None, -1, 0, 1, 2, 4)), in_use=dice.randrange(6), reach=reach)
            case 4:
                return Succeeded(ticket=ticket, tokens=dice.choice((None, 100, 9000)))
            case 5:
                return dice.choice(
                    (BillingStop(detail="no credit", reach=reach), AuthFailed(detail="key", reach=reach))
                )
            case 6:
                return self._draw_budget(now)
            case _:
                return Usage(concurrent_sessions=dice.choice((None, -5, 0, 2, 9)), limit=dice.choice((None, 3, 0)))

    def _draw_budget(self, now: float) -> Budget:
        dice = self._dice
        return Budget(
            requests_remaining=dice.choice((None, 0, 1, 50)),
            requests_reset_at=dice.choice((None, now + dice.uniform(0.1, 30), now - 5)),
            tokens_remaining=dice.choice((None, 0, 1000, 90_000)),
            tokens_reset_at=dice.choice((None, now + dice.uniform(0.1, 30))),
            used_ratio=dice.choice((None, 0.1, 0.99)),
            window=dice.choice((None, "5h")),
            resets_at=dice.choice((None, now + 3000)),
        )

    def _answer_poll(self) -> None:
        if self.watched.polls:
            scope = self.watched.polls.pop(self._dice.randrange(len(self.watched.polls)))
            self._polls += 1
            if self._dice.random() < 0.8:
                self.answer(scope, strangers=self._dice.choice((0, 0, 0, 1, 2)))

    def answer(self, scope: str, strangers: int) -> None:
        """The provider's own count: what runs here and what others run; now and then it cannot say."""
        if self._dice.random() < 0.2 and strangers:
            self.watched.report(scope, Usage())
            return
        count = self.watched.books.occupied()[scope] + strangers
        self.watched.report(scope, Usage(concurrent_sessions=count))

    # -- the end ----------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """The storm is over: whoever still waits must get in, one wake-up after the other."""
        self.watched.audit()
        for rounds in range(MOST_DRAIN_ROUNDS):
            for scope in sorted(self.watched.gates.held):
                self.watched.lift_hold(scope)
            for ticket_id in list(self.watched.books.held):
                self.end_slot(ticket_id)
            while self.watched.polls:
                self.answer(self.watched.polls.pop(), strangers=0)
            if not self.watched.books.waiting and not self.watched.books.held:
                return
            if self.scenario.pacing and rounds > EXACT_DRAIN_ROUNDS:
                self._tell_of_empty_windows()
            wakeup = self.watched.governor.next_wakeup()
            if wakeup is None and not self.watched.books.held:
                break
            if wakeup is not None:
                at_least = self.watched.wall + (DRAIN_HOP_SECONDS if rounds > EXACT_DRAIN_ROUNDS else 0.0)
                self.watched.move_clock(max(wakeup, at_least))
        stuck = next(iter(self.watched.books.waiting))
        self.watched.fail(f"{stuck} never gets in: {self.watched.governor.why(stuck, now=self.watched.wall)!r}")

    def _tell_of_empty_windows(self) -> None:
        """What windows were believed to hold in a storm may keep a few in line for weeks: the provider tells better."""
        for scope in sorted({scope for path in self._paths for scope in prefixes(path)}):
            status = self.watched.governor.status(scope, now=self.watched.wall)
            for window in status.windows if status is not None else ():
                told = Budget(used_ratio=0.0, window=window.name, resets_at=self.watched.wall + 3000.0)
                self.watched.report(scope, told)

    def figures(self, seed: int) -> Figures:
        return Figures(
            seed=seed,
            steps=self.scenario.steps,
            asked=self._asked,
            granted=self.watched.granted,
            granted_from_queue=self.watched.grants_from_queue,
            released=self._released,
            expired=len(self.watched.expired),
            reports=self._reports,
            polls=self._polls,
            restarts=self._restarts,
            seconds=self.watched.elapsed - START,
        )


def prefixes(path: str) -> tuple[str, ...]:
    """`a/b/c` lies in `a`, `a/b` and `a/b/c`."""
    parts = path.split("/")
    return tuple("/".join(parts[: n + 1]) for n in range(len(parts)))

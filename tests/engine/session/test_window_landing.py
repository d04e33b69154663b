"""The landing before a window closes: who finishes, who is parked at a turn end, what may start, and what is left."""

import json
import math

import pytest

from paceline.core.unit_lifecycle import Counters
from paceline.engine import commands
from paceline.engine.session.window_landing import (
    LANDING,
    LandingPlan,
    Outlook,
    WindowMeter,
    plan_landing,
)
from paceline.executors.interface import Launch
from paceline.simulation.agent_transcripts import done, init, rejected, warned
from paceline.simulation.executor import Run
from paceline.testing.engine_harness import HOUR, NOW, EngineHarness

RESET = NOW + 5 * HOUR
TURN_SECONDS = 60.0


def outlook(turn: float, finish: float, *, rate: float = 1.0, can_land: bool = True) -> Outlook:
    return Outlook(turn=turn, finish=finish, rate=rate, can_land=can_land)


# -- the plan ----------------------------------------------------------------------------------------


def test_nothing_is_held_back_while_the_window_carries_all_sessions_and_more() -> None:
    sessions = {"a": outlook(1, 10), "b": outlook(1, 20)}
    assert plan_landing(100.0, math.inf, sessions, 30.0) == LandingPlan(starts=2, has_room=True)


def test_nothing_starts_once_the_live_sessions_use_what_is_left() -> None:
    assert plan_landing(40.0, math.inf, {"a": outlook(1, 10), "b": outlook(1, 20)}, 30.0) == LandingPlan(starts=0)


def test_sessions_start_that_the_live_ones_leave_room_for_until_the_reset() -> None:
    sessions = {"a": outlook(1, 1000, rate=0.1), "b": outlook(1, 1000, rate=0.1)}
    assert plan_landing(50.0, 100.0, sessions, 500.0) == LandingPlan(starts=3, has_room=True)


def test_the_rest_of_a_window_is_used_by_one_session_where_none_runs() -> None:
    assert plan_landing(5.0, math.inf, {}, 30.0) == LandingPlan(starts=1)


def test_those_that_can_finish_do_and_the_others_land_no_earlier_than_needed() -> None:
    sessions = {"near": outlook(2, 5), "far": outlook(2, 100), "farther": outlook(2, 200)}
    assert plan_landing(30.0, math.inf, sessions, None) == LandingPlan(starts=None)
    assert plan_landing(9.0, math.inf, sessions, None) == LandingPlan(starts=0, landing=frozenset({"far", "farther"}))


def test_a_session_without_turns_is_never_asked_to_land() -> None:
    sessions = {"command": outlook(2, 100, can_land=False), "far": outlook(2, 200)}
    assert plan_landing(3.0, math.inf, sessions, None).landing == frozenset({"far"})


def test_the_last_session_is_not_parked_as_that_would_save_nothing() -> None:
    assert plan_landing(1.0, math.inf, {"far": outlook(2, 200)}, None).landing == frozenset()


def test_a_window_that_resets_before_it_is_used_up_lands_nobody() -> None:
    assert plan_landing(5.0, 2.0, {"far": outlook(2, 100)}, 50.0).landing == frozenset()


# -- the meter ---------------------------------------------------------------------------------------


def test_what_is_left_follows_the_readings_and_what_was_used_since() -> None:
    meter = WindowMeter()
    meter.read(0.5, 1_000.0)
    assert meter.left(1_000.0, 0.0) is None
    meter.read(0.6, 2_000.0)
    assert meter.left(2_000.0, 0.0) == pytest.approx(4_000.0)
    assert meter.left(2_500.0, 0.0) == pytest.approx(3_500.0)
    assert meter.left(2_500.0, 0.2) == pytest.approx(1_500.0)


def test_a_new_period_begins_with_what_the_last_one_has_taught() -> None:
    meter = WindowMeter()
    meter.read(0.5, 1_000.0)
    meter.read(0.6, 2_000.0)
    meter.read(0.01, 2_100.0)
    assert meter.left(2_100.0, 0.0) == pytest.approx(9_900.0)


# -- the engine --------------------------------------------------------------------------------------


class Provider:
    """A window that holds so many turns. Each turn of 60 s is one request and one tool, and is read at once."""

    def __init__(self, holds: int, turns: dict[str, int], pool: int = 4) -> None:
        self.holds, self.used = holds, 0
        self.left = dict(turns)
        self.ended_in_turn: list[str] = []
        self.harness = EngineHarness(self.begin, pool=pool, heartbeat=5.0)
        self.told: float | None = None

    def begin(self, launch: Launch) -> Run:
        unit = launch.env["PACELINE_UNIT"]
        now = self.harness.clock.now()
        self.harness.clock.call_at(now + 1.0, lambda: self.ask(unit, launch.attempt_id))
        return Run(stdout=init(unit), seconds=math.inf)

    def ask(self, unit: str, attempt: str) -> None:
        executor, clock = self.harness.executor, self.harness.clock
        if attempt not in executor.live():
            return
        if clock.now() >= RESET:
            self.used, self.holds = -1_000, self.holds
        if self.used >= self.holds:
            self.ended_in_turn.append(unit)
            executor.cut(attempt, rejected(RESET, unit))
            return
        self.used += 1
        self.left[unit] -= 1
        usage = {"input_tokens": 10, "cache_creation_input_tokens": 990, "output_tokens": 100}
        content = [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}]
        message = {"id": f"m{self.left[unit]}", "model": "opus", "content": content, "usage": usage}
        said = json.dumps({"type": "assistant", "session_id": unit, "message": message}) + "\n"
        ratio = self.used / self.holds if self.told is None else self.told
        executor.print_output(attempt, said + warned(max(0.0, ratio), RESET, unit))
        clock.call_at(clock.now() + TURN_SECONDS, lambda: self.end_turn(unit, attempt))

    def end_turn(self, unit: str, attempt: str) -> None:
        executor, clock = self.harness.executor, self.harness.clock
        if attempt not in executor.live():
            return
        if self.left[unit] <= 0:
            executor.cut(attempt, done(unit), exit_code=0)
            return
        content = [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}]
        message = {"role": "user", "content": content}
        executor.print_output(attempt, json.dumps({"type": "user", "session_id": unit, "message": message}) + "\n")
        clock.call_at(clock.now() + 5.0, lambda: self.ask(unit, attempt))


def provider_of(holds: int, *turns: int, pool: int = 4) -> Provider:
    return Provider(holds, {f"night/u{number}": count for number, count in enumerate(turns)}, pool)


async def test_sessions_that_cannot_finish_are_parked_at_turn_ends_and_the_last_uses_the_rest() -> None:
    provider = provider_of(60, 40, 40, 40)
    async with provider.harness as harness:
        harness.add_claude("night", 3)
        await harness.run(HOUR)
        units = [harness.unit(f"night/u{number}") for number in range(3)]
        landed = [unit for unit in units if unit.reason == LANDING.format(window="5h")]
        assert (len(landed), provider.used, len(provider.ended_in_turn)) == (2, 60, 1)
        assert {(unit.is_parked, unit.resume_at) for unit in landed} == {(True, RESET)}
        assert {unit.counters for unit in units} == {Counters(attempts=1, parks=1)}
        assert {unit.conversation_id for unit in units} == {"night/u0", "night/u1", "night/u2"}
        closing = harness.events("window.closed")[0].at
        assert all(event.at < closing for event in harness.events("unit.parked")[:2])


async def test_parked_units_continue_their_conversations_after_the_reset_and_none_is_lost() -> None:
    provider = provider_of(60, 40, 40, 40)
    async with provider.harness as harness:
        harness.add_claude("night", 3)
        await harness.run(8 * HOUR)
        assert set(harness.states().values()) == {"done"}
        assert harness.failures() == 0
        assert all("--resume" in launch.argv for launch in harness.executor.started[3:])


async def test_what_the_window_can_still_carry_finishes_and_the_rest_does_not_start() -> None:
    provider = provider_of(75, *[10] * 9, pool=3)
    async with provider.harness as harness:
        harness.add_claude("night", 9)
        await harness.run(4 * HOUR)
        assert list(harness.states().values()).count("done") == 7
        begun = {unit.spec.id: unit for unit in harness.store.units(limit=100).units if unit.result.tokens}
        assert (sorted(begun), harness.failures()) == ([f"u{number}" for number in range(8)], 0)
        assert (begun["u7"].is_parked, provider.used) == (True, 75)


async def test_a_landing_is_withdrawn_if_the_window_turns_out_larger() -> None:
    provider = provider_of(1_000, 200, 200)
    async with provider.harness as harness:
        harness.add_claude("night", 2)
        for used in (0.90, 0.94, 0.97, 0.99):
            provider.told = used
            await harness.run(2 * (TURN_SECONDS + 5.0))
            if harness.events("unit.ending"):
                break
        assert harness.events("unit.ending")
        provider.told = 0.2
        await harness.run(HOUR)
        assert sorted(harness.running()) == ["night/u0", "night/u1"]
        assert harness.scope("anthropic/max-1").in_flight == 2


async def test_a_request_of_a_person_outlives_a_landing_that_is_withdrawn() -> None:

    provider = provider_of(1_000, 200)
    async with provider.harness as harness:
        harness.add_claude("night", 1)
        provider.told = 0.1
        await harness.run(70.0)
        commands.pause_unit(harness.store, harness.unit("night/u0"), at_turn=True, now=harness.clock.now())
        await harness.run(2 * TURN_SECONDS)
        assert harness.unit("night/u0").state == "held"

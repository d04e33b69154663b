"""Units that are parked for a quota window, and when they resume."""

import json

import pytest

from paceline.core.gates.reopening import first_look
from paceline.executors.interface import Launch
from paceline.simulation.agent_transcripts import answer, done, init, rejected, warned
from paceline.simulation.executor import Run
from paceline.store import UnitCounts
from paceline.testing.engine_harness import HOUR, NOW, EngineHarness

MINUTE = 60.0


def works(_: Launch) -> Run:
    return Run(stdout=init() + answer(), later=((MINUTE, done()),), seconds=MINUTE)


async def test_lesson_23_the_freed_slot_is_not_refilled_on_the_spent_account() -> None:
    async with EngineHarness(lambda _: Run(stdout=init() + rejected(NOW + 1200.0), exit_code=1), pool=5) as harness:
        harness.add_claude("night", 1000)

        await harness.run(1100.0)

        assert len(harness.launched()) == 5  # those that were there together, and none of the other 995
        assert harness.scope("sessions").in_flight == 0


@pytest.mark.parametrize(
    ("text", "resets_at"),
    [
        ("You've hit your limit · resets 1:40am (UTC)", NOW + 1200.0),
        ("You've hit your weekly limit · resets Nov 15, 1:40am (UTC)", NOW + 1200.0),
        (f"Claude AI usage limit reached|{int(NOW + 1200)}", NOW + 1200.0),
    ],
)
async def test_lesson_24_a_reset_in_words_is_a_moment_on_the_calendar(text: str, resets_at: float) -> None:
    said = {"type": "result", "subtype": "success", "is_error": True, "result": text, "session_id": "s1"}
    async with EngineHarness(lambda _: Run(stdout=init() + json.dumps(said) + "\n", exit_code=1)) as harness:
        harness.add_claude("night", 1)
        await harness.run(1.0)

        assert harness.unit("night/u0").resume_at == first_look(resets_at)


async def test_lesson_27_a_belief_is_probed_long_before_it_comes_true() -> None:
    """The provider said five hours and opened after one: nobody sleeps through it."""

    def script(launch: Launch) -> Run:
        is_open = harness.clock.now() >= NOW + HOUR
        return works(launch) if is_open else Run(stdout=init() + rejected(NOW + 5 * HOUR), exit_code=1)

    async with EngineHarness(script) as harness:
        harness.add_claude("night", 4)
        await harness.run(3 * HOUR)

        assert harness.store.counts() == {"night": UnitCounts(done=4)}
        assert len(harness.launched()) <= 4 + 3 + 4  # first meeting, a few canaries, the work itself


async def test_lesson_28_an_optimistic_reading_does_not_open_a_closed_window() -> None:
    """One of two sessions is refused; the other, which began before, still reports a window that is half used."""

    def script(launch: Launch) -> Run:
        if launch.env["PACELINE_UNIT"] == "night/u0":
            return Run(stdout=init() + rejected(NOW + 1200.0), exit_code=1)
        return Run(stdout=init() + answer(), later=((60.0, warned(0.5, NOW + 5 * HOUR)),), seconds=1000.0)

    async with EngineHarness(script, pool=2) as harness:
        harness.add_claude("night", 10)
        await harness.run(1100.0)

        assert len(harness.launched()) == 2


async def test_lesson_29_all_resume_and_not_all_at_once() -> None:
    def script(launch: Launch) -> Run:
        if harness.clock.now() < NOW + 1200.0:
            session = launch.env["PACELINE_UNIT"]
            return Run(stdout=init(session) + answer(session) + rejected(NOW + 1200.0, session), exit_code=1)
        return works(launch)

    async with EngineHarness(script, pool=11) as harness:
        harness.add_claude("night", 11)
        await harness.run(1199.0)
        assert harness.store.counts() == {"night": UnitCounts(todo=11, parked=11)}

        await harness.run(2 * MINUTE)
        moments = [event.at for event in harness.events("unit.resumed")]
        assert (len(moments), len(set(moments))) == (11, 11)

        await harness.run(HOUR)
        assert harness.store.counts() == {"night": UnitCounts(done=11)}


async def test_lesson_30_a_unit_that_always_spends_the_window_alone_is_held() -> None:
    def script(_: Launch) -> Run:
        closes_at = harness.clock.now() + 1800.0
        return Run(stdout=init() + answer(), later=((1800.0, rejected(closes_at + HOUR)),), exit_code=1, seconds=3000.0)

    async with EngineHarness(script) as harness:
        harness.add_claude("night", 1)
        await harness.run(48 * HOUR)

        assert (harness.unit("night/u0").state, harness.unit("night/u0").counters.windows_spent) == ("held", 5)


async def test_a_unit_is_not_held_for_a_window_that_answers_once_and_closes_again_until_it_is_reset() -> None:
    """It reopens 50 minutes late, and each refusal until then states a reset one window later."""
    reset = NOW + HOUR

    def script(_: Launch) -> Run:
        now = harness.clock.now()
        if now < reset:
            return Run(stdout=init() + rejected(reset), exit_code=1, seconds=1.0)
        if now < reset + 50 * MINUTE:
            return Run(stdout=init() + answer(), later=((5.0, rejected(reset + 5 * HOUR)),), exit_code=1, seconds=9.0)
        return Run(stdout=init() + answer() + done(), seconds=5.0)

    async with EngineHarness(script) as harness:
        harness.add_claude("night", 1)
        await harness.run(2 * HOUR + 10 * MINUTE)

        unit = harness.unit("night/u0")
        assert (unit.state, unit.counters.windows_spent, unit.counters.failures) == ("done", 0, 0)


async def test_a_quarantined_canary_reopens_no_window() -> None:
    """The canary crashes without an answer, and its unit has no attempt left: that says nothing about the window."""

    def script(_: Launch) -> Run:
        if harness.clock.now() < NOW + 1200.0:
            return Run(stdout=init() + rejected(NOW + 1200.0), exit_code=1)
        return Run(exit_code=139)

    async with EngineHarness(script, pool=4) as harness:
        harness.add_claude("night", 4, max_attempts=1)
        await harness.run(1205.0)

        assert [event.fields["window"] for event in harness.events("window.reopened")] == []
        crashed = len(harness.launched()) - 4
        assert crashed == harness.store.counts()["night"].quarantined

"""Lessons 23 to 42, each as the engine meets it: what broke earlier systems of this kind must not break this one.

The layers below have their own tests of the same lessons: `tests/detect` (24 to 26), `tests/core` and
`tests/limiter` (27 to 37), `tests/executors` (38), `tests/store` (39, 40).
"""

import json
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from tests.engine.test_engine import Failing

from paceline.core import Deferred
from paceline.core.unit_lifecycle import Counters
from paceline.errors import EngineBusy
from paceline.executors import Launch
from paceline.simulation.agent_transcripts import answer, done, init, limit_without_a_time, rejected, warned
from paceline.simulation.executor import Run
from paceline.store import MemoryStore, UnitCounts, UnitSpec
from paceline.testing.engine_harness import HOUR, MAX_1, NOW, EngineHarness

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

        assert harness.unit("night/u0").resume_at == resets_at


async def test_lesson_25_an_agent_that_writes_about_limits_is_left_alone() -> None:
    prose = answer(text="You've hit your limit · resets 3am. API Error: 429. See PR #4290.")
    async with EngineHarness(
        lambda _: Run(stdout=init() + prose, later=((MINUTE, done()),), seconds=MINUTE)
    ) as harness:
        harness.add_claude("night", 2)
        await harness.run(90.0)

        assert harness.store.counts() == {"night": UnitCounts(done=2)}
        assert harness.executor.stopped == []


async def test_lesson_26_an_event_in_the_middle_of_another_line_is_read() -> None:
    broken = answer()[:-30] + rejected(NOW + 1200.0)
    async with EngineHarness(lambda _: Run(stdout=init() + answer() + broken, exit_code=1)) as harness:
        harness.add_claude("night", 1)
        await harness.run(1.0)

        assert harness.unit("night/u0").resume_at == NOW + 1200.0


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
    """One of two sessions is refused; the other, which began before, still tells of a meter that is half full."""

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


async def test_lesson_31_a_key_in_the_environment_never_wins_over_the_subscription() -> None:
    """Scrub, verify, stop: the key is taken out, and an agent that found one all the same is ended."""
    async with EngineHarness(lambda _: Run(stdout=init(key="ANTHROPIC_API_KEY"), seconds=HOUR)) as harness:
        harness.add_claude("night", 1)
        await harness.run(60.0)

        assert ["ANTHROPIC_API_KEY" in launch.env for launch in harness.executor.started] == [False]
        assert harness.executor.stopped == ["engine1-1"]
        assert harness.scope("anthropic/max-1").held == "max-1 is a subscription, but the agent bills an API key"


async def test_lesson_32_two_processes_never_share_a_conversation() -> None:
    def script(launch: Launch) -> Run:
        if "--resume" in launch.argv:
            resumed = launch.argv[launch.argv.index("--resume") + 1]
            assert resumed not in live_conversations()
            return works(launch)
        return Run(stdout=init("talk") + answer("talk"), seconds=HOUR)

    def live_conversations() -> list[str | None]:
        return [
            unit.conversation_id for unit in harness.store.running_units() if unit.attempt_id in harness.executor.live()
        ]

    async with EngineHarness(script) as harness:
        harness.add_claude("night", 1)
        await harness.run(60.0)

        await harness.crash()  # adopted, not resumed beside itself
        await harness.run(60.0)
        assert len(harness.launched()) == 1

        await harness.crash()
        harness.executor.reboot()  # gone: resumed, once
        await harness.run(HOUR)
        assert [launch.argv[3:5] for launch in harness.executor.started] == [
            ("--output-format", "stream-json"),
            ("--resume", "talk"),
        ]
        assert harness.states() == {"night/u0": "done"}


async def test_lesson_33_a_laptop_that_slept_wakes_to_work() -> None:
    async with EngineHarness(lambda _: Run(stdout=init() + rejected(NOW + 2 * HOUR), exit_code=1)) as harness:
        harness.add_claude("night", 2)
        await harness.run(60.0)
        harness.executor.script = works

        harness.clock.step(9 * HOUR)
        await harness.run(0.0)
        await harness.run(300.0)

        assert harness.store.counts() == {"night": UnitCounts(done=2)}


async def test_lesson_34_a_slot_is_given_on_only_when_its_session_is_over() -> None:
    async with EngineHarness(lambda _: Run(seconds=HOUR, stop_seconds=9.0), pool=1, heartbeat=1.0) as harness:
        harness.add("night", 1)
        harness.add("next", 1)
        await harness.run(5.0)

        harness.store.cancel_units("night", now=harness.clock.now())
        harness.change("night", state="cancelled")
        await harness.run(5.0)
        assert (harness.executor.live(), harness.running()) == (["engine1-1"], [])  # asked to end, not gone yet

        await harness.run(10.0)
        assert harness.running() == ["next/u0"]


async def test_lesson_35_a_busy_or_sleeping_engine_kills_no_healthy_work() -> None:
    async with EngineHarness(lambda _: Run(seconds=5 * HOUR)) as harness:
        harness.add("night", 3)
        await harness.run(10.0)

        harness.clock.step(2 * HOUR)  # every lease has run out, and nobody could renew
        await harness.run(0.0)
        await harness.run(HOUR)

        assert harness.executor.stopped == []
        assert [harness.unit(f"night/u{n}").counters for n in range(3)] == [Counters(attempts=1)] * 3


async def test_lesson_36_every_slot_comes_back_however_a_session_ends() -> None:
    ends = [
        Run(),
        Run(exit_code=1),
        Run(exit_code=75),
        Run(signal=9),
        Run(not_started="no such program"),
        Run(stderr="Error: 429 Too Many Requests\n", exit_code=1),
        Run(stdout="half a li", exit_code=1),
    ]
    async with EngineHarness(lambda launch: ends[int(launch.argv[1][1:]) % len(ends)], pool=3) as harness:
        harness.add("night", 30, max_attempts=1)
        await harness.run(2 * HOUR)

        assert (harness.scope("sessions").in_flight, harness.scope("campaign:night").in_flight) == (0, 0)
        assert set(harness.launched()) == {f"night/u{n}" for n in range(30)}


async def test_lesson_37_an_engine_that_crashed_forgets_no_slot_and_admits_nobody_on_top() -> None:
    async with EngineHarness(lambda _: Run(seconds=HOUR), pool=3) as harness:
        harness.add("night", 10)
        await harness.run(10.0)

        await harness.crash()
        await harness.run(10.0)
        assert len(harness.executor.live()) == 3

        harness.executor.reboot()  # holders that died give their slots back
        await harness.run(10.0)
        assert len(harness.executor.live()) == 3


async def test_lesson_38_what_is_nobodys_is_ended_at_the_start() -> None:
    async with EngineHarness(lambda _: Run(seconds=HOUR)) as harness:
        harness.add("night", 2)
        await harness.run(1.0)
        orphans = harness.executor.live()

        await harness.crash()
        harness.store.cancel_units("night", now=harness.clock.now())
        harness.store.delete_campaign("night")
        await harness.run(1.0)

        assert (harness.executor.stopped, harness.executor.live()) == (orphans, [])


async def test_lesson_39_a_write_whose_answer_was_lost_is_not_done_twice() -> None:
    for nth in range(1, 40):
        store = Failing(nth, is_stored=True)
        async with EngineHarness(store=store, pool=1, heartbeat=60.0) as harness:
            harness.add("night", 1)
            await harness.run(0.0)
            store.is_armed = True
            await harness.run(300.0)
            store.is_armed = False

            assert (nth, harness.states(), harness.launched()) == (nth, {"night/u0": "done"}, ["night/u0"])
            assert len(harness.events("unit.done")) >= 1


async def test_lesson_40_half_written_output_is_not_done(tmp_path: Path) -> None:
    """The agent says that it is done, but what the plan asked for is not there: a failure, with its reason."""
    (tmp_path / "out.md").touch()
    async with EngineHarness(works) as harness:
        harness.add_claude("night", [UnitSpec(id="a", cwd=str(tmp_path), output="out.md")], max_attempts=1)
        await harness.run(90.0)

        assert (harness.unit("night/a").state, harness.unit("night/a").reason) == (
            "quarantined",
            "ended well, but out.md is empty",
        )


async def test_lesson_41_two_engines_never_share_a_limit_by_halves() -> None:
    async with EngineHarness(lambda _: Run(seconds=HOUR), pool=2) as harness:
        harness.add("night", 10)
        await harness.run(1.0)

        with pytest.raises(EngineBusy):
            await harness.new_engine().run()

        assert len(harness.executor.live()) == 2


async def test_lesson_41_a_store_that_goes_away_lets_nobody_in_and_nothing_hang() -> None:
    class Gone(MemoryStore):
        is_gone = False

        def claimable(self) -> dict[tuple[str, str | None], int]:
            if self.is_gone:
                raise OSError("the disk is gone")
            return super().claimable()

    store = Gone()
    async with EngineHarness(store=store, pool=1) as harness:
        harness.add("night", 3)
        await harness.run(1.0)
        store.is_gone = True
        await harness.run(HOUR)
        assert len(harness.launched()) == 1

        store.is_gone = False
        await harness.run(HOUR)
        assert harness.store.counts() == {"night": UnitCounts(done=3)}


async def test_lesson_42_every_wait_has_a_reason_a_scope_and_a_time() -> None:
    def script(launch: Launch) -> Run:
        if launch.argv[0] == "claude":
            return Run(stdout=init() + rejected(NOW + 1200.0), exit_code=1)
        return Run(seconds=HOUR)

    async with EngineHarness(script, pool=2, accounts=(MAX_1,)) as harness:
        harness.add_claude("quota", 4)
        await harness.run(10.0)
        harness.add("full", 4)
        harness.add("capped", 4, max_sessions=1)
        harness.add("lost", 1, accounts=("nobody",))
        await harness.run(60.0)

        stored = harness.store.load_state("why")
        assert stored is not None
        why = msgspec.json.decode(stored, type=dict[str, Deferred])
        told = {line: (held.reason, held.scope, held.retry_at) for line, held in why.items()}
        assert told == {
            "quota max-1": ("window_closed", "anthropic/max-1", NOW + 1200.0),
            "full ": ("limit", "sessions", None),
            "capped ": ("limit", "sessions", None),
            "lost nobody": ("held", "campaign:lost", None),
        }
        assert all(held.detail for held in why.values())
        parked = harness.unit("quota/u0")
        assert (parked.reason, parked.resume_at) == ("the quota window is spent", NOW + 1200.0)
        assert Counter(harness.states().values()) == {"todo": 11, "running": 2}


async def test_lesson_42_a_limit_without_a_time_still_has_a_next_check() -> None:
    async with EngineHarness(lambda _: Run(stdout=init() + limit_without_a_time(), exit_code=1)) as harness:
        harness.add_claude("night", 1)
        await harness.run(1.0)

        assert harness.unit("night/u0").resume_at == NOW + 300.0

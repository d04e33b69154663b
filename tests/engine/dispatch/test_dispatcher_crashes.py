"""What an engine finds after a crash."""

from paceline.executors.interface import Launch
from paceline.simulation.agent_transcripts import answer, done, init
from paceline.simulation.executor import Run
from paceline.testing.engine_harness import HOUR, EngineHarness

MINUTE = 60.0


def works(_: Launch) -> Run:
    return Run(stdout=init() + answer(), later=((MINUTE, done()),), seconds=MINUTE)


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
        assert [launch.argv[2:4] for launch in harness.executor.started] == [
            ("--output-format", "stream-json"),
            ("--resume", "talk"),
        ]
        assert harness.states() == {"night/u0": "done"}


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

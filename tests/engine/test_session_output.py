"""What the output of a session does and does not mean."""

from pathlib import Path

from paceline.executors import Launch
from paceline.simulation.agent_transcripts import answer, done, init, rejected
from paceline.simulation.executor import Run
from paceline.store import UnitCounts, UnitSpec
from paceline.testing.engine_harness import NOW, EngineHarness

MINUTE = 60.0


def works(_: Launch) -> Run:
    return Run(stdout=init() + answer(), later=((MINUTE, done()),), seconds=MINUTE)


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

"""The environment that a session is launched with."""

from paceline.simulation.agent_transcripts import init
from paceline.simulation.executor import Run
from paceline.testing.engine_harness import HOUR, EngineHarness


async def test_lesson_31_a_key_in_the_environment_never_wins_over_the_subscription() -> None:
    """Scrub, verify, stop: the key is taken out, and an agent that found one all the same is ended."""
    async with EngineHarness(lambda _: Run(stdout=init(key="ANTHROPIC_API_KEY"), seconds=HOUR)) as harness:
        harness.add_claude("night", 1)
        await harness.run(60.0)

        assert ["ANTHROPIC_API_KEY" in launch.env for launch in harness.executor.started] == [False]
        assert harness.executor.stopped == ["engine1-1"]
        assert harness.scope("anthropic/max-1").held == "max-1 is a subscription, but the agent bills an API key"

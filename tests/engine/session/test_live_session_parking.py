"""The price of a park: the context of a conversation, what resuming it pays again, and starting over instead."""

import json

import pytest

from paceline.engine.dispatch.dispatcher import RESTART_NOTE
from paceline.engine.settings import LARGE_CONTEXT_TOKENS
from paceline.executors.interface import Launch
from paceline.simulation.agent_transcripts import done, init, rejected
from paceline.simulation.executor import Run
from paceline.store import Unit
from paceline.testing.engine_harness import HOUR, NOW, EngineHarness


def said(number: int, *, parent: str | None = None, **usage: int) -> str:
    """One message of the model with its usage."""
    message = {"id": f"m{number}", "model": "opus", "content": [{"type": "text", "text": "ok"}], "usage": usage}
    event = {"type": "assistant", "session_id": "talk", "message": message, "parent_tool_use_id": parent}
    return json.dumps(event) + "\n"


FIRST = said(1, input_tokens=20, cache_creation_input_tokens=30_000, output_tokens=500)
LATER = said(2, input_tokens=10, cache_read_input_tokens=30_020, cache_creation_input_tokens=170_000, output_tokens=900)
OF_A_SUB_AGENT = said(3, parent="toolu_1", input_tokens=5_000, output_tokens=10)
PAID_AGAIN = said(
    4, input_tokens=30, cache_read_input_tokens=15_000, cache_creation_input_tokens=186_000, output_tokens=7
)


def parks_once(*resumed: str, opens_at: float = NOW + HOUR) -> EngineHarness:
    """Sessions that meet a spent window after 100 s, and print `resumed` once it is open."""

    def script(launch: Launch) -> Run:
        if harness.clock.now() >= opens_at:
            return Run(stdout=init("talk") + "".join(resumed), later=((40.0, done("talk")),), seconds=40.0)
        if harness.clock.now() > NOW + 1000.0:
            return Run(stdout=init("talk") + rejected(opens_at, "talk"), exit_code=1, seconds=1.0)
        spent = FIRST + LATER + OF_A_SUB_AGENT + rejected(opens_at, "talk")
        return Run(stdout=init("talk") + FIRST, later=((100.0, spent),), exit_code=1, seconds=100.0)

    harness = EngineHarness(script)
    return harness


def losses(unit: Unit) -> tuple[int | None, int, int]:
    return unit.result.context_tokens, unit.result.lost_tokens, unit.result.lost_tokens_estimated


async def test_the_context_of_a_conversation_is_what_its_latest_request_sent() -> None:
    async with parks_once(PAID_AGAIN) as harness:
        harness.add_claude("night", 1)
        await harness.run(HOUR / 2)
        unit = harness.unit("night/u0")
        assert (unit.state, unit.is_parked, losses(unit)) == ("todo", True, (200_030, 0, 0))


async def test_context_that_the_first_request_after_a_park_pays_again_is_measured_and_counted() -> None:
    async with parks_once(PAID_AGAIN) as harness:
        harness.add_claude("night", 1)
        await harness.run(2 * HOUR)
        unit = harness.unit("night/u0")
        assert (unit.state, losses(unit)) == ("done", (201_030, 186_030, 0))
        assert harness.engine.metrics.lost_tokens.values == {("anthropic/max-1/opus-4-6", "measured"): 186_030}


async def test_without_an_event_that_tells_the_size_of_the_conversation_is_an_estimate() -> None:
    silent = json.dumps({"type": "assistant", "session_id": "talk", "message": {"id": "m", "content": []}}) + "\n"
    async with parks_once(silent) as harness:
        harness.add_claude("night", 1)
        await harness.run(2 * HOUR)
        unit = harness.unit("night/u0")
        assert (unit.state, losses(unit)) == ("done", (200_030, 200_030, 200_030))
        assert harness.engine.metrics.lost_tokens.values == {("anthropic/max-1/opus-4-6", "estimated"): 200_030}


async def test_a_large_conversation_starts_over_after_a_long_park_if_the_plan_says_so() -> None:
    async with parks_once(FIRST, opens_at=NOW + 5 * HOUR) as harness:
        harness.add_claude("night", 1, on_long_park="restart")
        await harness.run(6 * HOUR)
        unit = harness.unit("night/u0")
        launch = harness.executor.started[-1]
        assert "--resume" not in launch.argv
        assert RESTART_NOTE.encode() in launch.stdin
        assert (unit.state, unit.counters.failures) == ("done", 0)
        assert losses(unit) == (30_020, 0, 0)
        event = harness.events("unit.resumed")[-1]
        assert (event.fields["session_id"], event.fields["restarted"]) == (None, True)


@pytest.mark.parametrize("on_long_park", ["resume", "restart"])
async def test_a_small_conversation_is_always_resumed(on_long_park: str) -> None:
    assert LARGE_CONTEXT_TOKENS > 30_020
    spent = FIRST + rejected(NOW + HOUR, "talk")

    def script(launch: Launch) -> Run:
        if "--resume" in launch.argv:
            return Run(stdout=init("talk") + PAID_AGAIN, later=((40.0, done("talk")),), seconds=40.0)
        return Run(stdout=init("talk"), later=((100.0, spent),), exit_code=1, seconds=100.0)

    async with EngineHarness(script) as harness:
        harness.add_claude("night", 1, on_long_park=on_long_park)
        await harness.run(2 * HOUR)
        assert (harness.unit("night/u0").state, "--resume" in harness.executor.started[-1].argv) == ("done", True)


async def test_by_default_a_large_conversation_is_resumed() -> None:
    async with parks_once(PAID_AGAIN) as harness:
        harness.add_claude("night", 1)
        await harness.run(2 * HOUR)
        assert "--resume" in harness.executor.started[-1].argv

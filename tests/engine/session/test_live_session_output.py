"""What the output of a session does and does not mean."""

import json
from pathlib import Path

import pytest

from paceline.core.gates.reopening import first_look
from paceline.executors.interface import Launch
from paceline.simulation.agent_transcripts import answer, done, init, rejected
from paceline.simulation.executor import Run
from paceline.store import UnitCounts, UnitSpec
from paceline.testing.engine_harness import HOUR, NOW, EngineHarness

MINUTE = 60.0
CODEX_DONE = "".join(
    json.dumps(event) + "\n"
    for event in (
        {"type": "thread.started", "thread_id": "t1"},
        {"type": "turn.started"},
        {"type": "item.completed", "item": {"id": "i1", "type": "agent_message", "text": "done"}},
        {"type": "turn.completed", "usage": {"input_tokens": 1, "output_tokens": 1}},
    )
)


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

        assert harness.unit("night/u0").resume_at == first_look(NOW + 1200.0)


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


def denied_run(_: Launch) -> Run:
    refused = [{"tool_name": "Bash", "tool_use_id": "t1"}, {"tool_name": "Edit", "tool_use_id": "t2"}]
    said = {"type": "result", "is_error": False, "result": "I could not edit.", "permission_denials": refused}
    return Run(stdout=init() + answer() + json.dumps(said | {"session_id": "s1"}) + "\n")


async def test_a_unit_whose_agent_was_denied_its_tools_is_held_with_the_reason_and_can_be_retried() -> None:
    async with EngineHarness(denied_run) as harness:
        harness.add_claude("night", 1)
        await harness.run(10.0)

        unit = harness.unit("night/u0")
        assert (unit.state, unit.denials, unit.counters.failures) == ("held", 2, 0)
        assert "Bash" in (unit.reason or "")
        (held,) = harness.events("unit.held")
        assert (held.fields["reason"], held.fields["denials"]) == (unit.reason, 2)

        harness.executor.script = works
        harness.store.retry_units("night")
        await harness.run(90.0)
        assert (harness.unit("night/u0").state, harness.unit("night/u0").denials) == ("done", 0)


async def test_a_plan_that_accepts_denied_tools_gets_its_unit_done_with_a_warning() -> None:
    async with EngineHarness(denied_run) as harness:
        harness.add_claude("night", 1, on_denied="done")
        await harness.run(10.0)

        unit = harness.unit("night/u0")
        assert (unit.state, unit.denials, len(unit.warnings)) == ("done", 2, 1)
        assert "Bash" in unit.warnings[0]
        (ended,) = harness.events("unit.done")
        assert (ended.fields["denials"], ended.fields["warnings"]) == (2, list(unit.warnings))


async def test_the_reason_of_a_failure_is_what_the_agent_said_and_never_the_rest_of_a_line() -> None:
    said = {
        "type": "result",
        "is_error": True,
        "result": "There's an issue with the selected model (opus-9).",
        "usage": {"input_tokens": 0, "iterations": []},
    }
    async with EngineHarness(lambda _: Run(stdout=init() + json.dumps(said) + "\n", exit_code=1)) as harness:
        harness.add_claude("night", 1, max_attempts=1)
        await harness.run(10.0)

        assert harness.unit("night/u0").reason == "exit code 1: There's an issue with the selected model (opus-9)."


@pytest.mark.parametrize(
    ("said", "resumes"),
    [
        ("You've hit your usage limit. Try again at 3:20 AM.", NOW + 2 * HOUR),
        ("You've hit your usage limit. Try again in 2 hours.", NOW + 2 * HOUR),
    ],
)
async def test_a_limit_that_is_read_late_is_dated_when_it_was_printed(said: str, resumes: float) -> None:
    """An engine that was away over the reset must not read "3:20 AM" as tomorrow's."""
    async with EngineHarness(lambda _: Run(stderr=f"ERROR: {said}\n", exit_code=1), pool=1) as harness:
        harness.add_claude("night", 2, agent="codex", model=None)
        harness.engine.start()
        list(harness.engine.make_pass())
        harness.engine.close()
        harness.engine = harness.new_engine()
        harness.executor.script = lambda _: Run(stdout=CODEX_DONE)

        harness.clock.step(3 * HOUR)
        await harness.run(0.0)
        await harness.run(600.0)

        assert resumes < harness.clock.now()
        assert harness.store.counts() == {"night": UnitCounts(done=2)}

"""`end_at_turn`: a session ends at its next turn, its conversation continues later, and a crash forgets nothing."""

import json

import pytest

from paceline.core.unit_lifecycle import Counters
from paceline.engine import commands
from paceline.errors import IllegalStep
from paceline.events import Event
from paceline.executors.interface import Launch
from paceline.simulation.agent_transcripts import answer, done, init
from paceline.simulation.executor import Run
from paceline.testing.engine_harness import HOUR, NOW, EngineHarness


def tool_calls(*calls: str, parent: str | None = None) -> str:
    """One message in which the model calls tools: an event for each."""
    blocks = [{"type": "tool_use", "id": call, "name": "Bash", "input": {}} for call in calls]
    messages = [{"id": f"m-{calls[0]}", "model": "opus", "content": [block]} for block in blocks]
    return "".join(line(type="assistant", message=message, parent_tool_use_id=parent) for message in messages)


def tool_result(call: str, parent: str | None = None) -> str:
    message = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": "ok"}]}
    return line(type="user", message=message, parent_tool_use_id=parent)


def line(**event: object) -> str:
    return json.dumps({**event, "session_id": "talk"}) + "\n"


def ask(harness: EngineHarness, unit: str = "night/u0", reason: str = "make room", **fields: object) -> None:
    """Ask that the session ends at its next turn, and that it continues in an hour unless the fields say otherwise."""
    fields = {"resume_at": NOW + HOUR} | fields
    commands.end_at_turn(harness.store, harness.unit(unit), reason=reason, now=harness.clock.now(), **fields)  # type: ignore[arg-type]
    harness.engine.apply_commands()


TURN = tool_calls("t1", "t2"), tool_result("t1"), tool_result("t2")


def works(launch: Launch) -> Run:
    """A session that calls two tools at 60 s, which are done at 90 s and 120 s, and again from 200 s on."""
    if "--resume" in launch.argv:
        return Run(stdout=init("talk") + answer("talk"), later=((40.0, done("talk")),), seconds=40.0)
    turn = [(60.0, TURN[0]), (90.0, TURN[1]), (120.0, TURN[2]), (200.0, TURN[0]), (230.0, TURN[1] + TURN[2])]
    return Run(stdout=init("talk") + answer("talk"), later=(*turn, (300.0, done("talk"))), seconds=300.0)


def harness_of(script: object = works) -> EngineHarness:
    return EngineHarness(script, heartbeat=1.0)  # type: ignore[arg-type]


async def test_a_session_ends_when_all_tools_of_its_turn_are_done_and_continues_its_conversation_uncharged() -> None:
    async with harness_of() as harness:
        harness.add_claude("night", 1)
        await harness.run(70.0)
        ask(harness, reason="over budget")
        await harness.run(25.0)
        assert harness.running() == ["night/u0"]  # one of its tools is still at work

        await harness.run(30.0)
        unit = harness.unit("night/u0")
        assert (unit.state, unit.reason, unit.resume_at) == ("todo", "over budget", NOW + HOUR)
        assert (unit.counters, unit.conversation_id, unit.account) == (Counters(attempts=1), "talk", "max-1")
        assert unit.result.end_request is None
        asked, ended = harness.events("unit.ending", "unit.requeued")
        fields: dict[str, object] = {"reason": "over budget", "resume_at": NOW + HOUR}
        assert asked == Event("unit.ending", asked.at, None, "night/u0", fields)
        assert (ended.fields["reason"], ended.fields["attempts"]) == ("over budget", 0)
        assert harness.scope("sessions").in_flight == 0

        await harness.run(HOUR)
        assert harness.unit("night/u0").state == "done"
        assert harness.unit("night/u0").counters == Counters(attempts=2)
        assert ["talk" in launch.argv for launch in harness.executor.started] == [False, True]


async def test_without_a_time_the_unit_continues_with_its_next_slot() -> None:
    async with harness_of() as harness:
        harness.add_claude("night", 1)
        await harness.run(70.0)
        ask(harness, resume_at=None)
        await harness.run(100.0)
        assert (harness.unit("night/u0").state, len(harness.executor.started)) == ("done", 2)


async def test_a_turn_that_ended_before_the_request_does_not_count() -> None:
    async with harness_of() as harness:
        harness.add_claude("night", 1)
        await harness.run(150.0)
        ask(harness)
        await harness.run(60.0)
        assert harness.running() == ["night/u0"]
        await harness.run(30.0)
        assert (harness.unit("night/u0").state, harness.running()) == ("todo", [])


@pytest.mark.parametrize("asked_at", [70.0, 150.0])
async def test_after_a_crash_the_request_still_holds(asked_at: float) -> None:
    async with harness_of() as harness:
        harness.add_claude("night", 1)
        await harness.run(asked_at)
        ask(harness)
        await harness.crash()
        await harness.run(240.0 - asked_at)

        unit = harness.unit("night/u0")
        assert (unit.state, unit.reason, unit.resume_at) == ("todo", "make room", NOW + HOUR)
        assert (unit.counters, unit.conversation_id) == (Counters(attempts=1), "talk")
        await harness.run(HOUR)
        assert harness.unit("night/u0").state == "done"


async def test_a_session_that_ends_by_itself_first_counts_as_usual_and_the_next_attempt_is_not_meant() -> None:
    fails_first = iter([Run(stdout=init("talk") + answer("talk"), exit_code=1, seconds=100.0)])
    async with harness_of(lambda launch: next(fails_first, None) or works(launch)) as harness:
        harness.add_claude("night", 1)
        await harness.run(50.0)
        ask(harness)
        await harness.run(60.0)
        unit = harness.unit("night/u0")
        assert (unit.counters.failures, unit.result.end_request) == (1, None)
        await harness.run(HOUR)
        assert harness.unit("night/u0").counters == Counters(failures=1, attempts=2)


async def test_a_command_has_no_turns_and_runs_to_its_own_end() -> None:
    async with harness_of(lambda _: Run(stdout=TURN[0] + TURN[1] + TURN[2], seconds=100.0)) as harness:
        harness.add("night", 1)
        await harness.run(50.0)
        ask(harness)
        await harness.run(60.0)
        assert (harness.unit("night/u0").state, harness.executor.stopped) == ("done", [])


async def test_an_agent_that_has_finished_its_work_is_not_ended() -> None:
    finishing = init("talk") + answer("talk"), TURN[0] + TURN[1] + TURN[2] + done("talk")
    script = Run(stdout=finishing[0], later=((60.0, finishing[1]),), seconds=70.0)
    async with harness_of(lambda _: script) as harness:
        harness.add_claude("night", 1)
        await harness.run(50.0)
        ask(harness, resume_at=None)
        await harness.run(30.0)
        assert (harness.unit("night/u0").state, harness.executor.stopped) == ("done", [])


async def test_a_request_for_a_unit_without_a_session_changes_nothing() -> None:
    async with harness_of() as harness:
        harness.add_claude("night", 2)
        harness.change("night", max_sessions=1)
        await harness.run(70.0)
        ask(harness, "night/u1")
        running = harness.unit("night/u0")
        commands.cancel_unit(harness.store, running, now=harness.clock.now())
        commands.end_at_turn(harness.store, running, reason="make room", now=harness.clock.now())
        await harness.run(10.0)
        assert (harness.events("unit.ending"), harness.unit("night/u1").resume_at) == ([], None)


async def test_a_request_that_no_engine_has_read_holds_after_the_next_one_starts() -> None:
    async with harness_of() as harness:
        harness.add_claude("night", 1)
        await harness.run(70.0)
        await harness.crash()
        commands.end_at_turn(harness.store, harness.unit("night/u0"), reason="make room", now=harness.clock.now())
        await harness.run(100.0)
        assert [event.fields["reason"] for event in harness.events("unit.requeued")] == ["make room"]
        assert harness.unit("night/u0").state == "done"


# -- pause ----------------------------------------------------------------------------------------------


async def test_a_running_unit_is_paused_at_its_turn_and_resumed_in_its_conversation() -> None:
    async with harness_of() as harness:
        harness.add_claude("night", 1)
        await harness.run(70.0)
        assert commands.pause_unit(harness.store, harness.unit("night/u0"), at_turn=True, now=harness.clock.now())
        await harness.run(600.0)
        unit = harness.unit("night/u0")
        assert (unit.state, unit.reason, unit.conversation_id) == ("held", commands.PAUSED_UNIT, "talk")
        assert harness.engine.is_idle()

        commands.resume_unit(harness.store, unit, now=harness.clock.now())
        await harness.run(60.0)
        assert (harness.unit("night/u0").state, "talk" in harness.executor.started[-1].argv) == ("done", True)


async def test_a_unit_whose_attempt_ends_just_as_it_is_paused_is_held() -> None:
    fails_first = iter([Run(exit_code=1, seconds=100.0)])
    async with harness_of(lambda launch: next(fails_first, None) or works(launch)) as harness:
        harness.add_claude("night", 1)
        await harness.run(50.0)
        running = harness.unit("night/u0")
        await harness.run(52.0)
        assert harness.unit("night/u0").state == "todo"
        commands.pause_unit(harness.store, running, at_turn=True, now=harness.clock.now())
        await harness.run(HOUR)
        assert (harness.unit("night/u0").state, len(harness.executor.started)) == ("held", 1)


async def test_the_sessions_of_a_campaign_that_is_paused_at_their_turns_continue_with_it() -> None:
    async with harness_of() as harness:
        harness.add_claude("night", 2)
        harness.add_claude("other", 1)
        await harness.run(70.0)
        commands.pause_campaigns(harness.store, ["night"], at_turn=True, now=harness.clock.now())
        await harness.run(100.0)
        assert harness.states() == {"night/u0": "todo", "night/u1": "todo", "other/u0": "running"}
        commands.resume_campaigns(harness.store, ["night"], now=harness.clock.now())
        await harness.run(150.0)
        assert (set(harness.states().values()), harness.failures()) == ({"done"}, 0)


async def test_work_that_is_checked_is_not_interrupted() -> None:
    def script(launch: Launch) -> Run:
        return Run(seconds=1000.0) if "-check" in launch.attempt_id else Run(seconds=10.0)

    async with harness_of(script) as harness:
        harness.add("night", 1, check=("make", "test"))
        await harness.run(50.0)
        with pytest.raises(IllegalStep, match="night/u0 is checking: its session is over"):
            commands.pause_unit(harness.store, harness.unit("night/u0"), at_turn=True, now=harness.clock.now())


async def test_the_tools_of_a_sub_agent_do_not_end_a_turn() -> None:
    said = init("talk") + answer("talk") + tool_calls("t1") + tool_calls("x1", parent="t1")
    later = ((60.0, tool_result("x1", parent="t1")), (120.0, tool_result("t1")))
    async with harness_of(lambda _: Run(stdout=said, later=later, seconds=500.0)) as harness:
        harness.add_claude("night", 1)
        await harness.run(30.0)
        ask(harness)
        await harness.run(60.0)
        assert harness.running() == ["night/u0"]
        await harness.run(60.0)
        assert harness.running() == []

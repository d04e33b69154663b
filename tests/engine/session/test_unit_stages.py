"""The stages after an agent ended well: checks with feedback, their rounds, their faults, and crashes between them."""

from collections.abc import Callable, Mapping

import msgspec
import pytest

from paceline.core.unit_lifecycle import Counters
from paceline.engine import commands
from paceline.events import Event
from paceline.executors.interface import Launch
from paceline.simulation.agent_transcripts import answer, done, init, rejected
from paceline.simulation.executor import Run
from paceline.store import CheckRound, Unit, UnitCounts
from paceline.testing.engine_harness import HOUR, NOW, EngineHarness

CHECK = ("make", "test")
PASSED = CheckRound(exit_code=0, seconds=20.0, tail="ok")
FAILED = CheckRound(exit_code=2, seconds=20.0, tail="2 tests failed")
FEEDBACK = "The check failed:\n2 tests failed\nFix it."

Checks = Callable[[Launch], Run]


def passes(_: Launch) -> Run:
    return Run(stdout="ok\n", seconds=20.0)


def fails(_: Launch) -> Run:
    return Run(stdout="2 tests failed\n", exit_code=2, seconds=20.0)


def is_check(launch: Launch) -> bool:
    return "-check" in launch.attempt_id


def script_of(check: Checks, session: Checks | None = None) -> Checks:
    """A session takes a minute, unless given; its check does what is given."""
    agent = session or (lambda _: Run(seconds=60.0))
    return lambda launch: check(launch) if is_check(launch) else agent(launch)


def claude(launch: Launch) -> Run:
    session = "talk-" + launch.env["PACELINE_UNIT"].rpartition("/")[2]
    return Run(stdout=init(session) + answer(session), later=((60.0, done(session)),), seconds=60.0)


def in_turn(*runs: Checks) -> Checks:
    """The n-th launch does what the n-th of these does; the last one goes on."""
    count = iter(range(1000))
    return lambda launch: runs[min(next(count), len(runs) - 1)](launch)


def sessions(harness: EngineHarness) -> list[Launch]:
    return [launch for launch in harness.executor.started if not is_check(launch)]


def checks(harness: EngineHarness) -> list[str]:
    return [launch.attempt_id.rpartition("-")[2] for launch in harness.executor.started if is_check(launch)]


def slots(harness: EngineHarness, *scopes: str) -> dict[str, int]:
    return {scope: harness.scope(scope).in_flight for scope in scopes}


def prompt_of(launch: Launch) -> str:
    """Everything that a session is told, on its command line and on its standard input."""
    return "\n".join((*launch.argv, launch.stdin.decode()))


def where(unit: Unit) -> tuple[str, str | None]:
    return unit.state, unit.phase


# -- a check that passes --------------------------------------------------------------------------------


async def test_work_whose_check_passes_is_done_with_its_round_stored() -> None:
    async with EngineHarness(script_of(passes), heartbeat=1.0) as harness:
        harness.add("night", 1, check=CHECK)
        await harness.run(120.0)

        unit = harness.unit("night/u0")
        assert (where(unit), unit.result.checks, unit.exit_code) == (("done", None), (PASSED,), 0)
        assert (unit.counters, unit.result.session_end, unit.result.feedback) == (Counters(attempts=1), None, None)
        (checked,) = harness.events("unit.checked")
        fields: dict[str, object] = {"round": 1, "exit_code": 0, "seconds": 20.0, "reason": None}
        assert checked == Event("unit.checked", checked.at, None, "night/u0", fields)
        assert [event.name for event in harness.events("unit.done", "unit.delivered")] == ["unit.done"]
        assert harness.executor.unarchived() == []


async def test_a_check_runs_where_the_agent_worked_with_its_variables_and_time_limit_and_without_keys() -> None:
    async with EngineHarness(script_of(passes, claude)) as harness:
        harness.add_claude("night", 1, check=CHECK, check_timeout=90.0, env={"LANG": "C"})
        await harness.run(90.0)

        session, check = harness.executor.started
        assert (check.argv, check.cwd, check.timeout) == (CHECK, session.cwd, 90.0)
        assert {name: check.env[name] for name in ("PACELINE_UNIT", "LANG")} == {
            "PACELINE_UNIT": "night/u0",
            "LANG": "C",
        }
        assert "ANTHROPIC_API_KEY" not in check.env


async def test_while_its_check_runs_a_unit_gives_up_its_slots_and_has_one_for_checks() -> None:
    async with EngineHarness(script_of(passes, claude), pool=1, heartbeat=1.0) as harness:
        harness.add_claude("night", 2, check=CHECK)
        await harness.run(30.0)
        account = "anthropic/max-1"
        assert slots(harness, "sessions", account) == {"sessions": 1, account: 1}

        await harness.run(40.0)

        first, second = harness.unit("night/u0"), harness.unit("night/u1")
        assert (where(first), where(second)) == (("running", "checking"), ("running", "working"))
        assert slots(harness, "sessions", account, "checks") == {"sessions": 1, account: 1, "checks": 1}
        await harness.run(120.0)
        assert slots(harness, "sessions", account, "checks") == {"sessions": 0, account: 0, "checks": 0}


async def test_no_more_checks_run_at_once_than_their_limit() -> None:
    async with EngineHarness(script_of(passes), pool=8, limits={"checks": 2}, heartbeat=1.0) as harness:
        harness.add("night", 6, check=CHECK)
        most = 0
        for _ in range(150):
            await harness.run(1.0)
            most = max(most, len([each for each in harness.executor.live() if "-check" in each]))

        assert (most, harness.store.counts()) == (2, {"night": UnitCounts(done=6)})
        assert harness.clock.now() - NOW < 60.0 + 3 * 20.0 + 40.0


# -- a check that fails ---------------------------------------------------------------------------------


async def test_a_failed_check_is_the_next_prompt_of_the_same_conversation_and_charges_nothing() -> None:
    async with EngineHarness(script_of(in_turn(fails, passes), claude), heartbeat=1.0) as harness:
        harness.add_claude("night", 1, check=CHECK)
        await harness.run(300.0)

        unit = harness.unit("night/u0")
        assert (unit.state, unit.result.checks, unit.result.feedback) == ("done", (FAILED, PASSED), None)
        assert unit.counters == Counters(attempts=2)
        first, second = sessions(harness)
        assert "--resume" not in first.argv
        assert second.argv[second.argv.index("--resume") + 1] == "talk-u0"
        assert FEEDBACK in prompt_of(second)
        assert checks(harness) == ["check1", "check2"]


async def test_the_prompt_of_the_plan_carries_the_output() -> None:
    async with EngineHarness(script_of(in_turn(fails, passes), claude), heartbeat=1.0) as harness:
        harness.add_claude("night", 1, check=CHECK, check_prompt="Tests say: {output}. Repair.")
        await harness.run(300.0)

        _, second = sessions(harness)
        assert "Tests say: 2 tests failed. Repair." in prompt_of(second)


async def test_a_command_gets_its_task_again_with_the_output_of_the_check() -> None:
    def odd(_: Launch) -> Run:
        return Run(stdout="\x00odd\n", stderr="2 tests failed\x00\n", exit_code=2, seconds=20.0)

    async with EngineHarness(script_of(in_turn(odd, passes)), heartbeat=1.0) as harness:
        harness.add("night", 1, check=CHECK)
        await harness.run(300.0)

        first, second = sessions(harness)
        assert (first.argv, second.argv) == (("work", "u0"), ("work", "u0"))
        assert "PACELINE_CHECK_OUTPUT" not in first.env
        assert second.env["PACELINE_CHECK_OUTPUT"] == "odd\n2 tests failed"
        assert harness.unit("night/u0").state == "done"


async def test_after_its_rounds_a_unit_is_unverified_and_a_retry_has_all_rounds_again() -> None:
    async with EngineHarness(script_of(fails, claude), heartbeat=1.0) as harness:
        harness.add_claude("night", 1, check=CHECK, check_rounds=1)
        await harness.run(250.0)

        unit = harness.unit("night/u0")
        reason = "the check failed 2 times, the last with exit code 2: 2 tests failed"
        assert (where(unit), unit.reason, unit.result.checks) == (("unverified", None), reason, (FAILED, FAILED))
        assert (unit.counters, len(sessions(harness))) == (Counters(attempts=2), 2)
        assert [event.fields["reason"] for event in harness.events("unit.unverified")] == [reason]

        commands.retry_unit(harness.store, unit, now=harness.clock.now())
        await harness.run(250.0)

        unit = harness.unit("night/u0")
        assert (unit.state, unit.result.checks) == ("unverified", (FAILED, FAILED))
        third = sessions(harness)[2]
        assert (len(sessions(harness)), "talk-u0" in third.argv, FEEDBACK in prompt_of(third)) == (4, True, True)


async def test_without_rounds_the_first_failure_is_final() -> None:
    async with EngineHarness(script_of(fails), heartbeat=1.0) as harness:
        harness.add("night", 1, check=CHECK, check_rounds=0)
        await harness.run(250.0)

        unit = harness.unit("night/u0")
        assert (unit.state, unit.reason) == ("unverified", "the check failed once with exit code 2: 2 tests failed")


async def test_a_session_that_fails_is_not_checked() -> None:
    async with EngineHarness(script_of(passes, lambda _: Run(exit_code=1, seconds=5.0)), heartbeat=1.0) as harness:
        harness.add("night", 1, check=CHECK, max_attempts=2)
        await harness.run(60.0)

        assert (harness.unit("night/u0").state, checks(harness)) == ("quarantined", [])


async def test_feedback_waits_for_a_closed_window_as_other_units_do() -> None:
    reset = NOW + HOUR

    def agent(launch: Launch) -> Run:
        if launch.env["PACELINE_UNIT"] == "night/u1":
            begun = init("talk-u1") + answer("talk-u1")
            return Run(stdout=begun, later=((70.0, rejected(reset, "talk-u1")),), exit_code=1, seconds=400.0)
        return claude(launch)

    async with EngineHarness(script_of(in_turn(fails, passes), agent), heartbeat=15.0) as harness:
        harness.add_claude("night", 2, check=CHECK)
        await harness.run(300.0)

        unit = harness.unit("night/u0")
        assert (unit.state, unit.conversation_id, unit.result.feedback) == ("todo", "talk-u0", FEEDBACK)
        assert [launch.env["PACELINE_UNIT"] for launch in sessions(harness)] == ["night/u0", "night/u1"]

        harness.executor.script = script_of(passes, claude)
        await harness.run(HOUR + 400.0)

        assert harness.store.counts() == {"night": UnitCounts(done=2)}
        (again,) = [each for each in sessions(harness)[2:] if each.env["PACELINE_UNIT"] == "night/u0"]
        assert FEEDBACK in prompt_of(again)


# -- a check that cannot do its work --------------------------------------------------------------------

FAULTS: Mapping[str, tuple[Run, str]] = {
    "not found": (Run(exit_code=127, seconds=1.0), "it could not be run (exit code 127)"),
    "not executable": (Run(exit_code=126, seconds=1.0), "it could not be run (exit code 126)"),
    "not started": (Run(not_started="cannot run 'make'"), "it could not be started: cannot run 'make'"),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_check_that_cannot_start_holds_its_unit_and_pauses_the_campaign_at_the_second(
    fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    run, why = FAULTS[fault]
    async with EngineHarness(script_of(lambda _: run), pool=1, heartbeat=1.0) as harness:
        harness.add("night", 4, check=CHECK)
        await harness.run(60.0 + 5.0)
        reason = f"the check cannot do its work: {why}"
        first = harness.unit("night/u0")
        assert (where(first), first.reason, first.counters) == (("held", None), reason, Counters(attempts=1))
        assert [campaign.state for campaign in harness.store.campaigns()] == ["active"]

        await harness.run(200.0)

        (campaign,) = harness.store.campaigns()
        assert (campaign.state, campaign.pause_reason) == ("paused", reason)
        said = [message for message in caplog.messages if reason in message]
        follows = {"u0": "it is held", "u1": "it is held, and its campaign is paused"}
        assert said == [f"night/{unit}: {reason}; {what}" for unit, what in follows.items()]
        assert [event.fields for event in harness.events("campaign.paused")] == [{"reason": reason}]
        assert [each.reason for each in harness.unit("night/u1").result.checks] == [why]
        assert slots(harness, "sessions", "checks") == {"sessions": 0, "checks": 0}

        harness.executor.script = script_of(passes)
        commands.resume_campaigns(harness.store, ["night"], now=harness.clock.now())
        commands.retry_units_like(harness.store, harness.unit("night/u0"), now=harness.clock.now())
        await harness.run(600.0)

        assert harness.store.counts() == {"night": UnitCounts(done=4)}


async def test_a_check_that_cannot_start_pauses_a_campaign_with_no_other_unit_left() -> None:
    broken = FAULTS["not found"][0]
    async with EngineHarness(script_of(in_turn(passes, lambda _: broken)), pool=1, heartbeat=1.0) as harness:
        harness.add("night", 2, check=CHECK)
        await harness.run(300.0)

        assert harness.states() == {"night/u0": "done", "night/u1": "held"}
        assert [campaign.state for campaign in harness.store.campaigns()] == ["paused"]


async def test_checks_of_others_that_start_keep_a_campaign_active() -> None:
    broken = FAULTS["not found"][0]

    def check(launch: Launch) -> Run:
        return broken if launch.env["PACELINE_UNIT"] in ("night/u0", "night/u2") else passes(launch)

    async with EngineHarness(script_of(check), pool=1, heartbeat=1.0) as harness:
        harness.add("night", 4, check=CHECK)
        await harness.run(600.0)

        assert harness.store.counts() == {"night": UnitCounts(done=2, held=2)}
        assert [campaign.state for campaign in harness.store.campaigns()] == ["active"]


async def test_faults_are_no_rounds() -> None:
    broken = FAULTS["not found"][0]
    script = script_of(in_turn(lambda _: broken, fails, passes))
    async with EngineHarness(script, heartbeat=1.0) as harness:
        harness.add("night", 1, check=CHECK, check_rounds=1)
        await harness.run(100.0)
        commands.resume_campaigns(harness.store, ["night"], now=harness.clock.now())
        commands.retry_unit(harness.store, harness.unit("night/u0"), now=harness.clock.now())
        await harness.run(300.0)

        assert harness.unit("night/u0").state == "done"


async def test_a_check_that_does_not_end_is_a_failed_round_with_its_output_so_far() -> None:
    def endless(_: Launch) -> Run:
        return Run(stdout="testing a.py\n", seconds=10_000.0)

    async with EngineHarness(script_of(in_turn(endless, passes), claude), heartbeat=1.0) as harness:
        harness.add_claude("night", 1, check=CHECK, check_timeout=600.0)
        await harness.run(900.0)

        unit = harness.unit("night/u0")
        too_long = "it did not end within 10 min"
        first = CheckRound(exit_code=124, seconds=600.0, tail="testing a.py", reason=too_long)
        assert (unit.state, unit.result.checks, unit.counters) == ("done", (first, PASSED), Counters(attempts=2))
        assert f"The check failed:\ntesting a.py\n{too_long}\nFix it." in prompt_of(sessions(harness)[1])
        assert [campaign.state for campaign in harness.store.campaigns()] == ["active"]


async def test_a_unit_whose_check_never_ends_is_unverified_and_the_others_continue() -> None:
    def check(launch: Launch) -> Run:
        return Run(seconds=10_000.0) if launch.env["PACELINE_UNIT"] == "night/u0" else Run(seconds=20.0)

    async with EngineHarness(script_of(check), pool=2, heartbeat=10.0) as harness:
        harness.add("night", 12, check=CHECK, check_timeout=50.0, check_rounds=1)
        await harness.run(900.0)

        unit = harness.unit("night/u0")
        assert (unit.state, unit.counters) == ("unverified", Counters(attempts=2))
        assert unit.reason == "the check failed 2 times, the last with exit code 124: it did not end within 50 s"
        assert harness.store.counts() == {"night": UnitCounts(done=11, unverified=1)}
        assert [campaign.state for campaign in harness.store.campaigns()] == ["active"]


async def test_checks_that_end_with_their_machine_run_again_and_pause_nothing() -> None:
    async with EngineHarness(script_of(passes), heartbeat=1.0) as harness:
        harness.add("night", 4, check=CHECK)
        await harness.run(70.0)
        harness.executor.reboot()
        await harness.run(120.0)

        assert harness.store.counts() == {"night": UnitCounts(done=4)}
        lost = CheckRound(exit_code=None, seconds=0.0, tail="ok", reason="it was ended from outside")
        rounds = harness.unit("night/u0").result.checks
        assert (msgspec.structs.replace(rounds[0], seconds=0.0), rounds[1:]) == (lost, (PASSED,))
        assert len(sessions(harness)) == 4


# -- crashes --------------------------------------------------------------------------------------------


async def test_a_check_outlives_its_engine_and_the_agent_does_not_run_again() -> None:
    async with EngineHarness(script_of(passes, claude), heartbeat=1.0) as harness:
        harness.add_claude("night", 1, check=CHECK)
        await harness.run(70.0)
        await harness.crash()
        await harness.run(3.0)

        assert slots(harness, "sessions", "checks") == {"sessions": 0, "checks": 1}
        await harness.run(60.0)
        assert (harness.unit("night/u0").state, harness.unit("night/u0").result.checks) == ("done", (PASSED,))
        assert (len(sessions(harness)), checks(harness)) == (1, ["check1"])


async def test_a_check_that_ended_while_no_engine_ran_is_not_run_again() -> None:
    async with EngineHarness(script_of(in_turn(fails, passes), claude), heartbeat=1.0) as harness:
        harness.add_claude("night", 1, check=CHECK)
        await harness.run(70.0)
        await harness.crash()
        await harness.clock.advance(300.0)
        await harness.run(200.0)

        unit = harness.unit("night/u0")
        assert (unit.state, unit.result.checks) == ("done", (FAILED, PASSED))
        assert (len(sessions(harness)), checks(harness)) == (2, ["check1", "check2"])


async def test_a_failed_check_whose_outcome_was_not_stored_is_not_run_again() -> None:
    async with EngineHarness(script_of(in_turn(fails, passes), claude), heartbeat=1.0) as harness:
        harness.add_claude("night", 1, check=CHECK, check_rounds=1)
        await harness.run(70.0)
        unit = harness.unit("night/u0")
        await harness.crash()
        stored = msgspec.structs.replace(unit.result, checks=(FAILED,), feedback=FEEDBACK)
        harness.store.save_progress(unit.id, unit.fence, phase="checking", result=stored)
        await harness.run(200.0)

        unit = harness.unit("night/u0")
        assert (unit.state, unit.result.checks) == ("done", (FAILED, PASSED))
        assert len(sessions(harness)) == 2


# -- what a person does ---------------------------------------------------------------------------------


async def test_cancelling_a_unit_ends_its_check() -> None:
    async with EngineHarness(script_of(lambda _: Run(seconds=500.0)), heartbeat=1.0) as harness:
        harness.add("night", 1, check=CHECK)
        await harness.run(70.0)
        commands.cancel_unit(harness.store, harness.unit("night/u0"), now=harness.clock.now())
        await harness.run(10.0)

        unit = harness.unit("night/u0")
        assert (where(unit), unit.result.checks) == (("cancelled", None), ())
        assert (harness.executor.live(), harness.executor.unarchived()) == ([], [])
        assert slots(harness, "sessions", "checks") == {"sessions": 0, "checks": 0}

        harness.executor.script = script_of(passes)
        commands.retry_unit(harness.store, unit, now=harness.clock.now())
        await harness.run(200.0)
        assert harness.unit("night/u0").state == "done"


async def test_a_pause_lets_a_running_check_end_and_begins_no_other() -> None:
    async with EngineHarness(script_of(passes), pool=2, limits={"checks": 1}, heartbeat=1.0) as harness:
        harness.add("night", 2, check=CHECK)
        await harness.run(70.0)
        commands.pause_campaigns(harness.store, ["night"], now=harness.clock.now())
        await harness.run(100.0)

        assert sorted(where(harness.unit(f"night/u{n}")) for n in range(2)) == [("done", None), ("running", "checking")]
        assert slots(harness, "checks") == {"checks": 0}
        commands.resume_campaigns(harness.store, ["night"], now=harness.clock.now())
        await harness.run(60.0)
        assert harness.store.counts() == {"night": UnitCounts(done=2)}
        assert len(sessions(harness)) == 2


async def test_a_check_that_is_taken_from_the_campaign_is_not_waited_for() -> None:
    async with EngineHarness(script_of(passes), pool=2, limits={"checks": 1}, heartbeat=1.0) as harness:
        harness.add("night", 2, check=CHECK)
        await harness.run(70.0)
        harness.change("night", check=())
        await harness.run(5.0)

        assert harness.store.counts() == {"night": UnitCounts(done=1, running=1)}
        await harness.run(20.0)
        assert harness.store.counts() == {"night": UnitCounts(done=2)}


async def test_a_campaign_that_was_cancelled_and_deleted_during_a_check_leaves_nothing_behind() -> None:
    async with EngineHarness(script_of(lambda _: Run(seconds=500.0)), heartbeat=1.0) as harness:
        harness.add("night", 1, check=CHECK)
        await harness.run(70.0)
        commands.cancel_campaign(harness.store, "night", now=harness.clock.now())
        commands.delete_campaign(harness.store, "night", now=harness.clock.now())
        await harness.run(10.0)

        assert (harness.executor.live(), harness.executor.unarchived(), harness.store.campaigns()) == ([], [], [])
        harness.executor.script = script_of(passes)
        harness.add("night", 1, check=CHECK)
        await harness.run(120.0)
        assert harness.states() == {"night/u0": "done"}


async def test_an_engine_that_runs_until_idle_ends_with_a_paused_campaign_whose_unit_waits_for_its_check() -> None:
    harness = EngineHarness(script_of(passes), heartbeat=1.0)
    harness.add("night", 1, check=CHECK)
    await harness.run(30.0)
    commands.pause_campaigns(harness.store, ["night"], now=harness.clock.now())
    await harness.run(120.0)

    assert where(harness.unit("night/u0")) == ("running", "checking")
    assert harness.engine.is_idle()

    commands.resume_campaigns(harness.store, ["night"], now=harness.clock.now())
    harness.engine.apply_commands()
    assert not harness.engine.is_idle()
    await harness.stop()

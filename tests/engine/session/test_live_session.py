"""Decisions about one session: which signals end it, and when its unit is done."""

import json
import os
from pathlib import Path

import pytest

from paceline.core.unit_lifecycle import Counters
from paceline.events import Event
from paceline.executors.interface import Launch
from paceline.simulation.agent_transcripts import (
    answer,
    done,
    init,
    overage,
    rejected,
    retry,
)
from paceline.simulation.executor import Run
from paceline.store import UnitCounts, UnitSpec
from paceline.testing.engine_harness import HOUR, NOW, EngineHarness

MINUTE = 60.0
YEARS_LATER = NOW + 20 * 365 * 24 * HOUR
"""After the time of any file that a test writes: the time of a change of state cannot be set."""


def session_of(launch: Launch) -> str:
    return "talk-" + launch.env["PACELINE_UNIT"].rpartition("/")[2]


def works(launch: Launch, seconds: float = MINUTE) -> Run:
    """A conversation that answers at once and is done after a while."""
    session = session_of(launch)
    return Run(stdout=init(session) + answer(session), later=((seconds, done(session)),), seconds=seconds)


def is_resumed(launch: Launch) -> bool:
    return "--resume" in launch.argv


@pytest.mark.parametrize("status", [429, 529])
async def test_a_short_wait_is_left_to_the_agent_while_newcomers_wait(status: int) -> None:
    def script(launch: Launch) -> Run:
        trouble = ((10.0, retry(20.0, status=status)), (35.0, answer()), (60.0, done()))
        return (
            Run(stdout=init() + answer(), later=trouble, seconds=60.0)
            if len(harness.launched()) == 0
            else works(launch)
        )

    async with EngineHarness(script, pool=4, heartbeat=1.0) as harness:
        harness.add_claude("night", 1)
        await harness.run(11.0)
        harness.add_claude("more", 1)

        await harness.run(10.0)
        assert (harness.running(), harness.executor.stopped) == (
            ["night/u0"],
            [],
        )  # paused for newcomers, left to retry

        await harness.run(20.0)
        assert harness.running() == ["night/u0", "more/u0"]

        await harness.run(120.0)
        assert harness.store.counts() == {"night": UnitCounts(done=1), "more": UnitCounts(done=1)}
        assert [launch.attempt_id for launch in harness.executor.started if is_resumed(launch)] == []


@pytest.mark.parametrize(
    "trouble",
    [
        ((10.0, retry(90.0)),),
        ((10.0, retry(5.0, 1)), (16.0, retry(5.0, 2)), (22.0, retry(5.0, 3))),
        ((10.0, retry(90.0, status=529)),),
    ],
    ids=["a long wait", "the third retry", "overloaded for long"],
)
async def test_a_long_wait_ends_the_session_and_its_conversation_goes_on_later(
    trouble: tuple[tuple[float, str], ...],
) -> None:
    def script(launch: Launch) -> Run:
        if is_resumed(launch):
            return works(launch)
        return Run(stdout=init() + answer(), later=trouble, seconds=600.0)

    async with EngineHarness(script, heartbeat=1.0) as harness:
        harness.add_claude("night", 1)
        await harness.run(30.0)

        refused = harness.unit("night/u0")
        assert (refused.state, refused.counters) == ("todo", Counters(attempts=1, refusals=1))
        assert refused.resume_at is not None
        assert refused.resume_at - harness.clock.now() > 10.0

        await harness.run(300.0)
        assert harness.unit("night/u0").state == "done"
        assert [is_resumed(launch) for launch in harness.executor.started] == [False, True]


@pytest.mark.parametrize(
    "words",
    [
        "No conversation found with session ID: 0b8e2b0c-5f1e-4d43-9a0f-1f6ad9b1c7e5",
        "Error: no rollout found for thread id 0b8e2b0c-5f1e-4d43-9a0f-1f6ad9b1c7e5",
        "No saved session found with ID 0b8e2b0c. Run `qwen --resume` without an ID to choose from existing sessions.",
        'Error resuming session: Invalid session identifier "0b8e2b0c".',
        "Error: No session or task matched '0b8e2b0c'",
        "Error: Session not found: ses_0b8e2b0c",
    ],
)
async def test_a_conversation_that_is_gone_is_begun_again_and_nothing_is_charged(words: str) -> None:
    def script(launch: Launch) -> Run:
        if is_resumed(launch):
            return Run(stderr=f"{words}\n", exit_code=1)
        if len(harness.launched()) > 1:
            return works(launch)
        return Run(stdout=init() + answer(), later=((10.0, retry(90.0)),), seconds=600.0)

    async with EngineHarness(script, heartbeat=1.0) as harness:
        harness.add_claude("night", 1, max_attempts=1)
        await harness.run(900.0)

        unit = harness.unit("night/u0")
        assert [is_resumed(launch) for launch in harness.executor.started] == [False, True, False]
        assert (unit.state, unit.counters) == ("done", Counters(attempts=3, refusals=1))
        (warning,) = unit.warnings
        assert warning.endswith("was gone when it was to be resumed, so it was begun again")


async def test_a_resumed_session_that_fails_otherwise_is_a_failure() -> None:
    def script(launch: Launch) -> Run:
        if is_resumed(launch):
            return Run(stderr="Error: unknown option --fast\n", exit_code=1)
        return Run(stdout=init() + answer(), later=((10.0, retry(90.0)),), seconds=600.0)

    async with EngineHarness(script, heartbeat=1.0) as harness:
        harness.add_claude("night", 1, max_attempts=1)
        await harness.run(900.0)

        assert (harness.unit("night/u0").state, harness.unit("night/u0").warnings) == ("quarantined", ())


async def test_an_agent_that_has_said_nothing_yet_does_not_wait_in_a_slot() -> None:
    async with EngineHarness(lambda _: Run(stdout=init() + retry(5.0), seconds=600.0), heartbeat=1.0) as harness:
        harness.add_claude("night", 1)
        await harness.run(2.0)

        assert harness.unit("night/u0").state == "todo"
        assert harness.scope("sessions").in_flight == 0


async def test_a_wait_that_cannot_be_meant_counts_as_an_unknown_one() -> None:
    """A refusal that asked to wait for millions of years parked its unit for as long."""

    def script(launch: Launch) -> Run:
        return works(launch) if len(harness.launched()) else Run(stdout=init() + retry(1e15), seconds=HOUR)

    async with EngineHarness(script, pool=4, heartbeat=1.0) as harness:
        harness.add_claude("night", 1)
        await harness.run(5 * MINUTE)

        assert harness.store.counts() == {"night": UnitCounts(done=1)}


async def test_a_platform_limit_requeues_is_reported_whole_and_holds_for_the_rest_of_the_pass() -> None:
    def script(launch: Launch) -> Run:
        if len(harness.executor.live()) >= 3:
            return Run(stderr="Error: too many concurrent sessions (5/3)\n", exit_code=1)
        return Run(seconds=600.0)

    async with EngineHarness(script, pool=8) as harness:
        harness.add("night", 20)

        await harness.run(1.0)
        # all eight were launched in one pass; five were refused, and the same pass launched nobody in their place
        assert len(harness.launched()) == 8
        assert len(harness.running()) == 3
        (emitted, *_) = harness.events("scope.platform_limit")
        assert emitted == Event(
            "scope.platform_limit",
            NOW,
            "campaign:night",
            emitted.unit,
            {"detected_limit": 3, "effective_cap": 3, "previous_cap": None},
        )
        assert emitted.unit in harness.launched()
        refused = harness.unit(emitted.unit or "")
        assert (refused.state, refused.counters) == ("todo", Counters(attempts=1, refusals=1))

        await harness.run(500.0)
        assert len(harness.launched()) == 8
        assert harness.failures() == 0


@pytest.mark.parametrize(
    ("says", "billed"), [(init(key="ANTHROPIC_API_KEY"), "an API key"), (init() + answer() + overage(), "overage")]
)
async def test_a_subscription_that_is_billed_by_the_token_is_stopped_and_held(says: str, billed: str) -> None:
    async with EngineHarness(lambda _: Run(stdout=says, seconds=HOUR), pool=2) as harness:
        harness.add_claude("night", 10)
        await harness.run(2 * HOUR)

        reason = f"max-1 is a subscription, but the agent bills {billed}"
        assert len(harness.launched()) == 2
        assert len(harness.executor.stopped) == 2
        assert (harness.unit("night/u0").state, harness.unit("night/u0").reason) == ("todo", reason)
        assert harness.failures() == 0
        assert [(event.scope, event.fields["detail"]) for event in harness.events("account.held")] == [
            ("anthropic/max-1", reason)
        ]

        harness.executor.script = works
        harness.send("lift", "anthropic/max-1")
        await harness.run(HOUR)
        assert harness.store.counts() == {"night": UnitCounts(done=10)}


async def test_a_command_that_is_refused_somewhere_fails_by_itself_and_holds_nobody() -> None:
    """It is no login of ours that was refused, and other commands have nothing to do with it."""
    refused = Run(stderr="Error: 401 Unauthorized\n", exit_code=22)
    async with EngineHarness(lambda launch: refused if launch.argv[1] == "u0" else Run()) as harness:
        harness.add("night", 2, max_attempts=1)
        await harness.run(HOUR)

        assert harness.states() == {"night/u0": "quarantined", "night/u1": "done"}
        assert harness.unit("night/u0").reason == "exit code 22: Error: 401 Unauthorized"


@pytest.mark.parametrize(
    ("words", "starts"),
    [
        ("Not logged in · Please run /login", 1),
        ("Invalid API key · Please run /login", 1),
        ("API Error: 401 authentication_error: OAuth token has expired", 3),
    ],
)
async def test_a_missing_login_is_held_at_once_and_a_refused_one_after_two_more_starts(words: str, starts: int) -> None:
    said = {"type": "result", "is_error": True, "result": words, "session_id": "s1"}
    async with EngineHarness(lambda _: Run(stdout=init() + json.dumps(said) + "\n", exit_code=1), pool=1) as harness:
        harness.add_claude("night", 5)
        await harness.run(HOUR / 2)

        assert (len(harness.launched()), harness.failures()) == (starts, 0)
        assert [event.scope for event in harness.events("account.held")] == ["anthropic/max-1"]


@pytest.mark.parametrize(
    ("leaves", "reason"),
    [
        (None, "ended well, but out.md was not written"),
        ("", "ended well, but out.md is empty"),
        ("old", "ended well, but out.md is older than this attempt"),
    ],
)
async def test_a_unit_without_its_output_is_not_done(tmp_path: Path, leaves: str | None, reason: str) -> None:
    if leaves is not None:
        (tmp_path / "out.md").write_text(leaves)
    async with EngineHarness() as harness:
        harness.clock.step(YEARS_LATER - NOW)
        harness.add("night", [UnitSpec(id="a", cwd=str(tmp_path), output="out.md")], max_attempts=1)
        await harness.run(90.0)

        assert (harness.unit("night/a").state, harness.unit("night/a").reason) == ("quarantined", reason)


async def test_a_program_that_is_not_the_agent_does_no_work() -> None:
    """Such as another program of the same name, or a wrapper that prints its usage."""
    async with EngineHarness(lambda _: Run(stdout="Usage: claude [options]\n")) as harness:
        harness.add_claude("night", 1, max_attempts=1)
        await harness.run(90.0)

        reason = "exit code 0, but it printed no event of claude: is claude another program?"
        assert (harness.unit("night/u0").state, harness.unit("night/u0").reason) == ("quarantined", reason)


async def test_a_unit_with_its_output_is_done(tmp_path: Path) -> None:
    def write() -> None:
        (tmp_path / "out.md").write_text("all of it")
        os.utime(tmp_path / "out.md", (NOW + 59.0, NOW + 59.0))

    async with EngineHarness(lambda _: Run(seconds=60.0, act=write)) as harness:
        harness.add("night", [UnitSpec(id="a", cwd=str(tmp_path), output="out.md")], max_attempts=1)
        await harness.run(90.0)

        assert harness.states() == {"night/a": "done"}


async def test_an_agent_that_waits_in_silence_for_its_quota_is_parked_and_not_charged() -> None:
    """opencode prints nothing while its quota is spent, until its time is over."""
    async with EngineHarness(lambda _: Run(seconds=HOUR), pool=4) as harness:
        harness.add_claude("night", 8, agent="opencode", timeout=1800.0, model=None)
        await harness.run(3 * HOUR)

        assert harness.failures() == 0
        assert set(harness.states().values()) <= {"todo", "running"}
        assert {event.name for event in harness.events("unit.parked", "unit.failed")} == {"unit.parked"}


async def test_a_command_that_takes_too_long_has_failed() -> None:
    async with EngineHarness(lambda _: Run(seconds=HOUR)) as harness:
        harness.add("night", 1, timeout=600.0, max_attempts=1)
        await harness.run(HOUR)

        assert (harness.unit("night/u0").state, harness.unit("night/u0").reason) == (
            "quarantined",
            "took longer than its 600 s",
        )


async def test_an_output_that_was_written_before_a_park_counts(tmp_path: Path) -> None:
    def write() -> str:
        (tmp_path / "out.md").write_text("all of it")
        os.utime(tmp_path / "out.md", (at := harness.clock.now(), at))
        return ""

    def script(launch: Launch) -> Run:
        if is_resumed(launch):
            return works(launch)
        write()
        session = session_of(launch)
        return Run(
            stdout=init(session) + answer(session),
            later=((MINUTE, rejected(YEARS_LATER + 1200.0, session)),),
            seconds=HOUR,
        )

    async with EngineHarness(script) as harness:
        harness.clock.step(YEARS_LATER - NOW)
        harness.add_claude("night", [UnitSpec(id="a", cwd=str(tmp_path), output="out.md")], max_attempts=1)
        await harness.run(HOUR)

        assert (harness.states(), harness.unit("night/a").counters.parks) == ({"night/a": "done"}, 1)


async def test_an_output_that_was_moved_into_place_counts_though_it_has_an_earlier_time(tmp_path: Path) -> None:
    def move() -> None:
        (tmp_path / "draft.md").write_text("all of it")
        os.utime(tmp_path / "draft.md", (0.0, 0.0))
        os.rename(tmp_path / "draft.md", tmp_path / "out.md")

    async with EngineHarness(lambda _: Run(seconds=60.0, act=move)) as harness:
        harness.add("night", [UnitSpec(id="a", cwd=str(tmp_path), output="out.md")], max_attempts=1)
        await harness.run(90.0)

        assert harness.states() == {"night/a": "done"}

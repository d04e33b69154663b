"""What limits do to a campaign: parks, waves, refusals, platform caps, bills. Virtual time, no processes."""

import json
import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from paceline.core import Deferred
from paceline.core.unit_lifecycle import Counters
from paceline.events import Event
from paceline.executors import Handle, Launch
from paceline.executors.interface import DEFAULT_GRACE_SECONDS
from paceline.simulation.agent_transcripts import (
    answer,
    done,
    init,
    limit_without_a_time,
    overage,
    rejected,
    retry,
    warned,
)
from paceline.simulation.executor import Run
from paceline.store import UnitCounts, UnitSpec
from paceline.testing import ScriptedExecutor
from paceline.testing.engine_harness import HOUR, MAX_1, MAX_2, NOW, EngineHarness

MINUTE = 60.0
RESET = NOW + 2 * HOUR


def session_of(launch: Launch) -> str:
    return "talk-" + launch.env["PACELINE_UNIT"].rpartition("/")[2]


def works(launch: Launch, seconds: float = MINUTE) -> Run:
    """A conversation that answers at once and is done after a while."""
    session = session_of(launch)
    return Run(stdout=init(session) + answer(session), later=((seconds, done(session)),), seconds=seconds)


def is_resumed(launch: Launch) -> bool:
    return "--resume" in launch.argv


class Window:
    """An account's quota: `left` sessions are served, then it is closed until the reset, when it is full again."""

    def __init__(self, left: int, resets_at: float = RESET, *, refill: int = 10_000, after: float = 10.0) -> None:
        self.harness: EngineHarness | None = None
        self.left = left
        self.resets_at = resets_at
        self._refill = refill
        self._after = after

    def __call__(self, launch: Launch) -> Run:
        assert self.harness is not None
        if self.harness.clock.now() >= self.resets_at:
            self.left, self.resets_at = self._refill, self.resets_at + 5 * HOUR
        self.left -= 1
        if self.left >= 0:
            return works(launch)
        session = session_of(launch)
        return Run(
            stdout=init(session) + answer(session),
            later=((self._after, rejected(self.resets_at, session)),),
            exit_code=1,
            seconds=self._after + 600.0,
        )


def house_with(window: Window, **settings: object) -> EngineHarness:
    harness = EngineHarness(window, **settings)  # type: ignore[arg-type]
    window.harness = harness
    return harness


# -- parking --------------------------------------------------------------------------------------------


async def test_a_spent_window_parks_its_units_and_closes_the_scope_for_all_others() -> None:
    async with house_with(Window(left=0, resets_at=NOW + 1200.0), pool=2) as harness:
        harness.add_claude("night", 50)

        await harness.run(40.0)

        first = harness.unit("night/u0")
        assert (first.state, first.counters) == ("todo", Counters(attempts=1, parks=1))
        assert (first.resume_at, first.reason) == (NOW + 1200.0, "the quota window is spent")
        assert (first.account, first.conversation_id) == ("max-1", "talk-u0")
        assert harness.store.counts() == {"night": UnitCounts(todo=50, parked=2)}
        assert harness.launched() == ["night/u0", "night/u1"]
        assert harness.scope("sessions").in_flight == 0  # the slots are free at once
        closed = harness.events("window.closed")[0]
        assert (closed.unit, closed.fields["resets_at"]) == ("night/u0", NOW + 1200.0)
        assert [(event.unit, event.fields["resume_at"]) for event in harness.events("unit.parked")] == [
            ("night/u0", NOW + 1200.0),
            ("night/u1", NOW + 1200.0),
        ]


async def test_that_a_window_closed_is_told_before_the_units_that_it_parked() -> None:
    async with EngineHarness(lambda _: Run(stdout=init() + rejected(RESET), exit_code=1), pool=2) as harness:
        harness.add_claude("night", 5)

        await harness.run(40.0)

        told = [event.name for event in harness.events("window.closed", "unit.parked")]
        assert told == ["window.closed", "window.closed", "unit.parked", "unit.parked"]


async def test_at_the_reset_one_canary_goes_and_at_its_first_answer_the_wave_follows() -> None:
    def script(launch: Launch) -> Run:
        if harness.clock.now() < NOW + 1200.0:
            return Run(stdout=init() + rejected(NOW + 1200.0), exit_code=1)
        if not harness.events("window.canary"):  # the canary takes ten seconds to answer
            return Run(stdout=init(), later=((10.0, answer()), (MINUTE, done())), seconds=MINUTE)
        return works(launch)

    async with EngineHarness(script, pool=20, heartbeat=1.0) as harness:
        harness.add_claude("night", 40)
        await harness.run(1190.0)
        assert len(harness.executor.live()) == 0
        tried = len(harness.launched())

        await harness.run(15.0)
        assert len(harness.launched()) == tried + 1  # the canary alone

        await harness.run(10.0)
        started = [
            event.at - NOW for event in harness.events("unit.started", "unit.resumed") if event.at > NOW + 1205.0
        ]
        gaps = [after - before for before, after in pairwise(started)]
        assert len(started) == 19
        assert started[0] == 1210.0
        assert gaps[0] > 4 * gaps[-1] > 0.0  # from few to many, not all at once

        await harness.run(HOUR)
        assert harness.store.counts() == {"night": UnitCounts(done=40)}
        assert harness.failures() == 0


async def test_other_accounts_and_other_campaigns_go_on_while_one_window_is_closed() -> None:
    def script(launch: Launch) -> Run:
        if launch.env.get("WHO") == "max-1":
            return Run(stdout=init() + rejected(NOW + 1200.0), exit_code=1)
        return works(launch)

    accounts = [
        MAX_1.__class__(name=each.name, provider="anthropic", kind="subscription", env={"WHO": each.name})
        for each in (MAX_1, MAX_2)
    ]
    async with EngineHarness(script, pool=4, accounts=accounts) as harness:
        harness.add_claude("one", 4, accounts=("max-1",))
        harness.add_claude("two", 4, accounts=("max-2",))
        harness.add_claude("both", 4, accounts=("max-1", "max-2"))

        await harness.run(900.0)

        assert {name: (counts.done, counts.todo) for name, counts in harness.store.counts().items()} == {
            "one": (0, 4),
            "two": (4, 0),
            "both": (4, 0),
        }
        assert harness.failures() == 0


async def test_the_reset_is_stored_before_the_session_is_ended() -> None:
    seen: list[bytes] = []

    class Looking(ScriptedExecutor):
        def stop(self, handle: Handle, grace: float = DEFAULT_GRACE_SECONDS) -> None:
            seen.append(harness.store.load_state("governor") or b"")
            super().stop(handle, grace)

    async with house_with(Window(left=0)) as harness:
        harness.executor = Looking(harness.executor.script, harness.clock)
        harness.engine = harness.new_engine()
        harness.add_claude("night", 1)
        await harness.run(40.0)

        assert [str(int(RESET)).encode() in stored for stored in seen] == [True]


async def test_a_parked_conversation_is_resumed_on_its_own_account_exactly_once() -> None:
    async with house_with(Window(left=0, resets_at=NOW + 1200.0), pool=1) as harness:
        harness.add_claude("night", 1, accounts=("max-1", "max-2"))

        await harness.run(2 * HOUR)

        assert [(launch.argv[:5], is_resumed(launch)) for launch in harness.executor.started] == [
            (("claude", "-p", "do 0", "--output-format", "stream-json"), False),
            (("claude", "-p", "Continue from where you left off.", "--resume", "talk-u0"), True),
        ]
        assert harness.unit("night/u0").state == "done"
        assert harness.unit("night/u0").account == "max-1"
        assert harness.unit("night/u0").counters == Counters(attempts=2, parks=1)


async def test_a_conversation_that_had_not_begun_is_started_afresh() -> None:
    def script(launch: Launch) -> Run:
        if harness.clock.now() < NOW + 1200.0:
            return Run(stdout=init("never") + rejected(NOW + 1200.0, "never"), exit_code=1)
        return works(launch)

    async with EngineHarness(script) as harness:
        harness.add_claude("night", 1)
        await harness.run(2 * HOUR)

        assert [is_resumed(launch) for launch in harness.executor.started] == [False, False]
        assert harness.unit("night/u0").state == "done"


async def test_a_resume_that_is_refused_keeps_the_conversation() -> None:
    """The canary finds the window still closed before it has said a word: what was begun is not begun again."""
    runs: Iterator[Callable[[Launch], Run]] = iter(
        [
            lambda _: Run(stdout=init("t") + answer("t") + rejected(NOW + 600.0, "t"), exit_code=1),
            lambda _: Run(stdout=init("other") + rejected(NOW + 1200.0, "other"), exit_code=1),
            works,
        ]
    )
    async with EngineHarness(lambda launch: next(runs)(launch)) as harness:
        harness.add_claude("night", 1)
        await harness.run(2 * HOUR)

        resumed = [launch.argv[launch.argv.index("--resume") + 1] for launch in harness.executor.started[1:]]
        assert resumed == ["t", "t"]
        assert harness.unit("night/u0").state == "done"


async def test_a_failed_try_begins_afresh_where_it_may_have_been_the_conversation() -> None:
    runs = iter([Run(stdout=init("t") + answer("t"), exit_code=1), Run(stdout=init() + answer() + done())])
    async with EngineHarness(lambda _: next(runs)) as harness:
        harness.add_claude("night", 1)
        await harness.run(HOUR)

        assert [is_resumed(launch) for launch in harness.executor.started] == [False, False]
        assert harness.unit("night/u0").counters == Counters(failures=1, attempts=2)


async def test_a_reset_that_cannot_be_read_is_backed_off_from_five_minutes_to_an_hour() -> None:
    async with EngineHarness(lambda _: Run(stdout=init() + limit_without_a_time(), exit_code=1)) as harness:
        harness.add_claude("night", 3)

        await harness.run(5 * HOUR)

        tries = [event.at - NOW for event in harness.events("unit.started", "unit.resumed")]
        canaries = sorted(set(tries))[1:6]
        gaps = [round((after - before) / MINUTE) for before, after in zip([0.0, *canaries], canaries, strict=False)]
        assert gaps == [5, 15, 30, 60, 60]
        assert len(tries) == 3 + 7  # the first three met it together; then one at a time
        assert harness.failures() == 0
        assert set(harness.states().values()) == {"todo"}


@pytest.mark.parametrize("how", ["stop", "crash"])
async def test_a_restart_during_the_wait_forgets_neither_the_reset_nor_the_units(how: str) -> None:
    async with house_with(Window(left=0, resets_at=NOW + 1200.0)) as harness:
        harness.add_claude("night", 6)
        await harness.run(300.0)
        tried = len(harness.launched())

        await getattr(harness, how)()
        await harness.run(800.0)
        assert len(harness.launched()) == tried  # nothing was launched into the closed window

        await harness.run(HOUR)
        assert harness.store.counts() == {"night": UnitCounts(done=6)}
        assert harness.failures() == 0


async def test_a_restart_while_the_canary_runs_sends_another() -> None:
    """The canary is gone with the machine: nobody would wait for it for ever."""

    def script(launch: Launch) -> Run:
        if harness.clock.now() < NOW + 1200.0:
            return Run(stdout=init() + rejected(NOW + 1200.0), exit_code=1)
        return works(launch) if harness.starts > 1 else Run(stdout=init(), seconds=HOUR)

    async with EngineHarness(script) as harness:
        harness.add_claude("night", 6)
        await harness.run(1230.0)
        assert len(harness.executor.live()) == 1

        await harness.crash()
        harness.executor.reboot()
        await harness.run(HOUR)

        assert harness.store.counts() == {"night": UnitCounts(done=6)}
        assert harness.failures() == 0


async def test_a_window_that_closes_while_no_engine_looks_is_read_from_the_spool() -> None:
    async with house_with(Window(left=0, resets_at=NOW + 1200.0, after=30.0)) as harness:
        harness.add_claude("night", 6)
        await harness.run(5.0)

        await harness.crash()
        await harness.clock.advance(700.0)  # the sessions have met the limit and ended
        await harness.run(60.0)

        assert harness.store.counts() == {"night": UnitCounts(todo=6, parked=4)}
        assert harness.unit("night/u0").resume_at == NOW + 1200.0
        assert len(harness.launched()) == 4


async def test_a_laptop_that_slept_through_the_reset_goes_on_at_once() -> None:
    async with house_with(Window(left=0)) as harness:
        harness.add_claude("night", 3)
        await harness.run(60.0)

        harness.clock.step(8 * HOUR)
        await harness.run(0.0)
        await harness.run(300.0)

        assert harness.store.counts() == {"night": UnitCounts(done=3)}


async def test_a_clock_that_is_set_back_waits_for_the_reset_as_the_calendar_says() -> None:
    async with house_with(Window(left=0, resets_at=NOW + 1200.0)) as harness:
        harness.add_claude("night", 4)
        await harness.run(300.0)
        tried = len(harness.launched())

        harness.clock.step(-600.0)
        harness.engine.wake()
        await harness.run(1490.0)
        assert len(harness.launched()) == tried

        await harness.run(600.0)
        assert harness.store.counts() == {"night": UnitCounts(done=4)}


async def test_a_unit_that_spends_five_fresh_windows_by_itself_is_held() -> None:
    async with house_with(Window(left=0, resets_at=NOW + HOUR, refill=0, after=1800.0)) as harness:
        harness.add_claude("night", [UnitSpec(id="endless")])

        await harness.run(40 * HOUR)

        held = harness.unit("night/endless")
        assert (held.state, held.counters.windows_spent, held.counters.failures) == ("held", 5, 0)
        assert held.reason == "has spent 5 fresh windows by itself: the quota window is spent"


async def test_units_that_share_their_windows_are_never_held_for_it() -> None:
    async with house_with(Window(left=0, resets_at=NOW + HOUR, refill=0, after=1800.0), pool=4) as harness:
        harness.add_claude("night", 4)

        await harness.run(60 * HOUR)

        assert set(harness.states().values()) <= {"todo", "running"}
        assert harness.unit("night/u3").counters.parks > 8


# -- rate limits and overload ----------------------------------------------------------------------------


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


async def test_an_agent_that_has_said_nothing_yet_does_not_wait_in_a_slot() -> None:
    async with EngineHarness(lambda _: Run(stdout=init() + retry(5.0), seconds=600.0), heartbeat=1.0) as harness:
        harness.add_claude("night", 1)
        await harness.run(2.0)

        assert harness.unit("night/u0").state == "todo"
        assert harness.scope("sessions").in_flight == 0


async def test_free_of_charge_is_not_free_of_backoff() -> None:
    async with EngineHarness(lambda _: Run(stdout=init() + retry(1.0), exit_code=1)) as harness:
        harness.add_claude("night", 1)

        await harness.run(3 * HOUR)

        assert len(harness.launched()) < 30
        assert (harness.unit("night/u0").state, harness.failures()) == ("todo", 0)

        await harness.run(10 * HOUR)
        held = harness.unit("night/u0")
        assert (held.state, held.counters) == ("held", Counters(attempts=50, refusals=50))


# -- the platform's own limit -----------------------------------------------------------------------------


async def test_a_platform_limit_requeues_is_told_whole_and_holds_for_the_rest_of_the_pass() -> None:
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
        (told, *_) = harness.events("scope.platform_limit")
        assert told == Event(
            "scope.platform_limit",
            NOW,
            "agent:command",
            told.unit,
            {"detected_limit": 3, "effective_cap": 3, "previous_cap": None},
        )
        assert told.unit in harness.launched()
        refused = harness.unit(told.unit or "")
        assert (refused.state, refused.counters) == ("todo", Counters(attempts=1, refusals=1))

        await harness.run(500.0)
        assert len(harness.launched()) == 8
        assert harness.failures() == 0


# -- never metered ----------------------------------------------------------------------------------------


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


async def test_a_subscription_never_sees_a_key() -> None:
    async with EngineHarness(works) as harness:
        harness.add_claude("night", 1)
        await harness.run(120.0)

        (launch,) = harness.executor.started
        assert "ANTHROPIC_API_KEY" not in launch.env


# -- several accounts -------------------------------------------------------------------------------------


async def test_a_unit_goes_to_the_account_that_has_room() -> None:
    async with EngineHarness(works, pool=10, limits={"anthropic/max-1": 1, "anthropic/max-2": 3}) as harness:
        harness.add_claude("night", 10, accounts=("max-1", "max-2"))
        await harness.run(10.0)

        assert (harness.scope("anthropic/max-1").in_flight, harness.scope("anthropic/max-2").in_flight) == (1, 3)


async def test_the_account_with_most_of_its_quota_left_goes_first() -> None:
    used = {"max-1": 0.8, "max-2": 0.3}

    def script(launch: Launch) -> Run:
        session, who = session_of(launch), launch.env["WHO"]
        said = init(session) + answer(session) + warned(used[who], NOW + 5 * HOUR, session)
        return Run(stdout=said, later=((MINUTE, done(session)),), seconds=MINUTE)

    accounts = [
        MAX_1.__class__(name=name, provider="anthropic", kind="subscription", env={"WHO": name}) for name in used
    ]
    async with EngineHarness(script, pool=2, accounts=accounts) as harness:
        harness.add_claude("learn-1", 1, accounts=("max-1",))
        harness.add_claude("learn-2", 1, accounts=("max-2",))
        await harness.run(90.0)

        harness.add_claude("night", 60, accounts=("max-1", "max-2"))
        await harness.run(20 * MINUTE)

        tried = [launch.env["WHO"] for launch in harness.executor.started[2:]]
        assert len(tried) >= 38
        assert tried == ["max-2"] * len(tried)

        used["max-1"], used["max-2"] = 0.1, 0.9
        await harness.run(20 * MINUTE)
        later = [launch.env["WHO"] for launch in harness.executor.started[2 + len(tried) :]]
        assert later[4:14] == ["max-1"] * 10  # as soon as max-2 has told of it


async def test_units_whose_account_was_taken_away_say_so_and_go_on_when_it_is_back() -> None:
    async with house_with(Window(left=0, resets_at=NOW + 1200.0)) as harness:
        harness.add_claude("night", 1)
        await harness.run(60.0)

        harness.change("night", accounts=("max-2",))
        await harness.run(2 * HOUR)
        assert harness.states() == {"night/u0": "todo"}
        why = msgspec.json.decode(harness.store.load_state("why") or b"", type=dict[str, Deferred])
        assert (
            why["night max-1"].detail == "1 units have their conversation on 'max-1', which the campaign does not name"
        )

        harness.change("night", accounts=("max-1", "max-2"))
        await harness.run(HOUR)
        assert (harness.unit("night/u0").state, harness.unit("night/u0").account) == ("done", "max-1")


async def test_a_command_that_is_refused_somewhere_fails_by_itself_and_holds_nobody() -> None:
    """It is no login of ours that was refused, and other commands have nothing to do with it."""
    refused = Run(stderr="Error: 401 Unauthorized\n", exit_code=22)
    async with EngineHarness(lambda launch: refused if launch.argv[1] == "u0" else Run()) as harness:
        harness.add("night", 2, max_attempts=1)
        await harness.run(HOUR)

        assert harness.states() == {"night/u0": "quarantined", "night/u1": "done"}
        assert harness.unit("night/u0").reason == "exit code 22: Error: 401 Unauthorized"


async def test_an_agent_that_is_not_logged_in_holds_its_account_at_the_first_unit() -> None:
    said = {"type": "result", "is_error": True, "result": "Invalid API key · Please run /login", "session_id": "s1"}
    async with EngineHarness(lambda _: Run(stdout=init() + json.dumps(said) + "\n", exit_code=1), pool=1) as harness:
        harness.add_claude("night", 5)
        await harness.run(HOUR)

        assert (len(harness.launched()), harness.failures()) == (1, 0)
        assert [event.scope for event in harness.events("account.held")] == ["anthropic/max-1"]


# -- outputs ----------------------------------------------------------------------------------------------


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
        at = NOW - HOUR if leaves == "old" else NOW + 60.0
        os.utime(tmp_path / "out.md", (at, at))
    async with EngineHarness() as harness:
        harness.add("night", [UnitSpec(id="a", cwd=str(tmp_path), output="out.md")], max_attempts=1)
        await harness.run(90.0)

        assert (harness.unit("night/a").state, harness.unit("night/a").reason) == ("quarantined", reason)


async def test_a_unit_with_its_output_is_done(tmp_path: Path) -> None:
    def write() -> None:
        (tmp_path / "out.md").write_text("all of it")
        os.utime(tmp_path / "out.md", (NOW + 59.0, NOW + 59.0))

    async with EngineHarness(lambda _: Run(seconds=60.0, act=write)) as harness:
        harness.add("night", [UnitSpec(id="a", cwd=str(tmp_path), output="out.md")], max_attempts=1)
        await harness.run(90.0)

        assert harness.states() == {"night/a": "done"}

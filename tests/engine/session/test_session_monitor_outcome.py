"""Parked and resumed units: what is stored of an attempt that met a spent window."""

import json
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from paceline.core.gates.reopening import first_look
from paceline.core.unit_lifecycle import Counters
from paceline.executors.interface import DEFAULT_GRACE_SECONDS, Handle, Launch
from paceline.simulation.agent_transcripts import (
    answer,
    done,
    init,
    limit_without_a_time,
    rejected,
    retry,
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


async def test_a_spent_window_parks_its_units_and_closes_the_scope_for_all_others() -> None:
    async with house_with(Window(left=0, resets_at=NOW + 1200.0), pool=2) as harness:
        harness.add_claude("night", 50)

        await harness.run(40.0)

        first = harness.unit("night/u0")
        assert (first.state, first.counters) == ("todo", Counters(attempts=1, parks=1))
        assert (first.resume_at, first.reason) == (first_look(NOW + 1200.0), "the quota window is spent")
        assert (first.account, first.conversation_id) == ("max-1", "talk-u0")
        assert harness.store.counts() == {"night": UnitCounts(todo=50, parked=2)}
        assert harness.launched() == ["night/u0", "night/u1"]
        assert harness.scope("sessions").in_flight == 0  # the slots are free at once
        closed = harness.events("window.closed")[0]
        assert (closed.unit, closed.fields["resets_at"]) == ("night/u0", NOW + 1200.0)
        assert [(event.unit, event.fields["resume_at"]) for event in harness.events("unit.parked")] == [
            ("night/u0", first_look(NOW + 1200.0)),
            ("night/u1", first_look(NOW + 1200.0)),
        ]


async def test_that_a_window_closed_is_emitted_before_the_units_that_it_parked() -> None:
    async with EngineHarness(lambda _: Run(stdout=init() + rejected(RESET), exit_code=1), pool=2) as harness:
        harness.add_claude("night", 5)

        await harness.run(40.0)

        emitted = [event.name for event in harness.events("window.closed", "unit.parked")]
        assert emitted == ["window.closed", "window.closed", "unit.parked", "unit.parked"]


async def test_at_the_reset_one_canary_goes_and_at_its_first_answer_the_wave_follows() -> None:
    def script(launch: Launch) -> Run:
        if harness.clock.now() < NOW + 1200.0:
            return Run(stdout=init() + rejected(NOW + 1200.0), exit_code=1)
        if not harness.events("window.reopened"):  # the canary takes ten seconds to answer
            return Run(stdout=init(), later=((10.0, answer()), (MINUTE, done())), seconds=MINUTE)
        return works(launch)

    async with EngineHarness(script, pool=20, heartbeat=1.0) as harness:
        harness.add_claude("night", 40)
        await harness.run(1190.0)
        assert len(harness.executor.live()) == 0
        tried = len(harness.launched())

        await harness.run(15.0)
        assert len(harness.launched()) == tried + 1  # the canary alone

        await harness.run(15.0)
        started = [
            event.at - NOW for event in harness.events("unit.started", "unit.resumed") if event.at > NOW + 1205.0
        ]
        gaps = [after - before for before, after in pairwise(started)]
        assert len(started) == 19
        assert started[0] == pytest.approx(first_look(NOW + 1200.0) - NOW + 10.0)
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

        assert [(launch.argv[:4], launch.stdin, is_resumed(launch)) for launch in harness.executor.started] == [
            (("claude", "-p", "--output-format", "stream-json"), b"do 0", False),
            (("claude", "-p", "--resume", "talk-u0"), b"Continue from where you left off.", True),
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
    """The canary is gone with the machine: no ticket may wait for it forever."""

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
        assert harness.unit("night/u0").resume_at == first_look(NOW + 1200.0)
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


async def test_free_of_charge_is_not_free_of_backoff() -> None:
    async with EngineHarness(lambda _: Run(stdout=init() + retry(1.0), exit_code=1)) as harness:
        harness.add_claude("night", 1)

        await harness.run(3 * HOUR)

        assert len(harness.launched()) < 30
        assert (harness.unit("night/u0").state, harness.failures()) == ("todo", 0)

        await harness.run(10 * HOUR)
        held = harness.unit("night/u0")
        assert (held.state, held.counters) == ("held", Counters(attempts=50, refusals=50))


async def test_a_subscription_never_sees_a_key() -> None:
    async with EngineHarness(works) as harness:
        harness.add_claude("night", 1)
        await harness.run(120.0)

        (launch,) = harness.executor.started
        assert "ANTHROPIC_API_KEY" not in launch.env


async def test_one_expired_token_does_not_end_the_night() -> None:
    """Session 3 of 20 meets a 401, as parallel CLIs that refresh one token do. Nobody comes by morning."""
    refused = 'API Error: 401 {"type":"error","error":{"type":"authentication_error"}} · Please run /login'
    said = {"type": "result", "subtype": "success", "is_error": True, "result": refused, "session_id": "s1"}

    def script(_: Launch) -> Run:
        if len(harness.launched()) == 3:
            return Run(stdout=init() + json.dumps(said) + "\n", exit_code=1)
        return Run(stdout=init() + answer() + done(), seconds=60.0)

    async with EngineHarness(script, pool=2) as harness:
        harness.add_claude("night", 20)
        await harness.run(HOUR)

        assert harness.store.counts() == {"night": UnitCounts(done=20)}
        assert harness.events("account.held") == []
        assert [event.fields["cause"] for event in harness.events("scope.paused")] == ["auth"]


async def test_sessions_that_end_while_nothing_can_be_stored_are_not_run_again() -> None:
    async with EngineHarness(lambda _: Run(seconds=60.0), pool=4) as harness:
        harness.add("night", 8)
        await harness.run(30.0)
        harness.disk_full_until = harness.clock.now() + 600.0
        await harness.run(590.0)

        assert (set(harness.states().values()), len(harness.executor.started)) == ({"todo", "running"}, 4)
        await harness.run(300.0)

        assert harness.store.counts() == {"night": UnitCounts(done=8)}
        assert len(harness.executor.started) == 8

"""The pass over campaigns: who runs, how many, and what a person changes while it runs. Virtual time, no processes."""

import asyncio
import json
import logging
import platform
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engine.log_capture import Logged

from paceline.agents import Account
from paceline.core.unit_lifecycle import Counters
from paceline.errors import EngineBusy, StoreBusy
from paceline.events import Event
from paceline.executors.interface import Launch
from paceline.simulation.agent_transcripts import answer, done, init
from paceline.simulation.executor import Run
from paceline.store import SqliteStore, Unit, UnitCounts, UnitResult, UnitSpec
from paceline.store.unit_result import Carried
from paceline.testing.engine_harness import HOUR, NOW, EngineHarness


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """What the engine logs in this test."""
    handler = Logged()
    logging.getLogger("paceline.engine").addHandler(handler)
    yield handler.lines
    logging.getLogger("paceline.engine").removeHandler(handler)


# -- one campaign -------------------------------------------------------------------------------------


async def test_a_unit_is_run_and_stored_whole() -> None:
    async with EngineHarness() as harness:
        harness.add("night", [UnitSpec(id="a", prompt="mend it", cwd="/srv/a")])

        await harness.run(90.0)

        assert harness.unit("night/a") == Unit(
            id="night/a",
            campaign="night",
            spec=UnitSpec(id="a", prompt="mend it", cwd="/srv/a"),
            position=0,
            state="done",
            counters=Counters(attempts=1),
            reason="done",
            account="",
            attempt_id="engine1-1",
            fence=1,
            started_at=NOW,
            ended_at=NOW + 60.0,
            exit_code=0,
            begun_at=NOW,
            result=UnitResult(
                agent="command", host=platform.node(), ran_seconds=60.0, carried=Carried(left_at=NOW + 60.0)
            ),
        )
        assert harness.executor.started == [
            Launch(
                attempt_id="engine1-1",
                argv=("work", "a"),
                env={
                    "HOME": "/home/ada",
                    "PACELINE_UNIT": "night/a",
                    "PACELINE_ATTEMPT": "engine1-1",
                },
                cwd="/srv/a",
                stdin=b"mend it",
            )
        ]
        assert harness.events("unit.started", "unit.done") == [
            Event("unit.started", NOW, "agent:command", "night/a", {"attempt": "engine1-1", "session_id": None}),
            Event(
                "unit.done",
                NOW + 60.0,
                None,
                "night/a",
                {"reason": "done", "resume_at": None, "exit_code": 0, "attempts": 0},
            ),
        ]


async def test_units_go_in_plan_order_and_no_more_at_once_than_the_pool_holds() -> None:
    async with EngineHarness(pool=3) as harness:
        harness.add("night", 8)

        await harness.run(30.0)
        assert harness.running() == ["night/u0", "night/u1", "night/u2"]

        await harness.run(60.0)
        assert harness.running() == ["night/u3", "night/u4", "night/u5"]

        await harness.run(HOUR)
        assert harness.launched() == [f"night/u{n}" for n in range(8)]
        assert harness.store.counts() == {"night": UnitCounts(done=8)}


async def test_a_foreground_run_ends_when_nothing_is_left_and_lets_go_of_the_lead() -> None:
    harness = EngineHarness()
    harness.add("night", 5)

    running = asyncio.create_task(harness.engine.run(until_idle=True))
    await harness.clock.advance(HOUR)

    assert running.done()
    await running
    assert set(harness.states().values()) == {"done"}
    assert harness.store.lead("someone else", until=NOW + 9 * HOUR, now=harness.clock.now())


async def test_an_idle_engine_writes_nothing() -> None:
    store = Watched()
    async with EngineHarness(store=store, heartbeat=1.0) as harness:
        harness.add("night", 2)
        await harness.run(120.0)

        store.calls.clear()
        await harness.run(10.0)

        assert store.calls.keys() & WRITES == set()


# -- several campaigns ----------------------------------------------------------------------------------


async def test_one_level_of_priority_is_twice_the_share_and_nobody_starves() -> None:
    async with EngineHarness(pool=3) as harness:
        harness.add("low", 300, priority=0)
        harness.add("high", 300, priority=1)

        await harness.run(60 * 60.0)

        done = {name: counts.done for name, counts in harness.store.counts().items()}
        assert done == {"low": 60, "high": 120}


async def test_a_campaign_of_much_lower_priority_still_gets_its_turn() -> None:
    async with EngineHarness(pool=1) as harness:
        harness.add("high", 500, priority=5)
        harness.add("low", 3, priority=0)

        await harness.run(110 * 60.0)

        assert harness.store.counts()["low"].done >= 2


async def test_max_sessions_holds_and_is_clamped_to_a_pool_that_shrinks_later() -> None:
    async with EngineHarness(pool=10) as harness:
        harness.add("night", 50, max_sessions=4)

        await harness.run(30.0)
        assert len(harness.running()) == 4

        harness.send("limit", "sessions", limit=2)
        await harness.run(15.0)
        assert (len(harness.running()), harness.executor.stopped) == (4, [])  # nobody is killed for it

        await harness.run(60.0)
        assert len(harness.running()) == 2

        harness.send("limit", "sessions", limit=10)
        await harness.run(1.0)
        await harness.run(60.0)
        assert len(harness.running()) == 4


async def test_the_pool_can_grow_live_and_what_was_set_outlives_a_restart() -> None:
    async with EngineHarness(pool=1) as harness:
        harness.add("night", 50)
        await harness.run(10.0)
        assert len(harness.running()) == 1

        harness.send("limit", "sessions", limit=6)
        await harness.run(60.0)
        assert len(harness.running()) == 6

        await harness.stop()
        await harness.run(70.0)
        assert len(harness.running()) == 6


async def test_a_paused_campaign_starts_nothing_and_its_sessions_end_in_peace() -> None:
    async with EngineHarness(pool=2) as harness:
        harness.add("night", 6)
        await harness.run(10.0)

        harness.change("night", state="paused")
        await harness.run(HOUR)
        assert harness.store.counts() == {"night": UnitCounts(todo=4, done=2)}
        assert harness.executor.stopped == []

        harness.change("night", state="active")
        await harness.run(HOUR)
        assert harness.store.counts() == {"night": UnitCounts(done=6)}


async def test_a_cancelled_campaign_is_ended_at_the_next_pass() -> None:
    async with EngineHarness(lambda _: Run(seconds=HOUR), pool=3) as harness:
        harness.add("night", 3, max_sessions=2)
        harness.add("other", 1)
        await harness.run(10.0)
        live = [harness.unit(f"night/u{n}").attempt_id for n in range(2)]

        assert harness.store.cancel_units("night", now=harness.clock.now()) == ["night/u0", "night/u1"]
        harness.change("night", state="cancelled")
        await harness.run(30.0)

        assert harness.executor.stopped == live
        assert harness.running() == ["other/u0"]
        assert harness.states() == {
            "night/u0": "cancelled",
            "night/u1": "cancelled",
            "night/u2": "cancelled",
            "other/u0": "running",
        }
        assert [event.unit for event in harness.events("unit.cancelled")] == ["night/u0", "night/u1"]


async def test_quarantined_units_run_again_when_asked_to() -> None:
    codes = iter([1, 1, 0])
    async with EngineHarness(lambda _: Run(exit_code=next(codes))) as harness:
        harness.add("night", 1, max_attempts=2)
        await harness.run(HOUR)
        assert harness.states() == {"night/u0": "quarantined"}

        harness.store.retry_units("night")
        await harness.run(HOUR)

        assert harness.states() == {"night/u0": "done"}
        assert harness.unit("night/u0").counters == Counters(attempts=3)


async def test_a_campaign_added_while_it_runs_is_taken_up() -> None:
    async with EngineHarness() as harness:
        await harness.run(10.0)

        harness.add("late", 2)
        await harness.run(120.0)

        assert harness.store.counts() == {"late": UnitCounts(done=2)}


async def test_one_campaign_that_cannot_be_placed_does_not_hold_up_the_others(logged: list[str]) -> None:
    async with EngineHarness() as harness:
        harness.add("nowhere", 2, accounts=("nobody",))
        harness.add("fine", 2)

        await harness.run(120.0)

        assert harness.store.counts()["fine"] == UnitCounts(done=2)
        assert harness.store.counts()["nowhere"] == UnitCounts(todo=2)
        assert logged == []


async def test_the_log_says_that_the_engine_stood_still(logged: list[str]) -> None:
    async with EngineHarness(heartbeat=1.0) as harness:
        harness.add("night", 1)
        await harness.run(10.0)
        for seconds in (3.0, 14.0, 125.0):  # a busy machine, and twice `docker pause`: shorter and longer than a lease
            harness.clock.step(seconds)
            await harness.run(10.0)
        await harness.run(300.0)

        assert (harness.states(), harness.failures()) == ({"night/u0": "done"}, 0)
    causes = "machine asleep, frozen or busy, or a slow store"
    assert logged == [f"the engine stood still for {seconds} s ({causes})" for seconds in (14, 125)]


async def test_a_clock_that_was_set_forward_is_no_standstill(logged: list[str]) -> None:
    async with EngineHarness(heartbeat=1.0) as harness:
        stepped = 0.0
        harness.engine.elapsed = lambda: harness.clock.now() - stepped
        await harness.run(10.0)
        stepped = HOUR
        harness.clock.step(HOUR)
        await harness.run(10.0)

    assert logged == []


async def test_a_command_that_cannot_be_understood_is_reported_and_passed_over(logged: list[str]) -> None:
    async with EngineHarness() as harness:
        harness.send("slot_request", slot={"id": "x"})
        harness.send("slot_report", "nonsense//", signal={"type": "Succeeded"})
        harness.send("limit", "sessions", limit=0)
        harness.send("limit", "sessions", limit="many")
        harness.send("from-a-later-version", "sessions", depth=3)
        harness.add("night", 2)
        await harness.run(120.0)

        assert harness.store.counts() == {"night": UnitCounts(done=2)}
        assert len(logged) == 3
        assert all("could not be carried out" in line for line in logged)


# -- how tries end --------------------------------------------------------------------------------------


async def test_a_real_failure_is_charged_backed_off_and_in_the_end_quarantined() -> None:
    async with EngineHarness(lambda _: Run(stdout="line one\n", stderr="it broke\n", exit_code=3)) as harness:
        harness.add("night", 1, max_attempts=3)

        await harness.run(0.0)
        first = harness.unit("night/u0")
        assert (first.state, first.counters, first.resume_at) == ("todo", Counters(failures=1, attempts=1), NOW + 5.0)

        await harness.run(5.0)
        assert harness.unit("night/u0").resume_at == NOW + 5.0 + 30.0

        await harness.run(HOUR)
        last = harness.unit("night/u0")
        assert (last.state, last.counters) == ("quarantined", Counters(failures=3, attempts=3))
        assert (last.exit_code, last.reason) == (3, "exit code 3: it broke")
        assert [event.name for event in harness.events("unit.failed", "unit.quarantined")] == [
            "unit.failed",
            "unit.failed",
            "unit.quarantined",
        ]


async def test_exit_75_means_try_later_and_costs_no_attempt() -> None:
    codes = iter([75, 75, 0])
    async with EngineHarness(lambda _: Run(exit_code=next(codes))) as harness:
        harness.add("night", 1)

        await harness.run(0.0)
        assert harness.unit("night/u0").resume_at == NOW + 60.0
        await harness.run(60.0)
        assert harness.unit("night/u0").resume_at == NOW + 60.0 + 120.0

        await harness.run(120.0)
        assert harness.unit("night/u0").state == "done"
        assert harness.unit("night/u0").counters == Counters(attempts=3, refusals=2)


async def test_a_unit_whose_folder_is_missing_has_failed_with_its_reason() -> None:
    async with EngineHarness(lambda _: Run(not_started="cannot work in '/gone': No such file or directory")) as harness:
        harness.add("night", 1, max_attempts=1)

        await harness.run(1.0)

        assert (harness.unit("night/u0").state, harness.unit("night/u0").reason) == (
            "quarantined",
            "cannot work in '/gone': No such file or directory",
        )


async def test_a_command_line_that_cannot_be_made_fails_its_own_unit_only() -> None:
    async with EngineHarness() as harness:
        harness.add("night", [UnitSpec(id="bad", prompt="a\0b"), UnitSpec(id="good", prompt="ok")], max_attempts=1)

        await harness.run(120.0)

        assert harness.states() == {"night/bad": "quarantined", "night/good": "done"}
        assert harness.unit("night/bad").reason == "the prompt has a NUL character at position 1"
        assert harness.scope("sessions").in_flight == 0


async def test_a_unit_that_takes_too_long_has_failed() -> None:
    async with EngineHarness(lambda _: Run(seconds=HOUR)) as harness:
        harness.add("night", 1, timeout=600.0, max_attempts=1)

        await harness.run(601.0)

        assert (harness.unit("night/u0").state, harness.unit("night/u0").reason) == (
            "quarantined",
            "took longer than its 600 s",
        )


async def test_lost_sessions_go_back_without_an_attempt_but_not_for_ever() -> None:
    async with EngineHarness(lambda _: Run(seconds=HOUR)) as harness:
        harness.add("night", 1)
        await harness.run(1.0)

        harness.executor.reboot()
        await harness.run(1.0)
        assert (harness.unit("night/u0").state, harness.unit("night/u0").counters) == (
            "running",
            Counters(attempts=2, losses=1),
        )

        for _ in range(9):
            harness.executor.reboot()
            await harness.run(601.0)
        assert (harness.unit("night/u0").state, harness.unit("night/u0").counters) == (
            "held",
            Counters(attempts=10, losses=10),
        )


# -- one engine at a time, and passes that fail ----------------------------------------------------------


async def test_a_second_engine_on_the_same_store_is_refused_and_changes_nothing() -> None:
    async with EngineHarness() as harness:
        harness.add("night", 1)
        await harness.run(1.0)
        before = harness.store.events()

        with pytest.raises(EngineBusy, match="another engine runs this home"):
            await harness.new_engine().run()

        assert harness.store.events() == before
        await harness.run(120.0)
        assert harness.states() == {"night/u0": "done"}


async def test_an_engine_that_lost_the_lead_stops_and_writes_nothing_more() -> None:
    store = Watched()
    harness = EngineHarness(lambda _: Run(seconds=HOUR), store=store)
    harness.add("night", 1)
    await harness.run(1.0)
    store.resign("engine1")
    assert store.lead("engine9", until=NOW + 9 * HOUR, now=harness.clock.now())
    store.calls.clear()

    with pytest.raises(EngineBusy, match="another engine has taken the lead"):
        await harness.run(60.0)

    assert store.calls.keys() & WRITES <= {"lead"}
    assert harness.executor.stopped == []


@pytest.mark.parametrize("is_stored", [False, True], ids=["refused", "stored, but the answer was lost"])
async def test_a_store_that_fails_once_at_any_call_costs_nothing(logged: list[str], is_stored: bool) -> None:
    """Every call of a whole night fails once: nothing is lost, done twice or charged, and no slot leaks."""
    for nth in range(1, 1000):
        store = Failing(nth, is_stored=is_stored)
        async with EngineHarness(store=store, pool=2, heartbeat=60.0) as harness:
            harness.add("night", 4, deadline=NOW - HOUR)  # missed: it paces nothing, and is looked at in every pass
            store.is_armed = True
            at_the_start = await fails_to_start(harness)
            store.is_armed = False
            harness.add("late", 1)
            store.is_armed = True
            await harness.run(400.0)
            store.is_armed = False

            units = ["night/u0", "night/u1", "night/u2", "night/u3", "late/u0"]
            assert (nth, harness.states()) == (nth, dict.fromkeys(units, "done"))
            assert (nth, Counter(harness.launched())) == (nth, Counter(units))
            assert harness.failures() == 0
            assert harness.scope("sessions").in_flight == 0
        if store.has_failed:
            outage = [
                "the store cannot be used, so nothing starts; running sessions continue: another process is writing",
                "the store can be used again",
            ]
            said = [line.partition(", after")[0] for line in logged]
            assert (nth, said) == (nth, [] if at_the_start else outage[: max(1, len(said))])  # the last pass may fail
            logged.clear()
        else:
            assert nth > 20
            return
    raise AssertionError("the night never ended")


async def fails_to_start(harness: EngineHarness) -> bool:
    """An engine that cannot even start says so to the person, who starts it again."""
    try:
        await harness.run(0.0)
    except StoreBusy:
        harness.start_over()
        return True
    return False


WRITES = {
    "add_campaign",
    "set_campaign",
    "claim_units",
    "record_outcomes",
    "renew_units",
    "hasten_units",
    "move_units",
    "append_events",
    "trim_events",
    "save_state",
    "lead",
}


class Watched(SqliteStore):
    """Counts the calls of each verb."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.calls: Counter[str] = Counter()

    def __getattribute__(self, name: str) -> object:
        found = super().__getattribute__(name)
        if not name.startswith("_") and callable(found):
            super().__getattribute__("calls")[name] += 1
        return found


class Failing(SqliteStore):
    """Once armed, the n-th call raises `StoreBusy`, before it was done or after."""

    def __init__(self, nth: int, *, is_stored: bool) -> None:
        super().__init__(":memory:")
        self.is_armed = False
        self.has_failed = False
        self._left = nth
        self._is_stored = is_stored

    def __getattribute__(self, name: str) -> object:
        found = super().__getattribute__(name)
        if name.startswith("_") or not callable(found) or not self.is_armed:
            return found
        self._left -= 1
        if self._left != 0:
            return found

        def fail(*args: object, **kwargs: object) -> object:
            self.has_failed = True
            if self._is_stored:
                found(*args, **kwargs)
            raise StoreBusy("another process is writing")

        return fail


@pytest.mark.parametrize("detail", ["Invalid API key · Please run /login", "Credit balance is too low"])
async def test_a_foreground_run_ends_when_only_held_work_is_left(detail: str) -> None:
    said = {"type": "result", "is_error": True, "result": detail, "session_id": "s1"}
    harness = EngineHarness(lambda _: Run(stdout=init() + json.dumps(said) + "\n", exit_code=1), pool=2)
    harness.add_claude("night", 5)

    running = asyncio.create_task(harness.engine.run(until_idle=True))
    await harness.clock.advance(HOUR)

    assert running.done()
    await running
    assert [event.scope for event in harness.events("account.held")] == ["anthropic/max-1"]
    assert harness.store.counts() == {"night": UnitCounts(todo=5)}
    assert (harness.failures(), len(harness.launched()) <= 4) == (0, True)


REFUSED = "API Error: 401 authentication_error: OAuth token has expired"


async def test_a_login_that_is_refused_for_ten_minutes_and_then_accepted_loses_no_work() -> None:
    def script(_: Launch) -> Run:
        if harness.clock.now() - began < 600.0:
            said = {"type": "result", "is_error": True, "result": REFUSED, "session_id": "s1"}
            return Run(stdout=init() + json.dumps(said) + "\n", exit_code=1)
        return Run(stdout=init() + answer(), later=((60.0, done()),), seconds=60.0)

    harness = EngineHarness(script, pool=4)
    began = harness.clock.now()
    harness.add_claude("night", 20)
    running = asyncio.create_task(harness.engine.run(until_idle=True))
    await harness.clock.advance(3 * HOUR)

    assert running.done()
    await running
    assert harness.store.counts() == {"night": UnitCounts(done=20)}
    assert (harness.failures(), len(harness.events("account.held"))) == (0, 1)


async def test_a_held_login_is_asked_at_once_when_its_file_changes(tmp_path: Path) -> None:
    async with harness_with_login(tmp_path) as harness:
        harness.add_claude("night", 3)
        await harness.run(1800.0)
        assert (len(harness.launched()), harness.store.counts()) == (2, {"night": UnitCounts(todo=3)})

        (tmp_path / ".credentials.json").write_text("{}")
        await harness.run(90.0)

        assert harness.store.counts() == {"night": UnitCounts(done=3)}


async def test_a_new_engine_asks_a_held_login_once(tmp_path: Path) -> None:
    async with harness_with_login(tmp_path) as harness:
        harness.add_claude("night", 3)
        await harness.run(1800.0)
        await harness.stop()
        await harness.run(1800.0)
        assert (len(harness.launched()), harness.scope("anthropic/max-1").held) == (3, NOT_LOGGED_IN)

        await harness.stop()
        (tmp_path / ".credentials.json").write_text("{}")
        await harness.run(90.0)

        assert harness.store.counts() == {"night": UnitCounts(done=3)}


NOT_LOGGED_IN = "Not logged in · Please run /login"


def harness_with_login(folder: Path) -> EngineHarness:
    """Return a harness whose agent works only while its login folder has a login."""

    def script(_: Launch) -> Run:
        if (folder / ".credentials.json").exists():
            return Run(stdout=init() + answer(), later=((5.0, done()),), seconds=5.0)
        said = {"type": "result", "is_error": True, "result": NOT_LOGGED_IN, "session_id": "s1"}
        return Run(stdout=init() + json.dumps(said) + "\n", exit_code=1)

    account = Account(name="max-1", provider="anthropic", kind="subscription", env={"CLAUDE_CONFIG_DIR": str(folder)})
    return EngineHarness(script, pool=2, accounts=(account,))


async def test_one_refused_login_is_asked_again_and_the_night_goes_on() -> None:
    said = {
        "type": "result",
        "is_error": True,
        "result": "API Error: 401 authentication_error: OAuth token has expired",
    }

    def script(_: Launch) -> Run:
        if len(harness.launched()) == 10:
            return Run(stdout=init() + json.dumps(said | {"session_id": "s1"}) + "\n", exit_code=1)
        return Run(stdout=init() + answer(), later=((60.0, done()),), seconds=60.0)

    async with EngineHarness(script, pool=4) as harness:
        harness.add_claude("night", 100)
        await harness.run(2 * HOUR)

        assert harness.store.counts() == {"night": UnitCounts(done=100)}
        assert (harness.failures(), harness.events("account.held")) == (0, [])

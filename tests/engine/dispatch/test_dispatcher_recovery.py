"""An engine that comes back: what still runs is adopted, what ended is collected, what never began goes back."""

import json
from collections import Counter

import pytest

from paceline.core.unit_lifecycle import Counters
from paceline.engine import commands
from paceline.executors.interface import Launch
from paceline.simulation.agent_transcripts import answer, done, init
from paceline.simulation.executor import Run
from paceline.store import Tokens, UnitCounts
from paceline.testing.engine_harness import HOUR, NOW, EngineHarness


@pytest.mark.parametrize("how", ["stop", "crash"])
async def test_live_sessions_are_adopted_at_once_and_run_once(how: str) -> None:
    async with EngineHarness(lambda _: Run(seconds=600.0), pool=3) as harness:
        harness.add("night", 5)
        await harness.run(60.0)
        running = harness.running()

        await getattr(harness, how)()
        await harness.run(60.0)

        assert harness.running() == running
        assert harness.scope("sessions").in_flight == 3  # they count: nobody is let in on top of them
        assert len(harness.launched()) == 3

        await harness.run(HOUR)
        assert harness.store.counts() == {"night": UnitCounts(done=5)}
        assert Counter(harness.launched()) == Counter(f"night/u{n}" for n in range(5))
        assert [harness.unit(f"night/u{n}").counters for n in range(5)] == [Counters(attempts=1)] * 5


async def test_what_ended_while_no_engine_was_there_is_collected() -> None:
    async with EngineHarness(lambda launch: Run(exit_code=int(launch.argv[1] == "u1"), seconds=300.0)) as harness:
        harness.add("night", 2, max_attempts=1)
        await harness.run(10.0)

        await harness.crash()
        await harness.clock.advance(HOUR)
        await harness.run(1.0)

        assert harness.states() == {"night/u0": "done", "night/u1": "quarantined"}
        assert harness.unit("night/u1").exit_code == 1
        assert len(harness.launched()) == 2
        assert harness.executor.unarchived() == []


async def test_what_was_claimed_but_never_began_goes_back_without_an_attempt() -> None:
    async with EngineHarness(lambda _: Run(seconds=600.0)) as harness:
        harness.add("night", 1)
        await harness.run(1.0)
        (attempt,) = harness.executor.live()

        await harness.crash()
        harness.executor.forget(attempt)
        await harness.run(1.0)

        assert (harness.unit("night/u0").state, harness.unit("night/u0").counters) == (
            "running",
            Counters(attempts=2, losses=1),
        )
        assert len(harness.executor.live()) == 1


async def test_a_session_that_is_nobodys_is_ended() -> None:
    async with EngineHarness(lambda _: Run(seconds=HOUR)) as harness:
        harness.add("night", 1)
        await harness.run(1.0)
        attempts = harness.executor.live()

        await harness.crash()
        harness.store.cancel_units("night", now=harness.clock.now())
        await harness.run(1.0)

        assert harness.executor.stopped == attempts
        assert harness.states() == {"night/u0": "cancelled"}


async def test_after_a_reboot_every_unit_goes_on_and_its_conversation_is_resumed() -> None:
    def script(launch: Launch) -> Run:
        session = "talk-" + launch.env["PACELINE_UNIT"].rpartition("/")[2]
        return Run(stdout=init(session) + answer(session), later=((600.0, done(session)),), seconds=600.0)

    async with EngineHarness(script, pool=3) as harness:
        harness.add_claude("night", 3)
        await harness.run(60.0)

        await harness.crash()
        harness.executor.reboot()
        await harness.run(HOUR)

        assert harness.store.counts() == {"night": UnitCounts(done=3)}
        assert [launch.argv[2:4] for launch in harness.executor.started[3:]] == [
            ("--resume", "talk-u0"),
            ("--resume", "talk-u1"),
            ("--resume", "talk-u2"),
        ]
        assert [harness.unit(f"night/u{n}").counters for n in range(3)] == [Counters(attempts=2, losses=1)] * 3


async def test_shares_are_the_same_after_a_restart_as_without_one() -> None:
    async def done_after(restarts: int) -> dict[str, int]:
        async with EngineHarness(pool=3) as harness:
            harness.add("low", 300, priority=0)
            harness.add("high", 300, priority=1)
            for _ in range(restarts + 1):
                await harness.run(60 * 60.0 / (restarts + 1))
                await harness.stop()
            return {name: counts.done for name, counts in harness.store.counts().items()}

    undisturbed, disturbed = await done_after(0), await done_after(5)
    assert abs(undisturbed["high"] - disturbed["high"]) <= 6
    assert undisturbed == {"low": 60, "high": 120}


async def test_the_lead_is_kept_through_a_long_night() -> None:
    async with EngineHarness(lambda _: Run(seconds=5 * HOUR)) as harness:
        harness.add("night", 1)
        await harness.run(4 * HOUR)

        assert not harness.store.lead("other", until=NOW + 9 * HOUR, now=harness.clock.now())
        unit = harness.unit("night/u0")
        assert unit.lease_until is not None
        assert unit.lease_until > harness.clock.now()


async def test_a_supervisor_that_does_not_answer_is_killed_in_the_end() -> None:
    async with EngineHarness(lambda _: Run(seconds=9 * HOUR, stop_seconds=9 * HOUR)) as harness:
        harness.executor.stop = lambda handle, grace=10.0: harness.executor.stopped.append(handle.attempt_id)  # type: ignore[method-assign]
        harness.add("night", 1)
        await harness.run(1.0)

        harness.store.cancel_units("night", now=harness.clock.now())
        harness.change("night", state="cancelled")
        await harness.run(300.0)

        assert harness.executor.live() == []
        assert len(harness.executor.stopped) == 1
        assert harness.scope("sessions").in_flight == 0


async def test_an_engine_that_has_stopped_leaves_orders_to_the_next() -> None:
    async with EngineHarness(pool=3) as harness:
        await harness.run(1.0)
        stopped = harness.engine
        await harness.stop()

        harness.send("limit", "sessions", limit=2)
        stopped.apply_commands()
        assert stopped.limiter.get_limit("sessions") == 3

        await harness.run(1.0)
        assert harness.engine.limiter.get_limit("sessions") == 2


@pytest.mark.parametrize("owner", ["slot-1", "slot", "session-run-outside"])
async def test_an_engine_on_a_host_of_any_name_gets_its_own_grants(owner: str) -> None:
    """Attempts are named after the host. The limiter's own tickets are `slot:1`, and a host may be called `slot-1`."""
    async with EngineHarness(pool=1) as harness:
        harness.add("docs", 2)
        harness.engine = harness.new_engine(owner)
        await harness.run(200.0)
        assert harness.states() == {"docs/u0": "done", "docs/u1": "done"}
        assert {launch.attempt_id for launch in harness.executor.started} == {f"{owner}-1", f"{owner}-2"}


async def test_the_stored_attempt_id_is_the_ticket_of_an_adopted_session() -> None:
    """Attempt ids have no namespace and keep their form, so an older database needs no migration."""
    async with EngineHarness(pool=1) as harness:
        harness.add("docs", 1)
        await harness.run(10.0)
        (unit,) = harness.store.running_units()
        assert unit.attempt_id == "engine1-1"
        await harness.crash()
        await harness.run(10.0)
        assert [session.ticket.id for session in harness.engine.live_sessions()] == ["engine1-1"]
        await harness.run(60.0)
        assert harness.states() == {"docs/u0": "done"}


@pytest.mark.parametrize("crashes", [False, True], ids=["in one engine", "over a crash"])
async def test_a_unit_cancelled_in_its_check_ends_it_and_counts_its_session_once(crashes: bool) -> None:
    usage = json.dumps(
        {"type": "assistant", "message": {"id": "m1", "usage": {"input_tokens": 70, "output_tokens": 7}}}
    )

    def run(launch: Launch) -> Run:
        is_check = "-check" in launch.attempt_id
        return Run(seconds=500.0) if is_check else Run(stdout=init("s1") + usage + "\n" + done("s1"), seconds=60.0)

    async with EngineHarness(run, heartbeat=1.0) as harness:
        harness.add_claude("night", 1, check=("make", "test"))
        await harness.run(70.0)
        counted = harness.unit("night/u0").result.tokens
        if crashes:
            await harness.crash()
        commands.cancel_unit(harness.store, harness.unit("night/u0"), now=harness.clock.now())
        commands.retry_unit(harness.store, harness.unit("night/u0"), fresh=True, now=harness.clock.now())
        commands.pause_campaigns(harness.store, ["night"], now=harness.clock.now())
        await harness.run(20.0)

        unit = harness.unit("night/u0")
        assert (unit.state, unit.lease_until, unit.result.tokens) == ("todo", None, counted)
        assert counted == Tokens(input=70, output=7)
        assert (harness.executor.live(), harness.scope("sessions").in_flight) == ([], 0)

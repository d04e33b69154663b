"""Slots for programs outside: taken, renewed, released and lost, in virtual time over a real SQLite file."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import pytest

from paceline.core import Deferred
from paceline.core.signals import Budget, RateLimited
from paceline.engine import command_log
from paceline.engine.capacity.external_slots import process_id
from paceline.engine.capacity.leases import KEPT_POSITION_SECONDS, LONGEST_WAIT, CallerGone, SlotRequest
from paceline.errors import (
    CapacityError,
    InvalidInput,
    SlotLost,
    StoreBusy,
    TicketConflict,
    UnknownName,
)
from paceline.executors.interface import Launch
from paceline.simulation.executor import Run
from paceline.store import Lease, SqliteStore, StoredSlot
from paceline.testing.engine_harness import NOW, EngineHarness

SCOPE = "acme/max-1/large"


class CountingStore(SqliteStore):
    """Counts its transactions of slots, and fails them on demand."""

    saves = 0
    is_failing = False
    is_mistaken = False

    def save_slots(self, kept: Sequence[StoredSlot], dropped: Sequence[str]) -> None:
        self.saves += 1
        if self.is_failing:
            raise StoreBusy("another process is writing")
        if self.is_mistaken:
            raise ZeroDivisionError
        super().save_slots(kept, dropped)


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[EngineHarness]:
    store = CountingStore(tmp_path / "paceline.db")
    async with EngineHarness(limits={"runs": 50, "acme": 1}, store=store) as harness:
        await harness.run(0.0)
        yield harness
    store.close()


def request(wait: float = 0.0, key: str | None = None, **fields: object) -> SlotRequest:
    return request_of({"wait": wait, "idempotency_key": key} | fields)


def request_of(fields: dict[str, object]) -> SlotRequest:
    return SlotRequest(**({"scope": SCOPE} | fields))  # type: ignore[arg-type]


async def take(harness: EngineHarness, wait: float = 0.0, key: str | None = None, **fields: object) -> StoredSlot:
    answer = await harness.engine.leases.take(request(wait, key, **fields))
    assert isinstance(answer, StoredSlot)
    return answer


class Call:
    """One that waits in the background; `hang_up` is what its client does."""

    def __init__(self, harness: EngineHarness, wait: float = 60.0, key: str | None = None, **fields: object) -> None:
        self.hung_up = asyncio.Event()
        self.task = asyncio.create_task(
            harness.engine.leases.take(request(wait, key, **fields), hung_up=self.hung_up.wait)
        )

    async def slot(self) -> StoredSlot:
        answer = await self.task
        assert isinstance(answer, StoredSlot)
        return answer


async def begin(harness: EngineHarness, wait: float = 60.0, key: str | None = None, **fields: object) -> Call:
    call = Call(harness, wait, key, **fields)
    await harness.clock.advance(0.0)
    return call


def counted(harness: EngineHarness, scope: str = "acme") -> tuple[int, int]:
    """In flight, and in line."""
    status = harness.scope(scope)
    return status.in_flight, status.queued


def lease_of(slot: StoredSlot) -> Lease:
    assert slot.lease is not None
    return slot.lease


# -- taking and giving back -------------------------------------------------------------------------


async def test_a_slot_occupies_its_whole_path_and_is_stored_before_it_is_returned(harness: EngineHarness) -> None:
    slot = await take(harness, session="s1", priority=2, since=NOW - 5.0, ttl=30.0, key="k")

    assert slot == StoredSlot(
        id=slot.id,
        scopes=("runs", "acme", "acme/max-1", "acme/max-1/large"),
        priority=2,
        session="s1",
        since=NOW - 5.0,
        granted_at=NOW,
        lease=Lease(token=1, ttl=30.0, expires_at=NOW + 30.0, key="k"),
    )
    assert harness.store.slots() == [slot]
    assert [counted(harness, scope) for scope in slot.scopes] == [(1, 0)] * 4


async def test_a_full_scope_defers_at_once_and_nobody_is_left_in_line(harness: EngineHarness) -> None:
    held = await take(harness)

    answer = await harness.engine.leases.take(request())

    assert isinstance(answer, Deferred)
    assert (answer.reason, answer.scope, answer.detail) == ("limit", "acme", "acme at its limit (1/1)")
    assert (counted(harness), harness.store.slots()) == ((1, 0), [held])


async def test_a_call_waits_for_its_slot(harness: EngineHarness) -> None:
    held = await take(harness)
    call = await begin(harness, 60.0)
    await harness.clock.advance(7.0)

    assert await harness.engine.leases.release(held.id)

    await harness.clock.advance(1.0)
    slot = await call.slot()
    assert lease_of(slot).token == 2
    assert (counted(harness), harness.store.slots()) == ((1, 0), [slot])
    await harness.run(30.0)
    emitted = harness.events("slot.granted", "slot.deferred", "slot.released")
    assert [(event.name, event.scope) for event in emitted] == [
        ("slot.granted", SCOPE),
        ("slot.deferred", "acme"),
        ("slot.released", SCOPE),
        ("slot.granted", SCOPE),
    ]


async def test_a_wait_that_runs_out_says_why_and_leaves_the_line(harness: EngineHarness) -> None:
    await take(harness)
    call = await begin(harness, 10.0)

    await harness.clock.advance(9.9)
    assert not call.task.done()
    await harness.clock.advance(0.1)

    answer = await call.task
    assert isinstance(answer, Deferred)
    assert (answer.reason, answer.position) == ("limit", 1)
    assert counted(harness) == (1, 0)


async def test_releasing_again_is_harmless(harness: EngineHarness) -> None:
    slot = await take(harness)
    leases = harness.engine.leases

    assert [await leases.release(slot.id), await leases.release(slot.id), await leases.release("x")] == [
        True,
        False,
        False,
    ]
    assert (counted(harness), harness.store.slots()) == ((0, 0), [])


async def test_a_signal_is_the_slots_own(harness: EngineHarness) -> None:
    slot = await take(harness)

    harness.engine.leases.report(slot.id, RateLimited(retry_after=20.0))

    assert harness.scope(SCOPE).paused_until == NOW + 20.0


EMPTY = Budget(requests_remaining=0, requests_reset_at=NOW + 3600.0)


@pytest.mark.parametrize("has_slot", [True, False])
async def test_what_programs_tell_survives_the_engine_from_the_next_pass_on(
    harness: EngineHarness, has_slot: bool
) -> None:
    """Also a report that emits no event, such as a budget."""
    if has_slot:
        harness.engine.leases.report((await take(harness)).id, EMPTY)
    else:
        harness.engine.leases.report_scope(SCOPE, EMPTY)
    await harness.run(harness.engine.settings.heartbeat)

    await harness.crash()
    await harness.run(0.0)

    refused = await harness.engine.leases.take(request(scope=SCOPE, ttl=30.0))
    assert isinstance(refused, Deferred)
    assert (refused.reason, refused.scope) == ("pacing", SCOPE)


async def test_a_session_of_the_engine_shares_its_place_with_its_calls(tmp_path: Path) -> None:
    def works(_: Launch) -> Run:
        return Run(seconds=600.0)

    async with EngineHarness(works, limits={"anthropic/max-1": 1}) as harness:
        harness.add_claude("night", 1)
        await harness.run(1.0)
        (session,) = harness.engine.live_sessions()
        scope = "anthropic/max-1/opus-4-6"
        own = await take(harness, scope=scope, session=session.unit.id)

        second = await harness.engine.leases.take(request(scope=scope, session=session.ticket.id))
        stranger = await harness.engine.leases.take(request(scope=scope))

    assert own.parent == session.ticket.id
    assert isinstance(second, Deferred)
    assert isinstance(stranger, Deferred)


# -- leases -----------------------------------------------------------------------------------------


async def test_a_lease_that_is_not_renewed_is_given_on_after_a_grace(harness: EngineHarness) -> None:
    held = await take(harness, ttl=20.0)
    call = await begin(harness, 60.0)

    await harness.clock.advance(49.9)
    assert not call.task.done()
    await harness.clock.advance(0.1)

    slot = await call.slot()
    assert (slot.granted_at, harness.store.slots()) == (NOW + 50.0, [slot])
    await harness.run(30.0)
    assert [
        (event.name, event.at, event.scope, event.fields) for event in harness.events("slot.lost", "slot.reclaimed")
    ] == [
        ("slot.lost", NOW + 20.0, SCOPE, {"ticket": held.id, "reclaimed_at": NOW + 50.0}),
        ("slot.reclaimed", NOW + 50.0, SCOPE, {"ticket": held.id}),
    ]


async def test_renewing_keeps_a_lease_for_another_ttl(harness: EngineHarness) -> None:
    slot = await take(harness, ttl=20.0)
    await harness.clock.advance(15.0)

    renewed = await harness.engine.leases.renew(slot.id)

    assert lease_of(renewed).expires_at == NOW + 35.0
    assert harness.store.slots() == [renewed]
    await harness.clock.advance(49.9)
    assert counted(harness) == (1, 0)
    await harness.clock.advance(0.1)
    assert (counted(harness), harness.store.slots()) == ((0, 0), [])


async def test_a_late_holder_learns_that_its_slot_is_lost(harness: EngineHarness) -> None:
    leases = harness.engine.leases
    slot = await take(harness, ttl=20.0)
    await harness.clock.advance(20.0)

    with pytest.raises(SlotLost, match="not renewed in time"):
        await leases.renew(slot.id)
    with pytest.raises(SlotLost):
        leases.report(slot.id, RateLimited())
    assert counted(harness) == (1, 0)
    assert (await leases.release(slot.id), counted(harness)) == (True, (0, 0))
    assert not await leases.release(slot.id)
    with pytest.raises(SlotLost):
        await leases.renew(slot.id)
    with pytest.raises(UnknownName, match="no slot 'never'"):
        await leases.renew("never")
    assert harness.scope(SCOPE).paused_until is None


# -- those who go -----------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, "k"])
async def test_36_a_client_that_hangs_up_leaves_the_line_at_once(harness: EngineHarness, key: str | None) -> None:
    held = await take(harness)
    call = await begin(harness, 60.0, key)
    behind = await begin(harness, 60.0)
    assert counted(harness) == (1, 2)

    call.hung_up.set()
    await harness.clock.advance(0.0)

    with pytest.raises(CallerGone):
        await call.task
    assert counted(harness) == (1, 1)
    await harness.engine.leases.release(held.id)
    await harness.clock.advance(1.0)
    assert harness.store.slots() == [await behind.slot()]


async def test_36_a_client_that_hangs_up_as_its_slot_comes_does_not_keep_it(harness: EngineHarness) -> None:
    held = await take(harness)
    call = await begin(harness, 60.0)
    behind = await begin(harness, 60.0)

    harness.engine.limiter.set_limit("acme", 2)
    call.hung_up.set()
    await harness.clock.advance(0.0)

    with pytest.raises(CallerGone):
        await call.task
    await harness.clock.advance(1.0)
    assert harness.store.slots() == [held, await behind.slot()]


async def test_36_a_call_that_is_cancelled_leaves_the_line(harness: EngineHarness) -> None:
    await take(harness)
    call = await begin(harness, 60.0)

    call.task.cancel()
    await harness.clock.advance(0.0)

    assert counted(harness) == (1, 0)


async def test_what_could_not_be_stored_is_not_held(harness: EngineHarness) -> None:
    assert isinstance(harness.store, CountingStore)
    harness.store.is_failing = True

    with pytest.raises(StoreBusy):
        await harness.engine.leases.take(request())

    harness.store.is_failing = False
    await harness.clock.advance(1.0)
    assert (counted(harness), harness.store.slots()) == ((0, 0), [])


async def test_a_release_that_could_not_be_stored_can_be_repeated(harness: EngineHarness) -> None:
    assert isinstance(harness.store, CountingStore)
    slot = await take(harness)
    harness.store.is_failing = True

    with pytest.raises(StoreBusy):
        await harness.engine.leases.release(slot.id)

    harness.store.is_failing = False
    await harness.engine.leases.release(slot.id)
    assert harness.store.slots() == []


async def test_an_engine_that_stops_sends_those_who_wait_away(harness: EngineHarness) -> None:
    held = await take(harness)
    call = await begin(harness, 60.0)

    await harness.stop()

    with pytest.raises(CapacityError, match="stopping"):
        await call.task
    assert harness.store.slots() == [held]


async def test_all_of_one_turn_of_the_loop_is_one_transaction(harness: EngineHarness) -> None:
    assert isinstance(harness.store, CountingStore)
    first = await take(harness, scope="other")
    before = harness.store.saves

    slots = await asyncio.gather(
        *(take(harness, scope="other") for _ in range(20)), harness.engine.leases.renew(first.id)
    )

    assert harness.store.saves == before + 1
    assert harness.store.slots() == [slots[-1], *slots[:-1]]


# -- keys -------------------------------------------------------------------------------------------


async def test_39_the_same_key_is_the_same_slot_after_a_lost_answer(harness: EngineHarness) -> None:
    first = await take(harness, key="k")
    await harness.clock.advance(5.0)

    assert await take(harness, key="k") == first
    assert await take(harness, 60.0, key="k") == first
    assert (counted(harness), harness.store.slots()) == ((1, 0), [first])


async def test_39_two_calls_with_one_key_wait_for_one_slot(harness: EngineHarness) -> None:
    held = await take(harness)
    calls = [await begin(harness, 60.0, "k"), await begin(harness, 60.0, "k")]
    assert counted(harness) == (1, 1)
    gone = await begin(harness, 60.0, "k")
    gone.hung_up.set()

    await harness.engine.leases.release(held.id)
    await harness.clock.advance(1.0)

    first, second = [await call.slot() for call in calls]
    assert first == second
    assert harness.store.slots() == [first]
    with pytest.raises(CallerGone):
        await gone.task


@pytest.mark.parametrize(
    "changed", [{"scope": "acme/max-2"}, {"ttl": 61.0}, {"priority": 1}, {"session": "s"}, {"since": 1.0}]
)
async def test_the_same_key_for_something_else_is_refused(harness: EngineHarness, changed: dict[str, object]) -> None:
    slot = await take(harness, key="k")

    with pytest.raises(TicketConflict, match="idempotency_key"):
        await harness.engine.leases.take(request_of({"idempotency_key": "k"} | changed))

    assert harness.store.slots() == [slot]


async def test_a_key_is_free_again_once_its_slot_is_given_back(harness: EngineHarness) -> None:
    slot = await take(harness, key="k")
    await harness.engine.leases.release(slot.id)
    await harness.clock.advance(1.0)

    assert (await take(harness, key="k")).id != slot.id


async def test_a_wait_goes_on_in_its_place_with_its_key(harness: EngineHarness) -> None:
    held = await take(harness)
    first = await begin(harness, 10.0, "k")
    await harness.clock.advance(5.0)
    behind = await begin(harness, 60.0)
    await harness.clock.advance(5.0)
    assert isinstance(await first.task, Deferred)

    again = await begin(harness, 10.0, "k")
    await harness.engine.leases.release(held.id)
    await harness.clock.advance(KEPT_POSITION_SECONDS + 1.0)

    assert harness.store.slots() == [await again.slot()]
    assert not behind.task.done()


async def test_a_slot_that_came_between_two_calls_is_kept_by_the_second(harness: EngineHarness) -> None:
    held = await take(harness)
    first = await begin(harness, 10.0, "k")
    await harness.clock.advance(10.0)
    assert isinstance(await first.task, Deferred)
    await harness.engine.leases.release(held.id)

    slot = await take(harness, 10.0, "k")

    await harness.clock.advance(KEPT_POSITION_SECONDS + 1.0)
    assert harness.store.slots() == [slot]


async def test_asking_again_for_a_slot_that_is_held_never_gives_it_back(harness: EngineHarness) -> None:
    assert isinstance(harness.store, CountingStore)
    slot = await take(harness, key="k")
    harness.store.is_failing = True
    other = asyncio.create_task(harness.engine.leases.take(request(scope="other")))

    with pytest.raises(StoreBusy):
        await asyncio.gather(harness.engine.leases.take(request(key="k")), other)

    harness.store.is_failing = False
    await harness.clock.advance(1.0)
    assert harness.store.slots() == [slot]
    assert counted(harness) == (1, 0)


async def test_an_error_in_storing_is_raised_to_the_caller_that_waits(harness: EngineHarness) -> None:
    assert isinstance(harness.store, CountingStore)
    harness.store.is_mistaken = True

    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(harness.engine.leases.take(request()), 60.0)

    harness.store.is_mistaken = False
    await harness.clock.advance(1.0)
    assert (counted(harness), harness.store.slots()) == ((0, 0), [])


def ask_as_a_program(harness: EngineHarness) -> None:
    slot = StoredSlot(id="program", scopes=("sessions", "acme"), priority=0, holder=process_id(os.getpid()))
    command_log.send(harness.store, "slot_request", now=harness.clock.now(), slot=msgspec.to_builtins(slot))


async def test_the_slot_of_a_command_is_not_given_back_by_a_call(harness: EngineHarness) -> None:
    ask_as_a_program(harness)
    harness.engine.apply_commands()
    await harness.run(0.0)
    (slot,) = harness.store.slots()

    assert not await harness.engine.leases.release(slot.id)
    with pytest.raises(UnknownName):
        await harness.engine.leases.renew(slot.id)

    assert (counted(harness), harness.store.slots()) == ((1, 0), [slot])


async def test_the_wait_of_a_command_is_stored_before_the_command_counts_as_read(harness: EngineHarness) -> None:
    ask_as_a_program(harness)

    harness.engine.apply_commands()
    await harness.crash()  # before another pass
    await harness.run(0.0)

    (slot,) = harness.store.slots()
    assert slot.granted_at is not None


async def test_a_place_that_nobody_comes_back_for_is_given_up(harness: EngineHarness) -> None:
    held = await take(harness)
    first = await begin(harness, 10.0, "k")
    await harness.clock.advance(10.0)
    assert isinstance(await first.task, Deferred)
    behind = await begin(harness, 60.0)

    await harness.engine.leases.release(held.id)
    await harness.clock.advance(KEPT_POSITION_SECONDS - 0.1)
    assert not behind.task.done()
    await harness.clock.advance(0.5)

    assert harness.store.slots() == [await behind.slot()]


# -- restarts ---------------------------------------------------------------------------------------


async def test_37_an_engine_that_crashed_counts_every_lease_before_it_admits_anybody(harness: EngineHarness) -> None:
    held = await take(harness, ttl=20.0, key="k")
    await harness.crash()

    await harness.run(0.0)

    assert isinstance(await harness.engine.leases.take(request()), Deferred)
    assert counted(harness) == (1, 0)
    assert await take(harness, key="k", ttl=20.0) == held
    call = await begin(harness, 60.0)
    await harness.clock.advance(50.0)
    assert (await call.slot()).granted_at == NOW + 50.0


async def test_37_a_lease_outlives_a_restart_and_is_renewed_after_it(harness: EngineHarness) -> None:
    slot = await take(harness, ttl=20.0)
    await harness.stop()
    await harness.clock.advance(10.0)
    await harness.run(0.0)

    assert lease_of(await harness.engine.leases.renew(slot.id)).expires_at == NOW + 30.0
    assert await harness.engine.leases.release(slot.id)
    assert counted(harness) == (0, 0)


async def test_a_lease_is_credited_with_the_time_in_which_no_engine_was_there(harness: EngineHarness) -> None:
    slot, silent = await take(harness, ttl=20.0), await take(harness, scope="other/main", ttl=20.0)
    await harness.run(5.0)
    await harness.stop()
    harness.clock.step(3600.0)
    await harness.run(0.0)
    back = harness.clock.now()

    assert isinstance(await harness.engine.leases.take(request()), Deferred)
    await harness.clock.advance(14.9)
    assert lease_of(await harness.engine.leases.renew(slot.id)).expires_at == back + 34.9
    await harness.clock.advance(0.1)
    with pytest.raises(SlotLost):
        await harness.engine.leases.renew(silent.id)


async def test_an_engine_that_was_killed_credits_every_lease_at_least_as_much(harness: EngineHarness) -> None:
    slot = await take(harness, ttl=20.0)
    await harness.run(15.0)
    await harness.crash()
    harness.clock.step(70.0)
    await harness.run(0.0)

    assert lease_of(await harness.engine.leases.renew(slot.id)).expires_at == NOW + 105.0
    assert counted(harness) == (1, 0)


async def test_a_lease_is_credited_with_the_time_in_which_the_machine_slept(harness: EngineHarness) -> None:
    slot, silent = await take(harness, ttl=60.0), await take(harness, scope="other/main", ttl=60.0)
    await harness.run(10.0)
    harness.clock.step(120.0)  # the laptop is closed
    await harness.run(0.0)

    assert (counted(harness), harness.events("slot.lost")) == ((1, 0), [])
    await harness.clock.advance(40.0)
    assert lease_of(await harness.engine.leases.renew(slot.id)).expires_at == harness.clock.now() + 60.0
    await harness.run(20.0)
    with pytest.raises(SlotLost):
        await harness.engine.leases.renew(silent.id)


async def test_a_lease_does_not_run_out_while_the_daemon_is_stopped(harness: EngineHarness) -> None:
    slot, silent = await take(harness, ttl=5.0), await take(harness, scope="other/main", ttl=5.0)
    await harness.run(0.5)
    harness.clock.step(7.0)  # SIGSTOP, and SIGCONT
    await harness.run(0.0)

    assert lease_of(await harness.engine.leases.renew(slot.id)).expires_at == harness.clock.now() + 5.0
    assert harness.events("slot.lost") == []
    await harness.run(5.0)
    with pytest.raises(SlotLost):
        await harness.engine.leases.renew(silent.id)


async def test_a_clock_that_is_set_back_makes_no_lease_longer(harness: EngineHarness) -> None:
    await take(harness, ttl=20.0)
    harness.clock.step(-3600.0)
    harness.engine.wake()
    await harness.run(0.0)

    await harness.clock.advance(50.0)

    assert counted(harness) == (0, 0)


async def test_a_lost_slot_can_be_asked_for_anew_with_its_key(harness: EngineHarness) -> None:
    lost = await take(harness, ttl=20.0, key="k")
    await harness.clock.advance(20.0)

    slot = await take(harness, ttl=20.0, key="k")

    assert (slot.id != lost.id, slot.granted_at, counted(harness)) == (True, NOW + 20.0, (1, 0))


async def test_tokens_grow_over_restarts(harness: EngineHarness) -> None:
    tokens = []
    for _ in range(3):
        slot = await take(harness)
        tokens.append(lease_of(slot).token)
        await harness.engine.leases.release(slot.id)
        await harness.crash()
        await harness.run(1.0)

    assert tokens == sorted(set(tokens))


# -- bad values -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"scope": ""}, "scope"),
        ({"scope": "has spaces"}, "scope"),
        ({"wait": -1.0}, "wait"),
        ({"wait": float("nan")}, "wait"),
        ({"wait": LONGEST_WAIT + 1}, "wait must be 0 to 300 seconds"),
        ({"ttl": 0.0}, "ttl"),
        ({"ttl": 0.5}, "ttl must be 1 to 86400 seconds"),
        ({"ttl": -1.0}, "ttl"),
        ({"ttl": float("nan")}, "ttl"),
        ({"ttl": float("inf")}, "ttl"),
        ({"priority": 10**30}, "priority"),
        ({"since": float("inf")}, "since"),
        ({"session": ""}, "session"),
        ({"session": "half \ud800"}, "session"),
        ({"idempotency_key": "x" * 301}, "idempotency_key"),
    ],
)
async def test_bad_values_are_named_and_change_nothing(
    harness: EngineHarness, fields: dict[str, object], named: str
) -> None:
    with pytest.raises(InvalidInput, match=named):
        await harness.engine.leases.take(request_of(fields))

    assert (counted(harness), harness.store.slots()) == ((0, 0), [])


async def test_a_since_in_milliseconds_is_no_head_start(harness: EngineHarness) -> None:
    held = await take(harness)
    first = await begin(harness, 60.0)
    await harness.clock.advance(1.0)
    second = await begin(harness, 60.0, since=NOW * 1000)

    await harness.engine.leases.release(held.id)
    await harness.clock.advance(1.0)

    assert (first.task.done(), second.task.done()) == (True, False)

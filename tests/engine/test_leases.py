"""Slots for programs outside: taken, renewed, released and lost, in virtual time over a real SQLite file."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from paceline.core import Deferred
from paceline.core.signals import Budget, RateLimited
from paceline.engine.external_slots.leases import KEPT_PLACE_SECONDS, LONGEST_WAIT, CallerGone, SlotRequest
from paceline.engine.external_slots.registry import OutsideClient, process_id
from paceline.errors import (
    CapacityError,
    InvalidInput,
    SlotLost,
    StoreBusy,
    TicketConflict,
    UnknownName,
)
from paceline.executors import Launch
from paceline.simulation.executor import Run
from paceline.store import Lease, SqliteStore, StoredSlot
from paceline.testing.engine_harness import NOW, House

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
async def house(tmp_path: Path) -> AsyncIterator[House]:
    store = CountingStore(tmp_path / "paceline.db")
    async with House(limits={"runs": 50, "acme": 1}, store=store) as house:
        await house.run(0.0)
        yield house
    store.close()


def request(wait: float = 0.0, key: str | None = None, **fields: object) -> SlotRequest:
    return request_of({"wait": wait, "idempotency_key": key} | fields)


def request_of(fields: dict[str, object]) -> SlotRequest:
    return SlotRequest(**({"scope": SCOPE} | fields))  # type: ignore[arg-type]


async def take(house: House, wait: float = 0.0, key: str | None = None, **fields: object) -> StoredSlot:
    answer = await house.engine.leases.take(request(wait, key, **fields))
    assert isinstance(answer, StoredSlot)
    return answer


class Call:
    """One that waits in the background; `hang_up` is what its client does."""

    def __init__(self, house: House, wait: float = 60.0, key: str | None = None, **fields: object) -> None:
        self.hung_up = asyncio.Event()
        self.task = asyncio.create_task(
            house.engine.leases.take(request(wait, key, **fields), hung_up=self.hung_up.wait)
        )

    async def slot(self) -> StoredSlot:
        answer = await self.task
        assert isinstance(answer, StoredSlot)
        return answer


async def begin(house: House, wait: float = 60.0, key: str | None = None, **fields: object) -> Call:
    call = Call(house, wait, key, **fields)
    await house.clock.advance(0.0)
    return call


def counted(house: House, scope: str = "acme") -> tuple[int, int]:
    """In flight, and in line."""
    status = house.scope(scope)
    return status.in_flight, status.queued


def lease_of(slot: StoredSlot) -> Lease:
    assert slot.lease is not None
    return slot.lease


# -- taking and giving back -------------------------------------------------------------------------


async def test_a_slot_occupies_its_whole_path_and_is_stored_before_it_is_told(house: House) -> None:
    slot = await take(house, session="s1", priority=2, since=NOW - 5.0, ttl=30.0, key="k")

    assert slot == StoredSlot(
        id=slot.id,
        scopes=("runs", "acme", "acme/max-1", "acme/max-1/large"),
        priority=2,
        session="s1",
        since=NOW - 5.0,
        granted_at=NOW,
        lease=Lease(token=1, ttl=30.0, expires_at=NOW + 30.0, key="k"),
    )
    assert house.store.slots() == [slot]
    assert [counted(house, scope) for scope in slot.scopes] == [(1, 0)] * 4


async def test_a_full_scope_defers_at_once_and_nobody_is_left_in_line(house: House) -> None:
    held = await take(house)

    answer = await house.engine.leases.take(request())

    assert isinstance(answer, Deferred)
    assert (answer.reason, answer.scope, answer.detail) == ("limit", "acme", "acme at its limit (1/1)")
    assert (counted(house), house.store.slots()) == ((1, 0), [held])


async def test_a_call_waits_for_its_slot(house: House) -> None:
    held = await take(house)
    call = await begin(house, 60.0)
    await house.clock.advance(7.0)

    assert await house.engine.leases.release(held.id)

    await house.clock.advance(1.0)
    slot = await call.slot()
    assert lease_of(slot).token == 2
    assert (counted(house), house.store.slots()) == ((1, 0), [slot])
    await house.run(30.0)
    told = house.events("slot.granted", "slot.deferred", "slot.released")
    assert [(event.name, event.scope) for event in told] == [
        ("slot.granted", SCOPE),
        ("slot.deferred", "acme"),
        ("slot.released", SCOPE),
        ("slot.granted", SCOPE),
    ]


async def test_a_wait_that_runs_out_says_why_and_leaves_the_line(house: House) -> None:
    await take(house)
    call = await begin(house, 10.0)

    await house.clock.advance(9.9)
    assert not call.task.done()
    await house.clock.advance(0.1)

    answer = await call.task
    assert isinstance(answer, Deferred)
    assert (answer.reason, answer.position) == ("limit", 1)
    assert counted(house) == (1, 0)


async def test_releasing_again_is_harmless(house: House) -> None:
    slot = await take(house)
    leases = house.engine.leases

    assert [await leases.release(slot.id), await leases.release(slot.id), await leases.release("x")] == [
        True,
        False,
        False,
    ]
    assert (counted(house), house.store.slots()) == ((0, 0), [])


async def test_a_signal_is_the_slots_own(house: House) -> None:
    slot = await take(house)

    house.engine.leases.report(slot.id, RateLimited(retry_after=20.0))

    assert house.scope(SCOPE).paused_until == NOW + 20.0


EMPTY = Budget(requests_remaining=0, requests_reset_at=NOW + 3600.0)


@pytest.mark.parametrize("has_slot", [True, False])
async def test_what_programs_tell_survives_the_engine_from_the_next_pass_on(house: House, has_slot: bool) -> None:
    """Also what changes nothing that anybody would be told of, such as a budget."""
    if has_slot:
        house.engine.leases.report((await take(house)).id, EMPTY)
    else:
        house.engine.leases.report_scope(SCOPE, EMPTY)
    await house.run(house.engine.settings.heartbeat)

    await house.crash()
    await house.run(0.0)

    refused = await house.engine.leases.take(request(scope=SCOPE, ttl=30.0))
    assert isinstance(refused, Deferred)
    assert (refused.reason, refused.scope) == ("pacing", SCOPE)


async def test_a_session_of_the_engine_shares_its_place_with_its_calls(tmp_path: Path) -> None:
    def works(_: Launch) -> Run:
        return Run(seconds=600.0)

    async with House(works, limits={"anthropic/max-1": 1}) as house:
        house.add_claude("night", 1)
        await house.run(1.0)
        (session,) = house.engine.live_sessions()
        scope = "anthropic/max-1/opus-4-6"
        own = await take(house, scope=scope, session=session.unit.id)

        second = await house.engine.leases.take(request(scope=scope, session=session.ticket.id))
        stranger = await house.engine.leases.take(request(scope=scope))

    assert own.parent == session.ticket.id
    assert isinstance(second, Deferred)
    assert isinstance(stranger, Deferred)


# -- leases -----------------------------------------------------------------------------------------


async def test_a_lease_that_is_not_renewed_is_given_on_when_its_time_is_up(house: House) -> None:
    held = await take(house, ttl=20.0)
    call = await begin(house, 60.0)

    await house.clock.advance(19.9)
    assert not call.task.done()
    await house.clock.advance(0.1)

    slot = await call.slot()
    assert (slot.granted_at, house.store.slots()) == (NOW + 20.0, [slot])
    await house.run(30.0)
    assert [
        (event.name, event.at, event.scope, event.fields) for event in house.events("slot.lost", "slot.reclaimed")
    ] == [
        ("slot.lost", NOW + 20.0, SCOPE, {"ticket": held.id, "reclaimed_at": NOW + 20.0}),
        ("slot.reclaimed", NOW + 20.0, SCOPE, {"ticket": held.id}),
    ]


async def test_renewing_keeps_a_lease_for_another_ttl(house: House) -> None:
    slot = await take(house, ttl=20.0)
    await house.clock.advance(15.0)

    renewed = await house.engine.leases.renew(slot.id)

    assert lease_of(renewed).expires_at == NOW + 35.0
    assert house.store.slots() == [renewed]
    await house.clock.advance(19.9)
    assert counted(house) == (1, 0)
    await house.clock.advance(0.1)
    assert (counted(house), house.store.slots()) == ((0, 0), [])


async def test_a_late_holder_is_told(house: House) -> None:
    leases = house.engine.leases
    slot = await take(house, ttl=20.0)
    await house.clock.advance(20.0)

    with pytest.raises(SlotLost, match="not renewed in time"):
        await leases.renew(slot.id)
    with pytest.raises(SlotLost):
        leases.report(slot.id, RateLimited())
    assert not await leases.release(slot.id)
    with pytest.raises(UnknownName, match="no slot 'never'"):
        await leases.renew("never")
    assert house.scope(SCOPE).paused_until is None


# -- those who go -----------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, "k"])
async def test_36_a_client_that_hangs_up_leaves_the_line_at_once(house: House, key: str | None) -> None:
    held = await take(house)
    call = await begin(house, 60.0, key)
    behind = await begin(house, 60.0)
    assert counted(house) == (1, 2)

    call.hung_up.set()
    await house.clock.advance(0.0)

    with pytest.raises(CallerGone):
        await call.task
    assert counted(house) == (1, 1)
    await house.engine.leases.release(held.id)
    await house.clock.advance(1.0)
    assert house.store.slots() == [await behind.slot()]


async def test_36_a_client_that_hangs_up_as_its_slot_comes_does_not_keep_it(house: House) -> None:
    held = await take(house)
    call = await begin(house, 60.0)
    behind = await begin(house, 60.0)

    house.engine.limiter.set_limit("acme", 2)
    call.hung_up.set()
    await house.clock.advance(0.0)

    with pytest.raises(CallerGone):
        await call.task
    await house.clock.advance(1.0)
    assert house.store.slots() == [held, await behind.slot()]


async def test_36_a_call_that_is_cancelled_leaves_the_line(house: House) -> None:
    await take(house)
    call = await begin(house, 60.0)

    call.task.cancel()
    await house.clock.advance(0.0)

    assert counted(house) == (1, 0)


async def test_what_could_not_be_stored_is_not_held(house: House) -> None:
    assert isinstance(house.store, CountingStore)
    house.store.is_failing = True

    with pytest.raises(StoreBusy):
        await house.engine.leases.take(request())

    house.store.is_failing = False
    await house.clock.advance(1.0)
    assert (counted(house), house.store.slots()) == ((0, 0), [])


async def test_a_release_that_could_not_be_stored_can_be_repeated(house: House) -> None:
    assert isinstance(house.store, CountingStore)
    slot = await take(house)
    house.store.is_failing = True

    with pytest.raises(StoreBusy):
        await house.engine.leases.release(slot.id)

    house.store.is_failing = False
    await house.engine.leases.release(slot.id)
    assert house.store.slots() == []


async def test_an_engine_that_stops_sends_those_who_wait_away(house: House) -> None:
    held = await take(house)
    call = await begin(house, 60.0)

    await house.stop()

    with pytest.raises(CapacityError, match="stopping"):
        await call.task
    assert house.store.slots() == [held]


async def test_all_of_one_turn_of_the_loop_is_one_transaction(house: House) -> None:
    assert isinstance(house.store, CountingStore)
    first = await take(house, scope="other")
    before = house.store.saves

    slots = await asyncio.gather(*(take(house, scope="other") for _ in range(20)), house.engine.leases.renew(first.id))

    assert house.store.saves == before + 1
    assert house.store.slots() == [slots[-1], *slots[:-1]]


# -- keys -------------------------------------------------------------------------------------------


async def test_39_the_same_key_is_the_same_slot_after_a_lost_answer(house: House) -> None:
    first = await take(house, key="k")
    await house.clock.advance(5.0)

    assert await take(house, key="k") == first
    assert await take(house, 60.0, key="k") == first
    assert (counted(house), house.store.slots()) == ((1, 0), [first])


async def test_39_two_calls_with_one_key_wait_for_one_slot(house: House) -> None:
    held = await take(house)
    calls = [await begin(house, 60.0, "k"), await begin(house, 60.0, "k")]
    assert counted(house) == (1, 1)
    gone = await begin(house, 60.0, "k")
    gone.hung_up.set()

    await house.engine.leases.release(held.id)
    await house.clock.advance(1.0)

    first, second = [await call.slot() for call in calls]
    assert first == second
    assert house.store.slots() == [first]
    with pytest.raises(CallerGone):
        await gone.task


@pytest.mark.parametrize(
    "changed", [{"scope": "acme/max-2"}, {"ttl": 61.0}, {"priority": 1}, {"session": "s"}, {"since": 1.0}]
)
async def test_the_same_key_for_something_else_is_refused(house: House, changed: dict[str, object]) -> None:
    slot = await take(house, key="k")

    with pytest.raises(TicketConflict, match="idempotency_key"):
        await house.engine.leases.take(request_of({"idempotency_key": "k"} | changed))

    assert house.store.slots() == [slot]


async def test_a_key_is_free_again_once_its_slot_is_given_back(house: House) -> None:
    slot = await take(house, key="k")
    await house.engine.leases.release(slot.id)
    await house.clock.advance(1.0)

    assert (await take(house, key="k")).id != slot.id


async def test_a_wait_goes_on_in_its_place_with_its_key(house: House) -> None:
    held = await take(house)
    first = await begin(house, 10.0, "k")
    await house.clock.advance(5.0)
    behind = await begin(house, 60.0)
    await house.clock.advance(5.0)
    assert isinstance(await first.task, Deferred)

    again = await begin(house, 10.0, "k")
    await house.engine.leases.release(held.id)
    await house.clock.advance(KEPT_PLACE_SECONDS + 1.0)

    assert house.store.slots() == [await again.slot()]
    assert not behind.task.done()


async def test_a_slot_that_came_between_two_calls_is_kept_by_the_second(house: House) -> None:
    held = await take(house)
    first = await begin(house, 10.0, "k")
    await house.clock.advance(10.0)
    assert isinstance(await first.task, Deferred)
    await house.engine.leases.release(held.id)

    slot = await take(house, 10.0, "k")

    await house.clock.advance(KEPT_PLACE_SECONDS + 1.0)
    assert house.store.slots() == [slot]


async def test_asking_again_for_a_slot_that_is_held_never_gives_it_back(house: House) -> None:
    assert isinstance(house.store, CountingStore)
    slot = await take(house, key="k")
    house.store.is_failing = True
    other = asyncio.create_task(house.engine.leases.take(request(scope="other")))

    with pytest.raises(StoreBusy):
        await asyncio.gather(house.engine.leases.take(request(key="k")), other)

    house.store.is_failing = False
    await house.clock.advance(1.0)
    assert house.store.slots() == [slot]
    assert counted(house) == (1, 0)


async def test_a_mistake_in_storing_is_told_to_who_waits_for_the_answer(house: House) -> None:
    assert isinstance(house.store, CountingStore)
    house.store.is_mistaken = True

    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(house.engine.leases.take(request()), 5.0)

    house.store.is_mistaken = False
    await house.clock.advance(1.0)
    assert (counted(house), house.store.slots()) == ((0, 0), [])


async def test_the_slot_of_a_command_is_not_given_back_by_a_call(house: House) -> None:
    command = OutsideClient(house.store, ("sessions", "acme"), priority=0, holder=process_id(os.getpid()))
    command.request(house.clock.now())
    house.engine.obey()
    await house.run(0.0)
    (slot,) = house.store.slots()

    assert not await house.engine.leases.release(slot.id)
    with pytest.raises(UnknownName):
        await house.engine.leases.renew(slot.id)

    assert (counted(house), house.store.slots()) == ((1, 0), [slot])


async def test_the_wait_of_a_command_is_stored_before_the_command_counts_as_read(house: House) -> None:
    command = OutsideClient(house.store, ("sessions", "acme"), priority=0, holder=process_id(os.getpid()))
    command.request(house.clock.now())

    house.engine.obey()
    await house.crash()  # before another pass
    await house.run(0.0)

    slot = command.look()
    assert slot is not None
    assert slot.granted_at is not None


async def test_a_place_that_nobody_comes_back_for_is_given_up(house: House) -> None:
    held = await take(house)
    first = await begin(house, 10.0, "k")
    await house.clock.advance(10.0)
    assert isinstance(await first.task, Deferred)
    behind = await begin(house, 60.0)

    await house.engine.leases.release(held.id)
    await house.clock.advance(KEPT_PLACE_SECONDS - 0.1)
    assert not behind.task.done()
    await house.clock.advance(0.5)

    assert house.store.slots() == [await behind.slot()]


# -- restarts ---------------------------------------------------------------------------------------


async def test_37_an_engine_that_crashed_counts_every_lease_before_it_admits_anybody(house: House) -> None:
    held = await take(house, ttl=20.0, key="k")
    await house.crash()

    await house.run(0.0)

    assert isinstance(await house.engine.leases.take(request()), Deferred)
    assert counted(house) == (1, 0)
    assert await take(house, key="k", ttl=20.0) == held
    call = await begin(house, 60.0)
    await house.clock.advance(20.0)
    assert (await call.slot()).granted_at == NOW + 20.0


async def test_37_a_lease_outlives_a_restart_and_is_renewed_after_it(house: House) -> None:
    slot = await take(house, ttl=20.0)
    await house.stop()
    await house.clock.advance(10.0)
    await house.run(0.0)

    assert lease_of(await house.engine.leases.renew(slot.id)).expires_at == NOW + 30.0
    assert await house.engine.leases.release(slot.id)
    assert counted(house) == (0, 0)


async def test_a_lease_that_ran_out_while_no_engine_was_there_is_lost(house: House) -> None:
    slot = await take(house, ttl=20.0)
    await house.stop()
    await house.clock.advance(30.0)
    await house.run(1.0)

    with pytest.raises(SlotLost):
        await house.engine.leases.renew(slot.id)
    assert (counted(house), house.store.slots()) == ((0, 0), [])
    await house.run(30.0)
    assert [event.fields["ticket"] for event in house.events("slot.reclaimed")] == [slot.id]


async def test_tokens_grow_over_restarts(house: House) -> None:
    tokens = []
    for _ in range(3):
        slot = await take(house)
        tokens.append(lease_of(slot).token)
        await house.engine.leases.release(slot.id)
        await house.crash()
        await house.run(1.0)

    assert tokens == sorted(set(tokens))


# -- bad values -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"scope": ""}, "scope"),
        ({"scope": "has spaces"}, "scope"),
        ({"scope": "sessions"}, "scope"),
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
async def test_bad_values_are_named_and_change_nothing(house: House, fields: dict[str, object], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        await house.engine.leases.take(request_of(fields))

    assert (counted(house), house.store.slots()) == ((0, 0), [])


async def test_a_since_in_milliseconds_is_no_head_start(house: House) -> None:
    held = await take(house)
    first = await begin(house, 60.0)
    await house.clock.advance(1.0)
    second = await begin(house, 60.0, since=NOW * 1000)

    await house.engine.leases.release(held.id)
    await house.clock.advance(1.0)

    assert (first.task.done(), second.task.done()) == (True, False)

"""Leases under any order of takes, renewals, releases, hang-ups, time and restarts, over a real SQLite file.

Never over the limit, never idle while somebody waits, no slot lost while its lease runs, none left at the end.
"""

import asyncio
import contextlib
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from paceline.core import Deferred
from paceline.engine.capacity.external_slots import LOST_GRACE_SECONDS
from paceline.engine.capacity.leases import KEPT_POSITION_SECONDS, PRESENCE_SECONDS, CallerGone, SlotRequest
from paceline.errors import CapacityError, SlotLost, UnknownName
from paceline.store import Lease, SqliteStore, StoredSlot
from paceline.testing.engine_harness import EngineHarness

LIMIT = 2
MEMORY_DISK = Path("/dev/shm")  # no power is lost here, so the disk need not be waited for
TTLS = {None: 30.0, "a": 20.0, "b": 60.0, "c": 5.0}
keys = st.sampled_from(list(TTLS))
numbers = st.integers(0, 5)


class Call:
    """A client that waits, and the key it has."""

    def __init__(self, harness: EngineHarness, key: str | None, wait: float) -> None:
        self.key = key
        self.hung_up = asyncio.Event()
        self.task = asyncio.create_task(harness.engine.leases.take(asked(key, wait), hung_up=self.hung_up.wait))


def asked(key: str | None, wait: float) -> SlotRequest:
    return SlotRequest(scope="acme/main", wait=wait, ttl=TTLS[key], idempotency_key=key)


def lease_of(slot: StoredSlot) -> Lease:
    assert slot.lease is not None
    return slot.lease


class LeaseMachine(RuleBasedStateMachine):
    """`held` are the slots that clients received and whose leases run. Lost ones stay in the store for a grace."""

    @initialize()
    def open(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory(dir=MEMORY_DISK if MEMORY_DISK.is_dir() else None)
        self.store = SqliteStore(Path(self.folder.name) / "paceline.db")
        self.held: dict[str, StoredSlot] = {}
        self.calls: list[Call] = []
        self.last_token = 0
        self.places_kept_until = 0.0

        async def start() -> EngineHarness:
            harness = EngineHarness(limits={"acme": LIMIT}, store=self.store, heartbeat=PRESENCE_SECONDS)
            await harness.run(0.0)
            return harness

        self.harness = self.loop.run_until_complete(start())

    def do(self, step: Coroutine[Any, Any, None]) -> None:
        """One step, and all that follows from it."""
        self.loop.run_until_complete(self._settled(step))

    async def _settled(self, step: Coroutine[Any, Any, None]) -> None:
        await step
        await self.harness.clock.advance(0.0)
        now = self.harness.clock.now()
        for call in [call for call in self.calls if call.task.done()]:
            self.calls.remove(call)
            with contextlib.suppress(CallerGone, CapacityError):
                self.record_answer(await call.task, call.key)
        self.held = {slot.id: slot for slot in self.held.values() if lease_of(slot).expires_at > now}

    def record_answer(self, answer: StoredSlot | Deferred, key: str | None) -> None:
        """Record the answer that a client received."""
        if isinstance(answer, Deferred):
            if key is not None:
                self.places_kept_until = self.harness.clock.now() + KEPT_POSITION_SECONDS
            return
        of_key = [slot.id for slot in self.held.values() if key is not None and lease_of(slot).key == key]
        assert of_key in ([], [answer.id])
        now = self.harness.clock.now()
        if answer.id not in self.held and now > self.places_kept_until:  # else it may have come before the last ones
            assert lease_of(answer).token > self.last_token or answer.granted_at != now
        self.last_token = max(self.last_token, lease_of(answer).token)
        self.held[answer.id] = answer

    # -- what clients do ----------------------------------------------------------------------------

    @rule(key=keys)
    def take(self, key: str | None) -> None:
        async def step() -> None:
            self.record_answer(await self.harness.engine.leases.take(asked(key, 0.0)), key)

        if not any(call.key == key for call in self.calls if key is not None):
            self.do(step())

    @precondition(lambda self: len(self.calls) < 6)
    @rule(key=keys, wait=st.sampled_from([2.0, 3.0, 300.0]))
    def wait(self, key: str | None, wait: float) -> None:
        async def step() -> None:
            self.calls.append(Call(self.harness, key, wait))

        self.do(step())

    @precondition(lambda self: self.calls)
    @rule(which=numbers, is_cancelled=st.booleans())
    def hang_up(self, which: int, is_cancelled: bool) -> None:
        async def step() -> None:
            call = self.calls[which % len(self.calls)]
            if is_cancelled:
                call.task.cancel()
                await asyncio.gather(call.task, return_exceptions=True)
                self.calls.remove(call)
            else:
                call.hung_up.set()

        self.do(step())

    @precondition(lambda self: self.held)
    @rule(which=numbers)
    def renew(self, which: int) -> None:
        async def step() -> None:
            slot_id = list(self.held)[which % len(self.held)]
            self.held[slot_id] = await self.harness.engine.leases.renew(slot_id)

        self.do(step())

    @precondition(lambda self: self.held)
    @rule(which=numbers)
    def release(self, which: int) -> None:
        async def step() -> None:
            slot_id = list(self.held)[which % len(self.held)]
            assert await self.harness.engine.leases.release(slot_id)
            del self.held[slot_id]
            assert not await self.harness.engine.leases.release(slot_id)
            with pytest.raises((UnknownName, SlotLost)):
                await self.harness.engine.leases.renew(slot_id)

        self.do(step())

    # -- what happens to them -----------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.5, 3.0, 4.0, 19.0, 61.0]))
    def time_passes(self, seconds: float) -> None:
        self.do(self.harness.clock.advance(seconds))

    @rule(is_crash=st.booleans(), seconds_away=st.sampled_from([0.0, 10.0, 45.0]))
    def restart(self, is_crash: bool, seconds_away: float) -> None:
        async def step() -> None:
            now = self.harness.clock.now()
            if now <= self.places_kept_until:  # what came for a client that was away is then a lease like any other
                self.places_kept_until = now + seconds_away + max(TTLS.values())
            await (self.harness.crash() if is_crash else self.harness.stop())
            await self.harness.clock.advance(seconds_away)
            await self.harness.run(0.0)
            stored = {slot.id: slot for slot in self.store.slots()}
            for slot_id, slot in self.held.items():  # nobody could renew it while no engine was there
                credited = lease_of(stored[slot_id]).expires_at
                latest = now + seconds_away + lease_of(slot).ttl
                assert min(lease_of(slot).expires_at + seconds_away, latest) <= credited <= latest
                self.held[slot_id] = stored[slot_id]

        self.do(step())

    # -- what must be so ----------------------------------------------------------------------------

    @invariant()
    def is_right(self) -> None:
        status = self.harness.scope("acme")
        stored = {slot.id: slot for slot in self.store.slots()}
        assert status.in_flight == len(stored) <= LIMIT
        assert self.held.items() <= stored.items()
        if self.harness.clock.now() > self.places_kept_until:  # else a slot may wait for a client to come back
            given_up = [slot for slot_id, slot in stored.items() if slot_id not in self.held]
            now = self.harness.clock.now()
            credit = 2 * PRESENCE_SECONDS  # after a crash: since the engine was last known to be there, at a heartbeat
            assert all(lease_of(slot).expires_at <= now + credit for slot in given_up)
            assert status.queued == len({call.key or id(call) for call in self.calls})
        assert not status.queued or status.in_flight == LIMIT

    def teardown(self) -> None:
        if not hasattr(self, "harness"):
            return

        async def leave() -> None:
            for call in self.calls:
                call.hung_up.set()
            for slot_id in list(self.held):
                await self.harness.engine.leases.release(slot_id)
            await self.harness.clock.advance(KEPT_POSITION_SECONDS + 1.0)
            await asyncio.gather(*(call.task for call in self.calls), return_exceptions=True)
            for slot in self.store.slots():  # those that came as their callers were leaving
                assert slot.id not in self.held
            await self.harness.clock.advance(max(TTLS.values()) + LOST_GRACE_SECONDS)
            status = self.harness.scope("acme")
            assert (status.in_flight, status.queued, self.store.slots()) == (0, 0, [])
            await self.harness.stop()

        self.loop.run_until_complete(leave())
        self.loop.close()
        self.store.close()
        self.folder.cleanup()


def try_leases(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        LeaseMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
        ),
    )


def test_leases_in_any_order() -> None:
    try_leases(examples=60, steps=30)


@pytest.mark.soak
def test_leases_in_any_order_for_long() -> None:
    try_leases(examples=2_000, steps=60)

"""Slots for programs in any language, as a leading engine grants them. The HTTP routes call this; no HTTP is in here.

A call waits as long as its caller listens for the answer. Grants, renewals and releases are stored before the caller
gets the answer: all that change in one turn of the event loop in one transaction. A lease that is not renewed in time
expires. A process that asks in the store needs none (`external_slots.py`): it gives its slot back by exiting.
"""

import asyncio
import logging
import math
import secrets
from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated

import msgspec
from msgspec import Meta

from paceline.clock import TimerHandle
from paceline.core import Deferred, Granted, Verdict
from paceline.core.decisions.time_effects import CLOCK_STEP_SECONDS
from paceline.core.signals import AnySignal
from paceline.core.values.scopes import RUNS, SESSIONS, path_scopes
from paceline.engine.capacity.external_slots import TICKET_PREFIX, SlotTable, closed_error, is_there, ticket_of
from paceline.engine.capacity.governor_state import save_governor
from paceline.engine.session.live_session import LiveSession
from paceline.errors import (
    InvalidDuration,
    InvalidInput,
    PacelineError,
    SlotLost,
    TicketConflict,
    UnknownName,
)
from paceline.events import Event
from paceline.limiter.governor_driver import GovernorDriver
from paceline.limiter.threads import running_loop
from paceline.redaction import signal_without_secrets
from paceline.store import Lease, Store, StoredSlot
from paceline.store.rules import is_unicode

log = logging.getLogger("paceline.engine")


LONGEST_WAIT = 300.0
"""Proxies and clients end longer calls themselves; a caller that wants to wait longer asks again."""
SHORTEST_TTL = 1.0
"""A shorter lease would expire between two renewals over a slow connection."""
LONGEST_TTL = 86_400.0
"""A crashed holder blocks its slot for at most a day."""
DEFAULT_TTL = 60.0
"""Long enough for a few renewals, short enough that a crashed holder costs a minute."""
POOLS = (SESSIONS, RUNS)
LARGEST_PRIORITY = 1000
LONGEST_TEXT = 300
KEPT_POSITION_SECONDS = 5.0
"""How long a call whose wait ran out keeps its position, for the next call with its key."""

TICK_SECONDS = 1.0
"""How long the timer of leases sleeps at most: a sleep of the machine, or a stop of this process, is noticed with this
precision, and credited in full."""
LATE_SECONDS = 2.0
"""A tick that comes later than this was held up. Less is the work of a busy loop, and the grace covers it."""

PRESENCE_STATE = "slots_present_at"
PRESENCE_SECONDS = 10.0
"""How often a leader stores that it is there: the credit after a kill is too long by at most this."""

replace = msgspec.structs.replace
Emit = Callable[..., object]
HungUp = Callable[[], Awaitable[object]]
Text = Annotated[str, Meta(min_length=1, max_length=LONGEST_TEXT)]


class CallerGone(Exception):
    """The caller has closed its connection before the answer."""


class SlotRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request for a slot in a provider path, within `wait` seconds, for `ttl` seconds until it is renewed.

    The scope may also be a pool: `sessions` for the slot of a whole session, `runs` for a run of no known provider.
    `since` is when the agent's prompt started. With an `idempotency_key`, asking again is asking for the same slot.
    """

    scope: str
    wait: Annotated[float, Meta(ge=0.0, le=LONGEST_WAIT)] = 0.0
    session: Text | None = None
    priority: Annotated[int, Meta(ge=-LARGEST_PRIORITY, le=LARGEST_PRIORITY)] = 0
    since: float | None = None
    ttl: Annotated[float, Meta(ge=SHORTEST_TTL, le=LONGEST_TTL)] = DEFAULT_TTL
    idempotency_key: Text | None = None


class Leases:
    """The slots of programs, as one leading engine grants them: those with a lease, and those of its own processes.

    It asks the Governor for them, and gives back those whose holder is gone.
    """

    def __init__(
        self,
        store: Store,
        driver: GovernorDriver,
        *,
        emit: Emit,
        sessions: Callable[[], Iterable[LiveSession]],
    ) -> None:
        self._store = store
        self._driver = driver
        self._governor = driver.governor
        self._metrics = driver.metrics
        self._clock = driver.clock
        self._emit = emit
        self._sessions = sessions
        self.table = SlotTable(store)
        self._has_learnt = False
        """Whether a program has reported something that is not stored yet."""
        self._present_at = -math.inf
        self._timer: TimerHandle | None = None
        """For the first lease that may expire. While there are leases it fires every second."""
        self._timer_at = math.inf
        self._last_tick = -math.inf
        self._calls: dict[str, list[asyncio.Future[int]]] = {}
        self._leaving: dict[str, TimerHandle] = {}

    async def take(self, request: SlotRequest, hung_up: HungUp | None = None) -> StoredSlot | Deferred:
        """Return a slot, or the reason why there was none when the wait ran out.

        `hung_up` returns once the caller no longer listens; then `CallerGone` is raised.
        """
        scopes = _check_request(request)
        self.table.check_open()
        slot = self._asked_before(request, scopes)
        if slot is not None:
            self._stay(slot.id)
            if not self._is_granted(slot.id):
                return await self._wait(slot, request, hung_up)
            return await self._stored_grant(slot.id)
        now = self._clock.now()
        slot = _new_slot(request, scopes, self._session_ticket(request.session))
        verdict = self._ask(slot, now, may_wait=request.wait > 0)
        self._advance(now)
        if isinstance(verdict, Deferred):
            fields = {"reason": verdict.reason, "detail": verdict.detail, "retry_at": verdict.retry_at}
            self._emit("slot.deferred", scope=verdict.scope, ticket=slot.id, **fields)
            if request.wait <= 0:
                return verdict
        if not self._is_granted(slot.id):
            return await self._wait(slot, request, hung_up)
        try:
            return await self._stored_grant(slot.id)
        except BaseException:
            self._leave(slot.id)  # nobody will learn of the grant
            raise

    async def renew(self, slot_id: str) -> StoredSlot:
        """Start the lease again from now. Raises `SlotLost` if it expired, `UnknownName` if there never was one."""
        slot = self._granted_slot(slot_id)
        assert slot.lease is not None
        renewed = replace(slot, lease=replace(slot.lease, expires_at=self._clock.now() + slot.lease.ttl))
        self.table.renew(renewed)
        await self.table.stored()
        return renewed

    async def release(self, slot_id: str, *, was_used: bool = True) -> bool:
        """Give the slot back. Returns whether there was one. From a slot that was not used nothing is learnt."""
        self.table.check_open()
        now = self._clock.now()
        slot = self.table.get(slot_id)
        had_slot = slot is not None and slot.lease is not None
        had_slot = had_slot and self._give_back(slot_id, now, was_used=was_used)
        self._advance(now)
        await self.table.stored()
        return had_slot

    async def release_session(self, session: str) -> int:
        """Give back the slots of a session: those of its runs, and then its own. Returns how many there were."""
        self.table.check_open()
        now = self._clock.now()
        slots = [slot for slot in self.table if slot.session == session and slot.lease is not None and slot.granted_at]
        for slot in sorted(slots, key=lambda each: SESSIONS in each.scopes):
            self._give_back(slot.id, now)
        self._advance(now)
        await self.table.stored()
        return len(slots)

    def report(self, slot_id: str, signal: AnySignal) -> StoredSlot:
        """Report what the provider answered to the holder of the slot."""
        slot = self._granted_slot(slot_id)
        if slot.scopes[-1] in POOLS:
            raise InvalidInput(f"slot {slot_id} is of no provider; report with a slot of one, or name its scope")
        now = self._clock.now()
        self._report(slot.scopes[-1], replace(signal, ticket=ticket_of(slot).id), now)
        self._advance(now)
        return slot

    def report_scope(self, scope: str, signal: AnySignal) -> None:
        """Report what a program knows about a scope, without a slot."""
        self._driver.report(scope, signal)
        self._has_learnt = True

    def tidy(self, now: float) -> None:
        """Release slots of dead holders, refresh wait reasons, and store both in one transaction.

        Called once per pass. It also expires the leases whose timer did not fire.
        """
        self._keep_time(now)
        self._reclaim_lost(now)
        for slot in self.table:
            if slot.holder is None:
                continue
            if not is_there(slot) or self.table.is_silent(slot.id, slot.holder, now):
                self._give_back(slot.id, now)
            elif slot.granted_at is None and (why := self._why(slot, now)) != slot.waiting:
                self.table.put(replace(slot, waiting=why))
        if self._has_learnt:
            save_governor(self._store, self._governor)
            self._has_learnt = False
        self.table.save()
        self.note_presence(now)
        self._arm()

    def close(self) -> None:
        """Fail all waiting calls. Granted slots stay in the store, for the next leader."""
        self._disarm()
        self.table.close()
        for timer in self._leaving.values():
            timer.cancel()
        for call in [call for calls in self._calls.values() for call in calls]:
            _complete(call, closed_error())

    # -- asking ----------------------------------------------------------------------------------

    def _asked_before(self, request: SlotRequest, scopes: tuple[str, ...]) -> StoredSlot | None:
        """Return the slot that the same request already has or waits for."""
        if request.idempotency_key is None:
            return None
        slot = self.table.get_by_key(request.idempotency_key)
        if slot is None or slot.lease is None:
            return None
        if self.table.was_lost(slot.id):  # the holder gave it up, and asks for a new one
            self._give_back(slot.id, self._clock.now(), was_used=False)
            return None
        asked = (slot.scopes, slot.session, slot.priority, slot.since, slot.lease.ttl)
        if asked != (scopes, request.session, request.priority, request.since, request.ttl):
            raise TicketConflict("idempotency_key was used for another request; use a new one for each slot")
        return slot

    def _session_ticket(self, session: str | None) -> str | None:
        """Return the ticket of a session that an agent of this engine names by its unit or its attempt."""
        if session is None:
            return None
        live = self._sessions()
        return next((each.ticket.id for each in live if session in (each.unit.id, each.ticket.id)), None)

    def _is_granted(self, slot_id: str) -> bool:
        slot = self.table.get(slot_id)
        return slot is not None and slot.granted_at is not None

    def _granted_slot(self, slot_id: str) -> StoredSlot:
        self.table.check_open()
        if self.table.was_lost(slot_id):
            raise SlotLost(f"the lease of slot {slot_id} was not renewed in time; its place is given on")
        slot = self.table.get(slot_id)
        if slot is not None and slot.lease is not None and slot.granted_at is not None:
            return slot
        raise UnknownName(f"there is no slot {slot_id!r:.80}: it was released, or its lease ran out long ago")

    # -- waiting ---------------------------------------------------------------------------------

    async def _wait(self, slot: StoredSlot, request: SlotRequest, hung_up: HungUp | None) -> StoredSlot | Deferred:
        call: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._calls.setdefault(slot.id, []).append(call)
        timer = self._clock.call_at(self._clock.now() + request.wait, lambda: _complete(call, 0))
        listener = asyncio.ensure_future(hung_up() if hung_up is not None else asyncio.Event().wait())
        listener.add_done_callback(lambda _: _complete(call, CallerGone()))
        sharers = 0
        try:
            sharers = await call or int(self._is_granted(slot.id))  # it may have been granted in the last moment
            if not sharers:
                return self._run_out(slot, call)
            granted = await self._stored_grant(slot.id)
            if listener.done():
                raise CallerGone
            return granted
        except BaseException:
            self._end_call(slot.id, call)
            if sharers <= 1:  # else another call has the slot too
                self._leave(slot.id)
            raise
        finally:
            timer.cancel()
            listener.cancel()

    async def _stored_grant(self, slot_id: str) -> StoredSlot:
        slot = self.table.get(slot_id)
        if slot is None:
            raise SlotLost(f"the slot {slot_id} was released while this call waited for it")
        await self.table.stored()
        return slot

    def _stay(self, slot_id: str) -> None:
        """Keep the slot or the position: its caller is back."""
        if (leaving := self._leaving.pop(slot_id, None)) is not None:
            leaving.cancel()

    def _end_call(self, slot_id: str, call: asyncio.Future[int]) -> None:
        calls = self._calls.get(slot_id, [])
        if call in calls:
            calls.remove(call)
        if not calls:
            self._calls.pop(slot_id, None)

    def _run_out(self, slot: StoredSlot, call: asyncio.Future[int]) -> Deferred:
        """Return the reason to wait. With a key, the position is kept a little for the next call with that key."""
        now = self._clock.now()
        why = self._why(slot, now)
        assert why is not None  # it waits
        self._end_call(slot.id, call)
        if slot.lease is not None and slot.lease.key is not None and slot.id not in self._calls:
            self._leaving[slot.id] = self._clock.call_at(now + KEPT_POSITION_SECONDS, lambda: self._leave(slot.id))
        else:
            self._leave(slot.id)
        return why

    def _leave(self, slot_id: str) -> None:
        """Give back a slot or a position that no call waits for any more."""
        self._leaving.pop(slot_id, None)
        if slot_id in self._calls:
            return
        now = self._clock.now()
        self._give_back(slot_id, now, was_used=False)
        if not self.table.is_closed:
            self._advance(now)
            self.table.save_soon()

    def _answer_calls(self, slot: StoredSlot) -> None:
        """Complete the calls that wait for a granted slot, with how many share it."""
        calls = self._calls.pop(slot.id, ())
        for call in calls:
            _complete(call, len(calls))
        self._arm()

    def _advance(self, now: float) -> None:
        """Let other callers of the Governor have what this call freed."""
        self._driver.advance(now)
        self._arm()

    # -- every slot, from request to release -------------------------------------------------------

    def _ask(self, slot: StoredSlot, now: float, *, may_wait: bool = True) -> Verdict:
        """Request a slot; with `may_wait=False` it is granted now or not at all."""
        ask = self._governor.request if may_wait else self._governor.try_request
        verdict = ask(ticket_of(slot), now=now)
        if isinstance(verdict, Granted):
            self.table.put(slot)
            self.on_granted(verdict)
        elif may_wait:
            self.table.put(slot)
        return verdict

    def on_granted(self, effect: Granted) -> bool:
        """Take note of a grant. Returns whether its program will look for the answer in the store."""
        slot = self.table.get(effect.ticket_id.removeprefix(TICKET_PREFIX))
        if slot is None:  # it gave up in the same moment
            self._governor.abandon(effect.ticket_id, now=effect.granted_at)
            return False
        lease = slot.lease
        if lease is not None:
            lease = replace(lease, token=self.table.next_token(), expires_at=effect.granted_at + lease.ttl)
        slot = replace(slot, granted_at=effect.granted_at, waiting=None, lease=lease)
        self.table.put(slot)
        self._metrics.granted(effect.waited)
        self._emit("slot.granted", scope=slot.scopes[-1], ticket=slot.id, waited=effect.waited)
        self._answer_calls(slot)
        return lease is None

    def _give_back(self, slot_id: str, now: float, *, was_used: bool = True) -> bool:
        """Release the slot, or stop waiting for it. Returns whether there was one.

        From a slot that was not used nothing is learnt.
        """
        slot = self.table.pop(slot_id)
        if slot is None:
            return False
        ticket_id = ticket_of(slot).id
        if slot.granted_at is None:
            self._governor.cancel(ticket_id, now=now)
            return True
        if was_used:
            self._governor.release(ticket_id, now=now)
        else:
            self._governor.abandon(ticket_id, now=now)
        self._emit("slot.released", scope=slot.scopes[-1], ticket=slot_id, held=max(0.0, now - slot.granted_at))
        return True

    def _report(self, scope: str, signal: AnySignal, now: float) -> None:
        self._governor.report(scope, signal_without_secrets(signal), now=now)
        self._metrics.reported(scope, signal)
        self._has_learnt = True

    def _why(self, slot: StoredSlot, now: float) -> Deferred | None:
        return self._governor.why(ticket_of(slot).id, now=now)

    # -- time ------------------------------------------------------------------------------------

    def _reclaim_lost(self, now: float) -> None:
        """Report the leases that were not renewed in time as lost, and give back those whose grace is over."""
        for slot, free_at in self.table.lose_expired(now):
            self._emit("slot.lost", scope=slot.scopes[-1], ticket=slot.id, reclaimed_at=free_at)
        for slot in self.table.pop_lost(now):
            self._emit("slot.reclaimed", scope=slot.scopes[-1], ticket=slot.id)
            self._governor.abandon(ticket_of(slot).id, now=now)

    def note_presence(self, now: float, *, at_once: bool = False) -> None:
        """Store that leases could be renewed up to now. The next leader credits them with the time since then."""
        if self.table.next_expiry() is not None and (at_once or not 0 <= now - self._present_at < PRESENCE_SECONDS):
            self._store.save_state(PRESENCE_STATE, repr(now).encode())
            self._present_at = now

    def _seconds_without_leader(self, now: float) -> float:
        """Return how long nobody could renew a lease. A store of an older version does not say: all begin again."""
        try:
            return max(0.0, now - float(self._store.load_state(PRESENCE_STATE) or b"0"))
        except ValueError:
            return now

    @property
    def is_busy(self) -> bool:
        """Whether there are slots to look after, or something of them is not stored yet."""
        return self._has_learnt or bool(self.table.slots or self.table.unsaved)

    # -- the timer -------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Set the timer, unless it fires early enough already."""
        due = self.table.next_expiry()
        if due is None or running_loop() is None or self.table.is_closed:
            return
        now = self._driver.now()
        due = min(due, now + TICK_SECONDS)
        if due >= self._timer_at:
            return
        if self._timer is None:
            self._last_tick = now
        else:
            self._timer.cancel()
        self._timer, self._timer_at = self._clock.call_at(due, self._reclaim), due

    def _keep_time(self, now: float) -> None:
        """Credit every lease with time in which nobody could renew it, and follow a clock that was set back.

        A timer that fires late means that this process could not renew anything since the tick before: it slept, or
        was stopped.
        """
        late, back = now - self._timer_at, self._last_tick - now
        if late > LATE_SECONDS:
            self.table.shift_leases(now - self._last_tick, now)
            self._timer_at = now  # the same delay is not credited twice
        elif back > CLOCK_STEP_SECONDS:
            self.table.shift_leases(-back, now)
            self._disarm()
        self._last_tick = now

    def _reclaim(self) -> None:
        now = self._driver.now()
        self._keep_time(now)
        self._disarm()
        self._reclaim_lost(now)
        self._advance(now)
        self.table.save_soon()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = None, math.inf

    # -- commands of programs, and recovery ------------------------------------------------------

    def carry_out(self, command: str, event: Event, now: float) -> None:
        """Carry out the command of a program."""
        match command:
            case "slot_request":
                self._ask(msgspec.convert(event.fields["slot"], StoredSlot), now)
            case "slot_alive":
                self.table.heard_at[str(event.fields["id"])] = now
            case "slot_release":
                self._give_back(str(event.fields["id"]), now)
            case "slot_report":
                self._report(event.scope or "", msgspec.convert(event.fields["signal"], AnySignal), now)

    def recover(self, now: float) -> None:
        """Count the slots that were granted by the leader before, and ask again for those that waited."""
        waiting: list[StoredSlot] = []
        for slot in self._store.slots():
            if slot.granted_at is not None:
                self._governor.adopt(ticket_of(slot), now=now)
            if not is_there(slot):
                self.table.drop_stored(slot.id)
                self._governor.abandon(ticket_of(slot).id, now=now)  # its provider may still count it
            elif slot.granted_at is None:
                waiting.append(slot)
            else:
                self.table.put(slot)
        self.table.shift_leases(self._seconds_without_leader(now), now)
        for slot in waiting:
            self._ask_again(slot, now)

    def _ask_again(self, slot: StoredSlot, now: float) -> None:
        try:
            self._ask(slot, now)
        except PacelineError as error:  # limits have changed so that its scopes cannot be requested any more
            log.warning("the request for slot %s was dropped: %s", slot.id, error)
            self.table.drop_stored(slot.id)


def _new_slot(request: SlotRequest, scopes: tuple[str, ...], parent: str | None) -> StoredSlot:
    return StoredSlot(
        id=secrets.token_hex(8),
        scopes=scopes,
        priority=request.priority,
        session=request.session,
        parent=parent,
        since=request.since,
        lease=Lease(token=0, ttl=request.ttl, expires_at=0.0, key=request.idempotency_key),
    )


def _complete(call: asyncio.Future[int], outcome: int | Exception) -> None:
    if call.done():
        return
    if isinstance(outcome, int):
        call.set_result(outcome)
    else:
        call.set_exception(outcome)


def _check_request(request: SlotRequest) -> tuple[str, ...]:
    """Return the scopes that the slot occupies. Raises for the first field that cannot be used."""
    scopes = (request.scope,) if request.scope in POOLS else (RUNS, *path_scopes(request.scope))
    _check_range("wait", request.wait, 0.0, LONGEST_WAIT)
    _check_range("ttl", request.ttl, SHORTEST_TTL, LONGEST_TTL)
    if not -LARGEST_PRIORITY <= request.priority <= LARGEST_PRIORITY:
        raise InvalidInput(f"priority must be from -{LARGEST_PRIORITY} to {LARGEST_PRIORITY}; got {request.priority}")
    if request.since is not None and not math.isfinite(request.since):
        raise InvalidInput(f"since must be a time in seconds; got {request.since}")
    for name, text in (("session", request.session), ("idempotency_key", request.idempotency_key)):
        if text is not None and (not 0 < len(text) <= LONGEST_TEXT or not is_unicode(text)):
            raise InvalidInput(f"{name} must be text of 1 to {LONGEST_TEXT} characters")
    return scopes


def _check_range(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:  # not a number is neither
        raise InvalidDuration(f"{name} must be {least:g} to {most:g} seconds; got {value}")

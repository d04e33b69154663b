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
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from paceline import errors
from paceline.clock import TimerHandle
from paceline.core import Deferred, Granted, Verdict
from paceline.core.decisions.time_effects import CLOCK_STEP_SECONDS
from paceline.core.signals import AnySignal
from paceline.core.values.scopes import RUNS, SESSIONS, path_scopes
from paceline.engine.capacity.external_slots import LOST_GRACE_SECONDS, TICKET_PREFIX, is_there, ticket_of
from paceline.engine.capacity.governor_state import save_governor
from paceline.engine.command_log import stored_number
from paceline.engine.session.live_session import LiveSession
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
"""A shorter lease would expire between two renewals over a slow connection, and between two ticks."""
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

TOKENS_STATE = "slot_tokens"
TOKENS_AT_ONCE = 1000
"""Fencing tokens reserved by one write. More means fewer writes, and larger gaps after a restart, which do no harm."""
REMEMBERED_LOSSES = 10_000
"""Lost slots whose holders still get "lease not renewed" instead of "no such slot". More costs memory."""
PRESENCE_STATE = "slots_present_at"
PRESENCE_SECONDS = 10.0
"""How often a leader stores that it is there: the credit after a kill is too long by at most this."""

replace = msgspec.structs.replace
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
        emit: Callable[..., object],
        sessions: Callable[[], Iterable[LiveSession]],
    ) -> None:
        self._store, self._driver, self._governor = store, driver, driver.governor
        self._metrics, self._clock = driver.metrics, driver.clock
        self._emit, self._sessions = emit, sessions
        self.slots: dict[str, StoredSlot] = {}
        self._by_key: dict[str, str] = {}
        self._free_at: dict[str, float] = {}
        """When the slots become free whose leases were not renewed."""
        self._lost: dict[str, None] = {}
        self._unsaved: dict[str, None] = {}
        self._heard_at: dict[str, float] = {}
        """When the holders on other machines have last shown that they are there, by the ids of their slots."""
        self._saves: list[asyncio.Future[None]] = []
        """Callers that wait until everything that has changed is stored."""
        self._is_save_scheduled = False
        self._is_closed = False
        self._token = self._reserved_tokens = stored_number(store, TOKENS_STATE)
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
        """Return a slot, or why there was none within the wait. Raise `CallerGone` once `hung_up` has returned."""
        scopes = _check_request(request)
        self._check_open()
        slot = self._asked_before(request, scopes)
        is_new = slot is None
        if slot is None:
            now = self._clock.now()
            slot = self._new_slot(request, scopes)
            verdict = self._ask(slot, now, may_wait=request.wait > 0)
            self._driver.advance(now)
            if isinstance(verdict, Deferred):
                fields = {"reason": verdict.reason, "detail": verdict.detail, "retry_at": verdict.retry_at}
                self._emit("slot.deferred", scope=verdict.scope, ticket=slot.id, **fields)
                if request.wait <= 0:
                    return verdict
        elif (leaving := self._leaving.pop(slot.id, None)) is not None:
            leaving.cancel()  # its caller is back
        if not self._is_granted(slot.id):
            return await self._wait(slot, request, hung_up)
        try:
            return await self._stored_grant(slot.id)
        except BaseException:
            if is_new:
                self._leave(slot.id)  # nobody will learn of the grant
            raise

    async def renew(self, slot_id: str) -> StoredSlot:
        """Start the lease again from now. Raises `SlotLost` if it expired, `UnknownName` if there never was one."""
        slot = self._granted_slot(slot_id)
        assert slot.lease is not None
        renewed = self._expiring(slot, self._clock.now() + slot.lease.ttl)
        await self._stored()
        return renewed

    async def release(self, slot_id: str, *, was_used: bool = True) -> bool:
        """Give the slot back. Returns whether there was one. From a slot that was not used nothing is learnt."""
        self._check_open()
        now = self._clock.now()
        slot = self.slots.get(slot_id)
        had_slot = slot is not None and slot.lease is not None
        had_slot = had_slot and self._give_back(slot_id, now, was_used=was_used)
        self._driver.advance(now)
        await self._stored()
        return had_slot

    async def release_session(self, session: str) -> int:
        """Give back the slots of a session: those of its runs, and then its own. Returns how many there were."""
        self._check_open()
        now = self._clock.now()
        of_session = (slot for slot in self.slots.values() if slot.session == session)
        slots = [slot for slot in of_session if slot.lease is not None and slot.granted_at]
        for slot in sorted(slots, key=lambda each: SESSIONS in each.scopes):
            self._give_back(slot.id, now)
        self._driver.advance(now)
        await self._stored()
        return len(slots)

    def report(self, slot_id: str, signal: AnySignal) -> StoredSlot:
        """Report what the provider answered to the holder of the slot."""
        slot = self._granted_slot(slot_id)
        if slot.scopes[-1] in POOLS:
            raise errors.InvalidInput(f"slot {slot_id} is of no provider; report with a slot of one, or name its scope")
        now = self._clock.now()
        self._report(slot.scopes[-1], replace(signal, ticket=ticket_of(slot).id), now)
        self._driver.advance(now)
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
        for slot in list(self.slots.values()):
            if slot.holder is None:
                continue
            if not is_there(slot, now - self._heard_at.setdefault(slot.id, now)):
                self._give_back(slot.id, now)
            elif slot.granted_at is None and (why := self._governor.why(ticket_of(slot).id, now=now)) != slot.waiting:
                self._put(replace(slot, waiting=why))
        if self._has_learnt:
            save_governor(self._store, self._governor)
            self._has_learnt = False
        self.save()
        self.note_presence(now)
        self._arm()

    def close(self) -> None:
        """Fail all waiting calls. Granted slots stay in the store, for the next leader."""
        self._disarm()
        self._is_closed = True
        for timer in self._leaving.values():
            timer.cancel()
        calls: list[asyncio.Future[Any]] = [call for calls in self._calls.values() for call in calls]
        for waiting in [*calls, *self._saves]:
            _complete(waiting, _closed_error())

    # -- asking ----------------------------------------------------------------------------------

    def _asked_before(self, request: SlotRequest, scopes: tuple[str, ...]) -> StoredSlot | None:
        """Return the slot that the same request already has or waits for."""
        slot = self.slots.get(self._by_key.get(request.idempotency_key or "", ""))
        if slot is None or slot.lease is None:
            return None
        if slot.id in self._lost:  # the holder gave it up, and asks for a new one
            self._give_back(slot.id, self._clock.now(), was_used=False)
            return None
        asked = (slot.scopes, slot.session, slot.priority, slot.since, slot.lease.ttl)
        if asked != (scopes, request.session, request.priority, request.since, request.ttl):
            raise errors.TicketConflict("idempotency_key was used for another request; use a new one for each slot")
        return slot

    def _new_slot(self, request: SlotRequest, scopes: tuple[str, ...]) -> StoredSlot:
        """Return the slot that is asked for. An agent of this engine names its session by its unit or its attempt."""
        parents = (each.ticket.id for each in self._sessions() if request.session in (each.unit.id, each.ticket.id))
        return StoredSlot(
            id=secrets.token_hex(8),
            scopes=scopes,
            priority=request.priority,
            session=request.session,
            parent=None if request.session is None else next(parents, None),
            since=request.since,
            lease=Lease(token=0, ttl=request.ttl, expires_at=0.0, key=request.idempotency_key),
        )

    def _is_granted(self, slot_id: str) -> bool:
        return slot_id in self.slots and self.slots[slot_id].granted_at is not None

    def _granted_slot(self, slot_id: str) -> StoredSlot:
        self._check_open()
        if slot_id in self._lost:
            raise errors.SlotLost(f"the lease of slot {slot_id} was not renewed in time; its place is given on")
        slot = self.slots.get(slot_id)
        if slot is not None and slot.lease is not None and slot.granted_at is not None:
            return slot
        raise errors.UnknownName(f"there is no slot {slot_id!r:.80}: it was released, or its lease ran out long ago")

    def _check_open(self) -> None:
        if self._is_closed:
            raise _closed_error()

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
                why = self._governor.why(ticket_of(slot).id, now=self._clock.now())
                assert why is not None  # it waits
                self._end_call(slot.id, call)
                if request.idempotency_key is not None and slot.id not in self._calls:
                    until = self._clock.now() + KEPT_POSITION_SECONDS  # the next call with its key keeps the position
                    self._leaving[slot.id] = self._clock.call_at(until, lambda: self._leave(slot.id))
                else:
                    self._leave(slot.id)
                return why
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
        slot = self.slots.get(slot_id)
        if slot is None:
            raise errors.SlotLost(f"the slot {slot_id} was released while this call waited for it")
        await self._stored()
        return slot

    def _end_call(self, slot_id: str, call: asyncio.Future[int]) -> None:
        calls = self._calls.get(slot_id, [])
        if call in calls:
            calls.remove(call)
        if not calls:
            self._calls.pop(slot_id, None)

    def _leave(self, slot_id: str) -> None:
        """Give back a slot or a position that no call waits for any more."""
        self._leaving.pop(slot_id, None)
        if slot_id in self._calls:
            return
        now = self._clock.now()
        self._give_back(slot_id, now, was_used=False)
        if not self._is_closed:
            self._driver.advance(now)
            self._save_soon()

    # -- every slot, from request to release -------------------------------------------------------

    def _ask(self, slot: StoredSlot, now: float, *, may_wait: bool = True) -> Verdict:
        """Request a slot; with `may_wait=False` it is granted now or not at all."""
        ask = self._governor.request if may_wait else self._governor.try_request
        verdict = ask(ticket_of(slot), now=now)
        if may_wait or isinstance(verdict, Granted):
            self._put(slot)
        if isinstance(verdict, Granted):
            self.on_granted(verdict)
        return verdict

    def on_granted(self, effect: Granted) -> bool:
        """Take note of a grant. Returns whether its program will look for the answer in the store."""
        slot = self.slots.get(effect.ticket_id.removeprefix(TICKET_PREFIX))
        if slot is None:  # it gave up in the same moment
            self._governor.abandon(effect.ticket_id, now=effect.granted_at)
            return False
        lease = slot.lease
        if lease is not None:
            self._token += 1  # larger than all before it, also those of leaders before
            lease = replace(lease, token=self._token, expires_at=effect.granted_at + lease.ttl)
        self._put(replace(slot, granted_at=effect.granted_at, waiting=None, lease=lease))
        self._metrics.granted(effect.waited)
        self._emit("slot.granted", scope=slot.scopes[-1], ticket=slot.id, waited=effect.waited)
        calls = self._calls.pop(slot.id, ())
        for call in calls:
            _complete(call, len(calls))
        self._arm()
        return lease is None

    def _put(self, slot: StoredSlot) -> None:
        """Add or replace a slot. One that waits for a lease is not stored: it waits as long as its call lasts."""
        self.slots[slot.id] = slot
        if slot.lease is not None and slot.lease.key is not None:
            self._by_key[slot.lease.key] = slot.id
        if slot.lease is None or slot.granted_at is not None:
            self._unsaved[slot.id] = None

    def _expiring(self, slot: StoredSlot, expires_at: float) -> StoredSlot:
        """Let the lease of the slot expire then, and return the slot."""
        assert slot.lease is not None
        slot = replace(slot, lease=replace(slot.lease, expires_at=expires_at))
        self._put(slot)
        return slot

    def _give_back(self, slot_id: str, now: float, *, was_used: bool = True) -> bool:
        """Release the slot, or stop waiting for it. Returns whether there was one. An unused one teaches nothing."""
        slot = self._pop(slot_id)
        if slot is None:
            return False
        ticket_id = ticket_of(slot).id
        if slot.granted_at is None:
            self._governor.cancel(ticket_id, now=now)
            return True
        give_back = self._governor.release if was_used else self._governor.abandon
        give_back(ticket_id, now=now)
        self._emit("slot.released", scope=slot.scopes[-1], ticket=slot_id, held=max(0.0, now - slot.granted_at))
        return True

    def _pop(self, slot_id: str) -> StoredSlot | None:
        """Remove a slot, if there is one, also from the store with the next save."""
        slot = self.slots.pop(slot_id, None)
        self._heard_at.pop(slot_id, None)
        self._free_at.pop(slot_id, None)
        if slot is not None:
            if slot.lease is not None and slot.lease.key is not None:
                self._by_key.pop(slot.lease.key, None)
            if slot.lease is None or slot.granted_at is not None:
                self._unsaved[slot_id] = None
        return slot

    def _report(self, scope: str, signal: AnySignal, now: float) -> None:
        self._governor.report(scope, signal_without_secrets(signal), now=now)
        self._metrics.reported(scope, signal)
        self._has_learnt = True

    # -- the store -------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether there are slots to look after, or something of them is not stored yet."""
        return self._has_learnt or bool(self.slots or self._unsaved)

    def save(self) -> None:
        """Store all added, changed and removed slots in one transaction."""
        if self._unsaved:
            if self._token > self._reserved_tokens:  # an upper bound is stored before any token is handed out
                reserved = self._token + TOKENS_AT_ONCE
                self._store.save_state(TOKENS_STATE, str(reserved).encode())
                self._reserved_tokens = reserved
            kept = [self.slots[slot_id] for slot_id in self._unsaved if slot_id in self.slots]
            self._store.save_slots(kept, [slot_id for slot_id in self._unsaved if slot_id not in self.slots])
            self._unsaved.clear()

    async def _stored(self) -> None:
        """Wait until everything that has changed is stored. Raises what kept it from being stored."""
        self._check_open()
        if self._unsaved:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._saves.append(waiting)
            self._save_soon()
            await waiting

    def _save_soon(self) -> None:
        """Store changes at the end of this turn of the loop, once for all callers."""
        if not self._is_save_scheduled:
            self._is_save_scheduled = True
            asyncio.get_running_loop().call_soon(self._save_for_callers)

    def _save_for_callers(self) -> None:
        self._is_save_scheduled = False
        waiting, self._saves = self._saves, []
        failure: Exception | None = None
        try:
            if not self._is_closed:
                self.save()
        except Exception as error:
            failure = error  # its callers get it; the next save includes what is unsaved
            log.warning("slots could not be stored: %s", error, exc_info=not isinstance(error, errors.StoreError))
        for each in waiting:
            _complete(each, failure)

    # -- time ------------------------------------------------------------------------------------

    def _ends_at(self, slot: StoredSlot) -> float:
        """Return when the lease of the slot expires, or its grace after that is over; infinity without a lease."""
        if slot.lease is None or slot.granted_at is None:
            return math.inf
        return self._free_at.get(slot.id, slot.lease.expires_at)

    def _reclaim_lost(self, now: float) -> None:
        """Report the leases that were not renewed in time as lost, and give back those whose grace is over."""
        for slot in [slot for slot in self.slots.values() if self._ends_at(slot) <= now]:
            if slot.id in self._free_at:
                self._pop(slot.id)
                self._emit("slot.reclaimed", scope=slot.scopes[-1], ticket=slot.id)
                self._governor.abandon(ticket_of(slot).id, now=now)
                continue
            free_at = self._free_at[slot.id] = now + LOST_GRACE_SECONDS
            self._lost[slot.id] = None
            if len(self._lost) > REMEMBERED_LOSSES:
                del self._lost[next(iter(self._lost))]
            self._emit("slot.lost", scope=slot.scopes[-1], ticket=slot.id, reclaimed_at=free_at)

    def _shift_leases(self, seconds: float, now: float) -> None:
        """Move every expiry, and the end of every grace, by so many seconds. None lasts longer than one begun now."""
        for slot in list(self.slots.values()):
            if slot.id in self._free_at:
                self._free_at[slot.id] = min(self._free_at[slot.id] + seconds, now + LOST_GRACE_SECONDS)
            elif slot.lease is not None and slot.granted_at is not None:
                self._expiring(slot, min(slot.lease.expires_at + seconds, now + slot.lease.ttl))

    def note_presence(self, now: float, *, at_once: bool = False) -> None:
        """Store that leases could be renewed up to now. The next leader credits them with the time since then."""
        is_due = at_once or not 0 <= now - self._present_at < PRESENCE_SECONDS
        if is_due and any(self._ends_at(slot) < math.inf for slot in self.slots.values()):
            self._store.save_state(PRESENCE_STATE, repr(now).encode())
            self._present_at = now

    def _arm(self) -> None:
        """Set the timer, unless it is set: no lease that is granted meanwhile expires before the next tick."""
        if self._timer is not None or running_loop() is None or self._is_closed:
            return
        due = min((self._ends_at(slot) for slot in self.slots.values()), default=math.inf)
        if due < math.inf:
            self._last_tick = self._driver.now()
            self._timer_at = min(due, self._last_tick + TICK_SECONDS)
            self._timer = self._clock.call_at(self._timer_at, self._reclaim)

    def _keep_time(self, now: float) -> None:
        """Credit every lease with time in which this process slept, and follow a clock that was set back."""
        late, back = now - self._timer_at, self._last_tick - now
        if late > LATE_SECONDS:  # nothing could be renewed since the tick before
            self._shift_leases(now - self._last_tick, now)
            self._timer_at = now  # the same delay is not credited twice
        elif back > CLOCK_STEP_SECONDS:
            self._shift_leases(-back, now)
            self._disarm()
        self._last_tick = now

    def _reclaim(self) -> None:
        now = self._driver.now()
        self._keep_time(now)
        self._disarm()
        self._reclaim_lost(now)
        self._driver.advance(now)
        self._arm()
        self._save_soon()

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
                self._heard_at[str(event.fields["id"])] = now
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
                self._unsaved[slot.id] = None  # the next save removes it
                self._governor.abandon(ticket_of(slot).id, now=now)  # its provider may still count it
            elif slot.granted_at is None:
                waiting.append(slot)
            else:
                self._put(slot)
        try:
            present_at = float(self._store.load_state(PRESENCE_STATE) or b"0")
        except ValueError:
            present_at = 0.0  # unknown: all begin again
        self._shift_leases(max(0.0, now - present_at), now)
        for slot in waiting:
            try:
                self._ask(slot, now)
            except errors.PacelineError as error:  # limits have changed so that its scopes cannot be requested any more
                log.warning("the request for slot %s was dropped: %s", slot.id, error)
                self._unsaved[slot.id] = None


def _closed_error() -> errors.CapacityError:
    return errors.CapacityError("the engine is stopping; ask again when it is back")


def _complete(waiting: "asyncio.Future[Any]", outcome: object) -> None:
    if waiting.done():
        return
    if isinstance(outcome, Exception):
        waiting.set_exception(outcome)
    else:
        waiting.set_result(outcome)


def _check_request(request: SlotRequest) -> tuple[str, ...]:
    """Return the scopes that the slot occupies. Raises for the first field that cannot be used."""
    scopes = (request.scope,) if request.scope in POOLS else (RUNS, *path_scopes(request.scope))
    for name, value, least, most in (
        ("wait", request.wait, 0.0, LONGEST_WAIT),
        ("ttl", request.ttl, SHORTEST_TTL, LONGEST_TTL),
    ):
        if not least <= value <= most:  # not a number is neither
            raise errors.InvalidDuration(f"{name} must be {least:g} to {most:g} seconds; got {value}")
    if not -LARGEST_PRIORITY <= request.priority <= LARGEST_PRIORITY:
        most, asked = LARGEST_PRIORITY, request.priority
        raise errors.InvalidInput(f"priority must be from -{most} to {most}; got {asked}")
    if request.since is not None and not math.isfinite(request.since):
        raise errors.InvalidInput(f"since must be a time in seconds; got {request.since}")
    for name, text in (("session", request.session), ("idempotency_key", request.idempotency_key)):
        if text is not None and (not 0 < len(text) <= LONGEST_TEXT or not is_unicode(text)):
            raise errors.InvalidInput(f"{name} must be text of 1 to {LONGEST_TEXT} characters")
    return scopes

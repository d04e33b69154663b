"""Slots for programs in any language: take, renew, report, release. What the HTTP routes call, and nothing of HTTP.

A call that waits is in line for as long as somebody listens for its answer. What is granted, renewed or released is
stored before the caller hears of it, all of one turn of the event loop in one transaction. A lease that is not renewed
in time runs out, and its slot is given on.
"""

import asyncio
import logging
import math
import secrets
from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated

import msgspec
from msgspec import Meta

from paceline.clock import Clock, TimerHandle
from paceline.core import Deferred
from paceline.core.signals import AnySignal
from paceline.core.values.scopes import RUNS, path_scopes
from paceline.engine.external_slots.registry import OutsideSlots
from paceline.engine.session import LiveSession
from paceline.errors import (
    CapacityError,
    InvalidDuration,
    InvalidInput,
    SlotLost,
    StoreError,
    TicketConflict,
    UnknownName,
)
from paceline.limiter.governor_driver import GovernorDriver
from paceline.limiter.home_loop import running_loop
from paceline.store import Lease, StoredSlot
from paceline.store.rules import is_unicode

log = logging.getLogger("paceline.engine")

LONGEST_WAIT = 300.0
SHORTEST_TTL = 1.0
LONGEST_TTL = 86_400.0
DEFAULT_TTL = 60.0
LARGEST_PRIORITY = 1000
LONGEST_TEXT = 300
KEPT_PLACE_SECONDS = 5.0
"""How long a call whose wait ran out keeps its place, for the next one with its key."""

HungUp = Callable[[], Awaitable[object]]
Text = Annotated[str, Meta(min_length=1, max_length=LONGEST_TEXT)]


class CallerGone(Exception):
    """Whoever asked has hung up: there is nobody to answer."""


class SlotRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked for: a slot in a provider path, within `wait` seconds, for `ttl` seconds until it is renewed.

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
    """The leases of one leader; made anew when it takes the lead."""

    def __init__(
        self,
        outside: OutsideSlots,
        driver: GovernorDriver,
        *,
        clock: Clock,
        tell: Callable[..., object],
        sessions: Callable[[], Iterable[LiveSession]],
    ) -> None:
        self._outside = outside
        self._driver = driver
        self._clock = clock
        self._tell = tell
        self._sessions = sessions
        self._calls: dict[str, list[asyncio.Future[int]]] = {}
        self._leaving: dict[str, TimerHandle] = {}
        self._unanswered: list[asyncio.Future[int]] = []
        self._is_saving = False
        self._timer: TimerHandle | None = None
        self._timer_at = math.inf
        self._is_closed = False
        outside.on_granted = self._answer_calls

    async def take(self, request: SlotRequest, hung_up: HungUp | None = None) -> StoredSlot | Deferred:
        """A slot, or what stood against it when the wait ran out. `hung_up` returns once nobody listens any more."""
        scopes = _check_request(request)
        self._check_open()
        slot = self._asked_before(request, scopes)
        if slot is not None:
            self._stay(slot.id)
            if not self._is_granted(slot.id):
                return await self._wait(slot, request, hung_up)
            return await self._stored_grant(slot.id)
        now = self._clock.now()
        slot = self._new_slot(request, scopes)
        verdict = self._outside.ask(slot, now, may_wait=request.wait > 0)
        self._attend(now)
        if isinstance(verdict, Deferred):
            self._tell_deferred(slot, verdict)
            if request.wait <= 0:
                return verdict
        if not self._is_granted(slot.id):
            return await self._wait(slot, request, hung_up)
        try:
            return await self._stored_grant(slot.id)
        except BaseException:
            self._leave(slot.id)  # nobody will hear of it
            raise

    async def renew(self, slot_id: str) -> StoredSlot:
        """Its lease runs anew from now. `SlotLost` if it ran out, `UnknownName` if there never was one."""
        slot = self._held(slot_id)
        renewed = self._outside.renew(slot, self._clock.now())
        await self._stored()
        return renewed

    async def release(self, slot_id: str, *, was_used: bool = True) -> bool:
        """Give the slot back; whether there was one to give. From one that was not used nothing is learnt."""
        self._check_open()
        now = self._clock.now()
        slot = self._outside.find(slot_id)
        was_held = slot is not None and slot.lease is not None and self._outside.let_go(slot_id, now, was_used=was_used)
        self._attend(now)
        await self._stored()
        return was_held

    def report(self, slot_id: str, signal: AnySignal) -> StoredSlot:
        """What the provider answered to the holder of the slot."""
        slot = self._held(slot_id)
        now = self._clock.now()
        self._outside.report(slot, signal, now)
        self._attend(now)
        return slot

    def report_scope(self, scope: str, signal: AnySignal) -> None:
        """What a program knows of a scope, without a slot."""
        self._driver.report(scope, signal)
        self._outside.learnt()

    def close(self) -> None:
        """Nobody waits any longer. What is held stays in the store, for who leads next."""
        self._is_closed = True
        for timer in (self._timer, *self._leaving.values()):
            if timer is not None:
                timer.cancel()
        for call in (*self._unanswered, *(call for calls in self._calls.values() for call in calls)):
            _settle(call, _closing())

    # -- asking ----------------------------------------------------------------------------------

    def _asked_before(self, request: SlotRequest, scopes: tuple[str, ...]) -> StoredSlot | None:
        """The slot that this very request has, or waits for."""
        if request.idempotency_key is None:
            return None
        slot = self._outside.find_by_key(request.idempotency_key)
        if slot is None or slot.lease is None:
            return None
        asked = (slot.scopes, slot.session, slot.priority, slot.since, slot.lease.ttl)
        if asked != (scopes, request.session, request.priority, request.since, request.ttl):
            raise TicketConflict("idempotency_key was used for another request; use a new one for each slot")
        return slot

    def _new_slot(self, request: SlotRequest, scopes: tuple[str, ...]) -> StoredSlot:
        session = request.session
        return StoredSlot(
            id=secrets.token_hex(8),
            scopes=scopes,
            priority=request.priority,
            session=session,
            parent=None if session is None else self._ticket_of(session),
            since=request.since,
            lease=Lease(token=0, ttl=request.ttl, expires_at=0.0, key=request.idempotency_key),
        )

    def _is_granted(self, slot_id: str) -> bool:
        slot = self._outside.find(slot_id)
        return slot is not None and slot.granted_at is not None

    def _tell_deferred(self, slot: StoredSlot, why: Deferred) -> None:
        fields = {"reason": why.reason, "detail": why.detail, "retry_at": why.retry_at}
        self._tell("slot.deferred", scope=why.scope, ticket=slot.id, **fields)

    def _ticket_of(self, session: str) -> str | None:
        """An agent that the engine started names its session by its unit or its attempt."""
        live = self._sessions()
        return next((each.ticket.id for each in live if session in (each.unit.id, each.ticket.id)), None)

    # -- waiting ---------------------------------------------------------------------------------

    async def _wait(self, slot: StoredSlot, request: SlotRequest, hung_up: HungUp | None) -> StoredSlot | Deferred:
        call: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._calls.setdefault(slot.id, []).append(call)
        timer = self._clock.call_at(self._clock.now() + request.wait, lambda: _settle(call, 0))
        listener = asyncio.ensure_future(hung_up() if hung_up is not None else asyncio.Event().wait())
        listener.add_done_callback(lambda _: _settle(call, CallerGone()))
        granted_to = 0
        try:
            granted_to = await call or int(self._is_granted(slot.id))  # it may have come in the very last moment
            if not granted_to:
                return self._run_out(slot, call)
            granted = await self._stored_grant(slot.id)
            if listener.done():
                raise CallerGone
            return granted
        except BaseException:
            self._end_call(slot.id, call)
            if granted_to <= 1:  # else it is another call's too
                self._leave(slot.id)
            raise
        finally:
            timer.cancel()
            listener.cancel()

    async def _stored_grant(self, slot_id: str) -> StoredSlot:
        slot = self._outside.find(slot_id)
        if slot is None:
            raise SlotLost(f"the slot {slot_id} was released while this call waited for it")
        await self._stored()
        return slot

    def _stay(self, slot_id: str) -> None:
        """Somebody is back for it."""
        if (leaving := self._leaving.pop(slot_id, None)) is not None:
            leaving.cancel()

    def _end_call(self, slot_id: str, call: asyncio.Future[int]) -> None:
        calls = self._calls.get(slot_id, [])
        if call in calls:
            calls.remove(call)
        if not calls:
            self._calls.pop(slot_id, None)

    def _run_out(self, slot: StoredSlot, call: asyncio.Future[int]) -> Deferred:
        """Where it stands. With a key, its place is kept a little: the next call with it goes on waiting there."""
        now = self._clock.now()
        why = self._outside.why(slot, now)
        assert why is not None  # it is in line
        self._end_call(slot.id, call)
        if slot.lease is not None and slot.lease.key is not None and slot.id not in self._calls:
            self._leaving[slot.id] = self._clock.call_at(now + KEPT_PLACE_SECONDS, lambda: self._leave(slot.id))
        else:
            self._leave(slot.id)
        return why

    def _leave(self, slot_id: str) -> None:
        """Nobody waits for it any longer, or is there to hear that it was granted."""
        self._leaving.pop(slot_id, None)
        if slot_id in self._calls:
            return
        now = self._clock.now()
        self._outside.let_go(slot_id, now, was_used=False)
        if not self._is_closed:
            self._attend(now)
            self._save_soon()

    def _answer_calls(self, slot: StoredSlot) -> None:
        calls = self._calls.pop(slot.id, ())
        for call in calls:
            _settle(call, len(calls))
        self._arm()

    # -- storing and time ------------------------------------------------------------------------

    def tidy(self, now: float) -> None:
        """The pass goes by: whatever is due and could not be told by a timer."""
        self._outside.tidy(now)
        self._arm()

    def _attend(self, now: float) -> None:
        """Let the Governor's other callers have what this one freed."""
        self._driver.advance(now)
        self._arm()

    def _arm(self) -> None:
        due = self._outside.next_due()
        if due is None or due >= self._timer_at or running_loop() is None or self._is_closed:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = self._clock.call_at(due, self._reclaim), due

    def _reclaim(self) -> None:
        self._timer, self._timer_at = None, math.inf
        now = self._clock.now()
        self._outside.reclaim(now)
        self._attend(now)
        self._save_soon()

    async def _stored(self) -> None:
        """All that has changed is on the disk."""
        if self._is_closed:
            raise _closing()
        if not self._outside.is_saved:
            answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            self._unanswered.append(answer)
            self._save_soon()
            await answer

    def _save_soon(self) -> None:
        """Once in this turn of the loop, however many ask."""
        if not self._is_saving:
            self._is_saving = True
            asyncio.get_running_loop().call_soon(self._save)

    def _save(self) -> None:
        self._is_saving = False
        answers, self._unanswered = self._unanswered, []
        outcome: int | Exception = 0
        try:
            if not self._is_closed:
                self._outside.save()
        except Exception as error:
            outcome = error  # whoever waits must hear of it; what is unsaved is taken along by the next save
            log.warning("slots could not be stored: %s", error, exc_info=not isinstance(error, StoreError))
        for answer in answers:
            _settle(answer, outcome)

    def _held(self, slot_id: str) -> StoredSlot:
        self._check_open()
        slot = self._outside.find(slot_id)
        if slot is not None and slot.lease is not None and slot.granted_at is not None:
            return slot
        if self._outside.was_lost(slot_id):
            raise SlotLost(f"the lease of slot {slot_id} was not renewed in time; its place is given on")
        raise UnknownName(f"there is no slot {slot_id!r:.80}: it was released, or its lease ran out long ago")

    def _check_open(self) -> None:
        if self._is_closed:
            raise _closing()


def _settle(call: asyncio.Future[int], outcome: int | Exception) -> None:
    if call.done():
        return
    if isinstance(outcome, int):
        call.set_result(outcome)
    else:
        call.set_exception(outcome)


def _closing() -> CapacityError:
    return CapacityError("the engine is stopping; ask again when it is back")


def _check_request(request: SlotRequest) -> tuple[str, ...]:
    """The scopes that the slot occupies; raises for the first field that cannot be used."""
    scopes = (RUNS, *path_scopes(request.scope))
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

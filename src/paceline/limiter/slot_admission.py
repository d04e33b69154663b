"""The way from a `AdmissionRequest` to a `Slot`, and back: validation, the ticket, the wait, the release.

Here: everything between a caller and the Governor for one slot. Never here: rules of admission.
"""

import asyncio
from collections.abc import Callable, Iterable

import msgspec

from paceline.core import Deferred, Granted, Ticket
from paceline.core.signals import Signal
from paceline.core.values.scopes import RUNS, path_scopes
from paceline.core.values.validation import check_callable, check_name, check_seconds
from paceline.errors import CapacityError, InvalidInput, InvalidScope, SlotLost, SlotTimeout
from paceline.limiter.event_listener import EventListener
from paceline.limiter.governor_driver import GovernorDriver
from paceline.limiter.home_loop import HomeLoop
from paceline.limiter.named_slots import NamedSlots
from paceline.limiter.slot import AdmissionRequest, Slot, SlotContext
from paceline.limiter.waiters import Waiters

CACHED_PATHS = 4096
"""How many scope paths stay parsed. A program uses few; the cap bounds memory where paths come from outside."""
NAMESPACE = "slot"
NOT_LEADING = "this engine may not lead any more, so it grants nothing"
NOT_LEADING_SECONDS = 0.2
"""How often a caller looks whether grants count again. The lease is renewed, or the limiter closed, within seconds."""


class SlotAdmission:
    """Grants slots to callers of one limiter. Its tickets are `slot:1`, `slot:2`, ..."""

    def __init__(
        self,
        driver: GovernorDriver,
        home: HomeLoop,
        waiters: Waiters,
        named: NamedSlots,
        listener: EventListener | None,
        report: Callable[[str, Signal], object],
    ) -> None:
        self._driver = driver
        self._governor = driver.governor
        self._agenda = driver.governor.agenda
        self._now = driver.now
        self._home = home
        self._waiters = waiters
        self._named = named
        self._listener = listener
        self._report = report
        self._paths: dict[str, tuple[str, ...]] = {}
        self._count = 0
        driver.subscribe(NAMESPACE, waiters.complete)

    def skip_used(self, ticket_ids: Iterable[str]) -> None:
        """Number new tickets after those of a snapshot. Older versions wrote `slot-1`, which no new ticket repeats."""
        for ticket_id in ticket_ids:
            number = ticket_id.removeprefix(f"{NAMESPACE}:")
            if number.isdecimal():
                self._count = max(self._count, int(number))

    async def enter(self, request: AdmissionRequest, context: SlotContext | None = None) -> Slot:
        """Wait for a slot. A `context` is marked as entered from the request on."""
        if (loop := asyncio.get_running_loop()) is not self._home.loop:
            self._home.move_to(loop)
        if request.timeout is not None:
            check_seconds(request.timeout, "timeout")
        if request.on_queued is not None:
            check_callable(request.on_queued, "on_queued")
        if context is not None and context.entered:
            raise RuntimeError("this slot(...) is in use; write limiter.slot(...) again for each `async with`")
        if not self._driver.may_grant():
            request = await self._until_grants_count(request)
        ticket = self._ticket(request)
        verdict = self._governor.request(ticket, now=self._now())
        if context is not None:
            context.entered = True
        if type(verdict) is Deferred:
            try:
                verdict = await self._wait(verdict, request, loop)
            except BaseException:
                if context is not None:
                    context.entered = False
                self._waiters.leave(ticket.id)
                raise
        elif self._agenda.effects or self._agenda.next_due < self._driver.armed_for:
            self._driver.carry_out()
        assert type(verdict) is Granted
        slot = self._slot(verdict, _reported_scope(ticket), request.session)
        if context is not None:
            context.slot = slot
        return slot

    async def _until_grants_count(self, request: AdmissionRequest) -> AdmissionRequest:
        """Wait outside of the queue. Returns the request with the time-out that is left."""
        began = self._now()
        while not (self._driver.may_grant() or self._driver.is_closed):
            waited = self._now() - began
            if request.timeout is not None and waited >= request.timeout:
                raise SlotTimeout(f"no slot within {request.timeout:g} s: {NOT_LEADING}")
            await self._driver.clock.sleep(NOT_LEADING_SECONDS)
        if request.timeout is None:
            return request
        return msgspec.structs.replace(request, timeout=max(0.0, request.timeout - (self._now() - began)))

    def try_enter(self, request: AdmissionRequest) -> Slot | Deferred:
        """Return a slot now, or the reason why there is none."""
        if not self._driver.may_grant():
            raise CapacityError(NOT_LEADING)
        ticket = self._ticket(request)
        verdict = self._governor.try_request(ticket, now=self._now())
        if self._agenda.effects or self._agenda.next_due < self._driver.armed_for:
            self._driver.carry_out()
        if isinstance(verdict, Deferred):
            return verdict
        return self._slot(verdict, _reported_scope(ticket), request.session)

    def _ticket(self, request: AdmissionRequest) -> Ticket:
        if self._driver.is_closed:
            raise CapacityError("the limiter is closed")
        scope, priority, since = request.scope, request.priority, request.since
        if type(scope) is not str:
            raise InvalidScope(f"a scope is text, provider/account/model; got {scope!r:.80}")
        scopes = self._paths.get(scope) or self._parse(scope)
        if type(priority) is not int:
            raise InvalidInput(f"priority must be a whole number; got {priority!r:.80}")
        if since is not None and type(since) not in (float, int):
            raise InvalidInput(f"since must be a time in seconds, or None; got {since!r:.80}")
        self._count = number = self._count + 1
        session = request.session
        parent = self._named.session_ticket(check_name(session, "session")) if session is not None else None
        group = request.group
        if group is None:
            return Ticket(f"slot:{number}", scopes, "", priority, since, parent, request.tokens, request.leased)
        return Ticket(
            f"slot:{number}",
            (*scopes, group.scope),
            group.name,
            priority,
            since,
            parent,
            request.tokens,
            request.leased,
            weight=group.weight,
        )

    def _parse(self, scope: str) -> tuple[str, ...]:
        if len(self._paths) >= CACHED_PATHS:
            self._paths.clear()
        scopes = self._paths[scope] = (RUNS, *path_scopes(scope))
        return scopes

    def _slot(self, granted: Granted, scope: str, session: str | None) -> Slot:
        if session is not None:
            self._named.add(session, granted.ticket_id)
        if self._listener is not None:
            fields: dict[str, object] = {"ticket": granted.ticket_id, "waited": granted.waited}
            self._listener.emit("slot.granted", granted.granted_at, scope, fields)
        return Slot(self, granted, scope, session)

    def _wait(
        self, deferred: Deferred, request: AdmissionRequest, loop: asyncio.AbstractEventLoop
    ) -> "asyncio.Future[Granted]":
        ticket_id = deferred.ticket_id
        future = self._waiters.add(ticket_id, loop)
        if self._agenda.effects or self._agenda.next_due < self._driver.armed_for:
            self._driver.carry_out()
        self._driver.arm_if_missed()
        if self._listener is not None:
            self._emit_deferred(self._listener, deferred)
        if request.timeout is not None:
            self._waiters.set_timeout(ticket_id, request.timeout)
        if request.on_queued is not None:
            request.on_queued(deferred)  # it may release the very slot that this ticket waits for
        return future

    def _emit_deferred(self, listener: EventListener, verdict: Deferred) -> None:
        fields: dict[str, object] = {
            "ticket": verdict.ticket_id,
            "reason": verdict.reason,
            "detail": verdict.detail,
            "retry_at": verdict.retry_at,
        }
        listener.emit("slot.deferred", self._now(), verdict.scope, fields)

    # -- what a slot asks of us ------------------------------------------------------------------

    def leave(self, granted: Granted, scope: str, session: str | None, learns: bool) -> None:
        """Give a slot back, let others in, and emit its last event unless it was reclaimed before."""
        ticket_id = granted.ticket_id
        if session is not None:
            self._named.forget(session, ticket_id)
        now = self._now()
        governor, agenda = self._governor, self._agenda
        had_slot = governor.release(ticket_id, now=now) if learns else governor.abandon(ticket_id, now=now)
        if agenda.effects or agenda.next_due < self._driver.armed_for:
            self._driver.carry_out()
        if had_slot and self._listener is not None:
            fields: dict[str, object] = {"ticket": ticket_id, "held": now - granted.granted_at}
            self._listener.emit("slot.released", now, scope, fields)

    def renew(self, slot: Slot) -> None:
        renewed = not slot.lost and self._governor.renew(slot.id, now=self._now())
        self._driver.carry_out()
        if not renewed:
            raise SlotLost(f"{slot.id} in {slot.scope} was not renewed in time; others may have its places now")

    def report(self, slot: Slot, signal: Signal) -> None:
        if isinstance(signal, Signal):
            signal = msgspec.structs.replace(signal, ticket=slot.id)
        self._report(slot.scope, signal)

    def is_held(self, slot: Slot) -> bool:
        return self._governor.is_held(slot.id)

    def is_canary(self, slot: Slot) -> bool:
        return self._governor.is_canary(slot.id)


def _reported_scope(ticket: Ticket) -> str:
    """Return the scope that signals of a slot are about: the narrowest of its path, not the one of its group."""
    return ticket.scopes[-1] if ticket.weight is None else ticket.scopes[-2]

"""The way from an `AdmissionRequest` to a `Slot`, and back: validation, the ticket, the wait, the release.

Here: everything between a caller and the Governor for one slot. However a wait ends, no future, time-out or slot stays
behind. Never here: rules of admission, or who is next.

Here too: slots that are acquired and released by a name of the caller's: whole sessions, and runs of a session. Each is
held until it is released, for the limiter lives in the process of its callers. A session that has been silent for five
minutes is named to those that find no place. Those of a process before have a lease: they are lost unless they are
acquired again. A named slot is granted at once or refused.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Iterable, Mapping
from types import TracebackType

import msgspec

from paceline import errors
from paceline.clock import TimerHandle
from paceline.core import Deferred, Granted, Ticket
from paceline.core.signals import Signal
from paceline.core.values.scopes import RUNS, SESSIONS, path_scopes
from paceline.core.values.validation import check_callable, check_name, check_seconds
from paceline.limiter.governor_driver import GovernorDriver
from paceline.limiter.slot import AdmissionRequest, Slot
from paceline.limiter.threads import HomeLoop

log = logging.getLogger("paceline.limiter")

SESSION_PREFIX = "session:"
RUN_PREFIX = "run:"
SILENT_SECONDS = 300.0
"""How long a session is silent before it is reported: as long as an unrenewed lease lasts."""
MOST_NAMED = 3
"""Silent sessions that an error names: enough to find the cause, and short enough to read."""


class NamedSlots:
    """The tickets of each session, whether or not the session itself has a slot."""

    def __init__(self, driver: GovernorDriver) -> None:
        self._driver = driver
        self._governor = driver.governor
        self._by_session: dict[str, dict[str, None]] = {}
        self._owner: dict[str, str] = {}
        """The session of each of them."""
        self._logged_at = -math.inf
        self._heard_at: dict[str, float] = {}
        """When each session was last acquired, or one of its runs began or ended."""

    def acquire_session(self, session: str, scope: str | None) -> None:
        """Take a slot for a whole session, or raise `MaxSessionsExceeded`. No-op for one that has it."""
        ticket_id = SESSION_PREFIX + check_name(session, "session")
        scopes = (SESSIONS, *(path_scopes(scope) if scope is not None else ()))
        self._acquire(Ticket(ticket_id, scopes, leased=False), session, errors.MaxSessionsExceeded)

    def acquire_run(self, session: str, run: str, scope: str | None) -> None:
        """Take a slot for one run of a session, or raise `MaxRunsExceeded`. No-op for one that has it."""
        ticket_id = RUN_PREFIX + check_name(run, "run")
        owner = self._owner.get(ticket_id, check_name(session, "session"))
        if owner != session:
            raise errors.TicketConflict(
                f"run {run!r} belongs to session {owner!r}; choose another id for session {session!r}"
            )
        scopes = (RUNS, *(path_scopes(scope) if scope is not None else ()))
        parent = self.session_ticket(session)
        self._acquire(Ticket(ticket_id, scopes, parent=parent, leased=False), session, errors.MaxRunsExceeded)

    def _acquire(self, ticket: Ticket, session: str, error: type[errors.CapacityError]) -> None:
        driver = self._driver
        if driver.is_closed:
            raise errors.CapacityError("the limiter is closed")
        if ticket.id in self._by_session.get(session, ()):
            if self._governor.renew(ticket.id, now=driver.now()):  # one from before a restart has found its holder
                self._heard_at[session] = driver.now()
                return
            self._release(ticket.id)  # too late: another ticket has its places, or is about to get them
            self.forget(session, ticket.id)
        verdict = self._governor.try_request(ticket, now=driver.now())
        if not isinstance(verdict, Deferred):
            self.add(session, ticket.id)
        driver.carry_out()
        if isinstance(verdict, Deferred):
            raise error(verdict.detail + self._silence())
        if driver.listener is not None:
            fields: dict[str, object] = {"ticket": ticket.id, "waited": verdict.waited}
            driver.listener.emit("slot.granted", verdict.granted_at, ticket.scopes[-1], fields)

    def _silence(self) -> str:
        """Return which sessions hold their slots although they are silent for long, and log it now and then.

        They are not ended: nobody but their owner knows whether they are over.
        """
        now = self._driver.now()
        silent = sorted((at, session) for session, at in self._heard_at.items() if self._is_silent(session, now - at))
        if not silent:
            return ""
        named = ", ".join(f"{session!r:.80} ({now - at:.0f} s)" for at, session in silent[:MOST_NAMED])
        more = f" and {len(silent) - MOST_NAMED} more" if len(silent) > MOST_NAMED else ""
        found = f"silent: {named}{more}; release_session frees the place of one that is over"
        if now - self._logged_at >= SILENT_SECONDS:
            log.warning("sessions hold their slots, %s", found)
            self._logged_at = now
        return f"; {found}"

    def _is_silent(self, session: str, seconds: float) -> bool:
        own = SESSION_PREFIX + session
        is_alone = seconds > SILENT_SECONDS and set(self._by_session[session]) == {own}
        return is_alone and self._governor.granted_at(own) is not None

    def release_run(self, run: str) -> None:
        """Release a run's slot. Idempotent."""
        ticket_id = RUN_PREFIX + check_name(run, "run")
        self.forget(self._owner.get(ticket_id, ""), ticket_id)
        self._release(ticket_id)

    def release_session(self, session: str) -> None:
        """Release the slots of all runs of the session, and then its own. Idempotent."""
        own = SESSION_PREFIX + check_name(session, "session")
        self._heard_at.pop(session, None)
        for ticket_id in sorted(self._by_session.pop(session, {}), key=lambda each: each == own):
            del self._owner[ticket_id]
            self._release(ticket_id)

    def _release(self, ticket_id: str) -> None:
        now = self._driver.now()
        self._governor.pass_time(now=now)
        ticket = self._governor.ticket_of(ticket_id)
        granted_at = self._governor.granted_at(ticket_id)  # None where it was reclaimed, just now or long ago
        self._governor.release(ticket_id, now=now)
        self._driver.carry_out()
        listener = self._driver.listener
        if listener is not None and ticket is not None and granted_at is not None:
            listener.emit("slot.released", now, ticket.scopes[-1], {"ticket": ticket_id, "held": now - granted_at})

    # -- which tickets belong to a session -----------------------------------------------------

    def add(self, session: str, ticket_id: str) -> None:
        """Release this ticket together with the session."""
        self._by_session.setdefault(session, {})[ticket_id] = None
        self._owner[ticket_id] = session
        self._heard_at[session] = self._driver.now()

    def forget(self, session: str, ticket_id: str) -> None:
        """Stop tracking a ticket that was released on its own."""
        self._owner.pop(ticket_id, None)
        tickets = self._by_session.get(session)
        if tickets is not None:
            tickets.pop(ticket_id, None)
            self._heard_at[session] = self._driver.now()
            if not tickets:
                del self._by_session[session], self._heard_at[session]

    def session_ticket(self, session: str) -> str | None:
        """Return the ticket of a session that was acquired by name, or whose name is its ticket, as an attempt's is."""
        ticket_id = SESSION_PREFIX + session
        if ticket_id in self._by_session.get(session, ()):
            return ticket_id
        ticket = self._governor.ticket_of(session)
        return session if ticket is not None and SESSIONS in ticket.scopes else None

    def owners(self) -> dict[str, str]:
        """Return the session of each ticket, for a snapshot."""
        return dict(self._owner)

    def restore(self, tickets: Iterable[Ticket], owners: Mapping[str, str]) -> None:
        """Track the slots of a snapshot: they can be released by their name, or with their session."""
        for ticket in tickets:
            owner = owners.get(ticket.id)
            if owner is None and ticket.id.startswith(SESSION_PREFIX):
                owner = ticket.id.removeprefix(SESSION_PREFIX)
            elif owner is None and ticket.parent is not None:
                owner = ticket.parent.removeprefix(SESSION_PREFIX)
            if owner is not None:
                self.add(owner, ticket.id)


# -- slots for a block of code ------------------------------------------------------------------

CACHED_PATHS = 4096
"""How many scope paths stay parsed. A program uses few; the cap bounds memory where paths come from outside."""
NAMESPACE = "slot"
NOT_LEADING = "this engine may not lead any more, so it grants nothing"
NOT_LEADING_SECONDS = 0.2
"""How often a caller looks whether grants count again. The lease is renewed, or the limiter closed, within seconds."""


class SlotContext(msgspec.Struct, eq=False):
    """`async with limiter.slot(...)`: waits for a slot and releases it. Has one slot at a time."""

    source: "SlotAdmission"
    request: AdmissionRequest
    slot: Slot | None = None
    entered: bool = False
    is_taken: bool = False
    """Whether `slot` was taken before the block."""

    def enter_now(self) -> Deferred | None:
        """Take a slot if there is one now. The block then begins with it. Else return why there is none."""
        verdict = self.source.try_enter(self.request)
        if isinstance(verdict, Deferred):
            return verdict
        self.slot, self.is_taken = verdict, True
        return None

    def __aenter__(self) -> Coroutine[None, None, Slot]:
        if self.is_taken and self.slot is not None:
            self.is_taken = False
            return _at_once(self.slot)
        return self.source.enter(self.request, self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.entered = False
        if self.slot is not None:
            self.slot.release()


async def _at_once(slot: Slot) -> Slot:
    return slot


class SlotAdmission:
    """Grants slots to callers of one limiter. Its tickets are `slot:1`, `slot:2`, ..."""

    def __init__(self, driver: GovernorDriver, named: NamedSlots, report: Callable[[str, Signal], object]) -> None:
        self._driver = driver
        self._governor = driver.governor
        self._agenda = driver.governor.agenda
        self._now = driver.now
        self._named = named
        self._report = report
        self.home = HomeLoop(is_idle=lambda: not self._waits, on_leave=self._leave_loop)
        self._paths: dict[str, tuple[str, ...]] = {}
        self._count = 0
        self._waits: dict[str, tuple[asyncio.Future[Granted], TimerHandle | None]] = {}
        """The future and the time-out of each ticket that waits."""
        driver.subscribe(NAMESPACE, self._complete)

    def skip_used(self, ticket_ids: Iterable[str]) -> None:
        """Number new tickets after those of a snapshot."""
        for ticket_id in ticket_ids:
            number = ticket_id.removeprefix(f"{NAMESPACE}:")
            if number.isdecimal():
                self._count = max(self._count, int(number))

    async def enter(self, request: AdmissionRequest, context: SlotContext | None = None) -> Slot:
        """Wait for a slot. A `context` is marked as entered from the request on."""
        if (loop := asyncio.get_running_loop()) is not self.home.loop:
            self.home.move_to(loop)
        if request.timeout is not None:
            check_seconds(request.timeout, "timeout")
        if request.on_queued is not None:
            check_callable(request.on_queued, "on_queued")
        if context is not None and context.entered:
            raise RuntimeError("this slot(...) is in use; write limiter.slot(...) again for each `async with`")
        if self._driver.may_grant is not None and not self._driver.may_grant():
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
                self._stop_waiting(ticket.id)
                raise
        elif self._agenda.effects or self._agenda.next_due < self._driver.armed_for:
            self._driver.carry_out()
        assert type(verdict) is Granted
        slot = self._slot(verdict, ticket, request.session)
        if context is not None:
            context.slot = slot
        return slot

    async def _until_grants_count(self, request: AdmissionRequest) -> AdmissionRequest:
        """Wait outside of the queue. Returns the request with the time-out that is left."""
        began = self._now()
        while not (self._driver.grants_count() or self._driver.is_closed):
            waited = self._now() - began
            if request.timeout is not None and waited >= request.timeout:
                raise errors.SlotTimeout(f"no slot within {request.timeout:g} s: {NOT_LEADING}")
            await self._driver.clock.sleep(NOT_LEADING_SECONDS)
        if request.timeout is None:
            return request
        return msgspec.structs.replace(request, timeout=max(0.0, request.timeout - (self._now() - began)))

    def try_enter(self, request: AdmissionRequest) -> Slot | Deferred:
        """Return a slot now, or the reason why there is none."""
        if not self._driver.grants_count():
            raise errors.CapacityError(NOT_LEADING)
        ticket = self._ticket(request)
        verdict = self._governor.try_request(ticket, now=self._now())
        if self._agenda.effects or self._agenda.next_due < self._driver.armed_for:
            self._driver.carry_out()
        return verdict if isinstance(verdict, Deferred) else self._slot(verdict, ticket, request.session)

    def _ticket(self, request: AdmissionRequest) -> Ticket:
        if self._driver.is_closed:
            raise errors.CapacityError("the limiter is closed")
        scope, priority, since = request.scope, request.priority, request.since
        if type(scope) is not str:
            raise errors.InvalidScope(f"a scope is text, provider/account/model; got {scope!r:.80}")
        scopes = self._paths.get(scope) or self._parse(scope)
        if type(priority) is not int:
            raise errors.InvalidInput(f"priority must be a whole number; got {priority!r:.80}")
        if since is not None and type(since) not in (float, int):
            raise errors.InvalidInput(f"since must be a time in seconds, or None; got {since!r:.80}")
        self._count = number = self._count + 1
        session, group = request.session, request.group
        parent = self._named.session_ticket(check_name(session, "session")) if session is not None else None
        name, weight = "", None
        if group is not None:
            scopes, name, weight = (*scopes, group.scope), group.scope, group.weight
        return Ticket(
            f"slot:{number}", scopes, name, priority, since, parent, request.tokens, request.leased, False, weight
        )

    def _parse(self, scope: str) -> tuple[str, ...]:
        if len(self._paths) >= CACHED_PATHS:
            self._paths.clear()
        scopes = self._paths[scope] = (RUNS, *path_scopes(scope))
        return scopes

    def _slot(self, granted: Granted, ticket: Ticket, session: str | None) -> Slot:
        # Signals of a slot are about the narrowest scope of its path, not about the one of its group.
        scope = ticket.scopes[-1] if ticket.weight is None else ticket.scopes[-2]
        if session is not None:
            self._named.add(session, granted.ticket_id)
        if (listener := self._driver.listener) is not None:
            fields: dict[str, object] = {"ticket": granted.ticket_id, "waited": granted.waited}
            listener.emit("slot.granted", granted.granted_at, scope, fields)
        return Slot(self, granted, scope, session)

    # -- the wait ----------------------------------------------------------------------------------

    def _wait(
        self, deferred: Deferred, request: AdmissionRequest, loop: asyncio.AbstractEventLoop
    ) -> "asyncio.Future[Granted]":
        """Return the future of the ticket's grant. It fails when the wait times out or the limiter is closed."""
        ticket_id, timer = deferred.ticket_id, None
        future: asyncio.Future[Granted] = loop.create_future()
        if (timeout := request.timeout) is not None:
            timer = self._driver.clock.call_at(self._now() + timeout, lambda: self._time_out(ticket_id, timeout))
        self._waits[ticket_id] = future, timer
        if self._agenda.effects or self._agenda.next_due < self._driver.armed_for:
            self._driver.carry_out()
        self._driver.arm_if_missed()
        if (listener := self._driver.listener) is not None:
            fields: dict[str, object] = {"ticket": ticket_id, "reason": deferred.reason, "detail": deferred.detail}
            fields["retry_at"] = deferred.retry_at
            listener.emit("slot.deferred", self._now(), deferred.scope, fields)
        if request.on_queued is not None:
            request.on_queued(deferred)  # it may release the very slot that this ticket waits for
        return future

    def _complete(self, granted: Granted) -> None:
        """Hand a grant to its waiting task, or release the slot where the task is gone."""
        future = self._end_wait(granted.ticket_id)
        if future is None or future.done():  # its task was cancelled in the same tick
            self._abandon(granted.ticket_id)
            return
        try:
            future.set_result(granted)
        except RuntimeError:  # its loop was closed under it
            self._abandon(granted.ticket_id)

    def _time_out(self, ticket_id: str, timeout: float) -> None:
        wait = self._waits.get(ticket_id)
        why = self._driver.call(self._governor.why, ticket_id)
        if wait is not None and not wait[0].done() and why is not None:
            wait[0].set_exception(errors.SlotTimeout(f"no slot within {timeout:g} s: {why.detail}", why))

    def _stop_waiting(self, ticket_id: str) -> None:
        """Take a ticket out that was cancelled or timed out, also in the same tick as its grant."""
        self._end_wait(ticket_id)
        self._abandon(ticket_id)
        self._driver.carry_out()

    def _end_wait(self, ticket_id: str) -> "asyncio.Future[Granted] | None":
        future, timer = self._waits.pop(ticket_id, (None, None))
        if timer is not None:
            timer.cancel()
        return future

    def _leave_loop(self) -> None:
        """Abandon the tickets that waited on a loop that was closed: their tasks never run again."""
        self._driver.leave_loop()
        for ticket_id in list(self._waits):
            self._end_wait(ticket_id)
            self._abandon(ticket_id)

    def close(self) -> None:
        """Fail every wait with `CapacityError`."""
        for ticket_id in list(self._waits):
            self._governor.cancel(ticket_id, now=self._now())
            if (future := self._end_wait(ticket_id)) is not None and not future.done():
                future.set_exception(errors.CapacityError("the limiter was closed while this ticket waited"))

    def _abandon(self, ticket_id: str) -> None:
        self._governor.abandon(ticket_id, now=self._now())

    # -- what a slot asks of us ------------------------------------------------------------------

    def leave(self, slot: Slot, *, learns: bool) -> None:
        """Give a slot back, let others in, and emit its last event unless it was reclaimed before."""
        ticket_id = slot._granted.ticket_id
        if slot.session is not None:
            self._named.forget(slot.session, ticket_id)
        now = self._now()
        governor, agenda = self._governor, self._agenda
        had_slot = governor.release(ticket_id, now=now) if learns else governor.abandon(ticket_id, now=now)
        if agenda.effects or agenda.next_due < self._driver.armed_for:
            self._driver.carry_out()
        if had_slot and (listener := self._driver.listener) is not None:
            fields: dict[str, object] = {"ticket": ticket_id, "held": now - slot._granted.granted_at}
            listener.emit("slot.released", now, slot.scope, fields)

    def renew(self, slot: Slot) -> None:
        renewed = not slot.lost and self._governor.renew(slot.id, now=self._now())
        self._driver.carry_out()
        if not renewed:
            raise errors.SlotLost(f"{slot.id} in {slot.scope} was not renewed in time; others may have its places now")

    def report(self, slot: Slot, signal: Signal) -> None:
        if isinstance(signal, Signal):
            signal = msgspec.structs.replace(signal, ticket=slot.id)
        self._report(slot.scope, signal)

    def is_held(self, slot: Slot) -> bool:
        return self._governor.is_held(slot.id)

    def is_canary(self, slot: Slot) -> bool:
        return self._governor.is_canary(slot.id)

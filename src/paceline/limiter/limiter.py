"""The asyncio face of the Governor: futures for those who wait, one timer, usage polls. No rules of its own.

Not thread-safe: it belongs to one event loop. Other threads, and scripts without a loop, use
`limiter.from_thread` (`threads.py`).
"""

import asyncio
import math
from collections.abc import Callable, Coroutine, Mapping
from typing import TypeVar

import msgspec

from paceline.clock import Clock, SystemClock, TimerHandle
from paceline.core import (
    Deferred,
    Governor,
    GovernorSettings,
    Granted,
    PollUsage,
    ScopeStatus,
    Snapshot,
    Ticket,
)
from paceline.core.gates.rate_limit import Rate, check_rate
from paceline.core.values.scopes import RUNS, SESSIONS, canonical_scope, path_scopes
from paceline.core.values.settings import Cooldown, HeadroomMode
from paceline.core.values.validation import check_callable, check_limit, check_mapping, check_name, check_seconds
from paceline.core.values.verdicts import Effect
from paceline.errors import (
    CapacityError,
    InvalidInput,
    InvalidScope,
    InvalidSnapshot,
    SlotLost,
    SlotTimeout,
)
from paceline.events import Event
from paceline.limiter.event_listener import Listener
from paceline.limiter.named_slots import NamedSlots
from paceline.limiter.slot import OnQueued, Slot, SlotContext
from paceline.limiter.status import LimiterStatus, limiter_status
from paceline.limiter.steered import SteeredLimits
from paceline.limiter.threads import FromThread, running_loop
from paceline.limiter.usage_polling import UsagePolls, UsageSource

KEPT_PATHS = 4096
OWN_TICKETS = "slot-"
CLOSING_SECONDS = 1.0
Value = TypeVar("Value")


class Limiter(NamedSlots, SteeredLimits):
    """Governs sessions and runs over a global pool, providers, accounts and models at once."""

    _listener: Listener | None = None
    _others: Callable[[Effect], object] | None = None

    def __init__(
        self,
        *,
        max_parallel_sessions: int | None = 100,
        max_parallel_runs: int | None = 50,
        limits: dict[str, int] | None = None,
        rates: Mapping[str, Rate | dict[str, int]] | None = None,
        cooldown: Cooldown = 0.0,
        headroom: HeadroomMode = "adaptive",
        default_pause: float = 30.0,
        slot_timeout: float = 300.0,
        watchdog_interval: float = 30.0,
        ageing: float = 60.0,
        usage: dict[str, UsageSource] | None = None,
        clock: Clock | None = None,
        on_event: Callable[[Event], object] | None = None,
        restore: Snapshot | None = None,
    ) -> None:
        pool: dict[str, int | None] = {
            SESSIONS: check_limit(max_parallel_sessions, "max_parallel_sessions"),
            RUNS: check_limit(max_parallel_runs, "max_parallel_runs"),
        }
        sources = {canonical_scope(scope): source for scope, source in check_mapping(usage, "usage").items()}
        for scope, source in sources.items():
            check_callable(source, f"usage[{scope!r}]")
        if on_event is not None:
            check_callable(on_event, "on_event")
        settings = GovernorSettings(
            limits={**pool, **check_mapping(limits, "limits")},
            rates={
                scope: check_rate(rate, f"rates[{scope!r}]") for scope, rate in check_mapping(rates, "rates").items()
            },
            cooldown=cooldown,
            headroom=headroom,
            usage_scopes=tuple(sources),
            default_pause=default_pause,
            slot_timeout=slot_timeout,
            watchdog_interval=watchdog_interval,
            ageing=ageing,
        )
        self._set_up(SystemClock() if clock is None else clock, sources)
        if on_event is not None:
            self._listener = Listener(on_event)
        if restore is None:
            self._govern(Governor(settings, now=self._now()))
        else:
            self._restore(restore, settings)
            self._attend()  # pauses and leases of before go on by themselves

    @classmethod
    def over(
        cls,
        governor: Governor,
        *,
        clock: Clock,
        usage: Mapping[str, UsageSource],
        others: Callable[[Effect], object],
    ) -> "Limiter":
        """The same face over a Governor that admits others too: their grants, and all events, go to `others`."""
        limiter = cls.__new__(cls)
        limiter._set_up(clock, usage)
        limiter._others = others
        limiter._govern(governor)
        return limiter

    def _set_up(self, clock: Clock, usage: Mapping[str, UsageSource]) -> None:
        self._clock = clock
        self._now = clock.now
        self._futures: dict[str, asyncio.Future[Granted]] = {}
        self._timeouts: dict[str, TimerHandle] = {}
        NamedSlots.__init__(self)
        self._paths: dict[str, tuple[str, ...]] = {}
        self._polls = UsagePolls(usage, self.report)
        self._timer: TimerHandle | None = None
        self._armed_for = math.inf
        self._count = 0
        self._closed = False
        self._loop = running_loop()
        self.from_thread = FromThread(self)

    @property
    def clock(self) -> Clock:
        return self._clock

    def _govern(self, governor: Governor) -> None:
        self._governor = governor
        self._books = governor.books

    def _move_to(self, loop: asyncio.AbstractEventLoop) -> None:
        """Live on this loop from now on. Who still waited on one that was closed will not be back."""
        last = self._loop
        if last is not None and not last.is_closed():
            self.from_thread.retire(last, idle=not self._futures)
            if not last.is_closed() and (last.is_running() or self._futures):
                raise RuntimeError("this limiter lives on another event loop; use limiter.from_thread from here")
        self._loop = loop
        stale, self._futures = self._futures, {}
        for timer in (self._timer, *self._timeouts.values()):
            if timer is not None:
                timer.cancel()
        self._timer, self._armed_for = None, math.inf
        self._timeouts.clear()
        self._polls.asked.clear()
        for ticket_id in stale:
            self._governor.abandon(ticket_id, now=self._now())

    # -- slots -------------------------------------------------------------------------------

    def slot(
        self,
        scope: str,
        *,
        session: str | None = None,
        priority: int = 0,
        since: float | None = None,
        tokens: int | None = None,
        timeout: float | None = None,
        on_queued: OnQueued = None,
    ) -> SlotContext:
        """`async with` a slot: it waits its turn, is held while the body runs, and always comes back."""
        return SlotContext(self, scope, session, priority, since, tokens, timeout, on_queued)

    def acquire(
        self,
        scope: str,
        *,
        session: str | None = None,
        priority: int = 0,
        since: float | None = None,
        tokens: int | None = None,
        timeout: float | None = None,
        on_queued: OnQueued = None,
    ) -> Coroutine[None, None, Slot]:
        """Wait for a slot. The holder releases it, and renews it within `slot_timeout`.

        `tokens` is what the call is expected to use, where rates or budgets of tokens are to be kept.
        """
        return self._enter(scope, session, priority, since, tokens, timeout, on_queued, True)

    def try_acquire(
        self,
        scope: str,
        *,
        session: str | None = None,
        priority: int = 0,
        since: float | None = None,
        tokens: int | None = None,
    ) -> Slot | Deferred:
        """A slot now, or what stands against it. Never waits."""
        ticket = self._ticket(scope, session, priority, since, tokens, True)
        verdict = self._governor.try_request(ticket, now=self._now())
        self._attend()
        if isinstance(verdict, Deferred):
            return verdict
        return self._hold(verdict, ticket.scopes[-1], session)

    async def _enter(
        self,
        scope: str,
        session: str | None,
        priority: int,
        since: float | None,
        tokens: int | None,
        timeout: float | None,
        on_queued: OnQueued,
        leased: bool,
        context: SlotContext | None = None,
    ) -> Slot:
        if (loop := asyncio.get_running_loop()) is not self._loop:
            self._move_to(loop)
        if timeout is not None:
            check_seconds(timeout, "timeout")
        if on_queued is not None:
            check_callable(on_queued, "on_queued")
        if context is not None and context.entered:
            raise RuntimeError("this slot(...) is in use; write limiter.slot(...) anew for each `async with`")
        ticket = self._ticket(scope, session, priority, since, tokens, leased)
        verdict = self._governor.request(ticket, now=self._now())
        if context is not None:
            context.entered = True
        if type(verdict) is Deferred:
            try:
                verdict = await self._join_line(ticket.id, verdict, timeout, on_queued)
            except BaseException:
                if context is not None:
                    context.entered = False
                self._leave_line(ticket.id)
                raise
        elif self._books.effects or self._books.next_due < self._armed_for:
            self._attend()
        assert type(verdict) is Granted
        slot = self._hold(verdict, ticket.scopes[-1], session)
        if context is not None:
            context.slot = slot
        return slot

    def _ticket(
        self,
        scope: str,
        session: str | None,
        priority: int,
        since: float | None,
        tokens: int | None,
        leased: bool,
    ) -> Ticket:
        if self._closed:
            raise CapacityError("the limiter is closed")
        if type(scope) is not str:
            raise InvalidScope(f"a scope is text, provider/account/model; got {scope!r:.80}")
        scopes = self._paths.get(scope)
        if scopes is None:
            if len(self._paths) >= KEPT_PATHS:
                self._paths.clear()
            scopes = self._paths[scope] = (RUNS, *path_scopes(scope))
        if type(priority) is not int:
            raise InvalidInput(f"priority must be a whole number; got {priority!r:.80}")
        if since is not None and type(since) not in (float, int):
            raise InvalidInput(f"since must be a time in seconds, or None; got {since!r:.80}")
        self._count += 1
        parent = self._session_ticket(check_name(session, "session")) if session is not None else None
        return Ticket(f"{OWN_TICKETS}{self._count}", scopes, "", priority, since, parent, tokens, leased)

    def _hold(self, granted: Granted, scope: str, session: str | None) -> Slot:
        if session is not None:
            self._by_session.setdefault(session, {})[granted.ticket_id] = None
        if self._listener is not None:
            self._tell_granted(granted, scope)
        return Slot(self, granted, scope, session)

    def _join_line(
        self, ticket_id: str, deferred: Deferred, timeout: float | None, on_queued: OnQueued
    ) -> asyncio.Future[Granted]:
        """The grant to come; it fails when the wait runs out or the limiter is closed."""
        future: asyncio.Future[Granted] = asyncio.get_running_loop().create_future()
        self._futures[ticket_id] = future
        if self._books.effects or self._books.next_due < self._armed_for:
            self._attend()
        if self._timer is None and self._armed_for != math.inf:
            self._arm()  # calls made before there was a loop could not
        if self._listener is not None:
            fields: dict[str, object] = {
                "ticket": ticket_id,
                "reason": deferred.reason,
                "detail": deferred.detail,
                "retry_at": deferred.retry_at,
            }
            self._tell("slot.deferred", self._now(), deferred.scope, fields)
        if timeout is not None:
            at = self._now() + timeout
            self._timeouts[ticket_id] = self._clock.call_at(at, lambda: self._time_out(ticket_id, timeout))
        if on_queued is not None:
            on_queued(deferred)  # it may release the very slot this one waits for
        return future

    def _leave_line(self, ticket_id: str) -> None:
        """Cancelled, timed out or closed, also in the very tick of the grant: nothing is left behind."""
        self._futures.pop(ticket_id, None)
        if (timer := self._timeouts.pop(ticket_id, None)) is not None:
            timer.cancel()
        self._governor.abandon(ticket_id, now=self._now())
        self._attend()

    def _time_out(self, ticket_id: str, timeout: float) -> None:
        future = self._futures.get(ticket_id)
        why = self.why(ticket_id)
        if future is not None and not future.done() and why is not None:
            future.set_exception(SlotTimeout(f"no slot within {timeout:g} s: {why.detail}", why))

    def _release(self, granted: Granted, scope: str, session: str | None, learns: bool = True) -> None:
        ticket_id = granted.ticket_id
        if session is not None:
            self._forget(session, ticket_id)
        now = self._now()
        give_back = self._governor.release if learns else self._governor.abandon
        was_held = give_back(ticket_id, now=now)  # or it was reclaimed, just now or long ago
        if self._books.effects or self._books.next_due < self._armed_for:
            self._attend()
        if was_held and self._listener is not None:
            self._tell("slot.released", now, scope, {"ticket": ticket_id, "held": now - granted.granted_at})

    def _renew(self, slot: Slot) -> None:
        renewed = not slot.lost and self._governor.renew(slot.id, now=self._now())
        self._attend()
        if not renewed:
            raise SlotLost(f"{slot.id} in {slot.scope} was not renewed in time; its place is given on")

    # -- looking in --------------------------------------------------------------------------

    def status(self) -> LimiterStatus:
        now = self._now()
        sessions = self._governor.status(SESSIONS, now=now)
        runs = self._governor.status(RUNS, now=now)
        self._attend()
        assert sessions is not None
        assert runs is not None
        return limiter_status(sessions, runs)

    def statuses(self) -> list[ScopeStatus]:
        """Every scope of which something is known."""
        statuses = self._governor.statuses(now=self._now())
        self._attend()
        return statuses

    def scope_status(self, scope: str) -> ScopeStatus | None:
        """One scope, or None if nothing was ever set, asked or learnt there."""
        status = self._governor.status(scope, now=self._now())
        self._attend()
        return status

    def why(self, ticket_id: str) -> Deferred | None:
        """What holds a waiting ticket."""
        why = self._governor.why(ticket_id, now=self._now())
        self._attend()
        return why

    def snapshot(self) -> Snapshot:
        """All of it as a value to store; `Limiter(..., restore=snapshot)` goes on from it."""
        return msgspec.structs.replace(self._governor.snapshot(), owners=self._owners())

    def _restore(self, snapshot: Snapshot, settings: GovernorSettings) -> None:
        """Slots of the process that is gone stay counted until their lease runs out or they are released by name."""
        if not isinstance(snapshot, Snapshot):
            raise InvalidSnapshot(f"restore takes a paceline.core.Snapshot; got {snapshot!r:.80}")
        without_line = msgspec.structs.replace(snapshot, waiters=(), claims=(), effects=())  # who waited is gone
        self._govern(Governor.restore(without_line, now=self._now(), settings=settings))
        for record in snapshot.slots:
            number = record.ticket.id.removeprefix(OWN_TICKETS)
            if number.isdecimal():
                self._count = max(self._count, int(number))
            self._remember_named(record.ticket, snapshot.owners.get(record.ticket.id))
        self._governor.advance(now=self._now())

    async def aclose(self) -> None:
        """Nobody waits any longer: waiters get CapacityError, polls and the timer end."""
        if (loop := asyncio.get_running_loop()) is not self._loop:
            self._move_to(loop)
        polls = self._polls.cancel()
        self.close()
        if polls:
            await asyncio.wait(polls, timeout=CLOSING_SECONDS)  # a source that will not be cancelled holds nobody up

    def close(self) -> None:
        """The same without waiting for polls to end."""
        self._closed = True
        for ticket_id, future in list(self._futures.items()):
            self._governor.cancel(ticket_id, now=self._now())
            if not future.done():
                future.set_exception(CapacityError("the limiter was closed while this ticket waited"))
        for timer in (self._timer, *self._timeouts.values()):
            if timer is not None:
                timer.cancel()
        self._timer = None
        self._polls.cancel()

    # -- carrying out effects --------------------------------------------------------------------

    def advance(self, now: float) -> None:
        """Let time pass up to `now`, and carry out what follows. Only who shares the Governor need call it."""
        self._governor.pass_time(now=now)
        self._attend()
        self._arm()

    def _attend(self) -> None:
        """Carry out what the Governor wants done, and arm the timer for its next wake-up."""
        books = self._books
        while books.effects:
            effects = self._governor.collect()
            for effect in effects:
                if isinstance(effect, PollUsage):
                    self._poll(effect.scope)
                elif self._others is not None and not _is_own(effect):
                    self._others(effect)
                elif isinstance(effect, Granted):
                    self._complete(effect)
            if self._listener is not None:
                self._listener.tell(*(effect for effect in effects if isinstance(effect, Event)))
        if books.next_due < self._armed_for:
            self._arm()

    def _tell_granted(self, granted: Granted, scope: str) -> None:
        fields: dict[str, object] = {"ticket": granted.ticket_id, "waited": granted.waited}
        self._tell("slot.granted", granted.granted_at, scope, fields)

    def _tell(self, name: str, at: float, scope: str | None, fields: dict[str, object]) -> None:
        if self._listener is not None:
            self._listener.tell(Event(name, at, scope, None, fields))

    def _complete(self, granted: Granted) -> None:
        future = self._futures.pop(granted.ticket_id, None)
        if self._timeouts and (timer := self._timeouts.pop(granted.ticket_id, None)) is not None:
            timer.cancel()
        if future is None or future.done():  # its task was cancelled in this very tick
            self._governor.abandon(granted.ticket_id, now=self._now())
            return
        try:
            future.set_result(granted)
        except RuntimeError:  # its loop was closed under it
            self._governor.abandon(granted.ticket_id, now=self._now())

    def _arm(self) -> None:
        """One timer, and none while time alone changes nothing."""
        due = self._governor.next_wakeup()
        if due == self._armed_for and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._armed_for = math.inf if due is None else due
        if due is not None and not self._closed and running_loop() is not None:
            self._timer = self._clock.call_at(due, self._wake)

    def _wake(self) -> None:
        self._timer, self._armed_for = None, math.inf
        self.advance(self._now())

    def _poll(self, scope: str) -> None:
        if (loop := running_loop()) is not None and not self._closed:
            self._polls.ask(scope, loop)


def _is_own(effect: Effect) -> bool:
    return isinstance(effect, Granted) and effect.ticket_id.startswith(OWN_TICKETS)

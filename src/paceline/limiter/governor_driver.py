"""The driver of one Governor: carries out its effects, owns its one timer, polls usage, and routes its grants.

`Limiter` and `Engine` both compose it, so that slots and sessions share one Governor, one timer and one set of polls.
Here: when the Governor is asked, and who receives its answers. Never here: rules of admission, futures, units.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from paceline.clock import Clock, TimerHandle
from paceline.core import Governor, Granted, PollUsage
from paceline.core.signals import Signal, Usage
from paceline.events import Event
from paceline.limiter.threads import running_loop
from paceline.metrics import MetricsRegistry
from paceline.redaction import signal_without_secrets

log = logging.getLogger("paceline.limiter")

LOOK_AGAIN_SECONDS = 60.0
"""While tickets wait and time alone changes nothing, everything is checked again so often: a wake-up that was lost
costs a minute instead of a night, and the check costs nothing beside that."""
SEPARATOR = ":"
Value = TypeVar("Value")
OnGranted = Callable[[Granted], object]
OnEvents = Callable[[Sequence[Event]], object]
UsageSource = Callable[[], Awaitable[Usage | None]]


class EventListener:
    """One `on_event` of a program, which cannot stop admission.

    Events that happen while it runs are delivered after it returns.
    """

    def __init__(self, on_event: Callable[[Event], object]) -> None:
        self._on_event = on_event
        self._pending: deque[Event] = deque()
        self._is_delivering = False

    def deliver(self, events: Iterable[Event]) -> None:
        """Call `on_event` for each event, after those that are still pending."""
        self._pending.extend(events)
        if self._is_delivering:
            return
        self._is_delivering = True
        try:
            while self._pending:
                event = self._pending.popleft()
                try:
                    self._on_event(event)
                except Exception:
                    log.exception("on_event failed for %s", event.name)
        finally:
            self._is_delivering = False

    def emit(self, name: str, at: float, scope: str, fields: dict[str, object]) -> None:
        """Deliver one event of a slot."""
        self.deliver((Event(name, at, scope, None, fields),))


def namespace_of(ticket_id: str) -> str:
    """Return the part of a ticket id before its first colon, or "" for an id without a colon."""
    return ticket_id.partition(SEPARATOR)[0] if SEPARATOR in ticket_id else ""


class GovernorDriver:
    """The only caller of `Governor.collect`. Grants go to the subscriber of their ticket's namespace."""

    def __init__(
        self,
        governor: Governor,
        *,
        clock: Clock,
        usage: Mapping[str, UsageSource],
        metrics: MetricsRegistry | None = None,
        may_grant: Callable[[], bool] | None = None,
    ) -> None:
        """`may_grant` says whether grants count now: an engine whose lease may have run out holds them back."""
        self.governor = governor
        self._agenda = governor.agenda
        self.clock = clock
        self.now = clock.now
        self.metrics = MetricsRegistry() if metrics is None else metrics
        self.armed_for = math.inf
        """When the timer is to fire. A caller that sees an earlier `agenda.next_due` calls `carry_out`."""
        self.is_closed = False
        self.may_grant = may_grant
        self.listener: EventListener | None = None
        """Gets the events of slots, besides those of the Governor."""
        self._held_back: list[Granted] = []
        self._on_events: OnEvents | None = None
        self._subscribers: dict[str, OnGranted] = {}
        self._sources = usage
        self._polls: dict[str, asyncio.Task[None]] = {}
        """At most one for each scope. The Governor keeps their time-out."""
        self._timer: TimerHandle | None = None

    def subscribe(self, namespace: str, on_granted: OnGranted) -> None:
        """Send the grants of waiting tickets whose id is in this namespace to `on_granted`."""
        self._subscribers[namespace] = on_granted

    def grants_count(self) -> bool:
        return self.may_grant is None or self.may_grant()

    def subscribe_events(self, on_events: OnEvents) -> None:
        """Send the Governor's events to `on_events`, in their order."""
        self._on_events = on_events

    # -- calls of the Governor -----------------------------------------------------------------

    def call(self, verb: Callable[..., Value], *arguments: object) -> Value:
        """Call a verb of the Governor at the present time, and carry out what follows."""
        value = verb(*arguments, now=self.now())
        self.carry_out()
        return value

    def report(self, scope: str, signal: Signal) -> None:
        """Report a signal, count it, and carry out what follows."""
        self.governor.report(scope, signal_without_secrets(signal), now=self.now())
        self.metrics.reported(scope, signal)
        self.carry_out()

    def advance(self, now: float) -> None:
        """Let time pass up to `now`, and carry out what follows."""
        self.governor.pass_time(now=now)
        self.carry_out()
        self.arm()

    # -- effects ---------------------------------------------------------------------------------

    def carry_out(self) -> None:
        """Carry out every effect of the Governor, and arm the timer for its next wake-up."""
        agenda = self._agenda
        if self._held_back and self.grants_count():
            held_back, self._held_back = self._held_back, []
            for granted in held_back:
                self._route(granted)
        while agenda.effects:
            events: list[Event] = []
            for effect in self.governor.collect():
                if type(effect) is Granted:
                    self._route(effect)
                elif type(effect) is Event:
                    events.append(effect)
                    if effect.name == "scope.platform_limit":
                        _log_platform_limit(effect)
                elif type(effect) is PollUsage:
                    self._poll(effect.scope)
            if events and self._on_events is not None:
                self._on_events(events)
        if agenda.next_due < self.armed_for:
            self.arm()

    def _route(self, granted: Granted) -> None:
        subscriber = self._subscribers.get(namespace_of(granted.ticket_id))
        if not self.grants_count():
            self._held_back.append(granted)
            return
        if subscriber is not None:
            subscriber(granted)
        else:
            log.warning("nobody waits for ticket %s; its slot is released", granted.ticket_id)
            self.governor.abandon(granted.ticket_id, now=self.now())

    # -- usage -------------------------------------------------------------------------------------

    def _poll(self, scope: str) -> None:
        """Poll the source of a scope. The Governor has given up a poll of it that is still running: cancel that."""
        if (loop := running_loop()) is not None and not self.is_closed:
            if (stale := self._polls.pop(scope, None)) is not None:
                stale.cancel()
            self._polls[scope] = loop.create_task(self._read_usage(scope))

    async def _read_usage(self, scope: str) -> None:
        """Report what the provider counts. A source that fails means *unknown*."""
        try:
            usage = await self._sources[scope]()
        except Exception:
            log.warning("the usage source of %s failed", scope, exc_info=True)
            usage = None
        if self._polls.get(scope) is not asyncio.current_task():
            return  # it was given up before, so its answer is outdated
        del self._polls[scope]
        self.report(scope, usage if isinstance(usage, Usage) else Usage())

    # -- the timer ---------------------------------------------------------------------------------

    def arm(self) -> None:
        """Set the one timer for the Governor's next wake-up; while time alone changes nothing, for the next check."""
        due = self.governor.next_wakeup()
        if self._timer is not None and self.armed_for == (math.inf if due is None else due):
            return
        self._disarm()
        if due is not None:
            self.armed_for = due
        if self.is_closed or running_loop() is None:
            return
        if due is not None:
            self._timer = self.clock.call_at(due, self._wake)
        elif self._agenda.waiters:
            self._timer = self.clock.call_at(self.now() + LOOK_AGAIN_SECONDS, self._find_lost_wakeup)

    def arm_if_missed(self) -> None:
        """Set the timer of a ticket that waits, where it could not be set before: there was no loop, or no wait."""
        if self._timer is None:
            self.arm()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self.armed_for = None, math.inf

    def _wake(self) -> None:
        self._timer, self.armed_for = None, math.inf
        self.advance(self.now())

    def _find_lost_wakeup(self) -> None:
        """Check all waiters again. Where that changes anything, a wake-up was lost."""
        self._timer = None
        waiting, known_effects = len(self._agenda.waiters), len(self._agenda.effects)
        self.governor.wake_all(now=self.now())
        if len(self._agenda.effects) > known_effects or self.governor.next_wakeup() is not None:
            log.error("%d tickets waited without a next check: please report this; the queue was woken", waiting)
        self.carry_out()
        self.arm()

    # -- its loop ----------------------------------------------------------------------------------

    def leave_loop(self) -> None:
        """Drop the timer and the polls of a loop that ended; the next call arms a new timer."""
        self._disarm()
        self._polls.clear()  # they never run again

    def close(self) -> list[asyncio.Task[None]]:
        """Stop the timer and cancel the polls. Returns the polls that are still ending."""
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        polls, self._polls = list(self._polls.values()), {}
        for poll in polls:
            poll.cancel()
        return polls


def _log_platform_limit(event: Event) -> None:
    """Log a limit that the provider stated: it is the one number here that nobody set."""
    limit, cap, previous = (event.fields[name] for name in ("detected_limit", "effective_cap", "previous_cap"))
    before = "unlimited" if previous is None else previous
    log.warning("%s: the provider's own limit is %s; the limit is %s now, it was %s", event.scope, limit, cap, before)

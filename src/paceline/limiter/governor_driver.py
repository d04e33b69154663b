"""The driver of one Governor: carries out its effects, owns its one timer, polls usage, and routes its grants.

`Limiter` and `Engine` both compose it, so that slots and sessions share one Governor, one timer and one set of polls.
Here: when the Governor is asked, and who receives its answers. Never here: rules of admission, futures, units.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from paceline.clock import Clock, TimerHandle
from paceline.core import Governor, Granted, PollUsage
from paceline.core.signals import Signal
from paceline.events import Event
from paceline.limiter.home_loop import running_loop
from paceline.limiter.usage_polls import UsagePolls, UsageSource
from paceline.metrics import MetricsRegistry

log = logging.getLogger("paceline.limiter")

SEPARATOR = ":"
Value = TypeVar("Value")
OnGranted = Callable[[Granted], object]
OnEvents = Callable[[Sequence[Event]], object]


def namespace_of(ticket_id: str) -> str:
    """Return the part of a ticket id before its first colon, or "" for an id without a colon."""
    namespace, separator, _ = ticket_id.partition(SEPARATOR)
    return namespace if separator else ""


class GovernorDriver:
    """The only caller of `Governor.collect`. Grants go to the subscriber of their ticket's namespace."""

    def __init__(
        self,
        governor: Governor,
        *,
        clock: Clock,
        usage: Mapping[str, UsageSource],
        metrics: MetricsRegistry | None = None,
    ) -> None:
        self.governor = governor
        self._agenda = governor.agenda
        self.clock = clock
        self.now = clock.now
        self.metrics = MetricsRegistry() if metrics is None else metrics
        self.armed_for = math.inf
        """When the timer is to fire. A caller that sees an earlier `agenda.next_due` calls `carry_out`."""
        self.is_closed = False
        self.may_grant: Callable[[], bool] = _always
        """Whether grants count now: an engine whose lease may have run out holds them back."""
        self._held_back: list[Granted] = []
        self._on_events: OnEvents | None = None
        self._subscribers: dict[str, OnGranted] = {}
        self._polls = UsagePolls(usage, self.report)
        self._timer: TimerHandle | None = None

    def subscribe(self, namespace: str, on_granted: OnGranted) -> None:
        """Send the grants of waiting tickets whose id is in this namespace to `on_granted`."""
        self._subscribers[namespace] = on_granted

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
        self.governor.report(scope, signal, now=self.now())
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
        if self._held_back and self.may_grant():
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
        if not self.may_grant():
            self._held_back.append(granted)
            return
        if subscriber is not None:
            subscriber(granted)
        else:
            log.warning("nobody waits for ticket %s; its slot is released", granted.ticket_id)
            self.governor.abandon(granted.ticket_id, now=self.now())

    def _poll(self, scope: str) -> None:
        if (loop := running_loop()) is not None and not self.is_closed:
            self._polls.ask(scope, loop)

    # -- the timer ---------------------------------------------------------------------------------

    def arm(self) -> None:
        """Set the one timer for the Governor's next wake-up; none while time alone changes nothing."""
        due = self.governor.next_wakeup()
        if due == self.armed_for and self._timer is not None:
            return
        self._disarm()
        if due is not None:
            self.armed_for = due
            if not self.is_closed and running_loop() is not None:
                self._timer = self.clock.call_at(due, self._wake)

    def arm_if_missed(self) -> None:
        """Set the timer that calls made before there was a loop could not set."""
        if self._timer is None and self.armed_for != math.inf:
            self.arm()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self.armed_for = None, math.inf

    def _wake(self) -> None:
        self._timer, self.armed_for = None, math.inf
        self.advance(self.now())

    # -- its loop ----------------------------------------------------------------------------------

    def leave_loop(self) -> None:
        """Drop the timer and the polls of a loop that ended; the next call arms a new timer."""
        self._disarm()
        self._polls.forget()

    def close(self) -> list[asyncio.Task[None]]:
        """Stop the timer and cancel the polls. Returns the polls that are still ending."""
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return self._polls.cancel()


def _always() -> bool:
    return True


def _log_platform_limit(event: Event) -> None:
    """Log a limit that the provider stated: it is the one number here that nobody set."""
    limit, cap, previous = (event.fields[name] for name in ("detected_limit", "effective_cap", "previous_cap"))
    before = "unlimited" if previous is None else previous
    log.warning("%s: the provider's own limit is %s; the limit is %s now, it was %s", event.scope, limit, cap, before)

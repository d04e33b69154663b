"""The futures of tickets that wait for a slot: completed by a grant, failed by a time-out, dropped by a cancellation.

Here: one future and at most one time-out per waiting ticket. Never here: who is next.
"""

import asyncio

from paceline.clock import TimerHandle
from paceline.core import Granted
from paceline.errors import CapacityError, SlotTimeout
from paceline.limiter.governor_driver import GovernorDriver


class Waiters:
    """The waiting tickets of one limiter. However a wait ends, no future, time-out or slot stays behind."""

    def __init__(self, driver: GovernorDriver) -> None:
        self._driver = driver
        self._governor = driver.governor
        self._futures: dict[str, asyncio.Future[Granted]] = {}
        self._timeouts: dict[str, TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._futures)

    def add(self, ticket_id: str, loop: asyncio.AbstractEventLoop) -> asyncio.Future[Granted]:
        """Return the future of the ticket's grant. It fails when the wait times out or the limiter is closed."""
        future: asyncio.Future[Granted] = loop.create_future()
        self._futures[ticket_id] = future
        return future

    def set_timeout(self, ticket_id: str, timeout: float) -> None:
        """Fail the ticket's future with `SlotTimeout` after so many seconds."""
        at = self._driver.now() + timeout
        self._timeouts[ticket_id] = self._driver.clock.call_at(at, lambda: self._time_out(ticket_id, timeout))

    def complete(self, granted: Granted) -> None:
        """Hand a grant to its waiting task, or release the slot where the task is gone."""
        future = self._futures.pop(granted.ticket_id, None)
        if self._timeouts and (timer := self._timeouts.pop(granted.ticket_id, None)) is not None:
            timer.cancel()
        if future is None or future.done():  # its task was cancelled in the same tick
            self._abandon(granted.ticket_id)
            return
        try:
            future.set_result(granted)
        except RuntimeError:  # its loop was closed under it
            self._abandon(granted.ticket_id)

    def leave(self, ticket_id: str) -> None:
        """Take a ticket out that was cancelled or timed out, also in the same tick as its grant."""
        self._futures.pop(ticket_id, None)
        if (timer := self._timeouts.pop(ticket_id, None)) is not None:
            timer.cancel()
        self._abandon(ticket_id)
        self._driver.carry_out()

    def leave_loop(self) -> None:
        """Abandon the tickets that waited on a loop that was closed: their tasks never run again."""
        stale, self._futures = self._futures, {}
        self._cancel_timeouts()
        for ticket_id in stale:
            self._abandon(ticket_id)

    def close(self) -> None:
        """Fail every wait with `CapacityError`."""
        for ticket_id, future in list(self._futures.items()):
            self._governor.cancel(ticket_id, now=self._driver.now())
            if not future.done():
                future.set_exception(CapacityError("the limiter was closed while this ticket waited"))
        self._cancel_timeouts()

    def _time_out(self, ticket_id: str, timeout: float) -> None:
        future = self._futures.get(ticket_id)
        why = self._driver.call(self._governor.why, ticket_id)
        if future is not None and not future.done() and why is not None:
            future.set_exception(SlotTimeout(f"no slot within {timeout:g} s: {why.detail}", why))

    def _abandon(self, ticket_id: str) -> None:
        self._governor.abandon(ticket_id, now=self._driver.now())

    def _cancel_timeouts(self) -> None:
        for timer in self._timeouts.values():
            timer.cancel()
        self._timeouts.clear()

"""What two gates share: after a failure that may pass, one ticket at a time asks again while all others wait.

Here: when the next canary may go, and what its fate means. Never here: how long to wait, and what lifts the gate.
"""

from collections.abc import Sequence
from typing import ClassVar

from paceline.core.gates.gate import Gate, GateEvent, ScopeView, earliest
from paceline.core.values.tickets import Ticket
from paceline.core.values.verdicts import Reason

CANARY_SECONDS = 300.0
"""A canary without an answer for this long is joined by another: a first answer takes seconds, a hanging one never
comes."""


class CanaryGate(Gate):
    """Closed while `probe_at` is set: from then on one canary may go, and after it the next one.

    `failures` counts failures in a row. `last` is the sequence number of the last one: a slot that was granted, and
    last answered, before it is no news.
    """

    REASON: ClassVar[Reason] = "paused"
    relative_times: ClassVar[tuple[str, ...]] = ("probe_at",)

    probe_at: float | None = None
    failures: int = 0
    last: int = -1
    canary: str | None = None

    @property
    def is_closed(self) -> bool:
        """Whether the gate waits for an answer."""
        return self.probe_at is not None

    def is_news(self, ticket: Ticket | None, proven_seq: int, now: float) -> bool:
        """Return whether a failure is one more in a row. Many sessions that meet the same trouble are one failure.

        While the gate is closed only the canary's own failure is news, and one without a ticket when a canary is due.
        """
        if self.probe_at is None:
            return ticket is None or proven_seq > self.last
        if ticket is None:
            return self.canary is None and now >= self.probe_at
        return self.is_probed_by(ticket)

    def is_probed_by(self, ticket: Ticket) -> bool:
        """Return whether the ticket is the canary, or a run of it."""
        return self.canary is not None and self.canary in (ticket.id, ticket.parent)

    def close_until(self, probe_at: float, seq: int) -> None:
        """Count one more failure, and admit nobody before `probe_at`."""
        self.failures += 1
        self.probe_at, self.canary, self.last = probe_at, None, seq

    def lift(self) -> Sequence[GateEvent]:
        """Open the gate: an answer came."""
        if self.probe_at is None:
            return ()
        self.probe_at, self.canary, self.failures = None, None, 0
        return (GateEvent("scope.resumed", lets_in=True),)

    def refuses(self, ticket: Ticket, scope: ScopeView, now: float) -> Reason | None:
        if self.probe_at is None or now >= self.probe_at or self._is_run_of_canary(ticket):
            return None
        return self.REASON

    def is_active(self, scope: ScopeView) -> bool:
        return self.is_closed

    def is_blank(self, now: float) -> bool:
        return not self.is_closed

    def on_grant(self, ticket: Ticket, scope: ScopeView, now: float, *, takes_place: bool) -> Sequence[GateEvent]:
        if self.probe_at is not None and now >= self.probe_at and not self._is_run_of_canary(ticket):
            self.canary, self.probe_at = ticket.id, now + CANARY_SECONDS
        return ()

    def awaits_success(self, scope: ScopeView) -> bool:
        return self.is_closed

    def on_success(self, ticket: Ticket | None, granted_at: float, scope: ScopeView, now: float) -> Sequence[GateEvent]:
        return self.lift()

    def has_canary(self, ticket_id: str) -> bool:
        return self.canary == ticket_id

    def on_canary_lost(self, ticket_id: str | None, now: float) -> bool:
        if self.canary is None or ticket_id not in (None, self.canary):
            return False
        self.canary, self.probe_at = None, now
        return True

    def next_wake(self, scope: ScopeView, now: float, *, has_waiters: bool) -> float | None:
        return earliest(now, self.probe_at) if has_waiters else None

    def _is_run_of_canary(self, ticket: Ticket) -> bool:
        return self.canary is not None and ticket.parent == self.canary

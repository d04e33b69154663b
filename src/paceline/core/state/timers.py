"""What happens when: the scopes that change by time, and the waiters whose patience ends."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from paceline.core.state.lane import Waiter
from paceline.core.state.scope import Scope


class Timers:
    """Two heaps. A scope's timer counts only while its `wake_at` is the same; a waiter's until it is gone."""

    __slots__ = ("_count", "_patience", "_scopes")

    def __init__(self) -> None:
        self._scopes: list[tuple[float, int, Scope]] = []
        self._patience: list[tuple[float, int, Waiter]] = []
        self._count = 0

    def wake(self, scope: Scope, when: float) -> None:
        """Wake the scope at this time."""
        scope.wake_at = when
        self._count += 1
        heappush(self._scopes, (when, self._count, scope))

    def end_patience(self, waiter: Waiter, when: float) -> None:
        """Count the waiter as overdue from this time on."""
        heappush(self._patience, (when, waiter.seq, waiter))

    def next_time(self) -> float | None:
        """Return when something is due; None while nothing is."""
        while self._scopes and self._scopes[0][2].wake_at != self._scopes[0][0]:
            heappop(self._scopes)
        while self._patience and self._patience[0][2].gone:
            heappop(self._patience)
        if not self._scopes:
            return self._patience[0][0] if self._patience else None
        first = self._scopes[0][0]
        return min(first, self._patience[0][0]) if self._patience else first

    def due_scopes(self, now: float) -> Iterator[Scope]:
        """Remove and return the scopes that are due."""
        while self._scopes and self._scopes[0][0] <= now:
            when, _, scope = heappop(self._scopes)
            if scope.wake_at == when:
                scope.wake_at = None
                yield scope

    def overdue_waiters(self, now: float) -> Iterator[Waiter]:
        """Remove and return the waiters whose patience has ended."""
        while self._patience and self._patience[0][0] <= now:
            waiter = heappop(self._patience)[2]
            if not waiter.gone:
                yield waiter

    def shift(self, seconds: float) -> None:
        """Keep the patience of waiters when the clock is set back. Scopes are to be scheduled again."""
        self._patience = [(when - seconds, seq, waiter) for when, seq, waiter in self._patience]
        heapify(self._patience)
        self._scopes.clear()

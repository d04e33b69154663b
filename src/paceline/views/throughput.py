"""How fast units get done, read from the events of the last hour as they come. Looks only."""

from collections import Counter, deque
from collections.abc import Mapping

import msgspec

from paceline.events import ATTEMPT_STARTS
from paceline.store import Store

HOUR = 3600.0
PAGE = 1000
MOST_PAGES = 20
"""Read at a time: who asks seldom has much to catch up on, and the engine shares the loop."""
DONE = "unit.done"


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """`per_hour` counts what was done in the last hour; `eta` is when the rest will be, None where nobody can tell."""

    per_hour: int
    eta: float | None


class Pace:
    """Keeps one hour of starts and ends. `seen` is the id of the last event that counts."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._done: deque[tuple[float, str]] = deque()
        self._counts: Counter[str] = Counter()
        self._started: dict[str, float] = {}
        self.seen = max(0, store.append_events([]) - PAGE * MOST_PAGES)

    def catch_up(self, now: float) -> None:
        """Read what happened since."""
        for _ in range(MOST_PAGES):
            events = self._store.events(after=self.seen, limit=PAGE)
            for stored in events:
                self._take(stored.event.name, stored.event.at, stored.event.unit or "")
            if events:
                self.seen = events[-1].id
            if len(events) < PAGE:
                break
        while self._done and self._done[0][0] <= now - HOUR:
            self._counts[self._done.popleft()[1]] -= 1

    def _take(self, name: str, at: float, unit: str) -> None:
        campaign = unit.partition("/")[0]
        if name == DONE:
            self._done.append((at, campaign))
            self._counts[campaign] += 1
        elif name in ATTEMPT_STARTS:
            self._started.setdefault(campaign, at)

    def rate(self, campaign: str, left: int, now: float) -> Rate:
        """Of one campaign; `left` are its units that are still to be done."""
        return Rate(per_hour=self._counts[campaign], eta=self._eta({campaign: left}, now))

    def rate_of_all(self, left: Mapping[str, int], now: float) -> Rate:
        """Of all together; `left` are the units of each that are still to be done."""
        return Rate(per_hour=len(self._done), eta=self._eta(left, now))

    def _eta(self, left: Mapping[str, int], now: float) -> float | None:
        """At the speed of those that have something left: what ended before, and a rest since then, say nothing."""
        going = [name for name, units in left.items() if units]
        done = sum(self._counts[name] for name in going)
        starts = [self._started[name] for name in going if name in self._started]
        if not done or not starts:
            return None
        span = min(HOUR, max(1.0, now - min(starts)))
        return now + sum(left.values()) * span / done

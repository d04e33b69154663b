"""How fast units get done, read from the events of the last hour as they come. Looks only."""

from collections import Counter, deque

import msgspec

from paceline.store import Store

HOUR = 3600.0
PAGE = 1000
MOST_PAGES = 20
"""Read at a time: who asks seldom has much to catch up on, and the engine shares the loop."""
STARTS = ("unit.started", "unit.resumed")
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
        elif name in STARTS:
            self._started.setdefault(campaign, at)

    def rate(self, left: int, now: float, campaign: str | None = None) -> Rate:
        """Of one campaign, or of all; `left` are the units that are still to be done."""
        done = len(self._done) if campaign is None else self._counts[campaign]
        starts = [at for name, at in self._started.items() if campaign in (None, name)]
        if not done or not left or not starts:
            return Rate(per_hour=done, eta=None)
        span = min(HOUR, max(1.0, now - min(starts)))
        return Rate(per_hour=done, eta=now + left * span / done)

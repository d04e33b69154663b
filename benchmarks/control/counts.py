"""The ways in which a provider counts sessions or requests, and enforces its cap on them.

Each class is one way. They differ in what they count, when they notice an end, and whether a start or a turn is
refused. `can_start` and `can_turn` are for the oracle: they never draw a random number and change nothing.
"""

import math
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Protocol

from benchmarks.control.levels import Steps, still

Lag = Callable[[], float]


class Count(Protocol):
    """A count with a cap. `checks_starts` is False where only requests are counted, so that a start says nothing."""

    checks_starts: bool

    def start(self, session: str, model: str, now: float) -> bool: ...
    def turn(self, session: str, model: str, now: float) -> bool: ...
    def turn_over(self, session: str, model: str, now: float) -> None: ...
    def release(self, session: str, model: str, now: float) -> None: ...
    def count(self, model: str, now: float) -> int: ...
    def limit(self, model: str, now: float) -> int: ...
    def own(self, model: str) -> int: ...
    def excess(self, model: str, now: float) -> int: ...
    def speed(self, model: str, now: float) -> float: ...
    def can_start(self, model: str, under_way: int, now: float) -> bool: ...
    def can_turn(self, session: str, model: str, now: float) -> bool: ...
    def next_change(self, model: str, now: float) -> float: ...


class SessionCount:
    """Sessions, refused at their start. An ended session is counted a while longer.

    Sessions over a fallen cap are refused at their next turn, the youngest first.
    """

    checks_starts = True

    def __init__(self, caps: dict[str, Steps], lag: Lag, strangers: Steps | None = None) -> None:
        self.caps = caps
        self.lag = lag
        self.strangers = strangers or still(0)
        self.live: dict[str, dict[str, None]] = {model: {} for model in caps}
        self.lagging: dict[str, list[float]] = {model: [] for model in caps}

    def start(self, session: str, model: str, now: float) -> bool:
        if self.count(model, now) >= self.caps[model].at(now):
            return False
        self.live[model][session] = None
        return True

    def turn(self, session: str, model: str, now: float) -> bool:
        over = self.excess(model, now)
        return over <= 0 or session not in list(self.live[model])[-over:]

    def turn_over(self, session: str, model: str, now: float) -> None:
        pass

    def release(self, session: str, model: str, now: float) -> None:
        if session in self.live[model]:
            del self.live[model][session]
            heappush(self.lagging[model], now + self.lag())

    def count(self, model: str, now: float) -> int:
        lagging = self.lagging[model]
        while lagging and lagging[0] <= now:
            heappop(lagging)
        return len(self.live[model]) + len(lagging) + self.strangers.at(now)

    def limit(self, model: str, now: float) -> int:
        return self.caps[model].at(now)

    def own(self, model: str) -> int:
        return len(self.live[model])

    def excess(self, model: str, now: float) -> int:
        """Return the number of sessions over the cap. Lagging ones cannot be ended."""
        return len(self.live[model]) + self.strangers.at(now) - self.caps[model].at(now)

    def speed(self, model: str, now: float) -> float:
        return 1.0

    def can_start(self, model: str, under_way: int, now: float) -> bool:
        return self.count(model, now) + under_way < self.caps[model].at(now)

    def can_turn(self, session: str, model: str, now: float) -> bool:
        return self.turn(session, model, now)

    def next_change(self, model: str, now: float) -> float:
        lagging = self.lagging[model]
        lag_ends = lagging[0] if lagging else math.inf
        return min(lag_ends, self.caps[model].next_change(now), self.strangers.next_change(now))


class Census(SessionCount):
    """Sessions as they were at the last census. Between two of them the number stands still in both directions.

    So a burst of starts can exceed the cap. The next census finds it, and turns of the youngest are refused. An end is
    noticed by the next census only.
    """

    def __init__(self, caps: dict[str, Steps], every: float, strangers: Steps | None = None) -> None:
        super().__init__(caps, lambda: 0.0, strangers)
        self.every = every
        self._tick = -1
        self._seen = dict.fromkeys(caps, 0)
        self._over: dict[str, frozenset[str]] = dict.fromkeys(caps, frozenset())

    def _take(self, now: float) -> None:
        tick = int(now // self.every)
        if tick == self._tick:
            return
        self._tick = tick
        strangers = self.strangers.at(now)
        for model, live in self.live.items():
            self._seen[model] = len(live) + strangers
            over = self._seen[model] - self.caps[model].at(now)
            self._over[model] = frozenset(list(live)[-over:]) if over > 0 else frozenset()

    def start(self, session: str, model: str, now: float) -> bool:
        self._take(now)
        if self._seen[model] >= self.caps[model].at(now):
            return False
        self.live[model][session] = None
        return True

    def turn(self, session: str, model: str, now: float) -> bool:
        self._take(now)
        return session not in self._over[model]

    def release(self, session: str, model: str, now: float) -> None:
        self._take(now)
        self.live[model].pop(session, None)

    def count(self, model: str, now: float) -> int:
        self._take(now)
        return self._seen[model]

    def can_start(self, model: str, under_way: int, now: float) -> bool:
        cap = self.caps[model].at(now)
        own = len(self.live[model]) + under_way
        return self.count(model, now) < cap and own + self.strangers.at(now) < cap

    def next_change(self, model: str, now: float) -> float:
        return min((now // self.every + 1) * self.every + 1e-6, self.caps[model].next_change(now))


class Leases:
    """Leases that requests take and renew. A lease expires `idle_seconds` after the last request of its session.

    Nobody notices the end of a session. A start says nothing: the first turn is the first request.
    """

    checks_starts = False

    def __init__(self, caps: dict[str, Steps], idle_seconds: float, strangers: Steps | None = None) -> None:
        self.caps = caps
        self.idle_seconds = idle_seconds
        self.strangers = strangers or still(0)
        self.leases: dict[str, dict[str, float]] = {model: {} for model in caps}
        """When each lease expires: never while a request is under way."""

    def _expire(self, model: str, now: float) -> dict[str, float]:
        leases = self.leases[model]
        if any(until <= now for until in leases.values()):
            leases = self.leases[model] = {name: until for name, until in leases.items() if until > now}
        return leases

    def start(self, session: str, model: str, now: float) -> bool:
        return True

    def turn(self, session: str, model: str, now: float) -> bool:
        if not self.can_turn(session, model, now):
            return False
        self.leases[model][session] = math.inf
        return True

    def turn_over(self, session: str, model: str, now: float) -> None:
        self.leases[model][session] = now + self.idle_seconds

    def release(self, session: str, model: str, now: float) -> None:
        pass

    def count(self, model: str, now: float) -> int:
        return len(self._expire(model, now)) + self.strangers.at(now)

    def limit(self, model: str, now: float) -> int:
        return self.caps[model].at(now)

    def own(self, model: str) -> int:
        return len(self.leases[model])

    def excess(self, model: str, now: float) -> int:
        return self.count(model, now) - self.caps[model].at(now)

    def speed(self, model: str, now: float) -> float:
        return 1.0

    def can_start(self, model: str, under_way: int, now: float) -> bool:
        return self.count(model, now) + under_way < self.caps[model].at(now)

    def can_turn(self, session: str, model: str, now: float) -> bool:
        leases = self._expire(model, now)
        room = self.caps[model].at(now) - self.strangers.at(now)
        if session not in leases:
            return len(leases) < room
        return len(leases) <= room or session in list(leases)[: max(0, room)]

    def next_change(self, model: str, now: float) -> float:
        expiry = min(self.leases[model].values(), default=math.inf)
        return min(expiry, self.caps[model].next_change(now), self.strangers.next_change(now))


class SoftCount(SessionCount):
    """A soft cap: up to it nothing is refused, above it a start or a turn is refused by chance, and all get slower."""

    def __init__(self, caps: dict[str, Steps], lag: Lag, hardness: float, rng: Random) -> None:
        super().__init__(caps, lag)
        self.hardness = hardness
        self._rng = rng

    def _is_refused(self, over: int) -> bool:
        return over > 0 and self._rng.random() < 1.0 - math.exp(-self.hardness * over)

    def start(self, session: str, model: str, now: float) -> bool:
        if self._is_refused(self.count(model, now) + 1 - self.caps[model].at(now)):
            return False
        self.live[model][session] = None
        return True

    def turn(self, session: str, model: str, now: float) -> bool:
        # A turn of an accepted session is refused four times less often than a start: work under way is favoured.
        over = self.excess(model, now)
        return not (over > 0 and self._rng.random() < 0.25 and self._is_refused(over))

    def speed(self, model: str, now: float) -> float:
        return min(1.0, self.caps[model].at(now) / max(1, len(self.live[model])))

    def can_turn(self, session: str, model: str, now: float) -> bool:
        return self.excess(model, now) <= 0


class FlightCount:
    """Requests in flight. A finished one is counted a while longer, so that the next one of its session may not fit.

    Sessions are not counted at all: only turns are refused, and each turn must find room again.
    """

    checks_starts = False

    def __init__(self, caps: dict[str, Steps], lag: Lag, strangers: Steps | None = None) -> None:
        self.caps = caps
        self.lag = lag
        self.strangers = strangers or still(0)
        self.flying = dict.fromkeys(caps, 0)
        self.lagging: dict[str, list[float]] = {model: [] for model in caps}

    def start(self, session: str, model: str, now: float) -> bool:
        return True

    def turn(self, session: str, model: str, now: float) -> bool:
        if self.count(model, now) >= self.caps[model].at(now):
            return False
        self.flying[model] += 1
        return True

    def turn_over(self, session: str, model: str, now: float) -> None:
        self.flying[model] -= 1
        heappush(self.lagging[model], now + self.lag())

    def release(self, session: str, model: str, now: float) -> None:
        pass

    def count(self, model: str, now: float) -> int:
        lagging = self.lagging[model]
        while lagging and lagging[0] <= now:
            heappop(lagging)
        return self.flying[model] + len(lagging) + self.strangers.at(now)

    def limit(self, model: str, now: float) -> int:
        return self.caps[model].at(now)

    def own(self, model: str) -> int:
        return self.flying[model]

    def excess(self, model: str, now: float) -> int:
        return self.count(model, now) - self.caps[model].at(now)

    def speed(self, model: str, now: float) -> float:
        return 1.0

    def can_start(self, model: str, under_way: int, now: float) -> bool:
        return self.count(model, now) + under_way < self.caps[model].at(now)

    def can_turn(self, session: str, model: str, now: float) -> bool:
        return self.count(model, now) < self.caps[model].at(now)

    def next_change(self, model: str, now: float) -> float:
        lagging = self.lagging[model]
        lag_ends = lagging[0] if lagging else math.inf
        return min(lag_ends, self.caps[model].next_change(now), self.strangers.next_change(now))


class Utilisation:
    """A meter of service that drains as fast as the cap serves: a cap of 24 drains 24 seconds of service per second.

    A call is charged an estimate when it begins. The difference to its real length is charged when it ends. Calls are
    refused while the meter is full, so more of them than the cap run without a refusal until then. Sessions do not
    count: only turns are refused.
    """

    checks_starts = False

    def __init__(
        self, caps: dict[str, Steps], estimate: float, depth_seconds: float, strangers: Steps | None = None
    ) -> None:
        self.caps = caps
        self.estimate = estimate
        self.depth_seconds = depth_seconds
        """How long the cap alone needs to drain a full meter."""
        self.strangers = strangers or still(0)
        self.running: dict[str, dict[str, float]] = {model: {} for model in caps}
        """When each call began, by session."""
        self._sessions = dict.fromkeys(caps, 0)
        self._charged = dict.fromkeys(caps, 0.0)
        self._drained_at = dict.fromkeys(caps, 0.0)

    def _over(self, model: str, now: float) -> float:
        """Drain the meter up to now. Return the seconds of service above its size, or below it if negative."""
        cap, at = self.caps[model], self._drained_at[model]
        while at < now:
            until = min(now, cap.next_change(at), self.strangers.next_change(at))
            self._charged[model] = max(0.0, self._charged[model] - self._drain(model, at) * (until - at))
            at = self._drained_at[model] = until
        return self._charged[model] - self.depth_seconds * cap.at(now)

    def _drain(self, model: str, now: float) -> int:
        return self.caps[model].at(now) - self.strangers.at(now)

    def start(self, session: str, model: str, now: float) -> bool:
        self._sessions[model] += 1
        return True

    def turn(self, session: str, model: str, now: float) -> bool:
        if not self.can_turn(session, model, now):
            return False
        self._charged[model] += self.estimate
        self.running[model][session] = now
        return True

    def turn_over(self, session: str, model: str, now: float) -> None:
        self._over(model, now)
        length = now - self.running[model].pop(session)
        self._charged[model] = max(0.0, self._charged[model] + length - self.estimate)

    def release(self, session: str, model: str, now: float) -> None:
        self._sessions[model] -= 1

    def count(self, model: str, now: float) -> int:
        """Return the calls under way. A full meter counts as a full cap, because it lets no other call in."""
        calls = len(self.running[model]) + self.strangers.at(now)
        return calls if self._over(model, now) < 0 else max(calls, self.caps[model].at(now))

    def limit(self, model: str, now: float) -> int:
        return self.caps[model].at(now)

    def own(self, model: str) -> int:
        return len(self.running[model])

    def excess(self, model: str, now: float) -> int:
        return self.count(model, now) - self.caps[model].at(now)

    def speed(self, model: str, now: float) -> float:
        return 1.0

    def can_start(self, model: str, under_way: int, now: float) -> bool:
        """Return whether another session would get in. None should start while one under way waits for its turn."""
        is_any_waiting = self._sessions[model] > len(self.running[model])
        return not is_any_waiting and self._over(model, now) + under_way * self.estimate < 0

    def can_turn(self, session: str, model: str, now: float) -> bool:
        return self._over(model, now) < 0

    def next_change(self, model: str, now: float) -> float:
        drained_in = max(0.0, self._over(model, now)) / self._drain(model, now)
        return min(now + drained_in, self.caps[model].next_change(now), self.strangers.next_change(now))

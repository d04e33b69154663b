"""A simulated provider: caps that lag, buckets, quota windows, a burst limit on starts, overload, penalties.

Only the oracle may read its state. Every other policy sees responses and, in informed scenarios, usage readings.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from typing import Literal, NamedTuple

Kind = Literal["cap", "requests", "tokens", "starts", "window", "overload"]


class Refusal(NamedTuple):
    """A refusal of the provider. All kinds except `overload` are 429s."""

    kind: Kind
    retry_after: float | None = None
    window: str | None = None
    resets_at: float | None = None


class Steps:
    """A number that changes at known times: a cap, or the sessions of strangers."""

    def __init__(self, steps: Sequence[tuple[float, int]]) -> None:
        self.steps = list(steps)
        self._times = [at for at, _ in self.steps]

    def at(self, now: float) -> int:
        return self.steps[bisect_right(self._times, now) - 1][1]


@dataclass(slots=True)
class Bucket:
    """A token bucket that refills at `rate` per second up to `size`."""

    rate: float
    size: float
    level: float
    seen_at: float = 0.0

    def refill(self, now: float) -> None:
        self.level = min(self.size, self.level + (now - self.seen_at) * self.rate)
        self.seen_at = now

    def ready_at(self, amount: float, now: float) -> float:
        self.refill(now)
        short = min(amount, self.size) - self.level
        return now if short <= 1e-6 else now + short / self.rate

    def take(self, amount: float) -> None:
        self.level -= min(amount, self.size)

    def full_at(self, now: float) -> float:
        return now + (self.size - self.level) / self.rate


@dataclass(slots=True)
class Period:
    """One period of a window: its real end, and the end that the provider announces."""

    ends_at: float
    announced: float | None


@dataclass(slots=True)
class QuotaWindow:
    """A quota window that closes when `budget` tokens are spent. `periods` follow one another."""

    name: str
    budget: float
    periods: list[Period]
    model: str | None = None
    index: int = 0
    used: float = 0.0

    def is_open(self, now: float) -> bool:
        while now >= self.periods[self.index].ends_at:
            self.index += 1
            self.used = 0.0
        return self.used < self.budget

    @property
    def period(self) -> Period:
        return self.periods[self.index]


@dataclass(slots=True)
class Rules:
    """The rules of one simulated provider. `caps` are per model; a rule that is None does not apply."""

    caps: dict[str, Steps]
    lag_mean: float = 3.0
    lag_is_long_tailed: bool = False
    penalty_seconds: float = 30.0
    penalty_speed: float = 0.75
    refuses_after_429_seconds: float = 0.0
    retry_after: float | None = None
    over_cap_refuses: Literal["youngest", "any"] = "youngest"
    foreign: Steps = field(default_factory=lambda: Steps([(0.0, 0)]))
    requests: Bucket | None = None
    tokens: Bucket | None = None
    windows: list[QuotaWindow] = field(default_factory=list)
    burst: tuple[int, float] | None = None
    overloads: list[tuple[float, float]] = field(default_factory=list)


class Provider:
    """The simulated provider. It serves sessions by id; every call passes the time."""

    def __init__(self, rules: Rules, seed: int) -> None:
        self.rules = rules
        self.live: dict[str, dict[str, None]] = {model: {} for model in rules.caps}
        self._lagging: dict[str, list[float]] = {model: [] for model in rules.caps}
        self._starts: list[float] = []
        self._rng = Random(f"{seed}-provider")
        self._slow_until = 0.0
        self._shut_until = dict.fromkeys(rules.caps, 0.0)

    def occupancy(self, model: str, now: float) -> int:
        """Return the provider's count, including strangers and released sessions that it has not noticed yet."""
        lagging = self._lagging[model]
        while lagging and lagging[0] <= now:
            heappop(lagging)
        return len(self.live[model]) + len(lagging) + self.rules.foreign.at(now)

    def speed(self, now: float) -> float:
        return self.rules.penalty_speed if now < self._slow_until else 1.0

    # -- sessions ------------------------------------------------------------------------------

    def start(self, session: str, model: str, now: float) -> Refusal | None:
        refusal = self.start_obstacle(model, now)
        if refusal is None and (refusal := self._overload(now)) is None:
            self.live[model][session] = None
            self._starts.append(now)
            return None
        return self._penalise(refusal, model, now)

    def start_obstacle(self, model: str, now: float) -> Refusal | None:
        """Return the refusal of a start now, without random ones."""
        if (closed := self._closed(model, now)) is not None:
            return closed
        if self.rules.burst is not None:
            most, seconds = self.rules.burst
            self._starts = [at for at in self._starts if at > now - seconds]
            if len(self._starts) >= most:
                return Refusal("starts", self.rules.retry_after)
        if now < self._shut_until[model] or self.occupancy(model, now) >= self.rules.caps[model].at(now):
            return Refusal("cap", self.rules.retry_after)
        return None

    def release(self, session: str, model: str, now: float) -> None:
        if session in self.live[model]:
            del self.live[model][session]
            heappush(self._lagging[model], now + self._lag())

    def _lag(self) -> float:
        mean = self.rules.lag_mean
        if mean == 0:
            return 0.0
        if self.rules.lag_is_long_tailed:
            return min(self._rng.expovariate(1 / mean), 5 * mean)
        return self._rng.uniform(0.0, 2 * mean)

    # -- turns ---------------------------------------------------------------------------------

    def turn(self, session: str, model: str, tokens: float, now: float) -> Refusal | None:
        """Make a call inside a session. Its tokens are charged when it is accepted."""
        refusal = self._closed(model, now) or self._rates(tokens, now)
        if refusal is None and self._is_over_cap(session, model, now):
            refusal = Refusal("cap", self.rules.retry_after)
        if refusal is None:
            refusal = self._overload(now)
        if refusal is not None:
            return self._penalise(refusal, model, now)
        for bucket, amount in ((self.rules.requests, 1.0), (self.rules.tokens, tokens)):
            if bucket is not None:
                bucket.take(amount)
        for window in self.rules.windows:
            if window.model in (None, model):
                window.used += tokens
        return None

    def turn_ready_at(self, tokens: float, now: float) -> float:
        """Return when the buckets allow a turn (for the oracle)."""
        buckets = ((self.rules.requests, 1.0), (self.rules.tokens, tokens))
        return max((bucket.ready_at(amount, now) for bucket, amount in buckets if bucket is not None), default=now)

    def excess(self, model: str, now: float) -> int:
        """Return the number of sessions over the cap. Lagging ones cannot be ended."""
        return len(self.live[model]) + self.rules.foreign.at(now) - self.rules.caps[model].at(now)

    def closed_until(self, model: str, now: float) -> float | None:
        """Return when a spent window really reopens (for the oracle)."""
        ends = [w.period.ends_at for w in self.rules.windows if w.model in (None, model) and not w.is_open(now)]
        return max(ends, default=None)

    def _rates(self, tokens: float, now: float) -> Refusal | None:
        for kind, bucket, amount in (("requests", self.rules.requests, 1.0), ("tokens", self.rules.tokens, tokens)):
            if bucket is not None and (at := bucket.ready_at(amount, now)) > now:
                wait = None if self.rules.retry_after is None else max(1.0, at - now)
                return Refusal(kind, wait)  # type: ignore[arg-type]
        return None

    def _is_over_cap(self, session: str, model: str, now: float) -> bool:
        over = self.excess(model, now)
        if over <= 0:
            return False
        if self.rules.over_cap_refuses == "any":
            return self._rng.random() < over / len(self.live[model])
        return session in list(self.live[model])[-over:]

    def _closed(self, model: str, now: float) -> Refusal | None:
        for window in self.rules.windows:
            if window.model in (None, model) and not window.is_open(now):
                return Refusal("window", None, window.name, window.period.announced)
        return None

    def _overload(self, now: float) -> Refusal | None:
        if any(start <= now < end for start, end in self.rules.overloads) and self._rng.random() < 0.5:
            return Refusal("overload")
        return None

    def _penalise(self, refusal: Refusal, model: str, now: float) -> Refusal:
        if refusal.kind not in ("window", "overload"):
            self._slow_until = now + self.rules.penalty_seconds
            self._shut_until[model] = now + self.rules.refuses_after_429_seconds
        return refusal

"""The capacity of the fake provider: the only place that decides whether a request is served. Time is an argument.

Per account (API key) it keeps what runs, what has finished but still counts, the rate buckets, the quota windows and
the penalty. The rules are `scenario.Limits`. It knows no protocol and sends no bytes.
"""

from collections import Counter, deque
from fnmatch import fnmatchcase

import msgspec

from paceline.simulation.provider.errors import ErrorFacts
from paceline.simulation.provider.scenario import Limits, Scenario, Window

MINUTE_SECONDS = 60.0
FOR_EVER_SECONDS = 3600.0
"""The wait that a refusal announces if waiting cannot help: the request is larger than its bucket."""


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is served, `slowdown` times slower than usual. It counts until `ProviderCapacity.finish`."""

    key: str
    model: str
    slowdown: float = 1.0


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is not served: the name of the error, and its numbers."""

    error: str
    facts: ErrorFacts


class RateReading(msgspec.Struct, frozen=True, kw_only=True):
    """A rate bucket as response headers report it."""

    limit: int
    remaining: int
    full_at: float


class WindowReading(msgspec.Struct, frozen=True, kw_only=True):
    """A quota window as response headers report it."""

    name: str
    seconds: float
    used_ratio: float
    resets_at: float


class AccountReading(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that responses report about an account."""

    requests: RateReading | None = None
    tokens: RateReading | None = None
    windows: tuple[WindowReading, ...] = ()


class ProviderCapacity:
    """The accounts of one provider."""

    def __init__(self, scenario: Scenario, started_at: float) -> None:
        self._scenario = scenario
        self._started_at = started_at
        self._accounts: dict[str, _Account] = {}

    def admit(self, key: str, model: str, tokens: int, now: float) -> Admission | Refusal:
        """Serve or refuse a request. A served request counts at once; a refused one uses nothing."""
        account = self._account(key)
        refusal = self._overloaded(model, now) or account.refusal(model, tokens, now)
        if refusal is not None:
            account.punish(refusal, now)
            return refusal
        return Admission(key=key, model=model, slowdown=account.start(model, tokens, now))

    def finish(self, admission: Admission, now: float) -> None:
        """End a request, in whatever way. It still counts for the lag of the account."""
        self._account(admission.key).finish(admission.model, now)

    def read(self, key: str, model: str, now: float) -> AccountReading:
        return self._account(key).read(model, now)

    def in_use(self, key: str, now: float) -> int:
        """Return how many requests of the account the provider counts, with the lag."""
        return self._account(key).in_use(now)

    def limit(self, key: str, now: float) -> int | None:
        return self._account(key).concurrency(now)

    def _account(self, key: str) -> "_Account":
        if key not in self._accounts:
            limits = self._scenario.accounts.get(key, self._scenario)
            self._accounts[key] = _Account(limits, self._started_at)
        return self._accounts[key]

    def _overloaded(self, model: str, now: float) -> Refusal | None:
        for episode in self._scenario.overloads:
            ends_at = self._started_at + episode.start + episode.seconds
            if ends_at - episode.seconds <= now < ends_at:
                return Refusal(error=episode.error, facts=ErrorFacts(now=now, model=model, resets_at=ends_at))
        return None


class _Account:
    """One API key. Its limits are checked in the order in which real providers check them."""

    def __init__(self, limits: Limits, started_at: float) -> None:
        self._limits = limits
        self._started_at = started_at
        self._running: Counter[str] = Counter()
        self._lagging: deque[tuple[float, str]] = deque()  # (counts until, model)
        self._starts: deque[float] = deque()
        self._penalty_until = started_at
        requests, tokens = limits.requests_per_minute, limits.tokens_per_minute
        self._requests = None if requests is None else _Bucket(requests, started_at)
        self._tokens = None if tokens is None else _Bucket(tokens, started_at)
        self._windows = [_WindowState(window) for window in limits.windows]

    def refusal(self, model: str, tokens: int, now: float) -> Refusal | None:
        return (
            self._penalised(model, now)
            or self._window_spent(model, now)
            or self._too_many_starts(model, now)
            or self._rate_spent(model, tokens, now)
            or self._full(model, now)
        )

    def start(self, model: str, tokens: int, now: float) -> float:
        self._running[model] += 1
        self._starts.append(now)
        for bucket, amount in ((self._requests, 1), (self._tokens, tokens)):
            if bucket is not None:
                bucket.take(amount, now)
        for window in self._windows_of(model):
            window.use(tokens, now)
        penalty = self._limits.penalty
        return penalty.slowdown if penalty and penalty.slowdown and now < self._penalty_until else 1.0

    def finish(self, model: str, now: float) -> None:
        self._running[model] -= 1
        if self._limits.lag > 0:
            self._lagging.append((now + self._limits.lag, model))

    def punish(self, refusal: Refusal, now: float) -> None:
        """Start the penalty of an account. A 429 of the penalty itself does not prolong it, or it would never end."""
        if self._limits.penalty and refusal.error.startswith("429") and now >= self._penalty_until:
            self._penalty_until = now + self._limits.penalty.seconds

    def in_use(self, now: float, model: str | None = None) -> int:
        while self._lagging and self._lagging[0][0] <= now:
            self._lagging.popleft()
        if model is None:
            return self._running.total() + len(self._lagging)
        return self._running[model] + sum(name == model for _, name in self._lagging)

    def concurrency(self, now: float) -> int | None:
        due = [change for change in self._limits.changes if self._started_at + change.at <= now]
        return max(due, key=lambda change: change.at).concurrency if due else self._limits.concurrency

    def read(self, model: str, now: float) -> AccountReading:
        return AccountReading(
            requests=self._requests.read(now) if self._requests else None,
            tokens=self._tokens.read(now) if self._tokens else None,
            windows=tuple(window.read(now) for window in self._windows_of(model)),
        )

    def _penalised(self, model: str, now: float) -> Refusal | None:
        penalty = self._limits.penalty
        if penalty is None or penalty.slowdown is not None or now >= self._penalty_until:
            return None
        return _wait("429_retry_after", model, self._penalty_until - now, now)

    def _window_spent(self, model: str, now: float) -> Refusal | None:
        spent = [window for window in self._windows_of(model) if window.is_spent(now)]
        if not spent:
            return None
        reading = max((window.read(now) for window in spent), key=lambda window: window.resets_at)
        wait = max(0.0, reading.resets_at - now)
        facts = ErrorFacts(now=now, model=model, retry_after=wait, resets_at=reading.resets_at, window=reading.name)
        return Refusal(error="429_unified", facts=facts)

    def _too_many_starts(self, model: str, now: float) -> Refusal | None:
        burst = self._limits.burst
        if burst is None:
            return None
        while self._starts and self._starts[0] <= now - burst.seconds:
            self._starts.popleft()
        if len(self._starts) < burst.starts:
            return None
        return _wait("429_starts", model, self._starts[0] + burst.seconds - now, now, burst.starts)

    def _rate_spent(self, model: str, tokens: int, now: float) -> Refusal | None:
        for error, bucket, amount in (("429_requests", self._requests, 1), ("429_tokens", self._tokens, tokens)):
            wait = bucket.wait_for(amount, now) if bucket else 0.0
            if bucket and wait > 0:
                return _wait(error, model, wait, now, bucket.size)
        return None

    def _full(self, model: str, now: float) -> Refusal | None:
        caps = [(self.concurrency(now), self.in_use(now)), (self._model_cap(model), self.in_use(now, model))]
        for cap, in_use in caps:
            if cap is not None and in_use >= cap:
                facts = ErrorFacts(now=now, model=model, retry_after=1.0, resets_at=now + 1, limit=cap, in_use=in_use)
                return Refusal(error="429_concurrency", facts=facts)
        return None

    def _model_cap(self, model: str) -> int | None:
        caps = self._limits.model_concurrency.items()
        return next((cap for pattern, cap in caps if fnmatchcase(model, pattern)), None)

    def _windows_of(self, model: str) -> list["_WindowState"]:
        return [window for window in self._windows if fnmatchcase(model, window.rule.models)]


def _wait(error: str, model: str, seconds: float, now: float, limit: int = 50) -> Refusal:
    facts = ErrorFacts(now=now, model=model, retry_after=seconds, resets_at=now + seconds, limit=limit, in_use=limit)
    return Refusal(error=error, facts=facts)


class _Bucket:
    """A token bucket that holds one minute's worth and refills evenly."""

    def __init__(self, size: int, now: float) -> None:
        self.size = size
        self._level = float(size)
        self._at = now

    def wait_for(self, amount: int, now: float) -> float:
        self._refill(now)
        if amount > self.size:
            return FOR_EVER_SECONDS
        return max(0.0, (amount - self._level) / self._per_second)

    def take(self, amount: int, now: float) -> None:
        self._refill(now)
        self._level -= amount

    def read(self, now: float) -> RateReading:
        self._refill(now)
        full_at = now + (self.size - self._level) / self._per_second
        return RateReading(limit=self.size, remaining=max(0, int(self._level)), full_at=full_at)

    @property
    def _per_second(self) -> float:
        return self.size / MINUTE_SECONDS

    def _refill(self, now: float) -> None:
        self._level = min(float(self.size), self._level + (now - self._at) * self._per_second)
        self._at = now


class _WindowState:
    """The use of a quota window. A period begins with the first request after the last one has ended."""

    def __init__(self, rule: Window) -> None:
        self.rule = rule
        self._began_at: float | None = None
        self._requests = 0
        self._tokens = 0

    def use(self, tokens: int, now: float) -> None:
        self._reopen(now)
        if self._began_at is None:
            self._began_at = now
        self._requests += 1
        self._tokens += tokens

    def is_spent(self, now: float) -> bool:
        self._reopen(now)
        return self._used_ratio >= 1.0

    def read(self, now: float) -> WindowReading:
        self._reopen(now)
        began_at = now if self._began_at is None else self._began_at
        return WindowReading(
            name=self.rule.name,
            seconds=self.rule.seconds,
            used_ratio=self._used_ratio,
            resets_at=began_at + self.rule.seconds,
        )

    @property
    def _used_ratio(self) -> float:
        used = ((self._requests, self.rule.requests), (self._tokens, self.rule.tokens))
        return max((amount / allowed for amount, allowed in used if allowed is not None), default=0.0)

    def _reopen(self, now: float) -> None:
        if self._began_at is not None and now >= self._began_at + self.rule.seconds + self.rule.late:
            self._began_at = None
            self._requests = self._tokens = 0

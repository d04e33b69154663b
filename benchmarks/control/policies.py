"""Policies as others run them: a number of places, a pause, a way to retry. First come, first served.

Each gets a favourable version: units park for their window, refused starts return to the front of the queue, and a
refused turn is retried after the provider's Retry-After.
"""

from collections import deque
from collections.abc import Iterator
from random import Random
from typing import Literal

from benchmarks.control.answers import Readings, Refusal
from benchmarks.control.fleet import END, Answer, Session

RETRY_SECONDS = 5.0
UNKNOWN_RESET_SECONDS = 900.0


class Places:
    """A first-come semaphore per model. Subclasses choose the number of places."""

    def __init__(self, limits: dict[str, int]) -> None:
        self.limits: dict[str, float] = dict(limits)
        self.live = dict.fromkeys(limits, 0)
        self.queue: dict[str, deque[Session]] = {model: deque() for model in limits}
        self.parked: list[tuple[float, Session]] = []
        self.retry_at = dict.fromkeys(limits, 0.0)
        self.cooling: dict[str, list[float]] = {model: [] for model in limits}

    # -- what subclasses change ----------------------------------------------------------------

    cooldown = 0.0

    def limit(self, model: str, now: float) -> float:
        return self.limits[model]

    def on_refused(self, session: Session, refusal: Refusal, now: float) -> None:
        self.retry_at[session.model] = now + (refusal.retry_after or RETRY_SECONDS)

    def on_success(self, session: Session, seconds: float, now: float) -> None:
        pass

    # -- the policy ----------------------------------------------------------------------------

    def enqueue(self, session: Session, now: float) -> None:
        self.queue[session.model].append(session)

    def poll(self, now: float) -> Iterator[tuple[Literal["start", "turn"], Session]]:
        self._seen = now
        if self.parked and self.parked[0][0] <= now:
            self._unpark(now)
        for model, queue in self.queue.items():
            while queue and now >= self.retry_at[model] and self._taken(model, now) + 1 <= self.limit(model, now):
                self.live[model] += 1
                yield "start", queue.popleft()

    def _taken(self, model: str, now: float) -> int:
        cooling = self.cooling[model]
        while cooling and cooling[0] <= now:
            cooling.pop(0)
        return self.live[model] + len(cooling)

    def wake(self) -> float | None:
        times = [at for model, at in self.retry_at.items() if self.queue[model] and at > self._seen]
        times += [at for cooling in self.cooling.values() for at in cooling if at > self._seen]
        if self.parked:
            times.append(self.parked[0][0])
        return min(times, default=None)

    _seen = 0.0

    def accepted(self, session: Session, now: float) -> None:
        pass

    def start_refused(self, session: Session, refusal: Refusal, now: float) -> None:
        self.live[session.model] -= 1
        if refusal.kind == "window":
            self._park(session, refusal, now)
        else:
            self.on_refused(session, refusal, now)

    def ask_turn(self, session: Session, now: float) -> Answer:
        return now

    def turn_refused(self, session: Session, refusal: Refusal, now: float) -> Answer:
        if refusal.kind == "window":
            self._park(session, refusal, now)
            return END
        self.on_refused(session, refusal, now)
        return now + (refusal.retry_after or RETRY_SECONDS)

    def turn_done(self, session: Session, seconds: float, now: float) -> None:
        self.on_success(session, seconds, now)

    def ended(self, session: Session, now: float) -> None:
        self.live[session.model] -= 1
        if self.cooldown:
            self.cooling[session.model].append(now + self.cooldown)

    def _park(self, session: Session, refusal: Refusal, now: float) -> None:
        """Park the unit until the announced reset. Its place is free for another unit, which must find out itself."""
        self.retry_at[session.model] = now + RETRY_SECONDS
        until = refusal.resets_at
        until = now + UNKNOWN_RESET_SECONDS if until is None or until <= now else until
        queue = self.queue[session.model]
        if queue:
            self.parked.append((until, queue.pop()))
            self.parked.sort(key=lambda entry: entry[0])

    def _unpark(self, now: float) -> None:
        while self.parked and self.parked[0][0] <= now:
            _, session = self.parked.pop(0)
            self.queue[session.model].append(session)


class MinusOne(Places):
    """A policy with minus one on each 429, a pause of 30 s, a cooldown of 350 ms, and a usage gate on readings."""

    cooldown = 0.35

    def __init__(self, limits: dict[str, int], readings: Readings | None) -> None:
        super().__init__(limits)
        self.readings = readings

    def limit(self, model: str, now: float) -> float:
        if self.readings is None:
            return self.limits[model]
        usage = self.readings.usage(model, now)
        stated = min(self.limits[model], usage.limit)
        return stated - max(0, usage.in_use - self._taken(model, now))

    def wake(self) -> float | None:
        wake = super().wake()
        if self.readings is None or not any(self.queue.values()):
            return wake
        return self._seen + 1.0 if wake is None else min(wake, self._seen + 1.0)

    def on_refused(self, session: Session, refusal: Refusal, now: float) -> None:
        if now >= self.retry_at[session.model] and refusal.kind == "cap":
            self.limits[session.model] = max(1, self.limits[session.model] - 1)
        self.retry_at[session.model] = max(self.retry_at[session.model], now + 30.0)


class CooldownAndRetry(Places):
    """The policy of common gateways: after a 429 the deployment rests for a minute, then all return at once."""

    def on_refused(self, session: Session, refusal: Refusal, now: float) -> None:
        self.retry_at[session.model] = now + max(60.0, refusal.retry_after or 0.0)

    def turn_refused(self, session: Session, refusal: Refusal, now: float) -> Answer:
        answer = super().turn_refused(session, refusal, now)
        return END if answer == END else now + 60.0


class Backoff(Places):
    """No limiter: the configured number of workers, each with its own backoff from 1 s to a minute, with jitter."""

    def __init__(self, limits: dict[str, int], seed: int) -> None:
        super().__init__(limits)
        self._rng = Random(f"{seed}-backoff")
        self._failures = dict.fromkeys(limits, 0)
        self._resting: list[tuple[float, str]] = []

    def _taken(self, model: str, now: float) -> int:
        self._resting = [entry for entry in self._resting if entry[0] > now]
        return self.live[model] + sum(resting == model for _, resting in self._resting)

    def wake(self) -> float | None:
        times = [at for at, _ in self._resting]
        wake = super().wake()
        return min([*times, *([] if wake is None else [wake])], default=None)

    def on_refused(self, session: Session, refusal: Refusal, now: float) -> None:
        self._failures[session.model] += 1
        self._resting.append((now + self._wait(self._failures[session.model] // 8), session.model))

    def on_success(self, session: Session, seconds: float, now: float) -> None:
        self._failures[session.model] = 0

    def turn_refused(self, session: Session, refusal: Refusal, now: float) -> Answer:
        if refusal.kind == "window":
            return super().turn_refused(session, refusal, now)
        return now + self._wait(session.retries)

    def _wait(self, failures: int) -> float:
        return min(60.0, 2.0 ** min(failures, 6)) * self._rng.uniform(0.5, 1.0)

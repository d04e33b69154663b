"""Published adaptive limits, per model: Netflix concurrency-limits, and the adaptive connections of inspect_ai.

AIMD, Vegas and Gradient2 begin at the configured limit. All lower bounds (20, and 10 at inspect_ai) are lowered to 1: a
model with a cap of four is part of the scenarios.
"""

import math
from random import Random

from benchmarks.control.answers import Refusal
from benchmarks.control.fleet import END, Answer, Session
from benchmarks.control.policies import Places

LARGEST = 200.0
SHORT_RETRY_SECONDS = 1.0


class Aimd(Places):
    """AIMD: plus one per success while at least half is in use, times 0.9 on each drop."""

    def on_refused(self, session: Session, refusal: Refusal, now: float) -> None:
        super().on_refused(session, refusal, now)
        self.limits[session.model] = max(1.0, math.floor(self.limits[session.model] * 0.9))

    def on_success(self, session: Session, seconds: float, now: float) -> None:
        limit = self.limits[session.model]
        if self.live[session.model] * 2 >= limit:
            self.limits[session.model] = min(LARGEST, limit + 1)


class Vegas(Places):
    """Vegas: a queue estimated from the shortest and the current call; alpha, beta and step by log10 of the limit."""

    def __init__(self, limits: dict[str, int]) -> None:
        super().__init__(limits)
        self.shortest = dict.fromkeys(limits, math.inf)

    def on_refused(self, session: Session, refusal: Refusal, now: float) -> None:
        super().on_refused(session, refusal, now)
        limit = self.limits[session.model]
        self.limits[session.model] = max(1.0, limit - _log(limit))

    def on_success(self, session: Session, seconds: float, now: float) -> None:
        model, limit = session.model, self.limits[session.model]
        self.shortest[model] = min(self.shortest[model], seconds)
        if self.live[model] * 2 < limit:
            return
        queue = math.ceil(limit * (1 - self.shortest[model] / seconds))
        if queue <= _log(limit):
            limit += 6 * _log(limit)
        elif queue < 3 * _log(limit):
            limit += _log(limit)
        elif queue > 6 * _log(limit):
            limit -= _log(limit)
        self.limits[model] = max(1.0, min(LARGEST, limit))


class Gradient2(Places):
    """Gradient2: long against short average of call times, tolerance 1.5, queue 4, smoothing 0.2. Ignores drops."""

    def __init__(self, limits: dict[str, int]) -> None:
        super().__init__(limits)
        self.long = dict.fromkeys(limits, 0.0)

    def on_refused(self, session: Session, refusal: Refusal, now: float) -> None:
        self.retry_at[session.model] = now + (refusal.retry_after or SHORT_RETRY_SECONDS)

    def on_success(self, session: Session, seconds: float, now: float) -> None:
        model, limit = session.model, self.limits[session.model]
        mean = self.long[model]
        mean = self.long[model] = seconds if mean == 0 else mean + (seconds - mean) * 2 / 601
        if mean / seconds > 2:
            self.long[model] *= 0.95
        if self.live[model] < limit / 2:
            return
        gradient = max(0.5, min(1.0, 1.5 * mean / seconds))
        wanted = limit * gradient + 4
        self.limits[model] = max(1.0, min(LARGEST, limit * 0.8 + wanted * 0.2))


class AdaptiveConnections(Places):
    """The adaptive connections of inspect_ai with their defaults.

    The limit begins at 20 and is at most 100. A round is as many successes as the limit is high, at least four, without
    a refusal between. At the end of a round the limit is doubled, or, once there was a refusal, raised by 5 % (at least
    one). A round counts only if at least 80 % of the limit was in use at its peak. The first refusal of an episode cuts
    the limit to 80 %. The episode lasts 15 s, or as long as Retry-After asks: in that time nothing is cut, and no
    success counts. Calls that succeed after a retry count for nothing, and overload does not break a round. Limits from
    ten on are rounded to multiples of five, up when raised and down when cut. Each call is retried with a backoff of
    its own from 3 s to 30 min, and keeps its connection.
    """

    START, MOST, FEWEST_IN_ROUND = 20, 100, 4
    CUT, RAISE, SATURATED, EPISODE_SECONDS = 0.8, 0.05, 0.8, 15.0

    def __init__(self, models: dict[str, int], seed: int) -> None:
        super().__init__(dict.fromkeys(models, self.START))
        self._rng = Random(f"{seed}-backoff")
        self._successes = dict.fromkeys(models, 0)
        self._peak = dict.fromkeys(models, 0)
        self._is_slow_start = dict.fromkeys(models, True)
        self._episode_ends = dict.fromkeys(models, 0.0)
        self._refused_starts = dict.fromkeys(models, 0)
        self._retried: set[str] = set()

    def accepted(self, session: Session, now: float) -> None:
        self._refused_starts[session.model] = 0

    def ask_turn(self, session: Session, now: float) -> Answer:
        model = session.model
        if now >= self._episode_ends[model]:
            self._peak[model] = max(self._peak[model], self.live[model])
        return now

    def on_refused(self, session: Session, refusal: Refusal, now: float) -> None:
        self._refused_starts[session.model] += 1
        self.retry_at[session.model] = now + self._backoff(self._refused_starts[session.model])
        self._cut(session.model, refusal, now)

    def turn_refused(self, session: Session, refusal: Refusal, now: float) -> Answer:
        if refusal.kind == "window":
            self._park(session, refusal, now)
            return END
        self._cut(session.model, refusal, now)
        self._retried.add(session.id)
        return now + self._backoff(session.retries)

    def _backoff(self, tries: int) -> float:
        return min(1800.0, 3.0 * 2.0 ** min(tries - 1, 10) + self._rng.random())

    def _cut(self, model: str, refusal: Refusal, now: float) -> None:
        if refusal.kind == "overload":
            return
        self._successes[model] = self._peak[model] = 0
        self._is_slow_start[model] = False
        wait = refusal.retry_after or 0.0
        if now < self._episode_ends[model]:
            self._episode_ends[model] = max(self._episode_ends[model], now + wait)
            return
        self._episode_ends[model] = now + max(wait, self.EPISODE_SECONDS)
        cut = int(self.limits[model] * self.CUT)
        self.limits[model] = max(1, cut if cut < 10 else cut // 5 * 5)

    def on_success(self, session: Session, seconds: float, now: float) -> None:
        model, limit = session.model, int(self.limits[session.model])
        if session.id in self._retried:
            self._retried.remove(session.id)
            return
        if now < self._episode_ends[model]:
            return
        self._successes[model] += 1
        if self._successes[model] < max(limit, self.FEWEST_IN_ROUND):
            return
        peak, self._peak[model], self._successes[model] = self._peak[model], 0, 0
        if peak < self.SATURATED * limit:
            return
        raised = limit + max(1, round(limit * self.RAISE))
        rounded = raised if raised < 10 else (raised + 4) // 5 * 5
        self.limits[model] = min(self.MOST, limit * 2 if self._is_slow_start[model] else rounded)


def _log(limit: float) -> float:
    return max(1.0, math.log10(limit))

"""AIMD, Vegas and Gradient2 as published in Netflix concurrency-limits, per model, from the configured limit on.

Their lower bound of 20 is lowered to 1: a model with a cap of four is part of the scenarios.
"""

import math

from benchmarks.control.answers import Refusal
from benchmarks.control.fleet import Session
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


def _log(limit: float) -> float:
    return max(1.0, math.log10(limit))

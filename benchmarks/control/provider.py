"""A simulated provider, put together from parts: a count, a penalty, advice, rates, windows, a burst limit, overload.

Only the oracle may read its state. Every other policy sees its answers and, on informed days, its `Readings`.
"""

import math
from dataclasses import dataclass, field
from random import Random

from benchmarks.control.allowances import Rate, Window
from benchmarks.control.answers import Cause, Kind, RateHeaders, Reading, Refusal, Size, WindowHeader
from benchmarks.control.counts import Count
from benchmarks.control.penalties import Advice, Penalty


@dataclass(slots=True)
class Rules:
    """The rules of one simulated provider. A part that is None or empty does not apply."""

    count: Count
    penalty: Penalty
    advice: Advice
    models: tuple[str, ...]
    cap_cause: Cause | None = None
    """The cause that a refusal for the cap names."""
    names_rates: bool = True
    """Whether a refusal for a rate says so. Otherwise all 429s are alike."""
    requests: Rate | None = None
    tokens: Rate | None = None
    windows: list[Window] = field(default_factory=list)
    burst: tuple[int, float] | None = None
    overloads: list[tuple[float, float]] = field(default_factory=list)


class Provider:
    """The simulated provider. It serves sessions by id; every call passes the time."""

    def __init__(self, rules: Rules, rng: Random) -> None:
        self.rules = rules
        self.checks_starts = rules.count.checks_starts
        self._starts: list[float] = []
        self._rng = rng

    # -- sessions and turns --------------------------------------------------------------------

    def start(self, session: str, model: str, now: float) -> Refusal | None:
        """Start a session. Where only requests are counted, nothing but a burst is refused."""
        refusal = self._start_obstacle(model, now) if self.checks_starts else self._burst_obstacle(now)
        is_shut = refusal is not None and refusal.kind == "cap"
        if refusal is None and self.checks_starts:
            refusal = self._overload(now)
        if refusal is None:
            if self.rules.count.start(session, model, now):
                if self.rules.burst is not None:
                    self._starts.append(now)
                return None
            refusal = self._refused_for_cap(None)
        return self._penalise(refusal, model, now, is_shut=is_shut)

    def turn(self, session: str, model: str, size: Size, now: float) -> Refusal | None:
        """Make a call inside a session. It is charged when it is accepted."""
        rules = self.rules
        shut = rules.penalty.shut_until(model, is_start=False)
        refusal = self._closed(model, now) if rules.windows else None
        if refusal is None and now < shut:
            return self._penalise(self._refused_for_cap(shut - now), model, now, is_shut=True)
        refusal = refusal or self._rate_obstacle(size, now) or (self._overload(now) if rules.overloads else None)
        if refusal is None and not rules.count.turn(session, model, now):
            refusal = self._refused_for_cap(None)
        if refusal is not None:
            return self._penalise(refusal, model, now, is_shut=False)
        if rules.requests is not None:
            rules.requests.take(1.0, now)
        if rules.tokens is not None:
            rules.tokens.take(size.tokens, now)
        for window in rules.windows:
            if window.model in (None, model):
                window.charge(size, now)
        return None

    def turn_over(self, session: str, model: str, now: float) -> None:
        self.rules.count.turn_over(session, model, now)

    def release(self, session: str, model: str, now: float) -> None:
        self.rules.count.release(session, model, now)

    def speed(self, model: str, now: float) -> float:
        return self.rules.penalty.speed(now) * self.rules.count.speed(model, now)

    # -- the oracle's view ---------------------------------------------------------------------

    def can_start(self, model: str, under_way: int, now: float) -> bool:
        return (
            not self.is_overloaded(now)
            and self._start_obstacle(model, now) is None
            and self.rules.count.can_start(model, under_way, now)
        )

    def can_turn(self, session: str, model: str, now: float) -> bool:
        return now >= self.rules.penalty.shut_until(model, is_start=False) and self.rules.count.can_turn(
            session, model, now
        )

    def is_overloaded(self, now: float) -> bool:
        return any(start <= now < end for start, end in self.rules.overloads)

    def is_closed(self, model: str, now: float) -> bool:
        return any(w.model in (None, model) and not w.is_open(now) for w in self.rules.windows)

    def turn_ready_at(self, size: Size, now: float) -> float:
        """Return when the rates and the overload allow a turn."""
        ready = max((end for start, end in self.rules.overloads if start <= now < end), default=now)
        for rate, amount in ((self.rules.requests, 1.0), (self.rules.tokens, size.tokens)):
            if rate is not None:
                ready = max(ready, rate.ready_at(amount, now))
        return ready

    def next_change(self, now: float) -> float:
        """Return when an obstacle may end next."""
        rules = self.rules
        times = [rules.count.next_change(model, now) for model in rules.models]
        times += [rules.penalty.shut_until(model, is_start=True) for model in rules.models]
        times += [w.ends_at(now) for w in rules.windows]
        times += [end for _, end in rules.overloads]
        if rules.burst is not None:
            times += [at + rules.burst[1] for at in self._starts]
        return min((at for at in times if at > now), default=math.inf)

    def is_full(self, model: str, share: float, now: float) -> bool:
        """Return whether our sessions take that share of what strangers leave."""
        count = self.rules.count
        taken = count.own(model)
        return taken >= share * (count.limit(model, now) - max(0, count.count(model, now) - taken))

    # -- refusals ------------------------------------------------------------------------------

    def _start_obstacle(self, model: str, now: float) -> Refusal | None:
        """Return the refusal of a start now, except for the cap and by chance."""
        if self.rules.windows and (closed := self._closed(model, now)) is not None:
            return closed
        if (burst := self._burst_obstacle(now)) is not None:
            return burst
        shut = self.rules.penalty.shut_until(model, is_start=True)
        return self._refused_for_cap(shut - now) if now < shut else None

    def _burst_obstacle(self, now: float) -> Refusal | None:
        if self.rules.burst is None:
            return None
        most, seconds = self.rules.burst
        while self._starts and self._starts[0] <= now - seconds:
            self._starts.pop(0)
        return self._refused_for_rate("starts", None) if len(self._starts) >= most else None

    def _rate_obstacle(self, size: Size, now: float) -> Refusal | None:
        requests, tokens = self.rules.requests, self.rules.tokens
        if requests is not None and (at := requests.ready_at(1.0, now)) > now:
            return self._refused_for_rate("requests", at - now)
        if tokens is not None and (at := tokens.ready_at(size.tokens, now)) > now:
            return self._refused_for_rate("tokens", at - now)
        return None

    def _refused_for_cap(self, wait: float | None) -> Refusal:
        return Refusal("cap", self.rules.advice.seconds(wait), cause=self.rules.cap_cause)

    def _refused_for_rate(self, kind: Kind, wait: float | None) -> Refusal:
        cause: Cause | None = kind if self.rules.names_rates else None  # type: ignore[assignment]
        return Refusal(kind, self.rules.advice.seconds(wait), cause=cause)

    def _closed(self, model: str, now: float) -> Refusal | None:
        for window in self.rules.windows:
            if window.model in (None, model) and not window.is_open(now):
                return Refusal("window", None, window.name, window.announced(now))
        return None

    def _overload(self, now: float) -> Refusal | None:
        if self.is_overloaded(now) and self._rng.random() < 0.5:
            return Refusal("overload")
        return None

    def _penalise(self, refusal: Refusal, model: str, now: float, *, is_shut: bool) -> Refusal:
        if refusal.kind not in ("window", "overload"):
            self.rules.penalty.refused(model, now, is_shut=is_shut)
        return refusal


class PublicReadings:
    """What a provider shows to anybody who asks: its usage endpoint and its headers."""

    def __init__(self, provider: Provider) -> None:
        self._rules = provider.rules

    def usage(self, model: str, now: float) -> Reading:
        count = self._rules.count
        return Reading(count.count(model, now), count.limit(model, now))

    def rate_headers(self, now: float) -> RateHeaders | None:
        requests, tokens = self._rules.requests, self._rules.tokens
        if requests is None or tokens is None:
            return None
        return RateHeaders(
            int(requests.left(now)),
            requests.full_at(now),
            int(tokens.left(now)),
            tokens.full_at(now),
            int(requests.size),
            int(tokens.size),
        )

    def window_headers(self, model: str, now: float) -> list[WindowHeader]:
        return [
            WindowHeader(w.name, min(1.0, w.used / w.budget), w.announced(now))
            for w in self._rules.windows
            if w.model in (None, model) and w.is_open(now)
        ]

"""Limits on amounts: rates per minute, and quota windows with their announced resets."""

import math
from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import Literal, Protocol

from benchmarks.control.answers import Size
from benchmarks.control.levels import DAY

Meter = Literal["tokens", "requests", "seconds"]


def measure(meter: Meter, size: Size) -> float:
    """Return how much of a window a turn uses."""
    if meter == "tokens":
        return size.tokens
    return 1.0 if meter == "requests" else size.seconds


class Rate(Protocol):
    """An amount per minute."""

    size: float

    def ready_at(self, amount: float, now: float) -> float: ...
    def take(self, amount: float, now: float) -> None: ...
    def left(self, now: float) -> float: ...
    def full_at(self, now: float) -> float: ...


@dataclass(slots=True)
class Bucket:
    """A token bucket that refills at `rate` per second up to `size`."""

    rate: float
    size: float
    level: float
    seen_at: float = 0.0

    def left(self, now: float) -> float:
        self.level = min(self.size, self.level + (now - self.seen_at) * self.rate)
        self.seen_at = now
        return self.level

    def ready_at(self, amount: float, now: float) -> float:
        short = min(amount, self.size) - self.left(now)
        return now if short <= 1e-6 else now + short / self.rate

    def take(self, amount: float, now: float) -> None:
        self.level -= min(amount, self.size)

    def full_at(self, now: float) -> float:
        return now + (self.size - self.left(now)) / self.rate


@dataclass(slots=True)
class MinuteCount:
    """A counter that is set to zero at every full minute, so that a minute's amount may go in one second."""

    size: float
    used: float = 0.0
    minute: int = 0

    def left(self, now: float) -> float:
        if int(now // 60.0) != self.minute:
            self.minute, self.used = int(now // 60.0), 0.0
        return self.size - self.used

    def ready_at(self, amount: float, now: float) -> float:
        is_free = self.left(now) >= min(amount, self.size) - 1e-6
        return now if is_free else (self.minute + 1) * 60.0

    def take(self, amount: float, now: float) -> None:
        self.left(now)
        self.used += min(amount, self.size)

    def full_at(self, now: float) -> float:
        self.left(now)
        return (self.minute + 1) * 60.0


@dataclass(slots=True)
class SlidingMinute:
    """The sum over the last sixty seconds, or another number of them, from a log of every request."""

    size: float
    seconds: float = 60.0
    used: float = 0.0
    log: deque[tuple[float, float]] = field(default_factory=deque)

    def left(self, now: float) -> float:
        while self.log and self.log[0][0] <= now - self.seconds:
            self.used -= self.log.popleft()[1]
        return self.size - self.used

    def ready_at(self, amount: float, now: float) -> float:
        short = min(amount, self.size) - self.left(now)
        if short <= 1e-6:
            return now
        for at, used in self.log:
            short -= used
            if short <= 1e-6:
                return at + self.seconds
        return now + self.seconds

    def take(self, amount: float, now: float) -> None:
        amount = min(amount, self.size)
        self.used += amount
        self.log.append((now, amount))

    def full_at(self, now: float) -> float:
        self.left(now)
        return self.log[-1][0] + self.seconds if self.log else now


@dataclass(slots=True)
class WeightedCount:
    """The count of this period plus a part of the last one: as large as the part of this period that is left.

    This approximates a sum over the last `seconds` with two numbers instead of a log.
    """

    size: float
    seconds: float = 60.0
    used: float = 0.0
    used_before: float = 0.0
    period: int = 0

    def left(self, now: float) -> float:
        period = int(now // self.seconds)
        if period != self.period:
            self.used_before = self.used if period == self.period + 1 else 0.0
            self.used, self.period = 0.0, period
        return self.size - self.used - self.used_before * (period + 1 - now / self.seconds)

    def ready_at(self, amount: float, now: float) -> float:
        amount = min(amount, self.size)
        if self.left(now) >= amount - 1e-6:
            return now
        room = self.size - amount
        if self.used <= room:
            return self._faded_at(self.period, self.used_before, room - self.used)
        return self._faded_at(self.period + 1, self.used, room)

    def _faded_at(self, period: int, before: float, room: float) -> float:
        """Return when so little of the amount before a period counts in it that it fits into the room."""
        return (period + max(0.0, 1.0 - room / before)) * self.seconds

    def take(self, amount: float, now: float) -> None:
        self.left(now)
        self.used += min(amount, self.size)

    def full_at(self, now: float) -> float:
        self.left(now)
        if self.used:
            return (self.period + 2) * self.seconds
        return (self.period + 1) * self.seconds if self.used_before else now


class Period(Protocol):
    """One period of a window: its real end, and the end that the provider announces at a time."""

    ends_at: float

    def announced(self, now: float) -> float | None: ...


@dataclass(slots=True)
class PlainPeriod:
    """A period whose announced end never changes. It may be wrong."""

    ends_at: float
    says: float | None

    def announced(self, now: float) -> float | None:
        return self.says


@dataclass(slots=True)
class MovingPeriod:
    """A period whose announced end moves when it is reached: by a whole window, although it reopens sooner."""

    ends_at: float
    says: float
    moves_by: float

    def announced(self, now: float) -> float | None:
        return self.says if now < self.says else self.says + self.moves_by


@dataclass(slots=True)
class QuotaWindow:
    """A window that closes when `budget` is spent. Its periods follow one another without gaps."""

    name: str
    budget: float
    periods: list[Period]
    meter: Meter = "tokens"
    model: str | None = None
    index: int = 0
    used: float = 0.0

    def is_open(self, now: float) -> bool:
        while now >= self.periods[self.index].ends_at:
            self.index += 1
            self.used = 0.0
        return self.used < self.budget

    def charge(self, size: Size, now: float) -> None:
        self.used += measure(self.meter, size)

    def announced(self, now: float) -> float | None:
        return self.periods[self.index].announced(now)

    def ends_at(self, now: float) -> float:
        return self.periods[self.index].ends_at

    def reopenings(self) -> list[float]:
        return [period.ends_at for period in self.periods if 0 < period.ends_at < DAY]


@dataclass(slots=True)
class BookedWindow(QuotaWindow):
    """A window whose use is booked in batches, every `every` seconds. Until then it is not known, so it closes late."""

    every: float = 30.0
    booked_at: float = 0.0
    unbooked: float = 0.0

    def is_open(self, now: float) -> bool:
        if now >= self.booked_at + self.every:
            self.used += self.unbooked
            self.booked_at, self.unbooked = now // self.every * self.every, 0.0
        return QuotaWindow.is_open(self, now)

    def charge(self, size: Size, now: float) -> None:
        self.unbooked += measure(self.meter, size)


@dataclass(slots=True)
class SlidingWindow:
    """A window that starts with its first request and ends `length` later. The next one starts with the next request.

    `rounding` announces the end to the full hour or minute, earlier or later than the truth.
    """

    name: str
    budget: float
    length: float
    rounding: float
    meter: Meter = "requests"
    model: str | None = None
    used: float = 0.0
    started_at: float | None = None

    def is_open(self, now: float) -> bool:
        if self.started_at is not None and now >= self.started_at + self.length:
            self.started_at, self.used = None, 0.0
        return self.used < self.budget

    def charge(self, size: Size, now: float) -> None:
        if self.started_at is None:
            self.started_at = now
        self.used += measure(self.meter, size)

    def announced(self, now: float) -> float | None:
        return round(self.ends_at(now) / self.rounding) * self.rounding

    def ends_at(self, now: float) -> float:
        return (now if self.started_at is None else self.started_at) + self.length

    def reopenings(self) -> list[float]:
        return []


@dataclass(slots=True)
class RollingWindow:
    """The sum over the last `length`, kept in slices. It returns slice by slice, as each was used, never all at once.

    `announces_last` announces when the last slice returns, although the first one is free again earlier.
    """

    name: str
    budget: float
    length: float
    slice_seconds: float
    announces_last: bool
    meter: Meter = "tokens"
    model: str | None = None
    used: float = 0.0
    slices: deque[tuple[float, float]] = field(default_factory=deque)
    """When each slice returns, and how much of it."""

    def is_open(self, now: float) -> bool:
        while self.slices and self.slices[0][0] <= now:
            self.used -= self.slices.popleft()[1]
        return self.used < self.budget

    def charge(self, size: Size, now: float) -> None:
        amount = measure(self.meter, size)
        returns_at = now // self.slice_seconds * self.slice_seconds + self.length
        already = self.slices.pop()[1] if self.slices and self.slices[-1][0] == returns_at else 0.0
        self.slices.append((returns_at, already + amount))
        self.used += amount

    def announced(self, now: float) -> float | None:
        return self.slices[-1][0] if self.announces_last and self.slices else self.ends_at(now)

    def ends_at(self, now: float) -> float:
        """Return when a part of the budget returns next."""
        return self.slices[0][0] if self.slices else now + self.length

    def reopenings(self) -> list[float]:
        return []


Window = QuotaWindow | SlidingWindow | RollingWindow


def mixed_periods(rng: Random, length: float, wrong: float) -> list[Period]:
    """Return periods of which the share `wrong` announces an end that is early, late or senseless."""
    periods: list[Period] = []
    start = -rng.uniform(0.0, 0.5) * length
    while start < DAY:
        announced: float | None = start + length
        ends_at = start + length
        if rng.random() < wrong:
            kind = rng.choice(("late", "early", "past", "far", "none"))
            if kind == "late":
                ends_at += rng.uniform(60.0, 1200.0)
            elif kind == "early":
                ends_at -= rng.uniform(600.0, 2400.0)
            else:
                announced = {"past": start, "far": ends_at + 6 * 3600.0, "none": None}[kind]
        periods.append(PlainPeriod(ends_at, announced))
        start = ends_at
    return periods


def moving_periods(rng: Random, length: float, wrong: float) -> list[Period]:
    """Return periods of which the share `wrong` reopens minutes late and then announces one whole window later.

    A few reopen earlier than announced instead.
    """
    periods: list[Period] = []
    start = -rng.uniform(0.0, 0.5) * length
    while start < DAY:
        announced = ends_at = start + length
        if rng.random() < wrong:
            is_late = rng.random() < 0.75
            ends_at += rng.uniform(60.0, 1500.0) if is_late else -rng.uniform(600.0, 3600.0)
        periods.append(MovingPeriod(ends_at, announced, length))
        start = ends_at
    return periods


def job_periods(rng: Random, length: float, wrong: float) -> list[Period]:
    """Return periods of which the share `wrong` ends with the next run of a job, up to half an hour after the reset.

    A few of them are reset by hand instead, before the announced end. The next period starts at the real reset.
    """
    every = rng.choice((600.0, 900.0, 1800.0))
    periods: list[Period] = []
    start = -rng.uniform(0.0, 0.5) * length
    while start < DAY:
        announced = ends_at = start + length
        if rng.random() < wrong:
            is_by_hand = rng.random() < 0.25
            ends_at = announced - rng.uniform(600.0, 5400.0) if is_by_hand else (announced // every + 1) * every
        periods.append(PlainPeriod(ends_at, announced))
        start = ends_at
    return periods


def log_normal(rng: Random, mean: float, sigma: float) -> float:
    return rng.lognormvariate(math.log(mean) - sigma**2 / 2, sigma)

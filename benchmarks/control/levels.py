"""Numbers that change in the course of a day: caps and the sessions of strangers."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from random import Random

DAY = 86400.0


class Steps:
    """A number that changes at known times."""

    def __init__(self, steps: Sequence[tuple[float, int]]) -> None:
        self.steps = list(steps)
        self._times = [at for at, _ in self.steps]
        self._from, self._until, self._value = 1.0, 0.0, 0

    def at(self, now: float) -> int:
        if not self._from <= now < self._until:
            index = bisect_right(self._times, now)
            self._from, self._value = self.steps[index - 1]
            self._until = self._times[index] if index < len(self._times) else math.inf
        return self._value

    def next_change(self, now: float) -> float:
        self.at(now)
        return self._until

    def marks(self, model: str) -> list[tuple[float, str, str]]:
        """Return when the number rises or drops, as marks of a day."""
        return [
            (at, "rise" if after > before else "drop", model)
            for (_, before), (at, after) in pairwise(self.steps)
            if after != before
        ]


def still(level: int) -> Steps:
    return Steps([(0.0, level)])


def jumps_or_walk(rng: Random, cap: int) -> Steps:
    """Return a cap that jumps about every 45 minutes or walks in small steps, between 0.5 and 1.5 times its size."""
    steps = [(0.0, cap)]
    jumps = rng.random() < 0.5
    at, level = 0.0, cap
    while (at := at + rng.expovariate(1 / (2700.0 if jumps else 900.0)) + 60.0) < DAY:
        if jumps:
            level = rng.randint(cap // 2, cap + cap // 2)
        else:
            level = max(cap // 2, min(cap + cap // 2, level + rng.choice((-1, 1)) * rng.randint(1, cap // 5)))
        steps.append((at, level))
    return Steps(steps)


def stairs(rng: Random, cap: int) -> Steps:
    """Return a cap with a few levels (plans, tiers) that it keeps for one to four hours."""
    levels = [max(2, round(cap * factor)) for factor in (0.5, 0.75, 1.0, 1.25, 1.5)]
    index, at, steps = 2, 0.0, [(0.0, cap)]
    while (at := at + rng.uniform(3600.0, 14400.0)) < DAY:
        index = max(0, min(4, index + rng.choice((-1, 1))))
        steps.append((at, levels[index]))
    return Steps(steps)


def time_of_day(rng: Random, cap: int) -> Steps:
    """Return a cap that follows the hour: low at the busy hour, high at night, changed every few minutes."""
    depth, busy = rng.uniform(0.2, 0.5), rng.uniform(0.0, DAY)
    every = rng.choice((300.0, 900.0, 1800.0))
    steps, at = [(0.0, cap)], 0.0
    middle = cap / (1.0 - depth * math.cos(2 * math.pi * busy / DAY))
    while (at := at + every) < DAY:
        level = max(2, round(middle * (1.0 - depth * math.cos(2 * math.pi * (at - busy) / DAY))))
        if level != steps[-1][1]:
            steps.append((at, level))
    return Steps(steps)


def random_walk(rng: Random, cap: int) -> Steps:
    """Return a cap that moves by one every few minutes, pulled back to its size."""
    every, at, level, steps = rng.uniform(180.0, 900.0), 0.0, cap, [(0.0, cap)]
    while (at := at + rng.expovariate(1 / every)) < DAY:
        pull = (cap - level) / cap
        level = max(cap // 3, level + (1 if rng.random() < 0.5 + 0.5 * pull else -1))
        steps.append((at, level))
    return Steps(steps)


def incidents(rng: Random, cap: int) -> Steps:
    """Return a cap that is cut to a part for 10 to 90 minutes a few times a day, and raised for good once."""
    raised_at = rng.uniform(0.2, 0.8) * DAY
    cuts, at = [], 0.0
    while (at := at + rng.expovariate(1 / 9000.0) + 1800.0) < DAY:
        ends_at = at + rng.uniform(600.0, 5400.0)
        cuts.append((at, ends_at, rng.uniform(0.4, 0.8)))
        at = ends_at
    times = sorted({0.0, raised_at, *(at for at, *_ in cuts), *(end for _, end, _ in cuts)})
    steps = []
    for at in times:
        size = cap * (1.3 if at >= raised_at else 1.0)
        share = next((share for start, end, share in cuts if start <= at < end), 1.0)
        steps.append((at, max(2, round(size * share))))
    return Steps(steps)


def breathing(rng: Random, cap: int) -> Steps:
    """Return a cap shared with others: it breathes every minute around a level that lasts for half an hour to two."""
    breath = rng.uniform(0.03, 0.12)
    steps, at, level, until = [(0.0, cap)], 0.0, 1.0, rng.uniform(1800.0, 7200.0)
    while (at := at + rng.uniform(45.0, 90.0)) < DAY:
        if at >= until:
            level, until = rng.uniform(0.6, 1.3), at + rng.uniform(1800.0, 7200.0)
        size = max(2, round(cap * level * (1.0 + rng.uniform(-breath, breath))))
        if size != steps[-1][1]:
            steps.append((at, size))
    return Steps(steps)


def scaling(rng: Random, cap: int) -> Steps:
    """Return a cap that changes by whole replicas: an autoscaler adds and removes some, others are lost for minutes.

    Once a day all are restarted in turn, so that one of them is missing for a while.
    """
    replicas = rng.choice((4, 6, 8))
    sizes, at, size = [(0.0, replicas)], 0.0, replicas
    while (at := at + rng.uniform(1200.0, 5400.0)) < DAY:
        size = max(replicas // 2 + 1, min(replicas + replicas // 2, size + rng.choice((-2, -1, 1, 2))))
        sizes.append((at, size))
    restart = rng.uniform(0.0, DAY)
    losses, at = [(restart, restart + replicas * rng.uniform(60.0, 180.0))], 0.0
    while (at := at + rng.expovariate(1 / 7200.0)) < DAY:
        losses.append((at, at + rng.uniform(120.0, 480.0)))
    steps: list[tuple[float, int]] = []
    for at in sorted({at for at, _ in sizes} | {at for loss in losses for at in loss}):
        size = next(size for since, size in reversed(sizes) if since <= at)
        missing = any(start <= at < end for start, end in losses)
        level = cap * (size - missing) // replicas
        if not steps or level != steps[-1][1]:
            steps.append((at, level))
    return Steps(steps)


def visits(rng: Random, most: int, number: int) -> Steps:
    """Return the sessions of strangers: a number of visits, each with a size of its own."""
    times = sorted(rng.uniform(0, DAY) for _ in range(number))
    return Steps([(0.0, 0), *((at, rng.randint(0, most)) for at in times)])


def jobs(rng: Random, most: int) -> Steps:
    """Return a stranger who runs a job at fixed intervals: the same number of sessions each time, for some minutes."""
    every, sessions, steps = rng.uniform(3600.0, 10800.0), rng.randint(2, most), [(0.0, 0)]
    at = rng.uniform(0.0, every)
    while at < DAY:
        steps += [(at, sessions), (at + rng.uniform(600.0, 2400.0), 0)]
        at += every
    return Steps(steps)


def shifts(rng: Random, most: int) -> Steps:
    """Return a stranger who works in shifts: a few sessions for half an hour to three hours, then none."""
    steps, at = [(0.0, 0)], 0.0
    while (at := at + rng.uniform(1800.0, 14400.0)) < DAY:
        steps.append((at, rng.randint(1, most)))
        at += rng.uniform(1800.0, 10800.0)
        steps.append((at, 0))
    return Steps(steps)

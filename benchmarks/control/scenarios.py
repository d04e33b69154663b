"""The simulated days. The seed draws what a scenario does not fix: lag, penalty, latency, drift.

Seeds below `HELD_OUT` are for tuning; the others are for reporting only.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from benchmarks.control.fleet import Load
from benchmarks.control.provider import Bucket, Period, QuotaWindow, Rules, Steps

DAY = 86400.0
HELD_OUT = 1000
CAP = 24
HOURS = 3600.0


@dataclass(slots=True)
class Day:
    """One seeded day: the provider's rules, the load, and when capacity rises or a window reopens."""

    rules: Rules
    load: Load
    marks: list[tuple[float, str, str]]

    @property
    def starting_caps(self) -> dict[str, int]:
        return {model: steps.at(0.0) for model, steps in self.rules.caps.items()}


def _campaigns(*models: str) -> list[tuple[str, int, str]]:
    return [
        (f"{name}/{model}", priority, model)
        for name, priority in (("low", 0), ("mid", 1), ("high", 2))
        for model in models
    ]


def _rules(rng: Random, caps: dict[str, Steps]) -> Rules:
    """Return the rules that every provider has: a lag, a penalty, sometimes a Retry-After."""
    return Rules(
        caps=caps,
        lag_mean=rng.uniform(0.5, 5.0),
        lag_is_long_tailed=rng.random() < 0.5,
        penalty_seconds=rng.uniform(20.0, 60.0),
        penalty_speed=rng.uniform(0.65, 0.85),
        refuses_after_429_seconds=rng.choice((0.0, 5.0)),
        retry_after=rng.choice((None, 5.0, 20.0)),
    )


def _load(rng: Random, *models: str) -> Load:
    return Load(_campaigns(*models), latency=rng.choice((0.0, 0.3, 1.5)))


def _still(*models: tuple[str, int]) -> dict[str, Steps]:
    return {model: Steps([(0.0, cap)]) for model, cap in models}


# -- the scenarios -------------------------------------------------------------------------------


def steady(rng: Random) -> Day:
    return Day(_rules(rng, _still(("opus-4-6", CAP))), _load(rng, "opus-4-6"), [])


def drift(rng: Random) -> Day:
    steps = _drift(rng, CAP)
    rules = _rules(rng, {"opus-4-6": Steps(steps)})
    return Day(rules, _load(rng, "opus-4-6"), _rises(steps, "opus-4-6"))


def _drift(rng: Random, cap: int) -> list[tuple[float, int]]:
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
    return steps


def _rises(steps: list[tuple[float, int]], model: str) -> list[tuple[float, str, str]]:
    marks = []
    for (_, before), (at, after) in pairwise(steps):
        if after != before:
            marks.append((at, "rise" if after > before else "drop", model))
    return marks


def window(rng: Random) -> Day:
    rules = _rules(rng, _still(("opus-4-6", CAP)))
    load = _load(rng, "opus-4-6")
    rules.windows = [_window(rng, "5h", 5 * HOURS, 0.6 * _demand(load, 5 * HOURS), wrong=0.0)]
    return Day(rules, load, [])


def _demand(load: Load, seconds: float, cap: int = CAP) -> float:
    return cap * seconds * load.tokens_per_second


def _window(
    rng: Random, name: str, length: float, budget: float, *, wrong: float, model: str | None = None
) -> QuotaWindow:
    """Return a window. `wrong` is the share of periods whose announced reset is early, late or senseless."""
    periods, start = [], -rng.uniform(0.0, 0.5) * length
    while start < DAY:
        announced: float | None = start + length
        assert announced is not None
        ends_at = announced
        if rng.random() < wrong:
            kind = rng.choice(("late", "early", "past", "far", "none"))
            if kind == "late":
                ends_at += rng.uniform(60.0, 1200.0)
            elif kind == "early":
                ends_at -= rng.uniform(600.0, 2400.0)
            else:
                announced = {"past": start, "far": ends_at + 6 * HOURS, "none": None}[kind]
        periods.append(Period(ends_at, announced))
        start = ends_at
    return QuotaWindow(name, budget, periods, model)


def rates(rng: Random) -> Day:
    rules = _rules(rng, _still(("opus-4-6", CAP)))
    load = _load(rng, "opus-4-6")
    seconds_of_burst = rng.choice((10.0, 30.0, 60.0))
    requests = 0.8 * CAP / _mean_turn(load)
    tokens = 0.8 * CAP * load.tokens_per_second
    rules.requests = Bucket(requests, requests * 60.0, requests * seconds_of_burst)
    rules.tokens = Bucket(tokens, tokens * 60.0, tokens * seconds_of_burst)
    return Day(rules, load, [])


def _mean_turn(load: Load) -> float:
    """Return the mean length of turns. They are cut at the unit's end, so it is shorter than drawn."""
    return 0.82 * load.turn_mean


def models(rng: Random) -> Day:
    return Day(_rules(rng, _still(("opus-4-6", 4), ("sonnet-4-5", 20))), _load(rng, "opus-4-6", "sonnet-4-5"), [])


def late(rng: Random) -> Day:
    """Return a day with windows that reopen late or announce a wrong reset, and a burst limit on starts."""
    rules = _rules(rng, _still(("opus-4-6", CAP)))
    load = _load(rng, "opus-4-6")
    rules.windows = [_window(rng, "5h", 5 * HOURS, 0.6 * _demand(load, 5 * HOURS), wrong=0.6)]
    rules.burst = (rng.choice((4, 6)), 10.0)
    return Day(rules, load, [])


def everything(rng: Random) -> Day:
    steps = _drift(rng, CAP)
    rules = _rules(rng, {"opus-4-6": Steps(steps), "sonnet-4-5": Steps([(0.0, CAP // 2)])})
    load = _load(rng, "opus-4-6", "sonnet-4-5")
    both = CAP + CAP // 2
    rules.windows = [
        _window(rng, "5h", 5 * HOURS, 0.8 * _demand(load, 5 * HOURS, both), wrong=0.4),
        _window(rng, "weekly", 7 * 24 * HOURS, 0.9 * _demand(load, 3 * 24 * HOURS), wrong=0.0, model="sonnet-4-5"),
    ]
    requests, tokens = 0.9 * both / _mean_turn(load), 0.9 * both * load.tokens_per_second
    rules.requests = Bucket(requests, requests * 60.0, requests * 30.0)
    rules.tokens = Bucket(tokens, tokens * 60.0, tokens * 30.0)
    rules.burst = (6, 10.0)
    rules.overloads = [(at, at + rng.uniform(60.0, 600.0)) for at in sorted(rng.uniform(0, DAY) for _ in range(4))]
    rules.foreign = Steps(
        [(0.0, 0), *((at, rng.randint(0, 3)) for at in sorted(rng.uniform(0, DAY) for _ in range(6)))]
    )
    return Day(rules, load, _rises(steps, "opus-4-6"))


SCENARIOS: dict[str, Callable[[Random], Day]] = {
    "steady": steady,
    "drift": drift,
    "window": window,
    "rates": rates,
    "models": models,
    "late": late,
    "everything": everything,
}


def day_of(scenario: str, seed: int) -> Day:
    """Return the day of a seed. Reopenings of windows are marked for every model they concern."""
    day = SCENARIOS[scenario](Random(f"{scenario}-{seed}"))
    for quota in day.rules.windows:
        for model in day.rules.caps:
            if quota.model in (None, model):
                day.marks += [(period.ends_at, "reopen", model) for period in quota.periods if 0 < period.ends_at < DAY]
    return day

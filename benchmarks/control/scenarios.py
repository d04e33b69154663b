"""The simulated days: seven scenarios, each on every family of providers.

The scenario says what there is (a drifting cap, a window, rates); the family says how its provider does it; the seed
draws the numbers. Seeds below `HELD_OUT` are for tuning; the others are for reporting only.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from benchmarks.control.families import FAMILIES, Amounts, Family
from benchmarks.control.fleet import Load, Mark
from benchmarks.control.levels import DAY, Steps, still
from benchmarks.control.provider import Provider, Rules

CAP = 24
HOURS = 3600.0
OPUS, SONNET = "opus-4-6", "sonnet-4-5"


@dataclass(slots=True)
class Day:
    """One seeded day: the provider, the load, and when capacity rises or a window reopens."""

    provider: Provider
    load: Load
    marks: list[Mark]
    starting_caps: dict[str, int]


@dataclass(slots=True)
class Draw:
    """The draws of one day. `chance` is what the provider itself draws from all day."""

    family: Family
    rng: Random
    chance: Random
    caps: dict[str, Steps] = field(default_factory=dict)

    def rules(self, caps: dict[str, Steps], strangers: Steps | None = None) -> Rules:
        self.caps = caps
        return self.family.rules(self.rng, self.chance, caps, strangers)

    def load(self) -> Load:
        return Load(_campaigns(*self.caps), latency=self.rng.choice((0.0, 0.3, 1.5)))


def _campaigns(*models: str) -> list[tuple[str, int, str]]:
    return [
        (f"{name}/{model}", priority, model)
        for name, priority in (("low", 0), ("mid", 1), ("high", 2))
        for model in models
    ]


# -- the scenarios -------------------------------------------------------------------------------


def steady(draw: Draw) -> tuple[Rules, Load]:
    return draw.rules({OPUS: still(CAP)}), draw.load()


def drift(draw: Draw) -> tuple[Rules, Load]:
    return draw.rules({OPUS: draw.family.drift(draw.rng, CAP)}), draw.load()


def window(draw: Draw) -> tuple[Rules, Load]:
    rules, load = steady(draw)
    rules.windows = [draw.family.window(draw.rng, "5h", 5 * HOURS, _budget(load, 0.6, 5 * HOURS), 0.0)]
    return rules, load


def _budget(load: Load, share: float, seconds: float, cap: int = CAP) -> Amounts:
    """Return a share of what a full fleet uses in that time, in tokens, in requests and in seconds of service."""
    work = share * cap * seconds
    return {"tokens": work * load.tokens_per_second, "requests": work / _mean_turn(load), "seconds": work}


def rates(draw: Draw) -> tuple[Rules, Load]:
    rules, load = steady(draw)
    _limit_rates(draw, rules, load, 0.8 * CAP, draw.rng.choice((10.0, 30.0, 60.0)))
    return rules, load


def _limit_rates(draw: Draw, rules: Rules, load: Load, sessions: float, burst_seconds: float) -> None:
    """Limit requests and tokens per minute to what that many sessions need."""
    rules.requests = draw.family.rate(draw.rng, sessions / _mean_turn(load), burst_seconds)
    rules.tokens = draw.family.rate(draw.rng, sessions * load.tokens_per_second, burst_seconds)


def _mean_turn(load: Load) -> float:
    """Return the mean length of turns. They are cut at the unit's end, so it is shorter than drawn."""
    return 0.82 * load.turn_mean


def models(draw: Draw) -> tuple[Rules, Load]:
    return draw.rules({OPUS: still(4), SONNET: still(20)}), draw.load()


def late(draw: Draw) -> tuple[Rules, Load]:
    """Return a day with windows that reopen late or announce a wrong reset, and a burst limit on starts."""
    rules, load = steady(draw)
    rules.windows = [draw.family.window(draw.rng, "5h", 5 * HOURS, _budget(load, 0.6, 5 * HOURS), 0.6)]
    rules.burst = (draw.rng.choice((4, 6)), 10.0)
    return rules, load


def everything(draw: Draw) -> tuple[Rules, Load]:
    family, rng = draw.family, draw.rng
    caps = {OPUS: family.drift(rng, CAP), SONNET: still(CAP // 2)}
    rules = draw.rules(caps, family.strangers(Random(rng.random())))
    load = draw.load()
    both = CAP + CAP // 2
    weekly = family.window(rng, "weekly", 7 * 24 * HOURS, _budget(load, 0.9, 3 * 24 * HOURS), 0.0)
    weekly.model = SONNET
    rules.windows = [family.window(rng, "5h", 5 * HOURS, _budget(load, 0.8, 5 * HOURS, both), 0.4), weekly]
    _limit_rates(draw, rules, load, 0.9 * both, 30.0)
    rules.burst = (6, 10.0)
    rules.overloads = [(at, at + rng.uniform(60.0, 600.0)) for at in sorted(rng.uniform(0, DAY) for _ in range(4))]
    return rules, load


SCENARIOS: dict[str, Callable[[Draw], tuple[Rules, Load]]] = {
    "steady": steady,
    "drift": drift,
    "window": window,
    "rates": rates,
    "models": models,
    "late": late,
    "everything": everything,
}


def day_of(family: str, scenario: str, seed: int) -> Day:
    """Return the day of a seed. Changes of the cap and reopenings are marked for every model they concern."""
    name = f"{scenario}-{seed}" if family == "classic" else f"{family}-{scenario}-{seed}"
    chance = Random(f"{seed}-provider")
    draw = Draw(FAMILIES[family], Random(name), chance)
    rules, load = SCENARIOS[scenario](draw)
    marks = [mark for model, steps in draw.caps.items() for mark in steps.marks(model)]
    for quota in rules.windows:
        concerned = [model for model in draw.caps if quota.model in (None, model)]
        marks += [(at, "reopen", model) for at in quota.reopenings() for model in concerned]
    return Day(Provider(rules, chance), load, marks, {model: steps.at(0.0) for model, steps in draw.caps.items()})

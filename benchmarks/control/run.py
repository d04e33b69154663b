"""One policy through one day, and the metrics of that day."""

import math
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

import msgspec

from benchmarks.control.answers import Readings
from benchmarks.control.fleet import Campaign, Fleet, Policy
from benchmarks.control.governed import Governed, Wiring
from benchmarks.control.levels import DAY
from benchmarks.control.oracle import Oracle
from benchmarks.control.policies import Backoff, CooldownAndRetry, MinusOne, Places
from benchmarks.control.provider import PublicReadings
from benchmarks.control.published_limits import AdaptiveConnections, Aimd, Gradient2, Vegas
from benchmarks.control.scenarios import day_of
from paceline.core import GovernorSettings

Maker = Callable[[dict[str, int], Readings | None, int], Policy]


class Task(NamedTuple):
    """One day of one policy."""

    family: str
    scenario: str
    seed: int
    policy: str
    informed: bool = False


class Figures(msgspec.Struct, frozen=True):
    """The result of one day. `waits` are p50 and p99 by priority."""

    work: float
    refused_per_1000: float
    wasted_seconds: float
    runs: int
    jain: float
    waits: dict[int, tuple[float, float]]
    full_after_rise: float | None
    full_after_reopening: float | None
    by_kind: dict[str, int]


def _scaled(caps: dict[str, int], factor: float) -> dict[str, int]:
    return {model: max(1, round(cap * factor)) for model, cap in caps.items()}


ORACLE = "oracle"
"""The one policy that gets the provider. All others get the configured limits and, on informed days, readings."""
LATE = "paceline, late reports"
"""The same, where an accepted start is reported at the end of its first turn, as the engine does."""
POLICIES: dict[str, Maker] = {
    "paceline": lambda caps, readings, seed: Governed(_scaled(caps, 2.0), readings, Wiring(), None),
    LATE: lambda caps, readings, seed: Governed(_scaled(caps, 2.0), readings, Wiring(reports_acceptance=False), None),
    "semaphore, exact": lambda caps, readings, seed: Places(caps),
    "semaphore, 25% over": lambda caps, readings, seed: Places(_scaled(caps, 1.25)),
    "semaphore, 50% under": lambda caps, readings, seed: Places(_scaled(caps, 0.5)),
    "minus one on 429": lambda caps, readings, seed: MinusOne(_scaled(caps, 2.0), readings),
    "min(platform, configured)": lambda caps, readings, seed: MinOfPlatform(_scaled(caps, 2.0), readings),
    "fixed caps per model": lambda caps, readings, seed: Places(_scaled(caps, 0.75)),
    "AIMD": lambda caps, readings, seed: Aimd(_scaled(caps, 2.0)),
    "Vegas": lambda caps, readings, seed: Vegas(_scaled(caps, 2.0)),
    "Gradient2": lambda caps, readings, seed: Gradient2(_scaled(caps, 2.0)),
    "inspect_ai": lambda caps, readings, seed: AdaptiveConnections(caps, seed),
    "cooldown and retry": lambda caps, readings, seed: CooldownAndRetry(_scaled(caps, 2.0)),
    "backoff, no limiter": lambda caps, readings, seed: Backoff(_scaled(caps, 2.0), seed),
}


class MinOfPlatform(Places):
    """A policy without learning: the smaller of the limit that the provider states and the configured limit."""

    def __init__(self, limits: dict[str, int], readings: Readings | None) -> None:
        super().__init__(limits)
        self.readings = readings

    def limit(self, model: str, now: float) -> float:
        configured = self.limits[model]
        return configured if self.readings is None else min(configured, self.readings.usage(model, now).limit)


def simulate(
    task: Task,
    *,
    wiring: Wiring | None = None,
    settings: GovernorSettings | None = None,
    until: float = DAY,
) -> Figures:
    """Run a day of a policy. `wiring` and `settings` vary how our Governor is used."""
    day = day_of(task.family, task.scenario, task.seed)
    fleet = Fleet(day.provider, day.load, task.seed, day.marks)
    caps = day.starting_caps
    readings = PublicReadings(day.provider) if task.informed else None
    chosen: Policy
    if task.policy == ORACLE:
        chosen = Oracle(day.provider)
    elif wiring is not None or settings is not None:
        chosen = Governed(_scaled(caps, 2.0), readings, wiring or Wiring(), settings)
    else:
        chosen = POLICIES[task.policy](caps, readings, task.seed)
    tally = fleet.run(chosen, until)
    rises = [seconds for kind, seconds in tally.full_again if kind == "rise"]
    reopenings = [seconds for kind, seconds in tally.full_again if kind == "reopen"]
    return Figures(
        work=tally.work,
        refused_per_1000=1000.0 * tally.refused / max(1, tally.runs),
        wasted_seconds=max(0.0, tally.occupied - tally.work),
        runs=tally.runs,
        jain=_jain(fleet.campaigns),
        waits=_waits(fleet.campaigns),
        full_after_rise=median(rises) if rises else None,
        full_after_reopening=median(reopenings) if reopenings else None,
        by_kind=dict(tally.refused_by_kind),
    )


def _jain(campaigns: list[Campaign]) -> float:
    """Return the fairness of slot-seconds by weight, per campaign over all its models."""
    shares: dict[str, float] = {}
    for campaign in campaigns:
        name = campaign.name.split("/")[0]
        shares[name] = shares.get(name, 0.0) + campaign.slot_seconds / 2.0**campaign.priority
    values = list(shares.values())
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 0.0


def _waits(campaigns: list[Campaign]) -> dict[int, tuple[float, float]]:
    by_priority: dict[int, list[float]] = {}
    for campaign in campaigns:
        by_priority.setdefault(campaign.priority, []).extend(campaign.waits)
    return {p: (_quantile(waits, 0.5), _quantile(waits, 0.99)) for p, waits in by_priority.items()}


def _quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.floor(share * len(ordered)))] if ordered else 0.0

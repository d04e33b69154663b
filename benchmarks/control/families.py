"""The families of providers. Each is code of its own; a seed draws the numbers.

Rules and constants may be tuned on the families in `TUNED`, on seeds below `HELD_OUT`. `UNSEEN` is never tuned on: it
is run to report only, and whoever changes a rule after seeing its figures has to replace it.
"""

from random import Random
from typing import Protocol

from benchmarks.control import levels
from benchmarks.control.allowances import (
    BookedWindow,
    Bucket,
    MinuteCount,
    QuotaWindow,
    Rate,
    RollingWindow,
    SlidingMinute,
    SlidingWindow,
    WeightedCount,
    Window,
    job_periods,
    log_normal,
    mixed_periods,
    moving_periods,
)
from benchmarks.control.answers import Cause
from benchmarks.control.counts import Census, FlightCount, Lag, Leases, SessionCount, SoftCount, Utilisation
from benchmarks.control.levels import Steps
from benchmarks.control.penalties import (
    Advice,
    EstimatedAdvice,
    FixedAdvice,
    HonestAdvice,
    JitteredAdvice,
    Lockout,
    NoAdvice,
    NoPenalty,
    Penalty,
    Slowdown,
    Strikes,
    WrongAdvice,
)
from benchmarks.control.provider import Rules
from benchmarks.control.replicas import Replicas

HELD_OUT = 1000
"""The first seed that is for reporting only."""
Amounts = dict[str, float]
"""A window's budget by meter: tokens, requests, seconds. All describe the same amount of work."""


class Family(Protocol):
    """A kind of provider. The scenarios ask it for parts; `chance` is what the provider itself draws from all day."""

    def rules(self, rng: Random, chance: Random, caps: dict[str, Steps], strangers: Steps | None) -> Rules: ...
    def drift(self, rng: Random, cap: int) -> Steps: ...
    def strangers(self, rng: Random) -> Steps: ...
    def rate(self, rng: Random, per_second: float, burst_seconds: float) -> Rate: ...
    def window(self, rng: Random, name: str, length: float, budget: Amounts, wrong: float) -> Window: ...


class Classic:
    """Sessions refused at their start, a slower service after each 429, token windows, refilling buckets.

    The lag is uniform or exponential, the cap jumps or walks, announced resets are right, late, early or senseless.
    """

    def rules(self, rng: Random, chance: Random, caps: dict[str, Steps], strangers: Steps | None) -> Rules:
        mean, is_long_tailed = rng.uniform(0.5, 5.0), rng.random() < 0.5
        penalty = Slowdown(rng.uniform(20.0, 60.0), rng.uniform(0.65, 0.85), rng.choice((0.0, 5.0)))
        advice = FixedAdvice(rng.choice((None, 5.0, 20.0)))

        def lag() -> float:
            return min(chance.expovariate(1 / mean), 5 * mean) if is_long_tailed else chance.uniform(0.0, 2 * mean)

        return Rules(SessionCount(caps, lag, strangers), penalty, advice, tuple(caps))

    def drift(self, rng: Random, cap: int) -> Steps:
        return levels.jumps_or_walk(rng, cap)

    def strangers(self, rng: Random) -> Steps:
        return levels.visits(rng, 3, 6)

    def rate(self, rng: Random, per_second: float, burst_seconds: float) -> Rate:
        return Bucket(per_second, per_second * 60.0, per_second * burst_seconds)

    def window(self, rng: Random, name: str, length: float, budget: Amounts, wrong: float) -> Window:
        return QuotaWindow(name, budget["tokens"], mixed_periods(rng, length, wrong))


class CensusFamily:
    """Sessions counted every few seconds, so that too many may be accepted and are refused mid-run; lock-outs.

    Retry-After tells the rest of the lock-out, a wrong number, or nothing. The cap has a few levels that last for
    hours. Windows are counted in requests and start with the first one; the announced reset is rounded. Rates are
    counted per full minute.
    """

    def rules(self, rng: Random, chance: Random, caps: dict[str, Steps], strangers: Steps | None) -> Rules:
        count = Census(caps, rng.uniform(2.0, 15.0), strangers)
        penalty = Lockout(rng.uniform(8.0, 45.0), turns_too=rng.random() < 0.3, renews=rng.random() < 0.3)
        advice: Advice = rng.choice((HonestAdvice(), NoAdvice(), WrongAdvice(chance, (1.0, 2.0, 120.0))))
        return Rules(count, penalty, advice, tuple(caps), cap_cause=rng.choice((None, "concurrency")))

    def drift(self, rng: Random, cap: int) -> Steps:
        return levels.stairs(rng, cap)

    def strangers(self, rng: Random) -> Steps:
        return levels.visits(rng, 4, 4)

    def rate(self, rng: Random, per_second: float, burst_seconds: float) -> Rate:
        return MinuteCount(per_second * 60.0)

    def window(self, rng: Random, name: str, length: float, budget: Amounts, wrong: float) -> Window:
        rounding = rng.choice((1800.0, 3600.0)) if rng.random() < wrong else 60.0
        return SlidingWindow(name, budget["requests"], length, rounding)


class LeaseFamily:
    """Leases that requests take and that expire after a fixed idle time; no penalty, and no refusal at a start.

    Retry-After is wrong or absent, half of the providers do not name a cause. The cap follows the time of day, and a
    stranger works on the account in shifts. Windows are counted in seconds of service, and their reset may move: at the
    announced time one whole window later is announced, although it reopens within minutes.
    """

    def rules(self, rng: Random, chance: Random, caps: dict[str, Steps], strangers: Steps | None) -> Rules:
        count = Leases(caps, rng.uniform(2.0, 12.0), strangers)
        advice: Advice = rng.choice((NoAdvice(), WrongAdvice(chance, (None, 1.0, 60.0, 300.0))))
        return Rules(count, NoPenalty(), advice, tuple(caps), names_rates=rng.random() < 0.5)

    def drift(self, rng: Random, cap: int) -> Steps:
        return levels.time_of_day(rng, cap)

    def strangers(self, rng: Random) -> Steps:
        return levels.shifts(rng, 6)

    def rate(self, rng: Random, per_second: float, burst_seconds: float) -> Rate:
        return Bucket(per_second, per_second * burst_seconds, per_second * burst_seconds)

    def window(self, rng: Random, name: str, length: float, budget: Amounts, wrong: float) -> Window:
        return QuotaWindow(name, budget["seconds"], moving_periods(rng, length, wrong), "seconds")


class SoftFamily:
    """A soft cap: above it, sessions are refused by chance and all get slower. The lag is log-normal.

    Retry-After is honest. The cap takes small steps every few minutes. Windows are counted in tokens.
    """

    def rules(self, rng: Random, chance: Random, caps: dict[str, Steps], strangers: Steps | None) -> Rules:
        count = SoftCount(caps, _log_normal_lag(rng, chance), rng.uniform(0.3, 2.0), chance)
        count.strangers = strangers or count.strangers
        penalty: Penalty = rng.choice((NoPenalty(), Slowdown(rng.uniform(5.0, 30.0), 0.9, 0.0)))
        return Rules(count, penalty, HonestAdvice(), tuple(caps), cap_cause=rng.choice((None, "concurrency")))

    def drift(self, rng: Random, cap: int) -> Steps:
        return levels.random_walk(rng, cap)

    def strangers(self, rng: Random) -> Steps:
        return levels.visits(rng, 5, 12)

    def rate(self, rng: Random, per_second: float, burst_seconds: float) -> Rate:
        return SlidingMinute(per_second * 60.0)

    def window(self, rng: Random, name: str, length: float, budget: Amounts, wrong: float) -> Window:
        return QuotaWindow(name, budget["tokens"], mixed_periods(rng, length, wrong))


class FlightFamily:
    """Requests in flight with a lag of their own, refused mid-run; everything is locked for about 30 s after a 429.

    No Retry-After. The cap is cut during incidents. Windows are counted in requests, and their reset is late or moves
    by one whole window.
    """

    def rules(self, rng: Random, chance: Random, caps: dict[str, Steps], strangers: Steps | None) -> Rules:
        count = FlightCount(caps, _log_normal_lag(rng, chance), strangers)
        penalty = Lockout(rng.uniform(25.0, 35.0), turns_too=True, renews=False)
        return Rules(count, penalty, NoAdvice(), tuple(caps))

    def drift(self, rng: Random, cap: int) -> Steps:
        return levels.incidents(rng, cap)

    def strangers(self, rng: Random) -> Steps:
        return levels.shifts(rng, 5)

    def rate(self, rng: Random, per_second: float, burst_seconds: float) -> Rate:
        return SlidingMinute(per_second * 60.0)

    def window(self, rng: Random, name: str, length: float, budget: Amounts, wrong: float) -> Window:
        return QuotaWindow(name, budget["requests"], moving_periods(rng, length, wrong), "requests")


class ReservedFamily:
    """Reserved throughput: a meter of service that the cap drains, so that a burst is paid back later, mid-run.

    Refusals are free unless they are many in one minute: then everything is locked. Retry-After is jittered. The cap is
    shared with others and breathes. Windows are counted in tokens and roll: they return slice by slice. Rates are sums
    over less than a minute.
    """

    def rules(self, rng: Random, chance: Random, caps: dict[str, Steps], strangers: Steps | None) -> Rules:
        count = Utilisation(caps, rng.uniform(15.0, 35.0), rng.uniform(40.0, 90.0), strangers)
        penalty = Strikes(rng.randint(8, 20), rng.uniform(20.0, 60.0))
        advice = JitteredAdvice(chance, rng.uniform(2.0, 10.0))
        return Rules(count, penalty, advice, tuple(caps), names_rates=rng.random() < 0.5)

    def drift(self, rng: Random, cap: int) -> Steps:
        return levels.breathing(rng, cap)

    def strangers(self, rng: Random) -> Steps:
        return levels.visits(rng, 4, 8)

    def rate(self, rng: Random, per_second: float, burst_seconds: float) -> Rate:
        seconds = rng.uniform(20.0, 45.0)
        return SlidingMinute(per_second * seconds, seconds)

    def window(self, rng: Random, name: str, length: float, budget: Amounts, wrong: float) -> Window:
        slice_seconds = rng.choice((900.0, 1800.0, 3600.0))
        return RollingWindow(name, budget["tokens"], length, slice_seconds, announces_last=rng.random() < wrong)


class ReplicaFamily:
    """Replicas behind a router: requests in flight on each, and one that refuses is left out for some seconds.

    Retry-After is an estimate. The cap changes by whole replicas. Windows are budgets in tokens: use is booked in
    batches, and a job that runs now and then resets them. Rates weigh the count of the last minute. Other teams run
    jobs at fixed intervals. This family is never tuned on.
    """

    def rules(self, rng: Random, chance: Random, caps: dict[str, Steps], strangers: Steps | None) -> Rules:
        count = Replicas(caps, rng.choice((3, 4, 6)), rng.randint(1, 4), rng.uniform(5.0, 30.0), strangers)
        advice = EstimatedAdvice(chance, rng.uniform(2.0, 12.0), rng.uniform(0.3, 0.8))
        cause: Cause | None = rng.choice((None, "concurrency"))
        return Rules(count, NoPenalty(), advice, tuple(caps), cap_cause=cause, names_rates=rng.random() < 0.7)

    def drift(self, rng: Random, cap: int) -> Steps:
        return levels.scaling(rng, cap)

    def strangers(self, rng: Random) -> Steps:
        return levels.jobs(rng, 6)

    def rate(self, rng: Random, per_second: float, burst_seconds: float) -> Rate:
        seconds = rng.choice((30.0, 60.0))
        return WeightedCount(per_second * seconds, seconds)

    def window(self, rng: Random, name: str, length: float, budget: Amounts, wrong: float) -> Window:
        every = rng.uniform(10.0, 60.0)
        return BookedWindow(name, budget["tokens"], job_periods(rng, length, wrong), every=every)


def _log_normal_lag(rng: Random, chance: Random) -> Lag:
    mean, sigma = rng.uniform(0.5, 4.0), rng.uniform(0.3, 1.0)
    return lambda: log_normal(chance, mean, sigma)


FAMILIES: dict[str, Family] = {
    "classic": Classic(),
    "census": CensusFamily(),
    "leases": LeaseFamily(),
    "soft": SoftFamily(),
    "flights": FlightFamily(),
    "reserved": ReservedFamily(),
    "replicas": ReplicaFamily(),
}
UNSEEN = "replicas"
TUNED = tuple(name for name in FAMILIES if name != UNSEEN)

"""The forecast of one campaign: several simulated runs that differ in seed, pool size, strategy or reserve.

Here: which runs answer which question. Never here: what happens in a run (`simulator`), or how it is printed.
"""

import asyncio
import math
from collections.abc import Iterable

import msgspec

from paceline.core.values.scopes import SESSIONS
from paceline.engine.capacity.governor_state import OfflineState
from paceline.engine.commands import find_campaign
from paceline.engine.settings import EngineSettings
from paceline.errors import InvalidInput
from paceline.forecast.basis import Basis, BasisReader, read_history, usable_accounts
from paceline.forecast.simulator import Closing, ForecastOutcome, Simulation, WindowSize, Work
from paceline.store import Campaign, Store

SEEDS = (1, 2, 3)
"""Runs with different orders of the units: enough for an earliest, a middle and a latest end."""
POOL_SIZES = (1, 2, 4, 8, 16, 32, 64)
"""Doubling finds the size that is worth it in few runs."""
WORTH_IT = 0.05
"""A pool size is worth it if no larger one finishes sooner by more than this ratio."""
RESERVE = 0.2
"""The reserve of the alternative run: what a person who works next to the fleet would keep."""
MOST_UNITS = 20_000
"""A simulation of more units takes minutes."""
MOST_SESSIONS = 400
"""Above this many units several are simulated as one session; the order of units hardly matters then."""
FEWEST_IN_A_SLOT = 16
"""Sessions for each slot of the pool that bundling keeps, so that the slots still end at about the same time."""
FEWEST_IN_A_WINDOW = 20
"""A bundle is at most this fraction of the shortest window, so that bundles close a window when units would."""
MOST_CLOSINGS = 8
"""Later closings of windows are left out of the forecast: they repeat the pattern."""


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """When a campaign will finish and park, and what other pool sizes, spreading or a reserve would change."""

    campaign: str
    now: float
    basis: Basis
    finished_at: float | None
    earliest: float | None
    latest: float | None
    parks: int
    closings: tuple[Closing, ...]
    pool: int | None
    pools: dict[str, ForecastOutcome]
    pool_worth_it: int | None
    spread: ForecastOutcome
    reserve: ForecastOutcome
    deadline: float | None = None
    lost_tokens: int | None = None
    """An estimate of the context that parks make it pay again: None where no size of a conversation is known."""
    took: float | None = None
    """Seconds that a replayed campaign really took."""


def forecast_plan(store: Store, settings: EngineSettings, campaign: Campaign, units: int, *, now: float) -> Forecast:
    """Return the forecast for a campaign with so many units left, next to the stored campaigns."""
    _check_size(units)
    state = OfflineState(store, settings, now, extra=[campaign])
    reader = BasisReader(store, settings.campaign_accounts, state.governor, now)
    basis, work = reader.of_plan(campaign, units)
    return _Runs([work, *reader.other_works(campaign)], basis, state, settings, now).forecast()


def forecast_replay(store: Store, settings: EngineSettings, name: str, *, now: float) -> Forecast:
    """Return the forecast for a campaign that has run, with the present settings and no other campaign."""
    campaign = _replayed_campaign(store, settings, name)
    past = read_history(store, campaign=name).units
    if not past:
        raise InvalidInput(f"no unit of {name} is done, so there is nothing to replay")
    _check_size(len(past))
    state = OfflineState(store, settings, now, extra=[campaign])
    basis, work = BasisReader(store, settings.campaign_accounts, state.governor, now).of_replay(campaign, past)
    forecast = _Runs([work], basis, state, settings, now).forecast()
    took = max(unit.ended_at for unit in past) - min(unit.began_at for unit in past)
    return msgspec.structs.replace(forecast, took=took)


def _replayed_campaign(store: Store, settings: EngineSettings, name: str) -> Campaign:
    campaign = find_campaign(store, name)
    accounts = tuple(account.id for account in usable_accounts(settings.campaign_accounts, campaign))
    if campaign.accounts and not accounts:
        raise InvalidInput(
            f"{name} runs on {', '.join(campaign.accounts)}, which the settings do not have: "
            f"add [accounts.{campaign.accounts[0]}] to paceline.toml"
        )
    return msgspec.structs.replace(campaign, state="active", deadline=None, accounts=accounts)


def _check_size(units: int) -> None:
    if units > MOST_UNITS:
        raise InvalidInput(f"{units:,} units are too many to simulate; forecast takes up to {MOST_UNITS:,}")


class _Runs:
    """Simulated runs of the same work that differ in one setting. The first work is the campaign in question."""

    def __init__(
        self, works: list[Work], basis: Basis, state: OfflineState, settings: EngineSettings, now: float
    ) -> None:
        self._work, *self._others = works
        self._basis = basis
        self._snapshot = state.governor.snapshot()
        self._pool = state.governor.get_limit(SESSIONS)
        self._settings = settings
        self._now = now

    def forecast(self) -> Forecast:
        is_large = self._basis.units > MOST_SESSIONS
        runs = [self._run(seed=seed) for seed in (SEEDS[:1] if is_large else SEEDS)]
        (first, closings), *_ = runs
        ends = sorted(run.finished_at for run, _ in runs if run.finished_at is not None)
        pools = self._compare_pools(first)
        return Forecast(
            campaign=self._work.campaign.name,
            now=self._now,
            basis=self._basis,
            finished_at=ends[len(runs) // 2] if len(ends) > len(runs) // 2 else None,  # the median of all runs
            earliest=ends[0] if ends else None,
            latest=ends[-1] if len(ends) == len(runs) else None,
            parks=first.parks,
            closings=closings[:MOST_CLOSINGS],
            pool=self._pool,
            pools=pools,
            pool_worth_it=_pool_worth_it(pools, self._now),
            spread=self._run(strategy="spread")[0],
            reserve=self._run(reserve=RESERVE)[0],
            deadline=self._work.campaign.deadline,
            lost_tokens=None if self._basis.context_tokens is None else first.parks * self._basis.context_tokens,
        )

    def _compare_pools(self, present: ForecastOutcome) -> dict[str, ForecastOutcome]:
        """Run with larger and larger pools, until doubling the size changes nothing."""
        outcomes: dict[int, ForecastOutcome] = {}
        for size in self._pool_sizes():
            outcomes[size] = present if size == self._pool else self._run(pool=size)[0]
            half, whole = outcomes.get(size // 2), outcomes[size]
            is_same = half is not None and (half.finished_at, half.parks) == (whole.finished_at, whole.parks)
            if size >= (self._pool or 0) and is_same:
                break
        return {str(size): outcome for size, outcome in outcomes.items()}

    def _pool_sizes(self) -> list[int]:
        """Return the sizes to compare, up to one at which nothing more could run at once."""
        most = max(1, self._basis.units + sum(len(work.seconds) for work in self._others))
        sizes = {size for size in POOL_SIZES if size < most} | {min(most, POOL_SIZES[-1])}
        return sorted(sizes | ({self._pool} if self._pool is not None else set()))

    def _run(
        self,
        *,
        seed: int = SEEDS[0],
        pool: int | None = None,
        strategy: str | None = None,
        reserve: float | None = None,
    ) -> tuple[ForecastOutcome, tuple[Closing, ...]]:
        work, settings = self._work, self._settings
        if strategy is not None:
            work = msgspec.structs.replace(work, campaign=msgspec.structs.replace(work.campaign, strategy=strategy))
        if reserve is not None:
            reserves = {account.scope: reserve for account in settings.campaign_accounts}
            settings = msgspec.structs.replace(
                settings, governor=msgspec.structs.replace(settings.governor, reserves=reserves)
            )
        pool = self._pool if pool is None else pool
        windows = [window for each in self._basis.windows.values() for window in each]
        simulation = Simulation(
            [_bundled(each, pool, windows) for each in (work, *self._others)],
            settings=settings,
            snapshot=self._snapshot,
            windows=self._basis.windows,
            pool=pool,
            now=self._now,
            seed=seed,
        )
        return asyncio.run(simulation.run(work.campaign.name))


def _bundled(work: Work, pool: int | None, windows: Iterable[WindowSize]) -> Work:
    """Join units of a very large plan into longer sessions, as far as that does not change the result.

    Each slot of the pool keeps many sessions, and each session stays short compared with every window.
    """
    if pool is None or not work.seconds:
        return work
    durations = work.seconds
    longest = min((window.length for window in windows), default=math.inf) / FEWEST_IN_A_WINDOW
    count = max(MOST_SESSIONS, FEWEST_IN_A_SLOT * pool, math.ceil(sum(durations) / longest))
    bundles = tuple(sum(durations[n::count]) for n in range(min(count, len(durations))))
    beside = work.beside_seconds * len(durations) / len(bundles)
    return msgspec.structs.replace(work, seconds=bundles, beside_seconds=beside)


def _pool_worth_it(pools: dict[str, ForecastOutcome], now: float) -> int | None:
    took = {int(size): each.finished_at - now for size, each in pools.items() if each.finished_at is not None}
    best = min(took.values(), default=0.0)
    return next((size for size in sorted(took) if took[size] <= best * (1 + WORTH_IT)), None)

"""`forecast PLAN`: when it will finish, when it will park, which pool is worth it, what spreading would change."""

import asyncio
import time
from pathlib import Path

import msgspec

from paceline.cli.adding import read_checked_plan
from paceline.cli.forecast.history import History, read_history
from paceline.cli.forecast.simulate import Future, Simulation, WindowSize, Work
from paceline.cli.names import every_unit
from paceline.cli.outlook import Outlook
from paceline.cli.printing import print_table, print_value, say, table
from paceline.cli.wiring import Home, engine_settings
from paceline.cli.words import absolute, relative
from paceline.core.scopes import SESSIONS, canonical_scope
from paceline.engine.looking import find_campaign
from paceline.errors import InvalidInput
from paceline.store import Campaign

ASSUMED_SECONDS = 600.0
SEEDS = (1, 2, 3)
POOLS = (1, 2, 4, 8, 16, 32, 64)
WORTH_IT = 0.05
"""A pool is worth its size if no larger one is done this much sooner."""
RESERVE = 0.2
MOST_UNITS = 20_000
MOST_CLOSINGS = 8


class Basis(msgspec.Struct, frozen=True, kw_only=True):
    """What the forecast rests on."""

    units: int
    unit_seconds: float
    tries_known: int
    known_from: str
    windows: dict[str, WindowSize]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One way to run it."""

    finished_at: float | None
    parks: int
    busy: float


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    campaign: str
    now: float
    basis: Basis
    finished_at: float | None
    earliest: float | None
    latest: float | None
    parks: int
    closings: tuple[tuple[str, float, float | None], ...]
    pool: int | None
    pools: dict[str, Outcome]
    pool_worth_it: int | None
    spread: Outcome
    reserve: Outcome
    took: float | None = None
    """How long it really took, where a past run is replayed."""


class Forecaster:
    """Plays one campaign, beside those that are stored, as often as there are questions."""

    def __init__(self, home: Home, campaign: Campaign, units: int, *, now: float, replay: bool) -> None:
        self._home = home
        self._now = now
        self._campaign = campaign
        self._settings = engine_settings(home.settings, home.zone)
        self._history = read_history(home.store, campaign=campaign.name if replay else None)
        self._outlook = Outlook(home, now, extra=[campaign])
        self.pool = self._outlook.governor.get_limit(SESSIONS)
        self.basis, self._durations = self._read_basis(units, replay=replay)
        self._others = [] if replay else self._other_works()

    def forecast(self) -> Forecast:
        futures = [self._play(seed=seed) for seed in SEEDS]
        ends = sorted(future.finished_at for future in futures if future.finished_at is not None)
        pools = {str(size): _outcome(self._play(pool=size)) for size in self._pools()}
        return Forecast(
            campaign=self._campaign.name,
            now=self._now,
            basis=self.basis,
            finished_at=ends[len(ends) // 2] if ends else None,
            earliest=ends[0] if ends else None,
            latest=ends[-1] if len(ends) == len(futures) else None,
            parks=futures[0].parks,
            closings=futures[0].closings[:MOST_CLOSINGS],
            pool=self.pool,
            pools=pools,
            pool_worth_it=_worth_it(pools, self._now),
            spread=_outcome(self._play(strategy="spread")),
            reserve=_outcome(self._play(reserve=RESERVE)),
        )

    def _pools(self) -> list[int]:
        """Up to a size at which nothing more could run."""
        most = self.basis.units + sum(len(work.seconds) for work in self._others)
        sizes = {size for size in POOLS if size < most} | {min(most, POOLS[-1])}
        return sorted(sizes | ({self.pool} if self.pool is not None else set()))

    def _play(
        self,
        *,
        seed: int = SEEDS[0],
        pool: int | None = None,
        strategy: str | None = None,
        reserve: float | None = None,
    ) -> Future:
        campaign, settings = self._campaign, self._settings
        if strategy is not None:
            campaign = msgspec.structs.replace(campaign, strategy=strategy)
        if reserve is not None:
            reserves = {f"{account.provider}/{account.name}": reserve for account in settings.accounts.values()}
            settings = msgspec.structs.replace(
                settings, governor=msgspec.structs.replace(settings.governor, reserves=reserves)
            )
        simulation = Simulation(
            [Work(campaign=campaign, seconds=self._durations), *self._others],
            settings=settings,
            snapshot=self._outlook.governor.snapshot(),
            windows=self.basis.windows,
            pool=self.pool if pool is None else pool,
            now=self._now,
            seed=seed,
        )
        return asyncio.run(simulation.run(campaign.name))

    def _read_basis(self, units: int, *, replay: bool) -> tuple[Basis, tuple[float, ...]]:
        known, where = self._known(self._campaign, self._history)
        durations = known if replay else _drawn(known, units)
        basis = Basis(
            units=len(durations),
            unit_seconds=sum(durations) / max(1, len(durations)),
            tries_known=len(known),
            known_from=where,
            windows=self._windows(),
        )
        return basis, durations

    def _known(self, campaign: Campaign, history: History) -> tuple[tuple[float, ...], str]:
        accounts = [self._home.settings.accounts[name] for name in campaign.accounts]
        paths = tuple(canonical_scope("/".join(filter(None, (each.scope, campaign.model)))) for each in accounts)
        return history.durations(paths or (f"agent:{campaign.agent}",))

    def _windows(self) -> dict[str, WindowSize]:
        whole = read_history(self._home.store)
        sizes: dict[str, WindowSize] = {}
        for account in self._home.settings.accounts.values():
            if (learnt := self._learnt_window(account.scope)) is not None:
                sizes[account.name] = learnt
            elif (window := whole.window(account.scope)) is not None:
                sizes[account.name] = WindowSize(
                    name=window.name, session_seconds=window.session_seconds, length=window.length
                )
        return sizes

    def _learnt_window(self, scope: str) -> WindowSize | None:
        """The tightest of those that the Governor paces by: it counts sessions to the second, also those that run."""
        status = self._outlook.governor.status(scope, now=self._now)
        learnt = [
            WindowSize(name=window.name, session_seconds=window.holds_seconds, length=window.length)
            for window in (status.windows if status is not None else ())
            if window.holds_seconds is not None and window.length is not None
        ]
        return min(learnt, key=lambda size: size.session_seconds / size.length, default=None)

    def _other_works(self) -> list[Work]:
        """What is stored and still to do competes for the same pool."""
        works = []
        counts = self._home.store.counts()
        for campaign in self._home.store.campaigns():
            left = counts[campaign.name].todo + counts[campaign.name].running if campaign.name in counts else 0
            if campaign.name != self._campaign.name and campaign.state == "active" and left:
                known, _ = self._known(campaign, self._history)
                works.append(Work(campaign=campaign, seconds=_drawn(known, left)))
        return works


def _drawn(known: tuple[float, ...], units: int) -> tuple[float, ...]:
    """As those that are known, over and over."""
    return tuple(known[n % len(known)] if known else ASSUMED_SECONDS for n in range(units))


def _outcome(future: Future) -> Outcome:
    return Outcome(finished_at=future.finished_at, parks=future.parks, busy=round(future.busy, 3))


def _worth_it(pools: dict[str, Outcome], now: float) -> int | None:
    took = {int(size): each.finished_at - now for size, each in pools.items() if each.finished_at is not None}
    best = min(took.values(), default=0.0)
    return next((size for size in sorted(took) if took[size] <= best * (1 + WORTH_IT)), None)


# -- the command ---------------------------------------------------------------------------------------


def show_forecast(home: Home, plan: Path | None, *, replay: str | None, as_json: bool) -> None:
    if (plan is None) == (replay is None):
        raise InvalidInput("name a plan, or a campaign that has run with --replay CAMPAIGN")
    now = time.time()
    forecast = _forecast_plan(home, plan, now) if plan is not None else _replay(home, str(replay), now)
    if as_json:
        print_value(forecast)
        return
    _say(forecast, home)


def _forecast_plan(home: Home, path: Path, now: float) -> Forecast:
    plan = read_checked_plan(home, path)
    finished = _finished_units(home, plan.campaign.name)
    units = sum(spec.id not in finished for spec in plan.units)
    _check_size(units)
    return Forecaster(home, plan.campaign, units, now=now, replay=False).forecast()


def _replay(home: Home, name: str, now: float) -> Forecast:
    campaign = msgspec.structs.replace(find_campaign(home.store, name), state="active", deadline=None)
    known = read_history(home.store, campaign=name).units
    if not known:
        raise InvalidInput(f"no unit of {name} is done, so there is nothing to replay")
    _check_size(len(known))
    forecast = Forecaster(home, campaign, len(known), now=now, replay=True).forecast()
    began = min(unit.ended_at - unit.seconds for unit in known)
    return msgspec.structs.replace(forecast, took=max(unit.ended_at for unit in known) - began)


def _finished_units(home: Home, name: str) -> set[str]:
    if all(campaign.name != name for campaign in home.store.campaigns()):
        return set()
    units = every_unit(home.store, name, most=1 << 60)
    return {unit.spec.id for unit in units if unit.state not in ("todo", "running")}


def _check_size(units: int) -> None:
    if units > MOST_UNITS:
        raise InvalidInput(f"{units:,} units are too many to play through; forecast takes up to {MOST_UNITS:,}")


def _say(forecast: Forecast, home: Home) -> None:
    basis, now = forecast.basis, forecast.now
    known = f"from {basis.tries_known} of {basis.known_from}" if basis.tries_known else "assumed: nothing has run yet"
    say(f"{forecast.campaign}: {basis.units} units, about {_span(basis.unit_seconds)} each ({known})", style="bold")
    for name, window in basis.windows.items():
        held = f"{_span(window.session_seconds)} of sessions in {_span(window.length)}"
        say(f"  the {window.name} window of {name} held {held}, as last seen")
    if not basis.windows:
        say("  no quota window is known: it is played as if there were none", style="dim")
    say(f"  done {_when(forecast.finished_at, now, home)}{_range(forecast, home)}")
    if forecast.took is not None:
        say(f"  it really took {_span(forecast.took)}")
    for scope, closes_at, resets_at in forecast.closings:
        until = f" until {absolute(resets_at, home.zone)}" if resets_at is not None else ""
        say(f"  parks: {scope} {relative(closes_at - now)}{until}")
    _say_pools(forecast)
    for name, outcome in (("spread", forecast.spread), (f"reserve = {RESERVE}", forecast.reserve)):
        say(f"  with {name}: done {_when(outcome.finished_at, now, home)}, {outcome.parks} parks")


def _say_pools(forecast: Forecast) -> None:
    made = table("pool", "done in", "busy", "parks", "", right=("pool", "busy", "parks"))
    for size, outcome in forecast.pools.items():
        notes = ["now"] if size == str(forecast.pool) else []
        notes += ["worth it"] if size == str(forecast.pool_worth_it) else []
        took = "never" if outcome.finished_at is None else _span(outcome.finished_at - forecast.now)
        made.add_row(size, took, f"{outcome.busy:.0%}", str(outcome.parks), ", ".join(notes))
    print_table(made)


def _range(forecast: Forecast, home: Home) -> str:
    if forecast.earliest is None or forecast.latest is None or forecast.latest - forecast.earliest < 60.0:
        return ""
    return f", between {absolute(forecast.earliest, home.zone)} and {absolute(forecast.latest, home.zone)}"


def _when(at: float | None, now: float, home: Home) -> str:
    return "not within two months" if at is None else f"about {absolute(at, home.zone)}, {relative(at - now)}"


def _span(seconds: float) -> str:
    return relative(seconds).removeprefix("in ")

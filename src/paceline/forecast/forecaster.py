"""`forecast PLAN`: when it will finish, when it will park, which pool is worth it, what spreading would change."""

import asyncio
import math
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from paceline.cli.commands.add import read_checked_plan
from paceline.cli.output import print_table, print_value, say, table
from paceline.cli.signal_text import absolute, relative
from paceline.cli.unit_lookup import every_unit
from paceline.cli.wiring import Home, engine_settings
from paceline.core.values.scopes import SESSIONS, canonical_scope
from paceline.core.values.status import WindowStatus
from paceline.engine.campaign_lookup import find_campaign
from paceline.errors import InvalidInput
from paceline.forecast.history import History, WindowHistory, read_history
from paceline.forecast.simulator import Closing, Future, Simulation, WindowSize, Work
from paceline.store import Campaign

ASSUMED_SECONDS = 600.0
SEEDS = (1, 2, 3)
POOLS = (1, 2, 4, 8, 16, 32, 64)
WORTH_IT = 0.05
"""A pool is worth its size if no larger one is done this much sooner."""
RESERVE = 0.2
MOST_UNITS = 20_000
MOST_SESSIONS = 400
FEWEST_IN_A_PLACE = 16
FEWEST_IN_A_WINDOW = 20
MOST_CLOSINGS = 8


class Basis(msgspec.Struct, frozen=True, kw_only=True):
    """What the forecast rests on."""

    units: int
    unit_seconds: float
    tries_known: int
    known_from: str
    windows: dict[str, tuple[WindowSize, ...]]


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
    closings: tuple[Closing, ...]
    pool: int | None
    pools: dict[str, Outcome]
    pool_worth_it: int | None
    spread: Outcome
    reserve: Outcome
    deadline: float | None = None
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
        self._offline = home.offline_state(now, extra=[campaign])
        self.pool = self._offline.governor.get_limit(SESSIONS)
        self.basis, self._durations = self._read_basis(units, replay=replay)
        self._others = [] if replay else self._other_works()

    def forecast(self) -> Forecast:
        is_large = self.basis.units > MOST_SESSIONS  # then the order of its units hardly matters
        futures = [self._play(seed=seed) for seed in (SEEDS[:1] if is_large else SEEDS)]
        ends = sorted(future.finished_at for future in futures if future.finished_at is not None)
        pools = self._play_pools(futures[0])
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
            deadline=self._campaign.deadline,
        )

    def _play_pools(self, present: Future) -> dict[str, Outcome]:
        """From small to large, until twice the size changes nothing any more."""
        outcomes: dict[int, Outcome] = {}
        for size in self._pools():
            outcomes[size] = _outcome(present if size == self.pool else self._play(pool=size))
            half = outcomes.get(size // 2)
            if size >= (self.pool or 0) and half is not None and _is_same(half, outcomes[size]):
                break
        return {str(size): outcome for size, outcome in outcomes.items()}

    def _pools(self) -> list[int]:
        """Up to a size at which nothing more could run."""
        most = max(1, self.basis.units + sum(len(work.seconds) for work in self._others))
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
        places = self.pool if pool is None else pool
        windows = [window for each in self.basis.windows.values() for window in each]
        works = [Work(campaign=campaign, seconds=self._durations), *self._others]
        simulation = Simulation(
            [msgspec.structs.replace(work, seconds=_bundled(work.seconds, places, windows)) for work in works],
            settings=settings,
            snapshot=self._offline.governor.snapshot(),
            windows=self.basis.windows,
            pool=places,
            now=self._now,
            seed=seed,
        )
        return asyncio.run(simulation.run(campaign.name))

    def _read_basis(self, units: int, *, replay: bool) -> tuple[Basis, tuple[float, ...]]:
        known, where = self._known(self._campaign, self._history)
        if replay:  # all of them, wherever they ran
            known, where = tuple(unit.seconds for unit in self._history.units), f"campaign {self._campaign.name}"
        durations = known if replay else _drawn(known, units, _assumed(self._campaign))
        basis = Basis(
            units=len(durations),
            unit_seconds=sum(durations) / max(1, len(durations)),
            tries_known=len(known),
            known_from=where,
            windows=self._windows(),
        )
        return basis, durations

    def _known(self, campaign: Campaign, history: History) -> tuple[tuple[float, ...], str]:
        accounts = [self._home.settings.accounts[name] for name in _accounts_left(self._home, campaign)]
        paths = tuple(canonical_scope("/".join(filter(None, (each.scope, campaign.model)))) for each in accounts)
        return history.durations(paths or (f"agent:{campaign.agent}",))

    def _windows(self) -> dict[str, tuple[WindowSize, ...]]:
        """Of each account those that the Governor paces by, which it counts to the second; else as events tell."""
        whole = read_history(self._home.store)
        sizes: dict[str, tuple[WindowSize, ...]] = {}
        for account in self._home.settings.accounts.values():
            status = self._offline.governor.status(account.scope, now=self._now)
            known = {window.name: window for window in (status.windows if status is not None else ())}
            seen = whole.windows_of(account.scope)
            found = {each.name: _seen(each, known.get(each.name), self._now) for each in seen}
            found |= {name: size for name, window in known.items() if (size := _learnt(window, self._now)) is not None}
            if found:
                sizes[account.name] = tuple(sorted(found.values(), key=lambda size: size.length))
        return sizes

    def _other_works(self) -> list[Work]:
        """What is stored and still to do competes for the same pool."""
        works = []
        counts = self._home.store.counts()
        for campaign in self._home.store.campaigns():
            left = counts[campaign.name].todo + counts[campaign.name].running if campaign.name in counts else 0
            can_run = campaign.state == "active" and (not campaign.accounts or _accounts_left(self._home, campaign))
            if campaign.name != self._campaign.name and can_run and left:
                known, _ = self._known(campaign, self._history)
                works.append(Work(campaign=campaign, seconds=_drawn(known, left, _assumed(campaign))))
        return works


def _accounts_left(home: Home, campaign: Campaign) -> tuple[str, ...]:
    """Those of its accounts that the settings of now still have."""
    return tuple(name for name in campaign.accounts if name in home.settings.accounts)


def _learnt(window: WindowStatus, now: float) -> WindowSize | None:
    if window.holds_seconds is None or window.length is None:
        return None
    size = WindowSize(name=window.name, session_seconds=window.holds_seconds, length=window.length)
    return _with_use(size, window, now)


def _seen(history: WindowHistory, window: WindowStatus | None, now: float) -> WindowSize:
    size = WindowSize(name=history.name, session_seconds=history.session_seconds, length=history.length)
    return size if window is None else _with_use(size, window, now)


def _with_use(size: WindowSize, window: WindowStatus, now: float) -> WindowSize:
    """What is used of the period that is open, where its end is known."""
    resets_at = window.resets_at if window.expected_reset is None else window.expected_reset
    used = 1.0 if window.state == "closed" else min(1.0, window.best_ratio or 0.0)
    if resets_at is None or resets_at <= now:
        return size
    return msgspec.structs.replace(size, used_seconds=used * size.session_seconds, resets_at=resets_at)


def _drawn(known: tuple[float, ...], units: int, assumed: float) -> tuple[float, ...]:
    """As those that are known, over and over."""
    return tuple(known[n % len(known)] if known else assumed for n in range(units))


def _assumed(campaign: Campaign) -> float:
    """Of a campaign with a timeout: no longer than it may take."""
    return ASSUMED_SECONDS if campaign.timeout is None else min(ASSUMED_SECONDS, campaign.timeout)


def _bundled(durations: tuple[float, ...], pool: int | None, windows: Iterable[WindowSize]) -> tuple[float, ...]:
    """Of a plan with very many units several are played as one session, as long as it makes no difference: there are
    many sessions for each place in the pool, and each is short beside every window."""
    if pool is None:
        return durations
    longest = min((window.length for window in windows), default=math.inf) / FEWEST_IN_A_WINDOW
    count = max(MOST_SESSIONS, FEWEST_IN_A_PLACE * pool, math.ceil(sum(durations) / longest))
    return tuple(sum(durations[n::count]) for n in range(min(count, len(durations))))


def _outcome(future: Future) -> Outcome:
    return Outcome(finished_at=future.finished_at, parks=future.parks, busy=round(future.busy, 3))


def _is_same(one: Outcome, other: Outcome) -> bool:
    return (one.finished_at, one.parks) == (other.finished_at, other.parks)


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
    accounts = _accounts_left(home, campaign)
    if campaign.accounts and not accounts:
        gone = ", ".join(campaign.accounts)
        raise InvalidInput(
            f"{name} runs on {gone}, which the settings do not have: "
            f"add [accounts.{campaign.accounts[0]}] to paceline.toml"
        )
    campaign = msgspec.structs.replace(campaign, accounts=accounts)
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
    if not basis.units:
        say(f"{forecast.campaign}: every unit is finished; nothing is left to forecast")
        return
    known = f"from {basis.tries_known} of {basis.known_from}" if basis.tries_known else "assumed: nothing has run yet"
    say(
        f"{forecast.campaign}: {_count(basis.units, 'unit')}, about {_span(basis.unit_seconds)} each ({known})",
        style="bold",
    )
    states = {campaign.name: campaign.state for campaign in home.store.campaigns()}
    if forecast.took is None and states.get(forecast.campaign) == "paused":
        say(f"  it is paused: this is how it goes once you say paceline resume {forecast.campaign}")
    for name, window in ((name, window) for name, windows in basis.windows.items() for window in windows):
        held = f"{_span(window.session_seconds)} of sessions in {_span(window.length)}"
        used = f"; {window.used_seconds / window.session_seconds:.0%} is used" if window.resets_at is not None else ""
        say(f"  the {window.name} window of {name} held {held}, as last seen{used}")
    if not basis.windows:
        say("  no quota window is known: it is played as if there were none", style="dim")
    say(f"  done {_when(forecast.finished_at, now, home)}{_range(forecast, home)}")
    if forecast.deadline is not None:
        say(f"  {_verdict(forecast, forecast.deadline, home)}")
    if forecast.took is not None:
        say(f"  it really took {_span(forecast.took)}")
    for scope, closes_at, resets_at in forecast.closings:
        until = f" until {absolute(resets_at, home.zone)}" if resets_at is not None else ""
        say(f"  the window of {scope} is spent {relative(closes_at - now)}; what runs is parked{until}")
    _say_pools(forecast)
    for name, outcome in (("spread", forecast.spread), (f"reserve = {RESERVE}", forecast.reserve)):
        say(f"  with {name}: done {_when(outcome.finished_at, now, home)}, {_count(outcome.parks, 'park')}")


def _verdict(forecast: Forecast, deadline: float, home: Home) -> str:
    """Whether the deadline is made, and if not, what would make it."""
    when = absolute(deadline, home.zone)
    if forecast.finished_at is not None and forecast.finished_at <= deadline:
        return f"makes its deadline, {when}, with {_span(deadline - forecast.finished_at)} to spare"
    late = "" if forecast.finished_at is None else f" by {_span(forecast.finished_at - deadline)}"
    ends = {int(size): each.finished_at for size, each in forecast.pools.items()}
    enough = next((size for size, end in sorted(ends.items()) if end is not None and end <= deadline), None)
    remedy = "no pool makes it; give it more time" if enough is None else f"a pool of {enough} makes it"
    return f"misses its deadline ({when}){late}: {remedy}"


def _say_pools(forecast: Forecast) -> None:
    made = table("pool", "done in", "busy", "parks", "", right=("pool", "busy", "parks"))
    for size, outcome in forecast.pools.items():
        notes = ["now"] if size == str(forecast.pool) else []
        notes += ["worth it"] if size == str(forecast.pool_worth_it) else []
        took = "over a month" if outcome.finished_at is None else _span(outcome.finished_at - forecast.now)
        made.add_row(size, took, f"{outcome.busy:.0%}", str(outcome.parks), ", ".join(notes))
    print_table(made)


def _range(forecast: Forecast, home: Home) -> str:
    if forecast.earliest is None or forecast.latest is None or forecast.latest - forecast.earliest < 60.0:
        return ""
    return f", between {absolute(forecast.earliest, home.zone)} and {absolute(forecast.latest, home.zone)}"


def _when(at: float | None, now: float, home: Home) -> str:
    return "not within a month" if at is None else f"about {absolute(at, home.zone)}, {relative(at - now)}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _span(seconds: float) -> str:
    return relative(seconds).removeprefix("in ")

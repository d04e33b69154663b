"""The printed form of a forecast."""

import time
from pathlib import Path

from paceline.cli.output import print_table, print_value, say, table
from paceline.cli.plan_input import read_checked_plan
from paceline.cli.time_text import absolute, relative
from paceline.cli.wiring import Home, engine_settings
from paceline.errors import InvalidInput
from paceline.forecast import Forecast, Forecaster
from paceline.forecast.forecaster import RESERVE
from paceline.plans.plan_file import Plan
from paceline.views.units import iter_units


def show_forecast(home: Home, plan: Path | None, *, replay: str | None, as_json: bool) -> None:
    if (plan is None) == (replay is None):
        raise InvalidInput("name a plan, or a campaign that has run with --replay CAMPAIGN")
    settings = engine_settings(home.settings, home.zone, home.path)
    forecaster = Forecaster(home.store, settings, now=time.time())
    if plan is not None:
        checked = read_checked_plan(home, plan)
        forecast = forecaster.forecast_plan(checked.campaign, _units_left(home, checked))
    else:
        forecast = forecaster.replay(str(replay))
    if as_json:
        print_value(forecast)
        return
    _print_forecast(forecast, home)


def _units_left(home: Home, plan: Plan) -> int:
    name = plan.campaign.name
    if all(campaign.name != name for campaign in home.store.campaigns()):
        return len(plan.units)
    stored = iter_units(home.store, campaign=name, most=1 << 60)
    finished = {unit.spec.id for unit in stored if unit.state not in ("todo", "running")}
    return sum(spec.id not in finished for spec in plan.units)


def _print_forecast(forecast: Forecast, home: Home) -> None:
    if not forecast.basis.units:
        say(f"{forecast.campaign}: every unit is finished; nothing is left to forecast")
        return
    _print_basis(forecast, home)
    say(f"  done {_when(forecast.finished_at, forecast.now, home)}{_range(forecast, home)}")
    if forecast.deadline is not None:
        say(f"  {_deadline_text(forecast, forecast.deadline, home)}")
    if forecast.took is not None:
        say(f"  it really took {_span(forecast.took)}")
    for scope, closes_at, resets_at in forecast.closings:
        until = f" until {absolute(resets_at, home.zone)}" if resets_at is not None else ""
        say(f"  the window of {scope} is spent {relative(closes_at - forecast.now)}; running units are parked{until}")
    if forecast.lost_tokens:
        each = f"{forecast.basis.context_tokens:,} tokens each"
        say(f"  parks make it pay for about {forecast.lost_tokens:,} tokens of context again, at {each}")
    _print_pools(forecast)
    for name, outcome in (("spread", forecast.spread), (f"reserve = {RESERVE}", forecast.reserve)):
        say(f"  with {name}: done {_when(outcome.finished_at, forecast.now, home)}, {_count(outcome.parks, 'park')}")


def _print_basis(forecast: Forecast, home: Home) -> None:
    basis = forecast.basis
    known = f"from {basis.tries_known} of {basis.known_from}" if basis.tries_known else "assumed: nothing has run yet"
    say(
        f"{forecast.campaign}: {_count(basis.units, 'unit')}, about {_span(basis.unit_seconds)} each ({known})",
        style="bold",
    )
    states = {campaign.name: campaign.state for campaign in home.store.campaigns()}
    if forecast.took is None and states.get(forecast.campaign) == "paused":
        say(f"  it is paused: this is what happens after `paceline resume {forecast.campaign}`")
    for name, window in ((name, window) for name, windows in basis.windows.items() for window in windows):
        held = f"{_span(window.session_seconds)} of sessions in {_span(window.length)}"
        used = f"; {window.used_seconds / window.session_seconds:.0%} is used" if window.resets_at is not None else ""
        say(f"  the {window.name} window of {name} held {held} when last seen{used}")
    if not basis.windows:
        say("  no quota window is known: the simulation has none", style="dim")


def _deadline_text(forecast: Forecast, deadline: float, home: Home) -> str:
    """Return whether the campaign meets its deadline, and if not, which pool size would."""
    when = absolute(deadline, home.zone)
    if forecast.finished_at is not None and forecast.finished_at <= deadline:
        return f"meets its deadline, {when}, with {_span(deadline - forecast.finished_at)} to spare"
    late = "" if forecast.finished_at is None else f" by {_span(forecast.finished_at - deadline)}"
    ends = {int(size): each.finished_at for size, each in forecast.pools.items()}
    enough = next((size for size, end in sorted(ends.items()) if end is not None and end <= deadline), None)
    remedy = "no pool size meets it; give it more time" if enough is None else f"a pool of {enough} meets it"
    return f"misses its deadline ({when}){late}: {remedy}"


def _print_pools(forecast: Forecast) -> None:
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

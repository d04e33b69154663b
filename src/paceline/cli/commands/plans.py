"""Plans: `add` stores one, `run` runs them to their end, `preview` and `forecast` start nothing; and the `demo`."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from paceline.agents.account import login_text
from paceline.cli import output
from paceline.daemon.home import Home, engine_settings, open_home
from paceline.daemon.times import absolute, relative, span_text
from paceline.engine import commands
from paceline.errors import InvalidInput
from paceline.settings.plan_file import Plan, read_plan
from paceline.settings.preflight import check_plan
from paceline.store import Added
from paceline.views.units import iter_units

if TYPE_CHECKING:
    from paceline.forecast.forecaster import Forecast
    from paceline.forecast.preview import Preview

MOST_NAMED = 10
"""Longer lists of names push the sentence that matters off the screen."""


def read_checked_plan(home: Home, path: Path) -> Plan:
    """Return the plan. Raises with everything that is wrong with it; nothing is stored."""
    path = path.absolute()
    known = {campaign.name: campaign.created_at for campaign in home.store.campaigns()}
    plan = read_plan(path, home.settings, now=time.time(), added_at=known)
    check_plan(plan, str(path), settings=home.settings, environ=home.environ)
    commands.check_not_cancelled(home.store, plan.campaign.name)
    return plan


def print_added(campaign: str, added: Added) -> None:
    """Print how many units were added, and name those that were updated or kept as stored."""
    parts = [f"{added.added} new units" if added.added != 1 else "1 new unit"]
    if added.unchanged:
        parts.append(f"{added.unchanged} already known")
    if added.updated:
        parts.append(f"{len(added.updated)} updated ({_named(added.updated)})")
    output.say(f"{campaign}: {', '.join(parts)}")
    if added.changed:
        output.say(
            f"{len(added.changed)} differ from the store and were not updated: {_named(added.changed)}"
            " (--update updates them, but never a unit that is running or done)",
            style="yellow",
        )


def _named(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


# -- add ----------------------------------------------------------------------------------------------


def add_command(plan: output.PlanFile, update: output.Update = False, as_json: output.AsJson = False) -> None:
    """Add a plan for the engine to run, or add its new units to a campaign that is already stored.

    Adding a plan again is harmless: known units stay as they are, and done units stay done. Units that differ from the
    store are named and not updated, unless you give --update.
    """
    with open_home() as home:
        checked = read_checked_plan(home, plan)
        added = commands.add_plan(home.store, checked, update=update, now=time.time())
        if as_json:
            output.print_value({"campaign": checked.campaign.name, **msgspec.to_builtins(added)})
            return
        print_added(checked.campaign.name, added)
        if home.engine_leader() is None:
            output.say(f"No engine runs now: paceline run {plan} starts one.", style="dim")


# -- preview ------------------------------------------------------------------------------------------

MOST_STARTS = 20
"""More ids scroll the summary off the screen."""


def preview_command(plan: output.PlanFile, as_json: output.AsJson = False) -> None:
    """Show which units of a plan would start now, and what holds the others. Starts nothing, stores nothing."""
    from paceline.forecast.preview import preview_plan  # the other commands need not load the dispatch of an engine

    with open_home() as home:
        now = time.time()
        checked = read_checked_plan(home, plan)
        engine = engine_settings(home.settings, home.zone, home.path)
        preview = preview_plan(checked, home.store, home.settings, engine, home.environ, now)
    if as_json:
        output.print_value(preview)
    else:
        _print_preview(preview, now)


def _print_preview(preview: "Preview", now: float) -> None:
    output.say(f"{preview.campaign}: {output.counted(preview.units, 'unit')}; nothing is started or stored by this")
    for warning in preview.warnings:
        output.say(f"  warning: {output.one_line(warning, 400)}")
    _print_starts(preview)
    for number, (login, why) in enumerate(preview.waits.items()):
        where = f" on {login_text(login)}" if login else ""
        lead = f"{preview.waiting} would wait" if number == 0 else "  and"  # the same units on each login
        output.say(f"  {lead}{where}: {output.wait_words(why.detail, why.retry_at, now)}")
    if any((*preview.on, *preview.waits)):
        output.say("  agents that were started outside Paceline are not counted, though they use the same logins")
    for count, what in (
        (preview.parked, "parked already"),
        (preview.running, "running already"),
        (preview.finished, "finished already"),
        (preview.stopped, "stopped, until a person retries"),
    ):
        if count:
            output.say(f"  {count} {what}")
    for finding in preview.billing:
        output.say(f"  would be held, as it bills a key: {output.one_line(finding, 300)}")
    if preview.withheld:
        names = output.one_line(", ".join(preview.withheld), 600)
        output.say(f"  not passed to its sessions: {names} (env_pass passes a variable on)")


def _print_starts(preview: "Preview") -> None:
    on = ", ".join(f"{count} on {login_text(login)}" for login, count in preview.on.items() if login)
    if not preview.starts and any(why.detail == "no login" for why in preview.waits.values()):
        output.say("  none would start now: no login")
        return
    output.say(f"  {len(preview.starts)} would start now{f' ({on})' if on else ''}")
    for unit_id in preview.starts[:MOST_STARTS]:
        output.say(f"    {output.one_line(unit_id, 100)}")
    if len(preview.starts) > MOST_STARTS:
        output.say(f"    … and {len(preview.starts) - MOST_STARTS} more")


# -- forecast -----------------------------------------------------------------------------------------


def forecast_command(
    plan: Annotated[Path | None, output.argument("[PLAN]", "A plan file.")] = None,
    replay: Annotated[
        str | None,
        output.option(
            "CAMPAIGN",
            "Simulate a campaign that has run, with the present settings.",
            autocompletion=output.complete_campaign,
        ),
    ] = None,
    as_json: output.AsJson = False,
) -> None:
    """Simulate a plan against the limits and windows: when it is done, when it parks, which pool size is worth it.

    The engine itself runs the plan in virtual time, next to the stored campaigns, with durations and windows as they
    were observed here. Starts nothing, stores nothing.
    """
    if (plan is None) == (replay is None):
        raise InvalidInput("name a plan, or a campaign that has run with --replay CAMPAIGN")
    from paceline.forecast.forecaster import forecast_plan, forecast_replay  # others need not load a simulation

    with open_home() as home:
        settings = engine_settings(home.settings, home.zone, home.path)
        if plan is not None:
            checked = read_checked_plan(home, plan)
            left = _units_left(home, checked)
            forecast = forecast_plan(home.store, settings, checked.campaign, left, now=time.time())
        else:
            forecast = forecast_replay(home.store, settings, str(replay), now=time.time())
        if as_json:
            output.print_value(forecast)
        else:
            _print_forecast(forecast, home)


def _units_left(home: Home, plan: Plan) -> int:
    name = plan.campaign.name
    if all(campaign.name != name for campaign in home.store.campaigns()):
        return len(plan.units)
    stored = iter_units(home.store, campaign=name, most=1 << 60)
    finished = {unit.spec.id for unit in stored if unit.state not in ("todo", "running")}
    return sum(spec.id not in finished for spec in plan.units)


def _print_forecast(forecast: "Forecast", home: Home) -> None:
    if not forecast.basis.units:
        output.say(f"{forecast.campaign}: no unit waits or runs; nothing is left to forecast")
        return
    from paceline.forecast.forecaster import RESERVE

    _print_basis(forecast, home)
    output.say(f"  done {_when(forecast.finished_at, forecast.now, home)}{_range(forecast, home)}")
    if forecast.deadline is not None:
        output.say(f"  {_deadline_text(forecast, forecast.deadline, home)}")
    if forecast.took is not None:
        output.say(f"  it really took {span_text(forecast.took)}")
    for scope, closes_at, resets_at in forecast.closings:
        until = f" until {absolute(resets_at, home.zone)}" if resets_at is not None else ""
        output.say(
            f"  the window of {scope} is spent {relative(closes_at - forecast.now)}; running units are parked{until}"
        )
    if forecast.lost_tokens:
        each = f"{forecast.basis.context_tokens:,} tokens each"
        output.say(f"  parks make it pay for about {forecast.lost_tokens:,} tokens of context again, at {each}")
    _print_pools(forecast)
    for name, outcome in (("spread", forecast.spread), (f"reserve = {RESERVE}", forecast.reserve)):
        done = _when(outcome.finished_at, forecast.now, home)
        output.say(f"  with {name}: done {done}, {output.counted(outcome.parks, 'park')}")


def _print_basis(forecast: "Forecast", home: Home) -> None:
    basis = forecast.basis
    known = f"from {basis.tries_known} of {basis.known_from}" if basis.tries_known else "assumed: nothing has run yet"
    each = f"about {span_text(basis.unit_seconds)} each ({known})"
    beside = f", and {span_text(basis.beside_seconds)} for setup and checks" if basis.beside_seconds else ""
    assumed = " (assumed: none has been measured yet)" if beside and not basis.is_beside_known else ""
    output.say(f"{forecast.campaign}: {output.counted(basis.units, 'unit')}, {each}{beside}{assumed}", style="bold")
    states = {campaign.name: campaign.state for campaign in home.store.campaigns()}
    if forecast.took is None and states.get(forecast.campaign) == "paused":
        output.say(f"  it is paused: this is what happens after `paceline resume {forecast.campaign}`")
    for name, window in ((name, window) for name, windows in basis.windows.items() for window in windows):
        held = f"{span_text(window.session_seconds)} of sessions in {span_text(window.length)}"
        used = f"; {window.used_seconds / window.session_seconds:.0%} is used" if window.resets_at is not None else ""
        output.say(f"  the {window.name} window of {name} held {held} when last seen{used}")
    if not basis.windows:
        output.say("  no quota window is known: the simulation has none", style="dim")


def _deadline_text(forecast: "Forecast", deadline: float, home: Home) -> str:
    """Return whether the campaign meets its deadline, and if not, which pool size would."""
    when = absolute(deadline, home.zone)
    if forecast.finished_at is not None and forecast.finished_at <= deadline:
        return f"meets its deadline, {when}, with {span_text(deadline - forecast.finished_at)} to spare"
    late = "" if forecast.finished_at is None else f" by {span_text(forecast.finished_at - deadline)}"
    ends = {int(size): each.finished_at for size, each in forecast.pools.items()}
    enough = next((size for size, end in sorted(ends.items()) if end is not None and end <= deadline), None)
    none = f"no pool of up to {max(ends)} meets it; give it more time"
    remedy = none if enough is None else f"a pool of {enough} meets it"
    return f"misses its deadline ({when}){late}: {remedy}"


def _print_pools(forecast: "Forecast") -> None:
    made = output.table("pool", "done in", "busy", "parks", "", right=("pool", "busy", "parks"))
    for size, outcome in forecast.pools.items():
        notes = ["now"] if size == str(forecast.pool) else []
        notes += ["worth it"] if size == str(forecast.pool_worth_it) else []
        took = "over a month" if outcome.finished_at is None else span_text(outcome.finished_at - forecast.now)
        made.add_row(size, took, f"{outcome.busy:.0%}", str(outcome.parks), ", ".join(notes))
    output.print_table(made)


def _range(forecast: "Forecast", home: Home) -> str:
    if forecast.earliest is None or forecast.latest is None or forecast.latest - forecast.earliest < 60.0:
        return ""
    return f", between {absolute(forecast.earliest, home.zone)} and {absolute(forecast.latest, home.zone)}"


def _when(at: float | None, now: float, home: Home) -> str:
    return "not within a month" if at is None else f"about {absolute(at, home.zone)}, {relative(at - now)}"


# -- demo ---------------------------------------------------------------------------------------------


def demo_command(
    as_json: Annotated[bool, output.flag("Print only the figures at the end, as JSON.", "--json")] = False,
) -> None:
    """Watch the engine run two campaigns through a 429 and a closed quota window, in under a minute.

    It starts a fake provider on this machine, a small agent program that talks to it, and 24 units of work in a
    temporary home. You see: sessions shared two to one by priority; a pause after a 429; the quota window closing;
    running units parked until the reset; one canary at the reset, then the others in a wave. At the end all units are
    done and no attempt is charged.

    It needs no keys and no network. It is shown as `paceline run` shows a campaign.
    """
    from paceline.cli.demo import show_demo  # the other commands need not load a web server

    raise typer.Exit(show_demo(as_json=as_json))

"""`run PLAN...`: add them, run the engine in the foreground until nothing is left to run, and print the result."""

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import typer

from paceline.cli.home_engine import leading_engine
from paceline.cli.log_file import LastWarnings, log_to_file
from paceline.cli.options import AsJson, PlanFiles, Update
from paceline.cli.output import INTERRUPTED, NOT_ALL_DONE, one_line, print_value, say
from paceline.cli.plan_input import MOST_NAMED, print_added, read_checked_plan
from paceline.cli.progress import REFRESH_SECONDS, LiveView, PlainView, SilentView, View
from paceline.cli.report_document import work_line
from paceline.cli.stop_signals import on_stop_signals
from paceline.cli.wiring import Home, open_home
from paceline.core.unit_lifecycle import UnitState
from paceline.engine import commands as orders
from paceline.engine.campaign_lookup import find_campaign
from paceline.engine.engine import Engine
from paceline.engine.garbage import collect_seldom
from paceline.engine.store_outage import OUTAGES
from paceline.errors import EngineBusy, InvalidInput, StoreError
from paceline.plans.plan_file import Plan
from paceline.plans.preflight import check_gateway, check_stored, login_troubles
from paceline.store import Campaign, Unit, UnitCounts
from paceline.views.campaign_report import read_report
from paceline.views.status import stopped_units
from paceline.views.units import unit_view
from paceline.views.why import hint_for, stored_waits, wait_rows


def command(plans: PlanFiles, update: Update = False, as_json: AsJson = False) -> None:
    """Run plans to their end, in spite of limits, crashes and reboots.

    All plans are checked first, whole. Then their units run as real agent sessions, as many at once as the limits
    allow. A unit that meets a spent quota window is parked, and resumes by itself when the window reopens. That is not
    counted as a failed attempt.

    [bold]Ctrl-C[/bold] stops the engine; running sessions continue without it. To resume, run the same command again:
    nothing is lost, and no unit that ended is done twice. Other campaigns of the same home run too.

    Exit codes, for all the plans together: 0 all done; 1 some units failed for good or are held; 2 something in a
    plan, the settings or on this machine is wrong; 75 another engine runs this home; 130 interrupted.
    """
    with open_home() as home:
        raise typer.Exit(_run_plans(home, plans, update=update, as_json=as_json))


def _run_plans(home: Home, paths: Sequence[Path], *, update: bool, as_json: bool) -> int:
    """Return the exit code. Nothing is stored unless all plans can run whole and no other engine leads."""
    plans = _checked_plans(home, paths)
    names = [plan.campaign.name for plan in plans]
    try:
        with leading_engine(home) as engine, log_to_file(home) as warnings:
            after = home.last_event_id()
            with home.store.together():
                added = [orders.add_plan(home.store, plan, update=update, now=time.time()) for plan in plans]
            plans.clear()  # the engine reads units from the store; a long plan would fill the memory all night
            if not as_json:
                for name, each in zip(names, added, strict=True):
                    print_added(name, each)
            view = _view(home, names, after, warnings, as_json=as_json)
            is_interrupted = asyncio.run(_drive(engine, view))
    except EngineBusy as error:
        raise EngineBusy(f"{error}; or give it the work: paceline add {paths[0]}") from error
    if is_interrupted:
        return _print_interrupted(home, paths, as_json=as_json)
    return _print_ends(home, names, as_json=as_json)


def _checked_plans(home: Home, paths: Sequence[Path]) -> list[Plan]:
    """Read and check all plans, and warn about the logins of their accounts, each once."""
    plans = [read_checked_plan(home, path) for path in paths]
    first: dict[str, Path] = {}
    for path, plan in zip(paths, plans, strict=True):
        check_gateway(home.settings, plan.campaign)
        name = plan.campaign.name
        if first.setdefault(name, path) is not path:
            raise InvalidInput(f"{first[name]} and {path} are both the campaign {name!r}; name each plan once")
    check_stored(home.store, home.settings, serves_gateway=False)
    found = [
        account
        for plan in plans
        for account in home.settings.campaign_accounts(plan.campaign.agent, plan.campaign.accounts)
    ]
    for account in {each.id: each for each in found}.values():
        for trouble in login_troubles(account, home.environ):
            sys.stderr.write(f"Warning: {trouble}\n")
    return plans


def _view(home: Home, names: Sequence[str], after: int, warnings: LastWarnings, *, as_json: bool) -> View:
    if as_json:
        return SilentView()
    return LiveView(home, names, after, warnings) if sys.stdout.isatty() else PlainView(home, after, warnings)


async def _drive(engine: Engine, view: View) -> bool:
    """Run the engine until nothing is left or a signal stops it. Returns whether a signal did."""
    loop = asyncio.get_running_loop()
    received: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        received.append(number)
        loop.remove_signal_handler(number)  # the same signal again ends the process at once
        engine.stop()

    with on_stop_signals(stop):
        view.start()
        collect_seldom()
        try:
            running = asyncio.ensure_future(engine.run(until_idle=True))
            while not running.done():
                await asyncio.wait({running}, timeout=REFRESH_SECONDS)
                with contextlib.suppress(StoreError):  # a view that cannot be drawn must not stop the engine
                    view.refresh()
            await running
        finally:
            view.stop()
    return bool(received)


def _print_interrupted(home: Home, paths: Sequence[Path], *, as_json: bool) -> int:
    try:
        running = home.store.running_units()
    except OUTAGES as error:
        running = []
        sys.stderr.write(f"Warning: {error}; sessions that run continue without the engine\n")
    if as_json:
        print_value({"interrupted": True, "running": [unit.id for unit in running]})
        return INTERRUPTED
    if running:
        sessions = "1 session continues" if len(running) == 1 else f"{len(running)} sessions continue"
        say(f"Stopped. {sessions} without the engine: {', '.join(unit.id for unit in running[:MOST_NAMED])}")
    else:
        say("Stopped. No session is running.")
    say(f"To continue: paceline run {' '.join(map(str, paths))}")
    return INTERRUPTED


def _print_ends(home: Home, names: Sequence[str], *, as_json: bool) -> int:
    """Print how each campaign ended. Return the exit code for all of them."""
    if as_json:
        ends = [_end_values(home, name) for name in names]
        print_value(ends[0] if len(ends) == 1 else {"campaigns": ends})
    else:
        for name in names:
            _print_end(home, name)
    counts = home.store.counts()
    return 0 if all(_is_all_done(counts[name]) for name in names) else NOT_ALL_DONE


def _is_all_done(counts: UnitCounts) -> bool:
    return not (stopped_units(counts) or counts.todo or counts.running or counts.cancelled)


def _end_values(home: Home, name: str) -> dict[str, object]:
    campaign = find_campaign(home.store, name)
    units = msgspec.to_builtins(home.store.counts()[name])
    left = [unit_view(unit) for unit in _failed_units(home, name)]
    waits = wait_rows(stored_waits(home.store), [campaign]) if campaign.state == "active" else []
    return {
        "campaign": name,
        "state": campaign.state,
        "pause_reason": campaign.pause_reason,
        "units": units,
        "totals": read_report(home.store, name).totals,
        "left": left,
        "waits": waits,
    }


def _print_end(home: Home, name: str) -> None:
    campaign = find_campaign(home.store, name)
    counts = home.store.counts()[name]
    left = _failed_units(home, name)
    figures = ", ".join(f"{count} {state}" for state, count in msgspec.to_builtins(counts).items() if count)
    say(f"{name}: {figures or 'no units'}", style="bold green" if _is_all_done(counts) else "bold yellow")
    for unit in left[:MOST_NAMED]:
        say(f"  {unit.id} is {unit.state}: {one_line(unit.reason)}")
    report = read_report(home.store, name)
    if (work := work_line(report)) is not None:
        say(f"  {work}")
    say(f"  paceline summary {name} prints the report, paceline show UNIT what a unit did.", style="dim")
    if left:
        say(f"paceline logs UNIT shows the last output of a unit; paceline retry {name}, then run again.")
    is_left = counts.todo or counts.running or left  # the check of a running unit waits, too
    if is_left and campaign.pause_reason is not None:
        say(f"{name} paused itself: {one_line(campaign.pause_reason, 300)}")
        say(f"Fix the cause, then paceline resume {name}, then run again.")
    elif is_left and campaign.state == "paused":
        say(f"{name} is paused: paceline resume {name}, then run again.")
    elif counts.todo:
        _print_holds(home, campaign)


def _print_holds(home: Home, campaign: Campaign) -> None:
    """Print what the units that are left wait for, and the command that lifts it."""
    for wait in wait_rows(stored_waits(home.store), [campaign]):
        say(f"{campaign.name} waits: {one_line(wait.detail)}; paceline why UNIT says what to do.")
        if (hint := hint_for(wait.reason, wait.scope)) is not None:
            say(f"When that is fixed: {hint}, then run again.")


def _failed_units(home: Home, name: str) -> list[Unit]:
    states: tuple[UnitState, ...] = ("quarantined", "unverified", "held")
    return [unit for state in states for unit in _some_units(home, name, state)]


def _some_units(home: Home, name: str, state: UnitState) -> tuple[Unit, ...]:
    return home.store.units(campaign=name, state=state, limit=MOST_NAMED).units

"""`run PLAN`: add it, run the engine in the foreground until nothing is left to run, and print the result."""

import asyncio
import contextlib
import signal
import sys
import time
from pathlib import Path

import msgspec
import typer

from paceline.cli.log_file import LastWarning, log_to_file
from paceline.cli.options import AsJson, PlanFile, Update
from paceline.cli.output import INTERRUPTED, NOT_ALL_DONE, one_line, print_value, say
from paceline.cli.plan_input import MOST_NAMED, print_added, read_checked_plan
from paceline.cli.progress import REFRESH_SECONDS, LiveView, PlainView, SilentView, View
from paceline.cli.stop_signals import on_stop_signals
from paceline.cli.wiring import Home, leading_engine, open_home
from paceline.core.unit_lifecycle import UnitState
from paceline.engine import commands as orders
from paceline.engine.engine import Engine
from paceline.errors import EngineBusy, StoreError
from paceline.plans.preflight import check_gateway, check_stored, login_troubles
from paceline.store import Unit
from paceline.views.units import unit_view


def command(plan: PlanFile, update: Update = False, as_json: AsJson = False) -> None:
    """Run a plan to its end, in spite of limits, crashes and reboots.

    The whole plan is checked first. Then its units run as real agent sessions, as many at once as the limits allow. A
    unit that meets a spent quota window is parked, and resumes by itself when the window reopens. That is not counted
    as a failed attempt.

    [bold]Ctrl-C[/bold] stops the engine; running sessions continue without it. To resume, run the same command again:
    nothing is lost and nothing is done twice. Other campaigns of the same home run too.

    Exit codes: 0 all done; 1 some units failed for good or are held; 2 something in the plan, the settings or on this
    machine is wrong; 75 another engine runs this home; 130 interrupted.
    """
    with open_home() as home:
        raise typer.Exit(_run_plan(home, plan, update=update, as_json=as_json))


def _run_plan(home: Home, path: Path, *, update: bool, as_json: bool) -> int:
    """Return the exit code. Nothing is stored unless the whole plan can run and no other engine leads."""
    plan = read_checked_plan(home, path)
    check_gateway(home.settings, plan.campaign)
    check_stored(home.store, home.settings, serves_gateway=False)
    for name in plan.campaign.accounts:
        for trouble in login_troubles(home.settings.accounts[name], home.environ):
            sys.stderr.write(f"Warning: {trouble}\n")
    try:
        with leading_engine(home) as engine, log_to_file(home) as warning:
            after = home.last_event_id()
            added = orders.add_plan(home.store, plan, update=update, now=time.time())
            if not as_json:
                print_added(plan.campaign.name, added)
            view = _view(home, plan.campaign.name, after, warning, as_json=as_json)
            is_interrupted = asyncio.run(_drive(engine, view))
    except EngineBusy as error:
        raise EngineBusy(f"{error}; or give this plan to it: paceline add {path}") from error
    if is_interrupted:
        return _print_interrupted(home, path, as_json=as_json)
    return _print_end(home, plan.campaign.name, as_json=as_json)


def _view(home: Home, name: str, after: int, warning: LastWarning, *, as_json: bool) -> View:
    if as_json:
        return SilentView()
    return LiveView(home, name, after, warning) if sys.stdout.isatty() else PlainView(home, after, warning)


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


def _print_interrupted(home: Home, path: Path, *, as_json: bool) -> int:
    running = home.store.running_units()
    if as_json:
        print_value({"interrupted": True, "running": [unit.id for unit in running]})
        return INTERRUPTED
    if running:
        sessions = "1 session continues" if len(running) == 1 else f"{len(running)} sessions continue"
        say(f"Stopped. {sessions} without the engine: {', '.join(unit.id for unit in running[:MOST_NAMED])}")
    else:
        say("Stopped. No session is running.")
    say(f"To continue: paceline run {path}")
    return INTERRUPTED


def _print_end(home: Home, name: str, *, as_json: bool) -> int:
    campaign = next(campaign for campaign in home.store.campaigns() if campaign.name == name)
    counts = home.store.counts()[name]
    left = [*_some_units(home, name, "quarantined"), *_some_units(home, name, "held")]
    code = NOT_ALL_DONE if counts.quarantined or counts.held or counts.todo or counts.cancelled else 0
    if as_json:
        units = msgspec.to_builtins(counts)
        print_value(
            {"campaign": name, "state": campaign.state, "units": units, "left": [unit_view(unit) for unit in left]}
        )
        return code
    figures = ", ".join(f"{count} {state}" for state, count in msgspec.to_builtins(counts).items() if count)
    say(f"{name}: {figures or 'no units'}", style="bold green" if code == 0 else "bold yellow")
    for unit in left[:MOST_NAMED]:
        say(f"  {unit.id} is {unit.state}: {one_line(unit.reason)}")
    if left:
        say(f"paceline logs UNIT shows the last output of a unit; paceline retry {name}, then run again.")
    if counts.todo and campaign.state == "paused":
        say(f"{name} is paused: paceline resume {name}, then run again.")
    return code


def _some_units(home: Home, name: str, state: UnitState) -> tuple[Unit, ...]:
    return home.store.units(campaign=name, state=state, limit=MOST_NAMED).units

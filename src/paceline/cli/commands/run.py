"""`run PLAN`: add it, run the engine in the foreground until nothing is left to run, and say how it went."""

import asyncio
import contextlib
import logging
import logging.handlers
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from paceline.cli.commands.add import read_checked_plan, tell_added
from paceline.cli.commands.stored_state import last_event_id, unit_json
from paceline.cli.output import INTERRUPTED, NOT_ALL_DONE, one_line, print_value, say
from paceline.cli.progress import REFRESH_SECONDS, LastWarning, LiveView, PlainView, SilentView, View
from paceline.cli.wiring import Home, leading_engine
from paceline.core.unit_lifecycle import UnitState
from paceline.engine import commands as orders
from paceline.engine.engine import Engine
from paceline.errors import EngineBusy, StoreError
from paceline.plans.preflight import check_gateway, check_stored, login_troubles
from paceline.store import Campaign, Unit, UnitCounts

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LOG_FILE = "paceline.log"
LOGGERS = ("paceline", "uvicorn", "asyncio")
LOG_BYTES = 1 << 20
MOST_NAMED = 10


def run_plan(home: Home, path: Path, *, update: bool, as_json: bool) -> int:
    """The exit code. Nothing is stored unless all of it can run and no other engine leads."""
    plan = read_checked_plan(home, path)
    check_gateway(home.settings, plan.campaign)
    check_stored(home.store, home.settings, serves_gateway=False)
    for name in plan.campaign.accounts:
        for trouble in login_troubles(home.settings.accounts[name], home.environ):
            sys.stderr.write(f"Warning: {trouble}\n")
    try:
        with leading_engine(home) as engine, logged(home) as warning:
            after = last_event_id(home)
            added = orders.add_plan(home.store, plan, update=update, now=time.time())
            if not as_json:
                tell_added(plan.campaign.name, added)
            is_interrupted = asyncio.run(
                _drive(engine, _view(home, plan.campaign.name, after, warning, as_json=as_json))
            )
    except EngineBusy as error:
        raise EngineBusy(f"{error}; or hand it this plan: paceline add {path}") from error
    if is_interrupted:
        return _tell_interrupted(home, path, as_json=as_json)
    return _tell_end(home, plan.campaign.name, as_json=as_json)


def _view(home: Home, name: str, after: int, warning: LastWarning, *, as_json: bool) -> View:
    if as_json:
        return SilentView()
    return LiveView(home, name, after, warning) if sys.stdout.isatty() else PlainView(home, after, warning)


async def _drive(engine: Engine, view: View) -> bool:
    """Until nothing is left, or a signal asks for the end; whether one did."""
    loop = asyncio.get_running_loop()
    asked: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        asked.append(number)
        loop.remove_signal_handler(number)  # a second one is not waited for
        engine.stop()

    heeded = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # nohup ignores HUP
    for number in heeded:
        loop.add_signal_handler(number, stop, number)
    view.start()
    try:
        running = asyncio.ensure_future(engine.run(until_idle=True))
        while not running.done():
            await asyncio.wait({running}, timeout=REFRESH_SECONDS)
            with contextlib.suppress(StoreError):  # what cannot be shown now must not stop what runs
                view.refresh()
        await running
    finally:
        view.stop()
        for number in heeded:
            loop.remove_signal_handler(number)
    return bool(asked)


@contextlib.contextmanager
def logged(home: Home) -> Iterator[LastWarning]:
    """What the engine and the server complain of goes to a file, and the last of it to the view."""
    warning = LastWarning(home.zone)
    file = logging.handlers.RotatingFileHandler(home.path / LOG_FILE, maxBytes=LOG_BYTES, backupCount=2, delay=True)
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    loggers = [logging.getLogger(name) for name in LOGGERS]
    were_told = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.addHandler(warning)
        logger.addHandler(file)
        logger.propagate = False
    try:
        yield warning
    finally:
        for logger, was_told in zip(loggers, were_told, strict=True):
            logger.propagate = was_told
            logger.removeHandler(warning)
            logger.removeHandler(file)
        warning.close()
        file.close()


# -- how it went -----------------------------------------------------------------------------------


def _summary(home: Home, name: str) -> tuple[Campaign, UnitCounts]:
    campaign = next(campaign for campaign in home.store.campaigns() if campaign.name == name)
    return campaign, home.store.counts()[name]


def _tell_interrupted(home: Home, path: Path, *, as_json: bool) -> int:
    running = home.store.running_units()
    if as_json:
        print_value({"interrupted": True, "running": [unit.id for unit in running]})
        return INTERRUPTED
    if running:
        sessions = "1 session goes on" if len(running) == 1 else f"{len(running)} sessions go on"
        say(f"Stopped. {sessions} without the engine: {', '.join(unit.id for unit in running[:MOST_NAMED])}")
    else:
        say("Stopped. Nothing runs.")
    say(f"To go on: paceline run {path}")
    return INTERRUPTED


def _tell_end(home: Home, name: str, *, as_json: bool) -> int:
    campaign, counts = _summary(home, name)
    left = [*_some_units(home, name, "quarantined"), *_some_units(home, name, "held")]
    code = NOT_ALL_DONE if counts.quarantined or counts.held or counts.todo or counts.cancelled else 0
    if as_json:
        units = msgspec.to_builtins(counts)
        print_value({"campaign": name, "state": campaign.state, "units": units, "left": [unit_json(u) for u in left]})
        return code
    figures = ", ".join(f"{count} {state}" for state, count in msgspec.to_builtins(counts).items() if count)
    say(f"{name}: {figures or 'no units'}", style="bold green" if code == 0 else "bold yellow")
    for unit in left[:MOST_NAMED]:
        say(f"  {unit.id} is {unit.state}: {one_line(unit.reason)}")
    if left:
        say(f"paceline logs UNIT shows the last output of one; paceline retry {name}, then run again.")
    if counts.todo and campaign.state == "paused":
        say(f"{name} is paused: paceline resume {name}, then run again.")
    return code


def _some_units(home: Home, name: str, state: UnitState) -> tuple[Unit, ...]:
    return home.store.units(campaign=name, state=state, limit=MOST_NAMED).units

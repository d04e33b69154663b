"""`run PLAN...`: add them, run the engine in the foreground until nothing is left to run, and print the result.

On a terminal a person sees a live screen, elsewhere plain lines. The views read, and never act.
"""

import asyncio
import contextlib
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec
import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from paceline.agents.account import login_text
from paceline.cli import output
from paceline.cli.commands.plans import MOST_NAMED, print_added, read_checked_plan
from paceline.cli.commands.units import work_line
from paceline.cli.main import INTERRUPTED, NOT_ALL_DONE
from paceline.core.unit_lifecycle import UnitState
from paceline.daemon.engines import leading_engine
from paceline.daemon.home import Home, open_home
from paceline.daemon.process import LastWarnings, log_to_file, on_stop_signals
from paceline.daemon.times import clock_time, relative
from paceline.engine import commands
from paceline.engine.commands import find_campaign
from paceline.engine.engine import Engine, collect_seldom
from paceline.errors import OUTAGES, EngineBusy, InvalidInput, StoreError
from paceline.events import Event, is_campaign_wait
from paceline.settings.plan_file import Plan
from paceline.settings.preflight import check_gateway, check_stored, plan_warnings
from paceline.store import Campaign, Unit, UnitCounts
from paceline.views.campaign_report import read_report
from paceline.views.units import iter_units, unit_view
from paceline.views.why import hint_for, stored_waits, wait_rows

REFRESH_SECONDS = 0.5
"""Fast enough to feel live, and a small load on the store."""
RUNNING_ROWS = 8
PARKED_ROWS = 4
WAIT_ROWS = 4
NEWS_ROWS = 6
PARKED_READ = 200
"""Units read for the parked section; it shows only the soonest groups."""
BAR_CELLS = 24
HIDDEN_EVENTS = ("slot.", "control.")
"""Slots come by the thousand, and control events are the person's own commands."""


class PlainView:
    """The view for pipes, logs and CI: one line per event."""

    def __init__(self, home: Home, after: int, warnings: LastWarnings) -> None:
        self._home = home
        self._new_events = output.new_events(home.store, after)
        self._warnings = warnings.texts
        self._console = Console(highlight=False, markup=False, soft_wrap=True)

    def refresh(self) -> None:
        while self._warnings:  # first, because one may say that the store cannot be read
            self._console.print(Text(output.one_line(self._warnings.popleft(), 400)))
        for event in self._take_news():
            self._console.print(Text(output.event_line(event, self._home.zone)))

    def stop(self) -> None:
        """Show nothing more."""

    def _take_news(self) -> Iterator[Event]:
        """Yield new events without the hidden ones. What campaigns wait for is not hidden."""
        events = (stored.event for stored in self._new_events())
        return (each for each in events if is_campaign_wait(each) or not each.name.startswith(HIDDEN_EVENTS))


class LiveView(PlainView):
    """The view on a terminal: campaigns, running and parked units, what waits and why, and the last events."""

    hint = "Ctrl-C stops, sessions continue"

    def __init__(self, home: Home, names: Sequence[str], after: int, warnings: LastWarnings) -> None:
        super().__init__(home, after, warnings)
        self._names = names
        self._last: deque[Event] = deque(maxlen=NEWS_ROWS)
        self._parts: list[RenderableType] = []
        self._live = Live(console=Console(highlight=False, markup=False), auto_refresh=False, transient=True)

    def refresh(self) -> None:
        self._live.start()
        self._live.update(self.screen(), refresh=True)

    def screen(self) -> RenderableType:
        """Return what is shown now."""
        with contextlib.suppress(StoreError):  # the last state stays, with the warning that says why
            self._last.extend(each for each in self._take_news() if not is_campaign_wait(each))  # it has a section
            self._parts = self._read_parts(time.time())
        warnings = [Text(output.one_line(text), style="bold red") for text in list(self._warnings)]
        return Group(*self._parts, *warnings)

    def stop(self) -> None:
        self._live.stop()

    def _read_parts(self, now: float) -> list[RenderableType]:
        store = self._home.store
        counts = store.counts()
        at_work = {name for name, each in counts.items() if each.todo or each.running}
        campaigns = [each for each in store.campaigns() if each.name in at_work.union(self._names)]
        parts: list[RenderableType] = [
            Text(f"paceline · {clock_time(now, self._home.zone)} · {self.hint}", "dim"),
            _campaign_table(campaigns, counts),
        ]
        parts += _section("running", [_running_line(unit, now) for unit in store.running_units()], RUNNING_ROWS)
        parts += _section("parked", self._parked_lines(now), PARKED_ROWS)
        waits = stored_waits(self._home.store).items()
        parts += _section(
            "waiting",
            [f"{line.strip()}: {output.wait_words(why.detail, why.retry_at, now)}" for line, why in waits],
            WAIT_ROWS,
        )
        news = [output.event_line(event, self._home.zone) for event in self._last]
        return parts + _section("what happened", news, NEWS_ROWS)

    def _parked_lines(self, now: float) -> list[str]:
        """Return parked units grouped by campaign and reason, the soonest first."""
        page = self._home.store.units(state="todo", limit=PARKED_READ)
        groups: dict[tuple[str, str], list[float]] = {}
        for unit in page.units:
            if unit.is_parked and unit.resume_at is not None:
                groups.setdefault((unit.campaign, unit.reason or ""), []).append(unit.resume_at)
        soonest = sorted(groups.items(), key=lambda group: min(group[1]))
        return [
            f"{campaign}: {len(times)} until {clock_time(min(times), self._home.zone)}"
            f" ({relative(min(times) - now)}): {reason}"
            for (campaign, reason), times in soonest
        ]


def _campaign_table(campaigns: list[Campaign], counts: dict[str, UnitCounts]) -> Table:
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    made.add_column("campaign", overflow="ellipsis")  # in a narrow terminal names and bars give way to the numbers
    made.add_column("", max_width=BAR_CELLS)
    for name in ("done", "running", "waiting", "parked", "failed"):
        made.add_column(name, justify="right", no_wrap=True)
    for campaign in campaigns:
        each = counts.get(campaign.name, UnitCounts())
        total = each.total
        name = campaign.name if campaign.state == "active" else f"{campaign.name} ({campaign.state})"
        made.add_row(
            output.one_line(name, 30),
            ProgressBar(total=max(1, total), completed=each.done),
            f"{each.done}/{total}",
            str(each.running),
            str(each.todo - each.parked),
            str(each.parked),
            Text(str(each.stopped), style="bold red" if each.stopped else ""),
        )
    return made


def _running_line(unit: Unit, now: float) -> str:
    where = f" on {login_text(unit.account)}" if unit.account else ""
    age = relative(unit.started_at - now).removesuffix(" ago") if unit.started_at else "just now"
    again = f", try {unit.counters.attempts}" if unit.counters.attempts > 1 else ""
    return f"{unit.id}{where} for {age}{again}"


def _section(title: str, lines: list[str], most: int) -> list[RenderableType]:
    if not lines:
        return []
    shown: list[RenderableType] = [Text(f"{title}", style="bold")]
    shown += [Text("  " + output.one_line(line), no_wrap=True, overflow="ellipsis") for line in lines[:most]]
    if len(lines) > most:
        shown.append(Text(f"  … and {len(lines) - most} more", style="dim"))
    return shown


def run_command(plans: output.PlanFiles, update: output.Update = False, as_json: output.AsJson = False) -> None:
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
                added = [commands.add_plan(home.store, plan, update=update, now=time.time()) for plan in plans]
            plans.clear()  # the engine reads units from the store; a long plan would fill the memory all night
            if not as_json:
                with contextlib.suppress(OSError):  # a log on a full disk does not keep the campaign from running
                    for name, each in zip(names, added, strict=True):
                        print_added(name, each)
            view = view_of(home, names, after, warnings, as_json=as_json)
            is_interrupted = asyncio.run(drive(engine, view))
    except EngineBusy as error:
        raise EngineBusy(f"{error}; or give it the work: paceline add {paths[0]}") from error
    if is_interrupted:
        return _print_interrupted(home, paths, as_json=as_json)
    return _print_ends(home, names, as_json=as_json)


def _checked_plans(home: Home, paths: Sequence[Path]) -> list[Plan]:
    """Read and check all plans, and warn about what would spoil the night, each once."""
    plans = [read_checked_plan(home, path) for path in paths]
    first: dict[str, Path] = {}
    for path, plan in zip(paths, plans, strict=True):
        check_gateway(home.settings, plan.campaign)
        name = plan.campaign.name
        if first.setdefault(name, path) is not path:
            raise InvalidInput(f"{first[name]} and {path} are both the campaign {name!r}; name each plan once")
    check_stored(home.store, home.settings, serves_gateway=False)
    now = time.time()
    found = [each for plan in plans for each in plan_warnings(plan, home.settings, home.environ, now)]
    for warning in dict.fromkeys(found):
        sys.stderr.write(f"Warning: {output.one_line(warning, 400)}\n")
    return plans


def view_of(home: Home, names: Sequence[str], after: int, warnings: LastWarnings, *, as_json: bool) -> PlainView | None:
    """Return the view for the output of this process: a screen on a terminal, lines elsewhere, none with JSON."""
    if as_json:
        return None
    return LiveView(home, names, after, warnings) if sys.stdout.isatty() else PlainView(home, after, warnings)


async def drive(engine: Engine, view: PlainView | None) -> bool:
    """Run the engine until nothing is left or a signal stops it. Returns whether a signal did."""
    loop = asyncio.get_running_loop()
    received: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        received.append(number)
        loop.remove_signal_handler(number)  # the same signal again ends the process at once
        engine.stop()

    with on_stop_signals(stop):
        collect_seldom()
        running = asyncio.ensure_future(engine.run(until_idle=True))
        try:
            while not running.done():
                await asyncio.wait({running}, timeout=REFRESH_SECONDS)
                with contextlib.suppress(StoreError, OSError):  # a view that cannot be drawn must not stop the engine
                    if view is not None:
                        view.refresh()
            await running
        finally:
            running.cancel()  # it has ended, unless this was interrupted before a signal could stop it
            await asyncio.gather(running, return_exceptions=True)
            if view is not None:
                view.stop()
    return bool(received)


def _print_interrupted(home: Home, paths: Sequence[Path], *, as_json: bool) -> int:
    running: list[Unit] | None = None  # not known
    try:
        running = list(home.store.running_units())
    except OUTAGES as error:
        sys.stderr.write(f"Warning: {error}; sessions that run continue without the engine\n")
    if as_json:
        output.print_value({"interrupted": True, "running": None if running is None else [unit.id for unit in running]})
        return INTERRUPTED
    if running is None:
        output.say("Stopped.")
    elif running and (trouble := home.trouble) is not None:
        named = ", ".join(unit.id for unit in running[:MOST_NAMED])
        output.say(f"Stopped. These units were running when the store failed ({trouble}): {named}")
    elif running:
        sessions = "1 session continues" if len(running) == 1 else f"{len(running)} sessions continue"
        output.say(f"Stopped. {sessions} without the engine: {', '.join(unit.id for unit in running[:MOST_NAMED])}")
    else:
        output.say("Stopped. No session is running.")
    output.say(f"To continue: paceline run {' '.join(map(str, paths))}")
    return INTERRUPTED


def _print_ends(home: Home, names: Sequence[str], *, as_json: bool) -> int:
    """Print how each campaign ended. Return the exit code for all of them."""
    if as_json:
        ends = [_end_values(home, name) for name in names]
        output.print_value(ends[0] if len(ends) == 1 else {"campaigns": ends})
    else:
        for name in names:
            _print_end(home, name)
    counts = home.store.counts()
    return 0 if all(_is_all_done(counts[name]) for name in names) else NOT_ALL_DONE


def _is_all_done(counts: UnitCounts) -> bool:
    return not (counts.stopped or counts.todo or counts.running or counts.cancelled)


def _end_values(home: Home, name: str) -> dict[str, object]:
    campaign = find_campaign(home.store, name)
    units = msgspec.to_builtins(home.store.counts()[name])
    waits = wait_rows(stored_waits(home.store), [campaign]) if campaign.state == "active" else []
    return {
        "campaign": name,
        "state": campaign.state,
        "pause_reason": campaign.pause_reason,
        "units": units,
        "totals": read_report(home.store, name).totals,
        "left": [unit_view(unit) for unit in _failed_units(home, name)],
        "waits": waits,
    }


def _print_end(home: Home, name: str) -> None:
    campaign = find_campaign(home.store, name)
    counts = home.store.counts()[name]
    left = list(islice(_failed_units(home, name), MOST_NAMED))
    figures = ", ".join(f"{count} {state}" for state, count in msgspec.to_builtins(counts).items() if count)
    output.say(f"{name}: {figures or 'no units'}", style="bold green" if _is_all_done(counts) else "bold yellow")
    for unit in left:
        output.say(f"  {unit.id} is {unit.state}: {output.one_line(unit.reason)}")
    report = read_report(home.store, name)
    if (work := work_line(report)) is not None:
        output.say(f"  {work}")
    output.say(f"  paceline summary {name} prints the report, paceline show UNIT what a unit did.", style="dim")
    if left:
        output.say(f"paceline logs UNIT shows the last output of a unit; paceline retry {name}, then run again.")
    is_left = counts.todo or counts.running or left  # the check of a running unit waits, too
    if is_left and campaign.pause_reason is not None:
        output.say(f"{name} paused itself: {output.one_line(campaign.pause_reason, 300)}")
        output.say(f"Fix the cause, then paceline resume {name}, then run again.")
    elif is_left and campaign.state == "paused":
        output.say(f"{name} is paused: paceline resume {name}, then run again.")
    elif counts.todo:
        _print_holds(home, campaign)


def _print_holds(home: Home, campaign: Campaign) -> None:
    """Print what the units that are left wait for, and the command that lifts it.

    A held login needs none: an engine asks it again when it starts.
    """
    now = time.time()
    governor = home.offline_state(now).governor
    for wait in wait_rows(stored_waits(home.store), [campaign]):
        output.say(f"{campaign.name} waits: {output.one_line(wait.detail)}; paceline why UNIT says what to do.")
        hint = hint_for(wait.reason, wait.scope)
        if hint is not None and governor.ask_login_again(wait.scope, now=now):
            output.say("When that is fixed, run again: the login is asked again by itself.")
        elif hint is not None:
            output.say(f"When that is fixed: {hint}, then run again.")


def _failed_units(home: Home, name: str) -> Iterator[Unit]:
    states: tuple[UnitState, ...] = ("quarantined", "unverified", "held")
    for state in states:
        yield from iter_units(home.store, campaign=name, chosen=state, most=1 << 60)

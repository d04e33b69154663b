"""What a person sees during `run`: a live screen on a terminal, plain lines otherwise. Reads only, never acts."""

import contextlib
import time
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from paceline.agents.account import login_text
from paceline.cli import event_text
from paceline.cli.log_file import LastWarnings
from paceline.cli.output import one_line
from paceline.cli.time_text import clock_time, relative
from paceline.cli.wiring import Home
from paceline.engine.ticket_queues import split_queue_name
from paceline.errors import StoreError
from paceline.events import Event
from paceline.store import Campaign, Unit, UnitCounts
from paceline.views.status import stopped_units, total_units
from paceline.views.why import stored_waits

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


class View(Protocol):
    """A display that lasts from before the first pass of the engine to after the last."""

    def start(self) -> None: ...

    def refresh(self) -> None: ...

    def stop(self) -> None: ...


class News:
    """New events since the last call, without the hidden ones."""

    def __init__(self, home: Home, after: int) -> None:
        self._home = home
        self._seen = after

    def take(self) -> list[Event]:
        stored = self._home.store.events(after=self._seen)
        if stored:
            self._seen = stored[-1].id
        return [each.event for each in stored if not each.event.name.startswith(HIDDEN_EVENTS)]


class SilentView:
    """The view of --json: it shows nothing; the figures are printed at the end."""

    def start(self) -> None: ...

    def refresh(self) -> None: ...

    def stop(self) -> None: ...


class PlainView:
    """The view for pipes, logs and CI: one line per event."""

    def __init__(self, home: Home, after: int, warnings: LastWarnings) -> None:
        self._home = home
        self._news = News(home, after)
        self._console = Console(highlight=False, markup=False, soft_wrap=True)
        self._warnings = warnings.texts
        self._printed: dict[str, tuple[str, str]] = {}

    def start(self) -> None: ...

    def refresh(self) -> None:
        while self._warnings:  # first, because one may say that the store cannot be read
            self._print(one_line(self._warnings.popleft(), 400))
        for event in self._news.take():
            self._print(event_text.line_of(event, self._home.zone))
        self._print_waits()

    def stop(self) -> None: ...

    def _print_waits(self) -> None:
        """Print each wait once per reason, not once per refresh."""
        now = time.time()
        waits = stored_waits(self._home.store)
        for line, why in waits.items():
            if self._printed.get(line) != (why.reason, why.scope) and why.reason != "queue_order":
                at = clock_time(now, self._home.zone)
                campaign, login = split_queue_name(line)
                waiting = f"{campaign} {login_text(login)}".strip()
                self._print(f"{at} waits {waiting}: {wait_words(why.detail, why.retry_at, now)}")
        self._printed = {line: (why.reason, why.scope) for line, why in waits.items()}

    def _print(self, line: str) -> None:
        self._console.print(Text(line))


def wait_words(detail: str, retry_at: float | None, now: float) -> str:
    until = f", again {relative(retry_at - now)}" if retry_at is not None and retry_at > now else ""
    return one_line(detail, 200) + until


class LiveView:
    """The view on a terminal: campaigns, running and parked units, what waits and why, and the last events."""

    def __init__(self, home: Home, names: Sequence[str], after: int, warnings: LastWarnings) -> None:
        self._home = home
        self._names = names
        self._news = News(home, after)
        self._last: deque[Event] = deque(maxlen=NEWS_ROWS)
        self._warnings = warnings.texts
        self._parts: list[RenderableType] = []
        self._live = Live(console=Console(highlight=False, markup=False), auto_refresh=False, transient=True)

    def start(self) -> None:
        self._live.start()

    def refresh(self) -> None:
        with contextlib.suppress(StoreError):  # the last state stays, with the warning that says why
            self._last.extend(self._news.take())
            self._parts = self._read_parts(time.time())
        warnings = [Text(one_line(text), style="bold red") for text in list(self._warnings)]
        self._live.update(Group(*self._parts, *warnings), refresh=True)

    def stop(self) -> None:
        self._live.stop()

    def _read_parts(self, now: float) -> list[RenderableType]:
        store = self._home.store
        counts = store.counts()
        campaigns = [each for each in store.campaigns() if each.name in self._names or _has_work(counts.get(each.name))]
        parts: list[RenderableType] = [
            Text(f"paceline · {clock_time(now, self._home.zone)} · Ctrl-C stops, sessions continue", "dim"),
            _campaign_table(campaigns, counts),
        ]
        parts += _section("running", [_running_line(unit, now) for unit in store.running_units()], RUNNING_ROWS)
        parts += _section("parked", self._parked_lines(now), PARKED_ROWS)
        waits = stored_waits(self._home.store).items()
        parts += _section(
            "waiting",
            [f"{line.strip()}: {wait_words(why.detail, why.retry_at, now)}" for line, why in waits],
            WAIT_ROWS,
        )
        news = [event_text.line_of(event, self._home.zone) for event in self._last]
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


def _has_work(counts: UnitCounts | None) -> bool:
    return counts is not None and bool(counts.todo or counts.running)


def _campaign_table(campaigns: list[Campaign], counts: dict[str, UnitCounts]) -> Table:
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    made.add_column("campaign", overflow="ellipsis")  # in a narrow terminal names and bars give way to the numbers
    made.add_column("", max_width=BAR_CELLS)
    for name in ("done", "running", "waiting", "parked", "failed"):
        made.add_column(name, justify="right", no_wrap=True)
    for campaign in campaigns:
        each = counts.get(campaign.name, UnitCounts())
        total = total_units(each)
        name = campaign.name if campaign.state == "active" else f"{campaign.name} ({campaign.state})"
        made.add_row(
            one_line(name, 30),
            ProgressBar(total=max(1, total), completed=each.done),
            f"{each.done}/{total}",
            str(each.running),
            str(each.todo - each.parked),
            str(each.parked),
            Text(str(stopped_units(each)), style="bold red" if stopped_units(each) else ""),
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
    shown += [Text("  " + one_line(line), no_wrap=True, overflow="ellipsis") for line in lines[:most]]
    if len(lines) > most:
        shown.append(Text(f"  … and {len(lines) - most} more", style="dim"))
    return shown

"""`list`, `units`, `logs`, `events`: what is stored, as it is stored. Nothing is changed by looking."""

import sys
import time
from zoneinfo import ZoneInfo

from rich.text import Text

from paceline.cli import event_text
from paceline.cli.output import one_line, out, print_line, print_table, print_value, say, table
from paceline.cli.time_text import relative
from paceline.cli.unit_lookup import find_unit
from paceline.cli.wiring import Home
from paceline.detect.stream import Channel
from paceline.engine.campaign_lookup import find_campaign
from paceline.errors import UnknownName
from paceline.executors.spool import OutputReader, Spool, is_locked
from paceline.store import StoredEvent, Unit, UnitCounts
from paceline.views.campaigns import campaign_summary
from paceline.views.safe_text import printable
from paceline.views.status import total_units
from paceline.views.units import UnitFilter, iter_units, phase_of, unit_view

LOOK_SECONDS = 0.3
CHANNELS: tuple[Channel, ...] = ("stdout", "stderr", "screen")
MOST_UNITS_SHOWN = 100
STATE_STYLES = {
    "running": "green",
    "done": "dim",
    "parked": "yellow",
    "held": "bold yellow",
    "quarantined": "bold red",
    "cancelled": "dim",
}


# -- campaigns -----------------------------------------------------------------------------------


def show_campaigns(home: Home, *, as_json: bool) -> None:
    counts = home.store.counts()
    campaigns = [campaign_summary(each, counts.get(each.name, UnitCounts())) for each in home.store.campaigns()]
    if as_json:
        print_value({"campaigns": campaigns})
        return
    if not campaigns:
        say("No campaigns yet. `paceline run PLAN` adds one and runs it.")
        return
    columns = ("campaign", "state", "priority", "agent", "done", "running", "waiting", "parked", "failed")
    made = table(*columns, right=("priority", *columns[4:]))
    for campaign in campaigns:
        each = campaign.units
        agent = f"{campaign.agent} {campaign.model or ''}".strip()
        waiting = each.todo - each.parked
        numbers = (f"{each.done}/{total_units(each)}", each.running, waiting, each.parked, each.quarantined + each.held)
        made.add_row(campaign.name, campaign.shown_state, str(campaign.priority), agent, *map(str, numbers))
    print_table(made)


# -- units ---------------------------------------------------------------------------------------


def show_units(home: Home, name: str, *, state: UnitFilter | None, most: int | None, as_json: bool) -> None:
    campaign = find_campaign(home.store, name)
    shown = most or (1 << 60 if as_json else MOST_UNITS_SHOWN)
    units = list(iter_units(home.store, campaign=campaign.name, chosen=state, most=shown))
    if as_json:
        print_value({"units": [unit_view(unit) for unit in units]})
        return
    now = time.time()
    made = table("unit", "state", "attempts", "tries", "account", "since", "reason", right=("attempts", "tries"))
    for unit in units:
        phase = phase_of(unit)
        since = unit.started_at if unit.state == "running" else unit.ended_at
        made.add_row(
            one_line(unit.spec.id, 60),
            Text(phase, style=STATE_STYLES.get(phase, "")),
            str(unit.counters.failures),
            str(unit.counters.tries),
            unit.account or "",
            relative(since - now) if since else "",
            _reason(unit, now),
        )
    print_table(made)
    total = total_units(home.store.counts()[campaign.name])
    if len(units) < total:
        say(f"{len(units)} of {total:,} units; --state running|todo|done|… and --limit N choose others.", style="dim")


def _reason(unit: Unit, now: float) -> str:
    if unit.resume_at is not None:
        return f"{one_line(unit.reason, 80)}; again {relative(unit.resume_at - now)}"
    return "" if unit.state == "done" else one_line(unit.reason, 100)


# -- output --------------------------------------------------------------------------------------


def show_logs(home: Home, name: str, *, channel: str | None, follow: bool, as_json: bool) -> None:
    """What the last try printed."""
    unit = find_unit(home.store, name)
    if unit.attempt_id is None:
        raise UnknownName(f"{unit.id} has not been started yet; `paceline why {unit.id}` says what holds it")
    folder = home.spool().folder(unit.attempt_id)
    if folder is None:
        raise UnknownName(f"the output of {unit.id} is not here any more (attempt {unit.attempt_id})")
    channels = [each for each in CHANNELS if channel in (None, each)]
    if as_json:
        answer: dict[str, str] = {"unit": unit.id, "attempt": unit.attempt_id}
        answer.update((each, text) for each in channels if (text := _whole(folder, each)))
        print_value(answer)
        return
    is_empty = _print_output(home.spool(), unit.attempt_id, channels, follow=follow)
    if is_empty and sys.stdout.isatty():
        say("(nothing was printed)", style="dim")


def _whole(folder: str, channel: Channel) -> str:
    reader = OutputReader(folder, channel)
    return b"".join(iter(reader.read, b"")).decode(errors="replace")


def _print_output(spool: Spool, attempt: str, channels: list[Channel], *, follow: bool) -> bool:
    """All there is, and with `follow` what comes until the session ends. Whether there was nothing."""
    folder = spool.folder(attempt) or ""
    readers = [OutputReader(folder, channel) for channel in channels]
    is_empty = True
    while True:
        is_live = is_locked(folder)  # looked at first: what is printed up to its end is shown
        for reader in readers:
            while piece := reader.read():
                is_empty = False
                _write(piece)
        if not (follow and is_live):
            return is_empty
        time.sleep(LOOK_SECONDS)


def _write(piece: bytes) -> None:
    """Bytes as they are to a pipe; to a terminal nothing that could steer it."""
    if sys.stdout.isatty():
        sys.stdout.write(printable(piece.decode(errors="replace").replace("\r\n", "\n")))
        sys.stdout.flush()
    else:
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()


# -- events --------------------------------------------------------------------------------------


def show_events(home: Home, *, unit: str | None, after: int | None, most: int, follow: bool, as_json: bool) -> None:
    unit_id = find_unit(home.store, unit).id if unit is not None else None
    seen = after if after is not None else _start_of_last(home, unit_id, most)
    while True:
        events = home.store.events(after=seen, unit=unit_id, limit=1000 if after is None else min(most, 1000))
        for event in events:
            seen = event.id
            print_event(event, home.zone, as_json=as_json)
        if not follow and (after is not None or len(events) < 1000):
            return
        if follow and not events:
            time.sleep(LOOK_SECONDS)


def _start_of_last(home: Home, unit_id: str | None, most: int) -> int:
    """The id before the last so many."""
    if unit_id is not None:
        ids = [event.id for event in home.store.events(unit=unit_id, limit=1_000_000)]
        return ids[-most:][0] - 1 if ids else 0
    return max(0, last_event_id(home) - most)


def last_event_id(home: Home) -> int:
    return home.store.append_events([])


def print_event(stored: StoredEvent, zone: ZoneInfo, *, as_json: bool) -> None:
    if as_json:
        print_line(event_text.as_json(stored))
        return
    out().print(Text(event_text.line_of(stored.event, zone), style=event_text.style_of(stored.event)))

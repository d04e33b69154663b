"""`events`: what happened, from the store."""

import time
from typing import Annotated

import typer
from rich.text import Text

from paceline.cli import event_text
from paceline.cli.completion import complete_unit
from paceline.cli.options import AsJson, Follow
from paceline.cli.output import FOLLOW_SECONDS, out, print_line, say
from paceline.cli.unit_lookup import find_unit
from paceline.cli.wiring import Home, open_home
from paceline.engine.command_log import is_change
from paceline.errors import InvalidInput
from paceline.store import StoredEvent

PAGE_EVENTS = 1000
"""Events per read: a pipe gets its first lines at once, and a long history needs few reads."""


def command(
    unit: Annotated[
        str | None, typer.Option(metavar="UNIT", help="Only events of this unit.", autocompletion=complete_unit)
    ] = None,
    audit: Annotated[
        bool, typer.Option("--audit", help="Only changes by people and programs: when, who, what, and to what.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many of the last events.")] = 50,
    after: Annotated[
        int | None, typer.Option(min=0, metavar="ID", help="Events after this id, instead of the last ones.")
    ] = None,
    follow: Follow = False,
    as_json: AsJson = False,
) -> None:
    """Show what happened: starts, ends, parks, pauses, windows, limits. With --json one event per line."""
    if audit and unit is not None:
        raise InvalidInput("--audit shows the changes of the whole fleet: leave out --unit")
    with open_home() as home:
        if audit:
            _print_audit(home, limit=limit, after=after, follow=follow, as_json=as_json)
            return
        unit_id = find_unit(home.store, unit).id if unit is not None else None
        last_id = after if after is not None else _id_before_last(home, unit_id, limit)
        page_events = PAGE_EVENTS if after is None else min(limit, PAGE_EVENTS)
        while True:
            events = home.store.events(after=last_id, unit=unit_id, limit=page_events)
            for event in events:
                last_id = event.id
                _print_event(event, home, as_json=as_json)
            if not follow and (after is not None or len(events) < PAGE_EVENTS):
                return
            if follow and not events:
                time.sleep(FOLLOW_SECONDS)


def _print_audit(home: Home, *, limit: int, after: int | None, follow: bool, as_json: bool) -> None:
    changes, last_id = _read_changes(home, after or 0)
    if after is None:
        changes = changes[-limit:]
    elif not follow:
        changes = changes[:limit]
    while True:
        for change in changes:
            _print_change(change, home, as_json=as_json)
        if not follow:
            return
        time.sleep(FOLLOW_SECONDS)
        changes, last_id = _read_changes(home, last_id)


def _read_changes(home: Home, after: int) -> tuple[list[StoredEvent], int]:
    """Return all changes after that id, and the id of the last event that was read."""
    changes: list[StoredEvent] = []
    while events := home.store.events(after=after, limit=PAGE_EVENTS):
        after = events[-1].id
        changes += [event for event in events if is_change(event.event)]
    return changes, after


def _print_change(stored: StoredEvent, home: Home, *, as_json: bool) -> None:
    if as_json:
        print_line({**event_text.as_json(stored), **event_text.audit_entry(stored.event)})
    else:
        say(event_text.audit_line(stored.event, home.zone))


def _id_before_last(home: Home, unit_id: str | None, most: int) -> int:
    """Return the id before the last `most` events."""
    if unit_id is not None:
        ids = [event.id for event in home.store.events(unit=unit_id, limit=1_000_000)]
        return ids[-most:][0] - 1 if ids else 0
    return max(0, home.last_event_id() - most)


def _print_event(stored: StoredEvent, home: Home, *, as_json: bool) -> None:
    if as_json:
        print_line(event_text.as_json(stored))
        return
    out().print(Text(event_text.line_of(stored.event, home.zone), style=event_text.style_of(stored.event)))

"""Which panes have something to show, and which of them is used."""

from textual.screen import Screen

from paceline.cli.top.snapshot import TopSnapshot
from paceline.cli.top.table import LiveTable

INSTEAD = "capacity"
"""The pane that is used instead of one that went."""


def show_panes(screen: "Screen[object]", snapshot: TopSnapshot, *, is_in_front: bool) -> None:
    """Leave out the panes that have nothing to show. The focus goes to another one, unless a dialog has it."""
    is_alone, has_keys = snapshot.is_gateway_alone, bool(snapshot.keys)
    screen.set_class(is_alone, "-calls")
    screen.set_class(has_keys, "-keys")
    shown = {"campaigns": not is_alone, "units": not is_alone, "keys": has_keys}
    for table in screen.query(LiveTable):
        table.display = shown.get(table.id or "", True)
    if screen.query_one("LiveTable.-in-use", LiveTable).display:
        return
    for table in screen.query(LiveTable):
        table.set_class(table.id == INSTEAD, "-in-use")
    if is_in_front:
        screen.query_one(f"#{INSTEAD}", LiveTable).focus()

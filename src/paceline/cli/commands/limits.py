"""`limits`: every limit in force."""

import time

from paceline.cli.limit_text import LimitLine, limit_line, limit_text
from paceline.cli.live_state import read_live
from paceline.cli.options import AsJson
from paceline.cli.output import one_line, print_table, print_value, table
from paceline.cli.wiring import open_home
from paceline.views.capacity import limit_rows

LONGEST_STATE = 1000
"""Characters of a state: all of a usual one. A terminal folds it."""


def command(as_json: AsJson = False) -> None:
    """Show every limit: the value in force, its source, what was learned, what is paused or closed."""
    with open_home() as home:
        now = time.time()
        lines = [
            limit_line(row, home.settings, now)
            for row in limit_rows(home.read_fleet(now, scopes=read_live(home).scopes))
        ]
    if as_json:
        print_value({"limits": lines})
        return
    _print_limits(lines)


def _print_limits(lines: list[LimitLine]) -> None:
    numbers = ("limit", "configured", "platform", "adaptive", "in flight")
    made = table("scope", *numbers, "from", "state", right=numbers)
    for line in lines:
        learned = ("" if each is None else str(each) for each in (line.platform, line.adaptive))
        made.add_row(
            line.scope,
            limit_text(line.effective),
            limit_text(line.configured),
            *learned,
            str(line.in_flight or ""),
            line.source,
            one_line(line.state, LONGEST_STATE),
        )
    print_table(made)

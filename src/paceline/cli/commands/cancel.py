"""`cancel`: give up a unit, or what is left of a campaign."""

import sys
from typing import Annotated

import typer

from paceline.cli.control import cancel, counted, print_result
from paceline.cli.options import AsJson, Target
from paceline.cli.output import one_line
from paceline.cli.unit_lookup import find_target
from paceline.cli.wiring import Home, open_home
from paceline.store import Unit
from paceline.views.status import stopped_units


def command(
    target: Target,
    is_sure: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Give up a unit, or all units of a campaign that are not done. Running sessions are ended.

    It asks first if you are at a terminal. `paceline retry` undoes it.
    """
    with open_home() as home:
        if not is_sure and sys.stdin.isatty():
            typer.confirm(_question(home, target), abort=True)
        print_result(home, cancel(home, target), as_json=as_json)


def _question(home: Home, name: str) -> str:
    target = find_target(home.store, name)
    if isinstance(target, Unit):
        return f"Cancel {one_line(target.id)}?"
    counts = home.store.counts()[target.name]
    left = counts.todo + counts.running + stopped_units(counts)
    return f"Cancel {one_line(target.name)}: {counted(left, 'unit')} not done, {counts.running} running?"

"""`why UNIT`: what holds it, since when, until when, and what a person can do about it."""

import time

import msgspec
from rich.text import Text

from paceline.cli.options import AsJson, UnitName
from paceline.cli.output import one_line, out, print_value
from paceline.cli.time_text import moment
from paceline.cli.unit_lookup import find_unit
from paceline.cli.wiring import Home, open_home
from paceline.engine.campaign_lookup import find_campaign
from paceline.views.why import Why


def command(unit: UnitName, as_json: AsJson = False) -> None:
    """Show what holds a unit, since when, until when, and what you can do about it."""
    with open_home() as home:
        found = find_unit(home.store, unit)
        first, *others = home.explain_unit(found, find_campaign(home.store, found.campaign))
        if as_json:
            print_value({**msgspec.to_builtins(first), "others": others} if others else first)
            return
        for each in (first, *others):
            _print_why(each, home)


def _print_why(why: Why, home: Home) -> None:
    console, now = out(), time.time()
    console.print(Text.assemble((f"{why.unit} is {why.state}: ", "bold"), one_line(why.detail, 400)))
    for label, value in (("scope", why.scope), ("since", why.since), ("until", why.until), ("to do", why.hint)):
        if value is not None:
            shown = moment(value, now, home.zone) if isinstance(value, float) else value
            console.print(Text.assemble((f"  {label:<7}", "dim"), one_line(shown, 300)))

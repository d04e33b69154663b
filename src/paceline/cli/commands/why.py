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
from paceline.store import Campaign, Unit
from paceline.views.why import Why, explain_unit, stored_waits


def command(unit: UnitName, as_json: AsJson = False) -> None:
    """Show what holds a unit, since when, until when, and what you can do about it."""
    with open_home() as home:
        show_why(home, unit, as_json=as_json)


def show_why(home: Home, name: str, *, as_json: bool) -> None:
    now = time.time()
    unit = find_unit(home.store, name)
    answers = read_why(home, unit, find_campaign(home.store, unit.campaign))
    if as_json:
        print_value({**msgspec.to_builtins(answers[0]), "others": answers[1:]} if answers[1:] else answers[0])
        return
    console = out()
    for each in answers:
        console.print(Text.assemble((f"{each.unit} is {each.state}: ", "bold"), one_line(each.detail, 400)))
        rows = (("where", each.scope), ("since", each.since), ("until", each.until), ("to do", each.hint))
        for label, value in rows:
            if value is not None:
                shown = moment(value, now, home.zone) if isinstance(value, float) else value
                console.print(Text.assemble((f"  {label:<7}", "dim"), one_line(shown, 300)))


def read_why(home: Home, unit: Unit, campaign: Campaign) -> list[Why]:
    """Return what the unit waits for: one answer, or one for each account that it could run on."""
    leaderless = None if home.engine_leader() is not None else str(home.path)
    return explain_unit(unit, campaign, stored_waits(home.store), leaderless=leaderless)

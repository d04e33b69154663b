"""`units CAMPAIGN`: the units of a campaign."""

import time
from typing import Annotated

import typer
from rich.text import Text

from paceline.cli.options import AsJson, CampaignName
from paceline.cli.output import STATE_STYLES, one_line, print_table, print_value, say, table
from paceline.cli.time_text import relative
from paceline.cli.wiring import open_home
from paceline.engine.campaign_lookup import find_campaign
from paceline.store import Unit
from paceline.views.status import total_units
from paceline.views.units import UnitFilter, iter_units, phase_of, unit_view

MOST_SHOWN = 100
"""A table for a person; programs get all units with --json."""


def command(
    campaign: CampaignName,
    state: Annotated[UnitFilter | None, typer.Option(help="Only units in this state.")] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="At most this many.", show_default="100; all with --json")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the units of a campaign with state, attempts and reason. Only real failures count as attempts."""
    with open_home() as home:
        name = find_campaign(home.store, campaign).name
        most = limit or (1 << 60 if as_json else MOST_SHOWN)
        units = list(iter_units(home.store, campaign=name, chosen=state, most=most))
        total = total_units(home.store.counts()[name])
    if as_json:
        print_value({"units": [unit_view(unit) for unit in units]})
        return
    _print_units(units, time.time())
    if len(units) < total:
        say(f"{len(units)} of {total:,} units; --state running|todo|done|… and --limit N choose others.", style="dim")


def _print_units(units: list[Unit], now: float) -> None:
    made = table("unit", "state", "attempts", "tries", "account", "since", "reason", right=("attempts", "tries"))
    for unit in units:
        phase = phase_of(unit)
        since = unit.started_at if unit.state == "running" else unit.ended_at
        made.add_row(
            one_line(unit.spec.id, 60),
            Text(phase, style=STATE_STYLES.get(phase, "")),
            str(unit.counters.failures),
            str(unit.counters.attempts),
            unit.account or "",
            relative(since - now) if since else "",
            _reason(unit, now),
        )
    print_table(made)


def _reason(unit: Unit, now: float) -> str:
    if unit.resume_at is not None:
        return f"{one_line(unit.reason, 80)}; again {relative(unit.resume_at - now)}"
    return "" if unit.state == "done" else one_line(unit.reason, 100)

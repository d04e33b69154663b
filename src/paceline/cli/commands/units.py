"""`units CAMPAIGN`: the units of a campaign."""

import time
from typing import Annotated, Final, get_args

import typer
from rich.text import Text

from paceline.agents.account import login_text
from paceline.cli.options import AsJson, CampaignName
from paceline.cli.output import STATE_STYLES, one_line, print_table, print_value, say, table
from paceline.cli.time_text import relative
from paceline.cli.wiring import open_home
from paceline.config_files.documents import nearest
from paceline.core.unit_lifecycle import UnitState
from paceline.engine.campaign_lookup import find_campaign
from paceline.store import Unit
from paceline.views.status import total_units
from paceline.views.units import UnitFilter, iter_units, phase_of, unit_view

MOST_SHOWN = 100
"""A table for a person; programs get all units with --json."""
STATES: Final[tuple[UnitFilter, ...]] = ("waiting", "parked", *get_args(UnitState))
OTHER_WORDS: Final[dict[str, UnitFilter]] = {
    "failed": "quarantined",
    "error": "quarantined",
    "paused": "held",
    "blocked": "held",
    "pending": "waiting",
    "queued": "waiting",
    "ready": "waiting",
    "active": "running",
    "finished": "done",
    "completed": "done",
    "succeeded": "done",
    "aborted": "cancelled",
}
"""What people call these states elsewhere."""


def _parse_state(word: str) -> UnitFilter:
    """Return the state of this name. The error for another word names the one that was probably meant."""
    for state in STATES:
        if word.lower() == state:
            return state
    meant = OTHER_WORDS.get(word.lower()) or nearest(word, STATES)
    hint = f"; did you mean {meant}?" if meant else "."
    raise typer.BadParameter(f"{word!r:.60} is not a state of units{hint} The states are {', '.join(STATES)}.")


def _complete_state(incomplete: str) -> list[str]:
    return [state for state in STATES if state.startswith(incomplete)]


def command(
    campaign: CampaignName,
    state: Annotated[
        UnitFilter | None,
        typer.Option(
            parser=_parse_state,
            metavar="|".join(STATES),
            help="Only units in this state. A unit that failed for good is quarantined.",
            autocompletion=_complete_state,
        ),
    ] = None,
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
            login_text(unit.account or ""),
            relative(since - now) if since else "",
            _reason(unit, now),
        )
    print_table(made)


def _reason(unit: Unit, now: float) -> str:
    if unit.resume_at is not None:
        return f"{one_line(unit.reason, 80)}; again {relative(unit.resume_at - now)}"
    return "" if unit.state == "done" else one_line(unit.reason, 100)

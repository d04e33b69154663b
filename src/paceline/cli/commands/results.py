"""`results CAMPAIGN`: one row per unit with what it did and what it cost."""

import csv
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from paceline.cli.options import AsJson, CampaignName
from paceline.cli.output import STATE_STYLES, one_line, print_table, say, table
from paceline.cli.time_text import span_text
from paceline.cli.wiring import Home, open_home
from paceline.cli.work_text import NOTHING, UNKNOWN, cost_text, lost_text
from paceline.engine.campaign_lookup import find_campaign
from paceline.errors import InvalidInput
from paceline.views.results import ResultRow, iter_results, iter_results_with_answers
from paceline.views.status import total_units

MOST_SHOWN = 100
"""A table for a person; the other forms have all units."""
NESTED = ("tokens", "cost")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def command(
    campaign: CampaignName,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, with a header.")] = False,
    as_jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Print one JSON object per line, with the agent's answer.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print one row per unit: state, model, tokens, cost, change, checks, and how long it waited and worked.

    The table shows the first 100 units. --csv, --jsonl and --json print all of them as they are read, so a campaign of
    100,000 units takes no more memory than a small one. What is not known is empty or null, never 0.
    """
    if as_csv + as_jsonl + as_json > 1:
        raise InvalidInput("choose one of --csv, --jsonl and --json")
    with open_home() as home:
        name = find_campaign(home.store, campaign).name
        if as_csv:
            _print_csv(iter_results(home.store, name))
        elif as_jsonl:
            for row in iter_results_with_answers(home.store, name):
                sys.stdout.write(msgspec.json.encode(row).decode() + "\n")
        elif as_json:
            _print_json(name, iter_results(home.store, name))
        else:
            _print_table(home, name)


def _print_json(name: str, rows: Iterator[ResultRow]) -> None:
    """Print one JSON document row by row."""
    sys.stdout.write(f'{{"campaign": {msgspec.json.encode(name).decode()}, "results": [')
    separator = "\n  "
    for row in rows:
        sys.stdout.write(separator + msgspec.json.encode(row).decode())
        separator = ",\n  "
    sys.stdout.write("\n]}\n")


def _print_csv(rows: Iterator[ResultRow]) -> None:
    writer: Any = None
    for row in rows:
        values = _flat(row)
        if writer is None:
            writer = csv.DictWriter(sys.stdout, list(values), lineterminator="\n")
            writer.writeheader()
        writer.writerow({name: _cell(value) for name, value in values.items()})


def _flat(row: ResultRow) -> dict[str, object]:
    """Return the columns of a row. Tokens and cost have a column for each of their parts."""
    values: dict[str, object] = {}
    for name, value in msgspec.to_builtins(row).items():
        if name not in NESTED:
            values[name] = value
        elif name == "tokens":
            parts = value or dict.fromkeys(("input", "output", "cache_read", "cache_write"))
            values |= {f"tokens_{kind}": count for kind, count in parts.items()}
        else:
            values |= {f"cost_{kind}": amount for kind, amount in value.items()}
    return values


def _cell(value: object) -> object:
    """Return the value for a spreadsheet. Text of an agent never becomes a formula there."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _print_table(home: Home, name: str) -> None:
    made = table(
        "unit", "state", "model", "turns", "tokens", "cost", "files", "checks", "worked", right=("turns", "tokens")
    )
    shown = lost = estimated = 0
    for row in iter_results(home.store, name, MOST_SHOWN):
        shown += 1
        lost, estimated = lost + row.lost_tokens, estimated + row.lost_tokens_estimated
        made.add_row(
            one_line(row.id, 60),
            Text(row.state, style=STATE_STYLES.get(row.state, "")),
            one_line(row.model, 30) or NOTHING,
            NOTHING if row.turns is None else f"{row.turns:,}",
            _tokens(row),
            cost_text(row.cost, is_used=_used_model(row)),
            NOTHING if row.files_changed is None else str(row.files_changed),
            _checks(row),
            span_text(row.ran_seconds) if row.ran_seconds else NOTHING,
        )
    print_table(made)
    if lost:
        say(f"Parking: {lost_text(lost, estimated)}.", style="dim")
    total = total_units(home.store.counts()[name])
    if total > shown:
        say(f"{total - shown} more: --csv or --jsonl prints all of them.", style="dim")


def _tokens(row: ResultRow) -> str:
    if row.tokens is not None:
        return f"{row.tokens.total:,}"
    return UNKNOWN if _used_model(row) else NOTHING


def _used_model(row: ResultRow) -> bool:
    """Return whether an agent worked, so that there were tokens, known or not."""
    return row.ran_seconds > 0 and row.agent not in (None, "command")


def _checks(row: ResultRow) -> str:
    if not row.checks:
        return NOTHING
    return ("passed" if row.check_exit_code == 0 else "failed") + ("" if row.checks == 1 else f" ({row.checks})")

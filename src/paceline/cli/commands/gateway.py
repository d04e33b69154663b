"""`gateway`: the calls of the gateway and what they cost."""

import time
from typing import Annotated
from urllib.parse import urlencode

import typer

from paceline.cli.call_text import count_text, spend_text
from paceline.cli.live_state import asking
from paceline.cli.options import AsJson
from paceline.cli.output import one_line, print_table, print_value, say, table
from paceline.cli.wiring import Home, open_home
from paceline.views.gateway_calls import GatewaySpend, SpendSum, spend_fields, spend_since, spend_view

app = typer.Typer(no_args_is_help=True, help="See what calls of the gateway cost.")

By = Annotated[str, typer.Option("--by", metavar="FIELDS", help="day, key, account, model, or several: key,model.")]
Since = Annotated[
    str | None, typer.Option("--since", metavar="DAY", help="The first day (UTC), or 7d for the last seven; 30d.")
]
Key = Annotated[str | None, typer.Option("--key", metavar="NAME", help="Only the calls of this key.")]


@app.command("spend")
def spend_command(by: By = "key", since: Since = None, key: Key = None, as_json: AsJson = False) -> None:
    """Show what calls of the gateway used and cost. The prices are those of campaigns."""
    fields, first = spend_fields(by), spend_since(since, time.time())
    with open_home() as home:
        found = _ask(home, by, first, key) or spend_view(home.store.spend(since=first, key=key), first, fields)
    if as_json:
        print_value(found)
        return
    _print_spend(found)


def _ask(home: Home, by: str, first: str, key: str | None) -> GatewaySpend | None:
    """Return what the daemon answers: it also knows the calls of the last seconds."""
    asked = {"by": by, "since": first} | ({} if key is None else {"key": key})
    with asking(home) as ask:
        answer = None if ask is None else ask(f"/v1/gateway/spend?{urlencode(asked)}")
    return None if answer is None else answer.decoded(GatewaySpend)


def _print_spend(found: GatewaySpend) -> None:
    numbers = ("calls", "input", "output", "cache read", "cache write", "cost")
    made = table(*found.by, *numbers, right=numbers)
    for row in found.rows:
        made.add_row(*(one_line(getattr(row, field) or "-", 60) for field in found.by), *_cells(row))
    if found.by and len(found.rows) != 1:
        made.add_row(*("total" if place == 0 else "" for place, _ in enumerate(found.by)), *_cells(found.total))
    print_table(made)
    say(f"Since {found.since} (UTC).", style="dim")
    if found.total.unpriced:
        hint = "Their model has no price ([prices] in paceline.toml), or their answers did not say their tokens."
        say(f"Calls without a known cost: {found.total.unpriced}. {hint}", style="yellow")
    if found.total.estimated:
        hint = "Their answers did not say all of them."
        say(f"Calls with estimated tokens: {found.total.estimated}. {hint}", style="yellow")


def _cells(row: SpendSum) -> tuple[str, ...]:
    used = row.tokens
    tokens = (count_text(each) for each in (used.input, used.output, used.cache_read, used.cache_write))
    return f"{row.requests:,}", *tokens, spend_text(row)

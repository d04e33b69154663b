"""`keys`: keys of your own for clients of the gateway."""

import time
from typing import Annotated, Any

import typer

from paceline.cli.call_text import budget_text
from paceline.cli.live_state import live_spend, read_keys
from paceline.cli.options import AsJson
from paceline.cli.output import print_table, print_value, say, table
from paceline.cli.time_text import absolute
from paceline.cli.wiring import Home, open_home
from paceline.engine.key_commands import KeyRequest, create_key, revoke_key
from paceline.store import SpendRow
from paceline.views.gateway_calls import spend_since
from paceline.views.keys import KeyView, new_key_view, revoked_key_view

app = typer.Typer(no_args_is_help=True, help="Keys of your own for clients of the gateway: create, list, revoke.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the key, such as that of a team.")]


def _option(metavar: str, help_text: str) -> Any:
    return typer.Option(metavar=metavar, help=help_text)


Pool = Annotated[str | None, _option("P", "The one pool or account that it may use: /gateway/P/. Default: all.")]
Models = Annotated[str | None, _option("M,...", "The models that it may call, by name or pattern. Default: all.")]
Rpm = Annotated[int | None, _option("N", "Calls that may start in a minute.")]
Tpm = Annotated[int | None, _option("N", "Tokens that may be used in a minute.")]
Parallel = Annotated[int | None, _option("N", "Calls at the same time.")]
PriorityMax = Annotated[int, _option("N", "The highest priority that its calls may have among each other.")]
Weight = Annotated[float, _option("N", "Its share beside other keys and campaigns. A campaign has 2^priority.")]
Budget = Annotated[str | None, _option("DOLLARS", "What its calls may cost: '$5/day', '$50/month' or '$100' in all.")]
AllPaths = Annotated[
    bool,
    typer.Option("--all-paths", help="Let it also use files, batches and stored answers, of all teams of the account."),
]


@app.command("create")
def create_command(
    name: Name,
    pool: Pool = None,
    models: Models = None,
    rpm: Rpm = None,
    tpm: Tpm = None,
    parallel: Parallel = None,
    priority_max: PriorityMax = 0,
    weight: Weight = 1.0,
    budget: Budget = None,
    all_paths: AllPaths = False,
    as_json: AsJson = False,
) -> None:
    """Create a key and print it. It is printed once: the database knows only its hash.

    Clients present it to the gateway in place of an API key. It is good for nothing else. A daemon that runs accepts
    it at once.
    """
    request = KeyRequest(
        name=name,
        pool=pool,
        models=() if models is None else tuple(each.strip() for each in models.split(",")),
        rpm=rpm,
        tpm=tpm,
        parallel=parallel,
        priority_max=priority_max,
        weight=weight,
        budget=budget,
        all_paths=all_paths,
    )
    with open_home() as home:
        now = time.time()
        created = create_key(home.store, home.settings, request, now=now, unsaved=_unsaved(home, name, now))
        if as_json:
            print_value(new_key_view(created.record, created.text))
        else:
            say(created.text)


@app.command("list")
def list_command(as_json: AsJson = False) -> None:
    """List the keys and what they allow; never their text."""
    with open_home() as home:
        now = time.time()
        found = read_keys(home, now)
        if as_json:
            print_value(found)
            return
        if not found.keys:
            say("No keys yet. `paceline keys create NAME` makes one for a team.")
            return
        made = table("key", "address", "models", "limits", "weight", "budget", "since")
        for key in found.keys:
            since = absolute(key.created_at, home.zone)
            address = "all" if key.pool is None else f"/gateway/{key.pool}/"
            models = ", ".join(key.models) or ("all, and all paths" if key.all_paths else "all")
            budget = budget_text(key, now, home.zone)
            made.add_row(key.name, address, models, _limits_text(key), f"{key.weight:g}", budget, since)
        print_table(made)


@app.command("revoke")
def revoke_command(name: Name, as_json: AsJson = False) -> None:
    """Accept a key no longer. Calls that run finish; those that wait are refused when their turn comes."""
    with open_home() as home:
        record = revoke_key(home.store, name, now=time.time())
        if as_json:
            print_value(revoked_key_view(record))
        else:
            say(f"revoked {record.name}: no gateway accepts it from now on; calls that run finish")


def _unsaved(home: Home, name: str, now: float) -> list[SpendRow]:
    """Return what an earlier key of the name has spent today and the store does not have yet."""
    if name not in {each.key.name for each in home.store.client_keys()}:
        return []
    today = spend_since("1d", now)
    if (live := live_spend(home, "key", today, name)) is None:
        return []
    known = (live.total.cost.billed or 0.0) + (live.total.cost.imputed or 0.0)
    stored = sum(row.dollars for row in home.store.spend(since=today, key=name))
    return [SpendRow(day=today, key=name, account="", model="", billed=max(0.0, known - stored))]


def _limits_text(key: KeyView) -> str:
    named = (("parallel", key.parallel), ("rpm", key.rpm), ("tpm", key.tpm), ("priority", key.priority_max or None))
    return ", ".join(f"{name} {number:,}" for name, number in named if number is not None)

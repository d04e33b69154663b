"""The gateway: the variables for its clients, the keys that they present, and what their calls cost."""

import shlex
import sys
import time
from typing import Annotated, Any, Literal
from urllib.parse import quote

import typer

from paceline.agents.account import Account
from paceline.agents.launch import sdk_gateway_variables
from paceline.agents.profile import filled
from paceline.api.tokens import own_token_of
from paceline.cli.output import (
    AsJson,
    budget_text,
    count_text,
    one_line,
    print_table,
    print_value,
    say,
    spend_text,
    table,
)
from paceline.daemon.contact import daemon_url, live_spend, read_keys
from paceline.daemon.home import Home, open_home
from paceline.daemon.times import absolute
from paceline.engine.key_commands import (
    KeyRequest,
    create_key,
    digest_of_key,
    present_keys,
    revoke_key,
    unknown_address,
)
from paceline.errors import InvalidInput, UnknownName
from paceline.settings import Settings
from paceline.views.capacity import KeyView, new_key_view, revoked_key_view
from paceline.views.gateway_calls import GatewaySpend, SpendSum, spend_fields, spend_since, spend_view

# -- gateway ------------------------------------------------------------------------------------------

gateway_app = typer.Typer(no_args_is_help=True, help="Set up clients of the gateway, and see what calls cost.")

By = Annotated[str, typer.Option("--by", metavar="FIELDS", help="day, key, account, model, or several: key,model.")]
Since = Annotated[
    str | None, typer.Option("--since", metavar="DAY", help="The first day (UTC), or 7d for the last seven; 30d.")
]
Key = Annotated[str | None, typer.Option("--key", metavar="NAME", help="Only the calls of this key.")]

Address = Annotated[str, typer.Argument(metavar="ACCOUNT|POOL", help="The account or the pool of keys to use.")]
Shell = Annotated[Literal["sh", "fish"], typer.Option("--shell", help="The shell that reads the lines.")]
ClientKeyText = Annotated[
    str | None,
    typer.Option("--key", metavar="KEY", help="A key of `paceline keys create`. Default: the token of this home."),
]


@gateway_app.command("env")
def env_command(name: Address, shell: Shell = "sh", key: ClientKeyText = None, as_json: AsJson = False) -> None:
    """Print the variables that point SDKs and CLIs at the gateway: `eval "$(paceline gateway env team)"`.

    For fish: `paceline gateway env team --shell fish | source`.
    """
    with open_home() as home:
        account = _first_account(home.settings, name)
        secret = own_token_of(home.store, home.path, "full") if key is None else _checked_key(home, key, name)
        url = f"{daemon_url(home)}/gateway/{quote(name, safe='')}"
    variables = filled(sdk_gateway_variables(account.provider), url=url, token=secret)
    if as_json:
        print_value({"address": name, "provider": account.provider, "variables": variables})
        return
    for variable, value in variables.items():
        sys.stdout.write(export_line(variable, value, shell))


def _first_account(settings: Settings, name: str) -> Account:
    """Return the account behind the address, or the first one of a pool. Raises `InvalidInput` if there is none."""
    pool = settings.key_pools.get(name)
    wanted = name if pool is None else pool.accounts[0]
    found = [account for account in settings.accounts.values() if wanted in (account.name, account.id)]
    metered = [account for account in found if account.kind == "metered"]
    if metered:
        return metered[0]
    raise unknown_address(settings, name)


def _checked_key(home: Home, text: str, name: str) -> str:
    """Return the key if a client may use it at that address. A text that is no key of `paceline keys` is refused."""
    digest = digest_of_key(text.encode())
    found = next((each.key for each in present_keys(home.store.client_keys()) if each.digest == digest), None)
    if found is None:
        raise InvalidInput("--key is no key of this gateway, or was revoked; `paceline keys create NAME` makes one")
    if found.pool not in (None, name):
        raise InvalidInput(f"the key {found.name} may use /gateway/{found.pool}/ only; name {found.pool}")
    return text


def export_line(variable: str, value: str, shell: Literal["sh", "fish"]) -> str:
    """Return the line with which a shell sets the variable for the programs that it starts."""
    if shell == "fish":
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"set -gx {variable} '{escaped}'\n"
    return f"export {variable}={shlex.quote(value)}\n"


@gateway_app.command("spend")
def spend_command(by: By = "key", since: Since = None, key: Key = None, as_json: AsJson = False) -> None:
    """Show what calls of the gateway used and cost. The prices are those of campaigns."""
    fields, first = spend_fields(by), spend_since(since, time.time())
    with open_home() as home:
        if key is not None:
            _check_name(home, key)
        found = live_spend(home, by, first, key) or spend_view(home.store.spend(since=first, key=key), first, fields)
    if as_json:
        print_value(found)
        return
    _print_spend(found)


def _check_name(home: Home, name: str) -> None:
    """Raise `UnknownName` unless a key of this name exists or has ever cost something."""
    keys = {each.key.name for each in home.store.client_keys()} | {row.key for row in home.store.spend() if row.key}
    if name not in keys:
        listed = f"the keys are: {', '.join(sorted(keys))}" if keys else "there are none yet"
        raise UnknownName(f"there is no key {name!r:.80}; {listed}")


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


# -- keys ---------------------------------------------------------------------------------------------

keys_app = typer.Typer(no_args_is_help=True, help="Keys of your own for clients of the gateway: create, list, revoke.")

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


@keys_app.command("create")
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
        created = create_key(home.store, home.settings, request, now=now)
        if as_json:
            print_value(new_key_view(created.record, created.text))
        else:
            say(created.text)


@keys_app.command("list")
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


@keys_app.command("revoke")
def revoke_command(name: Name, as_json: AsJson = False) -> None:
    """Accept a key no longer. Calls that run finish; those that wait are refused when their turn comes."""
    with open_home() as home:
        record = revoke_key(home.store, name, now=time.time())
        if as_json:
            print_value(revoked_key_view(record))
        else:
            say(f"revoked {record.name}: no gateway accepts it from now on; calls that run finish")


def _limits_text(key: KeyView) -> str:
    named = (("parallel", key.parallel), ("rpm", key.rpm), ("tpm", key.tpm), ("priority", key.priority_max or None))
    return ", ".join(f"{name} {number:,}" for name, number in named if number is not None)

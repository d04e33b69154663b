"""`token`: the token of the HTTP API, and the tokens of the whole fleet."""

from typing import Annotated

import typer

from paceline.api.token_registry import (
    TokenRegistry,
    home_name,
    own_token_of,
    read_registry,
    revoke_token,
    rotate_token,
)
from paceline.api.tokens import Rights
from paceline.cli.daemon_address import daemon_url, dashboard_url
from paceline.cli.options import AsJson
from paceline.cli.output import print_table, print_value, say, table
from paceline.cli.time_text import absolute
from paceline.cli.wiring import Home, open_home
from paceline.errors import InvalidInput


def command(
    read_only: Annotated[bool, typer.Option("--read-only", help="The token that can only read.")] = False,
    url: Annotated[bool, typer.Option("--url", help="Print the address that opens the dashboard with it.")] = False,
    rotate: Annotated[
        bool, typer.Option("--rotate", help="Make a new token; the present one is refused from now on.")
    ] = False,
    is_list: Annotated[
        bool, typer.Option("--list", help="List the tokens of all homes that share the database; never their values.")
    ] = False,
    revoke: Annotated[
        str | None, typer.Option("--revoke", metavar="NAME", help="Accept the token of that name no longer.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the token of the HTTP API; it is created if there is none. It allows everything that you can do here.

    The database knows only its hash. Engines that run notice a new, rotated or revoked token within two seconds.
    """
    if (rotate or read_only or url) + is_list + (revoke is not None) > 1:
        raise InvalidInput("--list and --revoke stand alone: give one of them, without --rotate, --read-only and --url")
    with open_home() as home:
        if is_list:
            _print_list(home, read_registry(home.store), as_json=as_json)
        elif revoke is not None:
            _revoke(home, revoke, as_json=as_json)
        else:
            _print_token(home, "read" if read_only else "full", rotate=rotate, url=url, as_json=as_json)


def _print_token(home: Home, rights: Rights, *, rotate: bool, url: bool, as_json: bool) -> None:
    token = (rotate_token if rotate else own_token_of)(home.store, home.path, rights)
    address = dashboard_url(daemon_url(home), token)
    if as_json:
        print_value({"token": token, "rights": rights, "url": address})
    else:
        say(address if url else token)


def _print_list(home: Home, registry: TokenRegistry, *, as_json: bool) -> None:
    ours = home_name(home.path)
    entries = [
        {"name": each.name, "rights": each.rights, "since": each.since, "home": each.home, "is_own": each.home == ours}
        for each in registry.tokens
    ]
    if as_json:
        print_value({"tokens": entries})
        return
    if not entries:
        say("No tokens yet. `paceline up` and `paceline token` make those of this home.")
        return
    made = table("token", "rights", "since", "home")
    for each in registry.tokens:
        made.add_row(each.name, each.rights, absolute(each.since, home.zone), each.home)
    print_table(made)


def _revoke(home: Home, name: str, *, as_json: bool) -> None:
    found = revoke_token(home.store, name)
    if as_json:
        print_value({"ok": True, "name": found.name, "rights": found.rights})
        return
    say(f"revoked {found.name}: no engine accepts it from now on")
    if found.home == home_name(home.path):
        option = " --read-only" if found.rights == "read" else ""
        say(f"It was the token of this home; `paceline token{option} --rotate` makes a new one.", style="yellow")

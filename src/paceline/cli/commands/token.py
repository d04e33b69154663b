"""`token`: the token of the HTTP API."""

from typing import Annotated

import typer

from paceline.api.tokens import READ_ONLY_FILE, TOKEN_FILE, load_token
from paceline.cli.daemon_address import daemon_url, dashboard_url
from paceline.cli.output import say
from paceline.cli.wiring import open_home


def command(
    read_only: Annotated[bool, typer.Option("--read-only", help="Print the token that can only read.")] = False,
    url: Annotated[bool, typer.Option("--url", help="Print the address that opens the dashboard with it.")] = False,
) -> None:
    """Print the token of the HTTP API; it is created if there is none. It allows everything that you can do here."""
    with open_home() as home:
        token = load_token(home.path / (READ_ONLY_FILE if read_only else TOKEN_FILE))
        say(dashboard_url(daemon_url(home), token) if url else token)

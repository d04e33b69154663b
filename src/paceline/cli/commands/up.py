"""`up`: the daemon, until it is stopped."""

from typing import Annotated

import typer

from paceline.cli.options import AsJson
from paceline.cli.wiring import open_home


def command(
    host: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Where to listen.", show_default="127.0.0.1, or as in the settings"),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="0 takes a free port.", show_default="7433, or as in the settings"),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Serve other machines without TLS: the network can read the token.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run the daemon: engine, HTTP API, gateway and dashboard, until it is stopped.

    When it is ready it prints one address with a token in it: open it in a browser. Add campaigns with
    [bold]paceline add[/bold], on the dashboard or over HTTP. [bold]Ctrl-C[/bold] stops it; running sessions continue
    without it and are found again at the next start.

    Exit codes: 0 stopped; 2 something is wrong with the settings, the token file, the certificate or the address;
    75 another engine runs this home.
    """
    from paceline.cli.daemon import run_daemon  # the other commands need not load a web server

    with open_home() as home:
        run_daemon(home, host=host, port=port, insecure=insecure, as_json=as_json)

"""`worker`: run the sessions of a leader on this machine, until it is stopped."""

import os
from pathlib import Path
from typing import Annotated

import typer

from paceline.agents.withheld_variables import TOKEN_VARIABLE
from paceline.errors import InvalidInput


def command(
    connect: Annotated[
        list[str],
        typer.Option(metavar="URL", help="Where the leader answers. Repeat it for the other engines of a fleet."),
    ],
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="The name of this host.", show_default="as in the token")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The file with the token of this host.", show_default="PACELINE_TOKEN"),
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="LABEL", help="What plans can ask for with `labels`. Repeatable.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Connect to other machines without TLS: the network can read the token.")
    ] = False,
) -> None:
    """Run sessions on this machine for a leader elsewhere, until it is stopped.

    The token comes from [bold]paceline hosts add NAME[/bold] on the leader. Sessions, logins and workspaces are those
    of this machine, under PACELINE_HOME. [bold]Ctrl-C[/bold] or SIGTERM ends the worker; its sessions continue, and the
    next worker of this home finds them. If no leader answers within the lease of the host, they are ended.

    Exit codes: 0 stopped; 2 the leader refuses this worker (the token, the name or the version), or an option is wrong;
    75 another worker or an engine uses this home.
    """
    from paceline.cli.worker_process import WorkerRequest, run_worker  # the other commands need not load it
    from paceline.settings.environment import home_folder
    from paceline.worker.http_link import check_address, read_token

    addresses = [check_address(url, insecure=insecure) for url in connect]
    token = read_token(*_token_text(token_file))
    if name is not None and name != token.host:
        raise InvalidInput(f"--name is {name!r}, but the token is one of {token.host!r}: use the token of {name!r}")
    home = home_folder(Path.cwd(), os.environ)
    labels = tuple(dict.fromkeys(label or ()))
    run_worker(WorkerRequest(home=home, addresses=addresses, token=token, labels=labels), os.environ)


def _token_text(file: Path | None) -> tuple[str, str]:
    """Return the token and where it comes from."""
    if file is None:
        if TOKEN_VARIABLE not in os.environ:
            raise InvalidInput(f"the token of this host is missing: pass --token-file FILE, or set {TOKEN_VARIABLE}")
        return os.environ[TOKEN_VARIABLE], TOKEN_VARIABLE
    try:
        return file.read_text(), str(file)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the token cannot be read from {file}: {error}") from error

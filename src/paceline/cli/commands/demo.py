"""`demo`: the engine at work, without keys or network."""

from typing import Annotated

import typer


def command(
    as_json: Annotated[bool, typer.Option("--json", help="Print only the figures at the end, as JSON.")] = False,
) -> None:
    """Watch the engine run two campaigns through a 429 and a closed quota window, in under a minute.

    It starts a fake provider on this machine, a small agent program that talks to it, and 24 units of work in a
    temporary home. You see: sessions shared two to one by priority; a pause after a 429; the quota window closing;
    running units parked until the reset; one canary at the reset, then the others in a wave. At the end all units are
    done and no attempt is charged.

    It needs no keys and no network. On a terminal it is a live view, otherwise plain lines.
    """
    from paceline.cli.demo.show import show_demo  # the other commands need not load a web server

    raise typer.Exit(show_demo(as_json=as_json))

"""`top`: the live view in the terminal."""

import sys

from paceline.cli.wiring import open_home
from paceline.errors import InvalidInput


def command() -> None:
    """Watch and control campaigns, capacity, units and events live in the terminal; ? lists the keys.

    It works with and without a running engine. For programs there is [bold]paceline status --json[/bold].
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()):  # the toolkit draws on stderr
        raise InvalidInput("top is a live view and needs a terminal; for programs there is `paceline status --json`")
    from paceline.cli.top.app import TopApp  # the other commands need not load a terminal toolkit

    with open_home() as home:
        TopApp(home).run()

"""`top` as a command: needs a terminal, and says so where there is none."""

import sys

from paceline.cli.top.app import TopApp
from paceline.cli.wiring import Home
from paceline.errors import InvalidInput


def show_top(home: Home) -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()):  # it is drawn on the last of these
        raise InvalidInput("top is a live view and needs a terminal; for programs there is `paceline status --json`")
    TopApp(home).run()

"""The `paceline` command. The composition root: the only place that picks implementations.

One module per command; what a command prints is made of values that others computed. No decision about limits
is ever taken here.
"""

from paceline.cli.main import main

__all__ = ["main"]

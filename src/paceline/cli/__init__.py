"""The `paceline` command. The composition root: `wiring.py` is the only place that picks implementations.

`main.py` composes the command tree from `commands/`, one module per command. A command prints values that other
packages compute; it never decides about limits.
"""

from paceline.cli.main import main

__all__ = ["main"]

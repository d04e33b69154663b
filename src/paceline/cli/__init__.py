"""The `paceline` command. The composition root: `wiring.py` and `home_engine.py` alone pick implementations.

`main.py` composes the command tree from `commands/`, one module per command. A command prints values that other
packages compute; it never decides about limits.
"""

from paceline.cli.main import main

__all__ = ["main"]

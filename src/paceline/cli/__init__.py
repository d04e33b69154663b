"""The `paceline` command. A command prints values that other packages compute; it never decides about limits.

`main.py` composes the command tree from `commands/`, one module per topic. `output.py` has what commands take, and how
they print. `top/` is the live view, `demo.py` the demo, and
`demo_agent.py` the program that it runs.
"""

from paceline.cli.main import main

__all__ = ["main"]

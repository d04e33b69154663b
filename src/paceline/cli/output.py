"""The output of commands: consoles, tables, JSON, harmless text, and errors as exit codes."""

import os
import sys
from typing import Any, Final

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from paceline.errors import EngineBusy, InvalidInput, PacelineError, Refused, StoreBusy
from paceline.views.safe_text import printable as printable

NOT_ALL_DONE: Final = 1
WRONG_USE: Final = 2
TRY_LATER: Final = 75
INTERRUPTED: Final = 130
WIDEST_PIPE: Final = 10_000
"""Columns of a line in a pipe: programs and files do not fold."""
FOLLOW_SECONDS: Final = 0.3
"""How often `--follow` reads again: it feels immediate, and is a small load on the store."""
STATE_STYLES: Final = {
    "running": "green",
    "done": "dim",
    "parked": "yellow",
    "held": "bold yellow",
    "quarantined": "bold red",
    "unverified": "bold red",
    "cancelled": "dim",
}


class PacelineGroup(TyperGroup):
    """The command tree. Errors that Paceline raises on purpose are printed as one sentence, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except PacelineError as error:
            Console(stderr=True, highlight=False).print(Text(f"Error: {printable(str(error))}"), soft_wrap=True)
            raise typer.Exit(exit_code_of(error)) from error
        except BrokenPipeError:
            # The reader has gone, as `head` does. What is still buffered must not fail at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(NOT_ALL_DONE) from None


def exit_code_of(error: PacelineError) -> int:
    if isinstance(error, EngineBusy | StoreBusy):
        return TRY_LATER
    return WRONG_USE if isinstance(error, InvalidInput | Refused) else NOT_ALL_DONE


def out() -> Console:
    """Return the console for answers. It leaves markup and numbers as they are."""
    return Console(highlight=False, markup=False, soft_wrap=True)


def say(message: str, style: str = "") -> None:
    out().print(Text(printable(message), style=style))


def one_line(text: str | None, longest: int = 200) -> str:
    """Return text as a single line for a table, cut at `longest` characters."""
    line = " ".join(printable(text or "").split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def print_value(value: object) -> None:
    """Print JSON for programs."""
    encoded = msgspec.json.encode(value)
    sys.stdout.write(msgspec.json.format(encoded, indent=2).decode() + "\n")


def print_line(value: object) -> None:
    """Print one JSON value on one line and flush, for streams."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """Return a table without a frame, which also reads well in a pipe."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made


def print_table(made: Table) -> None:
    """Print a table: folded at the edge of a terminal, as wide as needed in a pipe."""
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, width=WIDEST_PIPE)
        console = Console(highlight=False, markup=False, width=max(1, console.measure(made).maximum))
    for segments in console.render_lines(made, pad=False):
        line = Text.assemble(*((segment.text, segment.style or "") for segment in segments))
        line.rstrip()
        console.print(line, soft_wrap=True)

"""How commands speak: consoles, JSON, text from outside made harmless, and errors as exit codes.

No command lives here, and nothing is looked up.
"""

import os
import sys
from typing import Any, Final

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from paceline.errors import EngineBusy, InvalidInput, PacelineError, StoreBusy
from paceline.views.safe_text import printable as printable

NOT_ALL_DONE: Final = 1
WRONG_USE: Final = 2
TRY_LATER: Final = 75
INTERRUPTED: Final = 130


class PacelineGroup(TyperGroup):
    """The command tree, with errors that Paceline raises on purpose told in a few words instead of a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except PacelineError as error:
            Console(stderr=True, highlight=False).print(Text(f"Error: {printable(str(error))}"), soft_wrap=True)
            raise typer.Exit(exit_code_of(error)) from error
        except BrokenPipeError:
            # Whoever read us has left, as `head` does. What is still buffered must not complain at the exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(NOT_ALL_DONE) from None


def exit_code_of(error: PacelineError) -> int:
    if isinstance(error, EngineBusy | StoreBusy):
        return TRY_LATER
    return WRONG_USE if isinstance(error, InvalidInput) else NOT_ALL_DONE


def out() -> Console:
    """Where answers go. Nothing that looks like markup or a number is dressed up."""
    return Console(highlight=False, markup=False, soft_wrap=True)


def say(message: str, style: str = "") -> None:
    out().print(Text(printable(message), style=style))


def one_line(text: str | None, longest: int = 200) -> str:
    """The same in a single line of a table."""
    line = " ".join(printable(text or "").split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def print_value(value: object) -> None:
    """JSON for programs."""
    encoded = msgspec.json.encode(value)
    sys.stdout.write(msgspec.json.format(encoded, indent=2).decode() + "\n")


def print_line(value: object) -> None:
    """One JSON value in one line, at once: for streams."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """A table without a frame, that reads well in a pipe too."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made


def print_table(made: Table) -> None:
    """As wide as it needs in a pipe; folded at the edge of a terminal."""
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, width=max(console.width, 250))
    for segments in console.render_lines(made, pad=False):
        line = Text.assemble(*((segment.text, segment.style or "") for segment in segments))
        line.rstrip()
        console.print(line, soft_wrap=True)

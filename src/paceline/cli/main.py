"""The command tree of `paceline`.

Here: the root command, the help panels and the order of the commands. Never here: what a command does.

To add a command:

1. Write `cli/commands/NAME.py` with a function `command`. Its parameters are the options, its docstring is the help.
   A command with commands of its own has a Typer `app` instead.
2. Add NAME to `COMMANDS` below, in the panel where people look for it.

Every start of `paceline` pays for what the modules of all commands import. A command that needs a web server, a
terminal toolkit or the simulation imports it inside its function.
"""

from importlib import import_module
from importlib.metadata import version
from typing import Annotated

import typer

from paceline.cli.output import PacelineGroup
from paceline.engine.authorship import commanded_by, person

HELP = """Run a fleet of AI agents on the capacity you pay for: never over a limit, never idle while there is room.

Start with [bold]paceline demo[/bold]: two campaigns against a fake provider, no keys, no network.
Then [bold]paceline doctor[/bold], write a plan, and [bold]paceline run PLAN[/bold].
To see why a unit waits: [bold]paceline why UNIT[/bold].

Exit codes: 0 done, 1 not everything is done, 2 wrong use, 75 try again later, 130 interrupted.
"""

COMMANDS = {
    "Campaigns": (
        *("run", "up", "hosts", "worker", "token", "keys", "add", "preview", "forecast"),
        *("pause", "resume", "cancel", "delete", "retry", "accept", "apply", "gc", "store", "exec"),
    ),
    "Status": (
        *("list", "status", "top", "units", "why", "logs", "diff", "events", "doctor"),
        *("results", "show", "summary"),
    ),
    "Capacity": ("limits", "pool", "limit", "cooldown", "restore", "gateway"),
    "Demo and detection": ("demo", "detect", "report"),
}
"""Every command by its help panel, in the order in which the help lists them."""

app = typer.Typer(
    name="paceline",
    cls=PacelineGroup,
    help=HELP,
    rich_markup_mode="rich",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"paceline {version('paceline')}")
        raise typer.Exit


@app.callback()
def paceline(
    context: typer.Context,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Hold the options of the root command, and say who gives the command; its help is HELP."""
    context.with_resource(commanded_by(f"{person()} (cli)"))


def _register_commands() -> None:
    for panel, names in COMMANDS.items():
        for name in names:
            module = import_module(f"paceline.cli.commands.{name}")
            if hasattr(module, "app"):
                app.add_typer(module.app, name=name, rich_help_panel=panel)
                continue
            context_settings = getattr(module, "CONTEXT_SETTINGS", None)
            app.command(name, rich_help_panel=panel, context_settings=context_settings)(module.command)


_register_commands()


def main() -> None:
    """Run the command that the arguments of the process name."""
    app()

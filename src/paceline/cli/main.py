"""The command tree of `paceline`.

Here: the root command, the help panels and the order of the commands. Never here: what a command does.

To add a command:

1. Write `cli/commands/NAME.py` with a function `command`. Its parameters are the options, its docstring is the help.
   A command with commands of its own has a Typer `app` instead.
2. Add NAME to `COMMANDS` below, in the panel where people look for it.

A start of `paceline` imports the module of the command that it names, and those of the others only for a list of them.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any

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

PANELS = {name: panel for panel, names in COMMANDS.items() for name in names}


class CommandModules(Mapping[str, Any]):
    """Every command by its name. Reading one imports its module."""

    def __getitem__(self, name: str) -> Any:
        panel = PANELS[name]
        module = import_module(f"paceline.cli.commands.{name}")
        parent = typer.Typer(rich_markup_mode="rich")
        if hasattr(module, "app"):
            parent.add_typer(module.app, name=name, rich_help_panel=panel)
        else:
            context_settings = getattr(module, "CONTEXT_SETTINGS", None)
            parent.command(name, rich_help_panel=panel, context_settings=context_settings)(module.command)
        return typer.main.get_group(parent).commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(PANELS)

    def __len__(self) -> int:
        return len(PANELS)


class CommandTree(PacelineGroup):
    """The root command, which imports a command when it is asked for."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**{**attributes, "commands": CommandModules()})


app = typer.Typer(
    name="paceline",
    cls=CommandTree,
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


def main() -> None:
    """Run the command that the arguments of the process name."""
    app()

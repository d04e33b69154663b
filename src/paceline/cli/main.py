"""The command tree of `paceline`.

Here: the root command, the help panels and the order of the commands, and errors as sentences and exit codes. Never
here: what a command does.

To add a command:

1. Write a function `NAME_command` in the module of `cli/commands` with that topic. Its parameters are the options, its
   docstring is the help. A command with commands of its own is a Typer `NAME_app` instead.
2. Add NAME to `COMMANDS` below, in the panel where people look for it, and to `MODULES`.

A start of `paceline` imports the module of the command that it names, and the others only for a list of all commands.
"""

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from paceline.engine.command_log import commanded_by, person
from paceline.errors import EngineBusy, InvalidInput, PacelineError, Refused, StoreBusy
from paceline.views.safe_text import printable

NOT_ALL_DONE: Final = 1
WRONG_USE: Final = 2
TRY_LATER: Final = 75
INTERRUPTED: Final = 130

HELP = """Run a fleet of AI agents on the capacity you pay for: never over a limit, never idle while there is room.

Start with [bold]paceline demo[/bold]: two campaigns against a fake provider, no keys, no network.
Then [bold]paceline doctor[/bold], write a plan, and [bold]paceline run PLAN[/bold].
To see why a unit waits: [bold]paceline why UNIT[/bold].

Exit codes: 0 done, 1 not everything is done, 2 wrong use, 75 try again later, 130 interrupted.
"""

COMMANDS = {
    "Campaigns": (
        *("run", "preview", "forecast", "add"),
        *("pause", "resume", "cancel", "retry", "accept", "apply", "delete"),
    ),
    "Status": (
        *("list", "status", "top", "units", "why", "logs", "diff", "events", "doctor"),
        *("results", "show", "summary"),
    ),
    "Capacity": ("limits", "pool", "limit", "cooldown", "restore", "exec"),
    "Daemon, keys and other machines": ("up", "token", "gateway", "keys", "hosts", "worker", "gc", "export", "import"),
    "Demo and detection": ("demo", "detect", "report"),
}
"""Every command by its help panel, in the order in which the help lists them."""

MODULES = {
    "plans": ("add", "preview", "forecast", "demo"),
    "run": ("run",),
    "control": ("pause", "resume", "cancel", "retry", "accept", "delete", "pool", "limit", "cooldown", "restore"),
    "status": ("list", "status", "limits", "events", "why", "top"),
    "units": ("units", "show", "apply", "results", "summary"),
    "logs": ("logs", "diff"),
    "home": ("up", "token", "gc", "export", "import", "gateway", "keys", "hosts", "worker"),
    "exec": ("exec",),
    "doctor": ("doctor",),
    "detection": ("detect", "report"),
}
"""The commands of each module: those of one topic, and of one weight when a shell starts them."""

PANELS = {name: panel for panel, names in COMMANDS.items() for name in names}
PLACES = {name: module for module, names in MODULES.items() for name in names}


class CommandModules(Mapping[str, Any]):
    """Every command by its name. Reading one imports its module."""

    def __getitem__(self, name: str) -> Any:
        panel = PANELS[name]
        module = import_module(f"paceline.cli.commands.{PLACES[name]}")
        parent = typer.Typer(rich_markup_mode="rich")
        group = getattr(module, f"{name}_app", None)
        if group is not None:
            parent.add_typer(group, name=name, rich_help_panel=panel)
        else:
            context_settings = getattr(module, "CONTEXT_SETTINGS", None)
            function = getattr(module, f"{name}_command")
            parent.command(name, rich_help_panel=panel, context_settings=context_settings)(function)
        command = typer.main.get_group(parent).commands[name]
        for each in (command, *getattr(command, "commands", {}).values()):
            hide_flag_types(each.get_params(typer.Context(each)))
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(PANELS)

    def __len__(self) -> int:
        return len(PANELS)


def _check_current_folder() -> None:
    """Raise `InvalidInput` if the current folder was deleted, such as a workspace: settings are searched from there."""
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise InvalidInput("the current folder was deleted; change to another one and run this again") from error


def hide_flag_types(params: Sequence[Any]) -> None:
    """Leave out of the help that a flag is a bool: newer versions of Typer print it behind each."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""


@contextlib.contextmanager
def whole_output() -> Iterator[None]:
    """End the process with one line on stderr if its output cannot be written, for example on a full disk."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        sys.exit(NOT_ALL_DONE)
    except OSError as error:
        if _can_write_output():
            raise  # it has another cause
        _discard_output()
        with contextlib.suppress(OSError):
            sys.stderr.write(f"Error: the output cannot be written: {error.strerror}; write it to another place\n")
        sys.exit(NOT_ALL_DONE)


def _can_write_output() -> bool:
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError:
        return False
    return True


def _discard_output() -> None:
    """Send stdout nowhere: what is still buffered must not fail at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def exit_code_of(error: PacelineError) -> int:
    if isinstance(error, EngineBusy | StoreBusy):
        return TRY_LATER
    return WRONG_USE if isinstance(error, InvalidInput | Refused) else NOT_ALL_DONE


class CommandTree(TyperGroup):
    """The root command. Errors that Paceline raises on purpose are printed as one sentence, without a traceback."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**{**attributes, "commands": CommandModules()})

    def invoke(self, ctx: Any) -> Any:
        try:
            _check_current_folder()
            return super().invoke(ctx)
        except PacelineError as error:
            Console(stderr=True, highlight=False).print(Text(f"Error: {printable(str(error))}"), soft_wrap=True)
            raise typer.Exit(exit_code_of(error)) from error
        except BrokenPipeError:
            _discard_output()  # the reader has gone, as `head` does
            raise typer.Exit(NOT_ALL_DONE) from None

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options, also those of completion, which Typer adds last."""
        params = super().get_params(ctx)
        hide_flag_types(params)
        return params


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
    """Run the command that the arguments of the process name. A stream that its caller has closed is `/dev/null`."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w" if number else "r"))  # noqa: SIM115 - as long as the process
    with whole_output():
        app()

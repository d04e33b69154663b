"""The command tree: names, options and help. Each command hands over to its module."""

import time
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal

import typer

from paceline.cli.commands.detect import print_json, read_run, show_reading, show_run
from paceline.cli.commands.report import known_values, make_report, write_report
from paceline.cli.engine_commands import commands
from paceline.cli.inputs import STDIN, parse_headers, parse_time, parse_zone, read_ends
from paceline.cli.output import PacelineGroup
from paceline.detect import Observation
from paceline.detect.stream import Channel as StreamChannel
from paceline.redaction.redactor import Redactor

HELP = """Runs a fleet of AI agents on the capacity you pay for: never over a limit, never idle while there is room.

Start with [bold]paceline demo[/bold]: two campaigns against a fake provider, no keys, no network.
Then [bold]paceline doctor[/bold], write a plan, and [bold]paceline run PLAN[/bold].
What waits can say why: [bold]paceline why UNIT[/bold].

Exit codes: 0 done, 1 not all of it, 2 wrong use, 75 try again later, 130 interrupted.
"""

TOOLS = "Trying it out, and what an agent said"

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
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """The root of all commands; its help is HELP."""


tools = typer.Typer()


@tools.command(rich_help_panel=TOOLS)
def demo(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the figures as JSON at the end, and nothing else.")
    ] = False,
) -> None:
    """Watch the engine run two campaigns through a 429 and a closed quota window, in under a minute.

    A fake provider on this machine, a small agent program that talks to it, 24 units of work in a home of their own.
    You see the sessions go two to one by priority, a 429 waited out, the window close, what ran parked with the time
    of resuming, one canary at the reset, the rest in a wave, and the end: all done, none lost, no attempt charged.

    Needs no keys and no network. On a terminal it is a live view, otherwise plain lines.
    """
    from paceline.cli.demo.show import show_demo  # the other commands need not load a web server

    raise typer.Exit(show_demo(as_json=as_json))


Source = Annotated[str, typer.Argument(metavar="FILE", help="A file, or - for standard input.")]
Provider = Annotated[
    str, typer.Option(help="Who said it: claude-code, codex, gemini-cli, opencode, anthropic-api, openai-api, ...")
]
Channel = Annotated[
    Literal["screen", "stderr", "stdout-json", "stdout", "http"] | None,
    typer.Option(help="Where it was seen.", show_default="http with --status or --header, else screen"),
]
Status = Annotated[int | None, typer.Option(min=100, max=599, help="The HTTP status that came with it.")]
Header = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", metavar="'NAME: VALUE'", help="A response header; may be repeated."),
]
Zone = Annotated[
    str | None, typer.Option("--tz", help="The zone of clock times that name none.", show_default="this machine's")
]
SeenAt = Annotated[
    str | None, typer.Option(metavar="TIME", help="When it was seen: Unix seconds or ISO 8601.", show_default="now")
]
ExitCode = Annotated[int | None, typer.Option(help="The exit code of the process, if it has ended.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


@tools.command(rich_help_panel=TOOLS)
def detect(
    source: Source,
    provider: Provider = "generic",
    channel: Channel = None,
    status: Status = None,
    header: Header = None,
    tz: Zone = None,
    seen_at: SeenAt = None,
    exit_code: ExitCode = None,
    stream: Annotated[bool, typer.Option("--stream", help="It is the whole output of an agent run.")] = False,
    stderr: Annotated[str | None, typer.Option(metavar="FILE", help="With --stream: the same run's stderr.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say what a message is read as: which limit, whose, until when, and by which rule.

    [bold]echo "You've hit your session limit · resets 3pm" | paceline detect -[/bold]

    [bold]paceline detect body.json --provider anthropic-api --status 429 -H "retry-after: 30"[/bold]

    [bold]paceline detect run.ndjson --stream --provider claude-code --exit-code 1[/bold]

    With --stream the whole output of an agent run is read as it would be while it runs: signals, session, tokens,
    who pays, and what became of it.
    """
    at, zone = parse_time(seen_at, default=time.time()), parse_zone(tz)
    if stream:
        files = _stream_files(source, channel, stderr)
        run = read_run(provider, files, seen_at=at, zone=zone, exit_code=exit_code)
        show_run(run, provider=provider, seen_at=at, zone=zone, as_json=as_json)
        return
    if stderr is not None:
        raise typer.BadParameter("it belongs to a whole run; add --stream", param_hint="--stderr")
    seen, left_out = _observe(source, provider, channel, status, header, zone.key, at, exit_code)
    show_reading(seen, zone=zone, as_json=as_json, left_out=left_out)


def _stream_files(source: str, channel: str | None, stderr: str | None) -> dict[StreamChannel, str]:
    match channel:
        case None | "stdout" | "stdout-json":
            files: dict[StreamChannel, str] = {"stdout": source}
        case "stderr" | "screen":
            files = {channel: source}
        case _:
            raise typer.BadParameter("a run has no http channel; leave out --stream", param_hint="--channel")
    if stderr is not None:
        if "stderr" in files or stderr == source == STDIN:
            raise typer.BadParameter("the same channel or pipe is named twice", param_hint="--stderr")
        files["stderr"] = stderr
    return files


def _observe(
    source: str,
    provider: str,
    channel: str | None,
    status: int | None,
    header: list[str] | None,
    tz: str,
    seen_at: float,
    exit_code: int | None,
) -> tuple[Observation, int]:
    headers = parse_headers(header or [])
    default_channel = "http" if headers or status is not None else "screen"
    text, left_out = read_ends(source)
    seen = Observation(
        provider=provider,
        channel=channel or default_channel,
        text=text,
        status=status,
        headers=headers or None,
        exit_code=exit_code,
        seen_at=seen_at,
        tz=tz,
    )
    return seen, left_out


@tools.command(rich_help_panel=TOOLS)
def report(
    source: Source,
    provider: Provider = "generic",
    channel: Channel = None,
    status: Status = None,
    header: Header = None,
    tz: Zone = None,
    seen_at: SeenAt = None,
    exit_code: ExitCode = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to write it.", show_default="paceline-report-TIME.json")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over an existing file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a redacted sample of a message that Paceline does not know, to attach to an issue.

    Keys, tokens, e-mail addresses, home folders, ids, hosts and everything that looks like one of them are taken out.
    Nothing is sent anywhere: you get a file. Read it before you attach it.
    """
    at, zone = parse_time(seen_at, default=time.time()), parse_zone(tz)
    seen, left_out = _observe(source, provider, channel, status, header, zone.key, at, exit_code)
    made = make_report(seen, Redactor(known_values()), bytes_left_out=left_out)
    path = write_report(made, output, force=force)
    if as_json:
        print_json(path=str(path), redacted=made.redacted)
        return
    typer.echo(f"written to {path}")
    for kind, count in sorted(made.redacted.items()):
        typer.echo(f"  redacted: {count} x {kind}")
    if not made.redacted:
        typer.echo("  nothing in it looked like a secret")
    typer.echo("Read it before you attach it to an issue: only you know what must not leave your machine.")


app.add_typer(commands)
app.add_typer(tools)


def main() -> None:
    """The console entry point."""
    app()

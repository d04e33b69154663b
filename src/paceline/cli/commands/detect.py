"""`detect`: what Paceline reads in a text, an HTTP response or a whole agent run, and by which rules."""

import time
from typing import Annotated
from zoneinfo import ZoneInfo

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from paceline.cli.inputs import STDIN, chunks_of, opened, parse_time, parse_zone
from paceline.cli.observation_options import (
    Channel,
    ExitCode,
    Header,
    ObservedFields,
    Provider,
    SeenAt,
    Source,
    Status,
    Zone,
    read_observation,
)
from paceline.cli.options import AsJson
from paceline.cli.output import print_value
from paceline.cli.signal_text import rows_of, title_of
from paceline.cli.time_text import absolute
from paceline.core.signals import Signal
from paceline.core.values.channels import Channel as StreamChannel
from paceline.detect import Observation, StreamReader, explain

OUTCOMES = {
    "success": "the work is done",
    "failed": "the work itself failed",
    "interrupted": "it was stopped",
    "rate_limit": "it ended at a rate limit",
    "quota_window": "it ended at a spent quota window",
    "overloaded": "it ended because the provider was overloaded",
    "billing": "it ended because of billing",
    "auth": "it ended because its login or key was not accepted",
    "unreachable": "nobody answered",
    "denied": "it ended well, but tools were denied",
}
AUTH_MODES = {"subscription": "a subscription", "api_key": "an API key", "overage": "overage beyond the plan"}


class RunReading(msgspec.Struct, frozen=True, kw_only=True):
    """What `StreamReader` found in the output of a whole run."""

    signals: list[Signal]
    session_id: str | None
    tokens: int | None
    auth_mode: str | None
    turns: int
    outcome: str | None
    denials: int = 0
    denial_reason: str | None = None
    failure_text: str | None = None


def command(
    source: Source,
    provider: Provider = "generic",
    channel: Channel = None,
    status: Status = None,
    header: Header = None,
    tz: Zone = None,
    seen_at: SeenAt = None,
    exit_code: ExitCode = None,
    stream: Annotated[bool, typer.Option("--stream", help="It is the whole output of an agent run.")] = False,
    stderr: Annotated[
        str | None, typer.Option(metavar="FILE", help="With --stream: the stderr of the same run.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what Paceline reads in a message: which limit, whose, until when, and by which rule.

    [bold]echo "You've hit your session limit · resets 3pm" | paceline detect -[/bold]

    [bold]paceline detect body.json --provider anthropic-api --status 429 -H "retry-after: 30"[/bold]

    [bold]paceline detect run.ndjson --stream --provider claude-code --exit-code 1[/bold]

    With --stream the whole output of an agent run is read as the engine would read it: signals, session, tokens,
    who pays, and how the run ended.
    """
    at, zone = parse_time(seen_at, default=time.time()), parse_zone(tz)
    if stream:
        files = _stream_files(source, channel, stderr)
        run = _read_run(provider, files, seen_at=at, zone=zone, exit_code=exit_code)
        _show_run(run, provider=provider, seen_at=at, zone=zone, as_json=as_json)
        return
    if stderr is not None:
        raise typer.BadParameter("it belongs to a whole run; add --stream", param_hint="--stderr")
    fields = ObservedFields(
        provider=provider,
        channel=channel,
        status=status,
        header=header,
        tz=zone.key,
        seen_at=at,
        exit_code=exit_code,
    )
    observation, left_out = read_observation(source, fields)
    _show_reading(observation, zone=zone, as_json=as_json, left_out=left_out)


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


def _show_reading(observation: Observation, *, zone: ZoneInfo, as_json: bool, left_out: int) -> None:
    """Print what one message means, and which rules said so."""
    reading = explain(observation)
    if as_json:
        print_value(
            {
                "recognised": bool(reading.signals),
                "signals": [msgspec.to_builtins(signal) for signal in reading.signals],
                "rules": list(reading.rules),
                "provider": observation.provider,
                "channel": observation.channel,
                "seen_at": observation.seen_at,
                "tz": observation.tz,
                "bytes_left_out": left_out,
            }
        )
        return
    console = Console(highlight=False)
    if left_out:
        console.print(f"{left_out:,} bytes in the middle were not read; for a whole run use --stream", style="dim")
    _print_signals(console, reading.signals, seen_at=observation.seen_at, zone=zone)
    if reading.rules:
        console.print("rules: " + ", ".join(reading.rules), markup=False)
    if not reading.signals:
        _print_nothing(console, observation.provider)


def _read_run(
    provider: str, files: dict[StreamChannel, str], *, seen_at: float, zone: ZoneInfo, exit_code: int | None
) -> RunReading:
    """Feed a whole run to the reader, chunk by chunk, so that its size does not matter."""
    reader = StreamReader(provider, tz=zone.key)
    signals: list[Signal] = []
    for channel, source in files.items():
        with opened(source) as file:
            for chunk in chunks_of(file):
                signals += reader.feed(chunk, channel=channel, seen_at=seen_at)
    signals += reader.close(exit_code=exit_code, seen_at=seen_at)
    return RunReading(
        signals=signals,
        session_id=reader.session_id,
        tokens=reader.tokens,
        auth_mode=reader.auth_mode,
        turns=reader.turns,
        outcome=reader.outcome,
        denials=reader.denials,
        denial_reason=reader.denial_reason,
        failure_text=reader.failure_text,
    )


def _show_run(run: RunReading, *, provider: str, seen_at: float, zone: ZoneInfo, as_json: bool) -> None:
    if as_json:
        print_value({"provider": provider, "seen_at": seen_at, "tz": zone.key, **msgspec.to_builtins(run)})
        return
    console = Console(highlight=False)
    _print_signals(console, run.signals, seen_at=seen_at, zone=zone)
    outcome = run.outcome or "interrupted"
    console.print(f"Outcome: {outcome}", style="bold", end="")
    console.print(f" ({OUTCOMES[outcome]})", style="dim")
    facts = (
        ("session", run.session_id),
        ("tokens", None if run.tokens is None else f"{run.tokens:,}"),
        ("paid by", AUTH_MODES.get(run.auth_mode or "")),
        ("turns", str(run.turns) if run.turns else None),
    )
    for name, value in facts:
        _print_fact(console, name, value or "not stated")
    for name, value in (("reason", run.failure_text), ("denied", run.denial_reason)):
        if value is not None:
            _print_fact(console, name, value)
    if not run.signals and outcome not in ("success", "interrupted", "denied"):
        _print_nothing(console, provider)


def _print_signals(console: Console, signals: list[Signal], *, seen_at: float, zone: ZoneInfo) -> None:
    if signals:
        console.print(f"seen at {absolute(seen_at, zone)}", style="dim")
    for signal in signals:
        console.print(title_of(signal), style="bold")
        for name, value in rows_of(signal, seen_at=seen_at, zone=zone):
            _print_fact(console, name, value)


def _print_fact(console: Console, name: str, value: str) -> None:
    """Print text from outside as plain text: no markup, no control characters."""
    printable = "".join(letter if letter.isprintable() else "?" for letter in value)
    console.print(Text.assemble((f"  {name:<15}", "dim"), printable), soft_wrap=True)


def _print_nothing(console: Console, provider: str) -> None:
    console.print(f"Nothing about limits was recognised (read as {provider}).", markup=False, style="bold")
    console.print("If it is about a limit: `paceline report FILE` writes a redacted sample to attach to an issue.")

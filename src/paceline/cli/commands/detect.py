"""`paceline detect`: what a text, an HTTP answer or a whole agent run is read as, and by which rules."""

import sys
from zoneinfo import ZoneInfo

import msgspec
from rich.console import Console
from rich.text import Text

from paceline.cli.inputs import chunks_of, opened
from paceline.cli.signal_text import absolute, rows_of, title_of
from paceline.core.signals import Signal
from paceline.detect import Observation, StreamReader, explain
from paceline.detect.stream import Channel

OUTCOMES = {
    "success": "it did its work",
    "failed": "the work itself failed",
    "interrupted": "it was stopped",
    "rate_limit": "it ended at a rate limit",
    "quota_window": "it ended at a spent quota window",
    "overloaded": "it ended because the provider was overloaded",
    "billing": "it ended because of billing",
    "auth": "it ended because its login or key was not accepted",
}
AUTH_MODES = {"subscription": "a subscription", "api_key": "an API key", "overage": "overage beyond the plan"}


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What `StreamReader` found out about a whole run."""

    signals: list[Signal]
    session_id: str | None
    tokens: int | None
    auth_mode: str | None
    turns: int
    outcome: str | None


def show_reading(observation: Observation, *, zone: ZoneInfo, as_json: bool, left_out: int) -> None:
    """Read one thing that was seen, and say how it was read."""
    reading = explain(observation)
    if as_json:
        print_json(
            recognised=bool(reading.signals),
            signals=[msgspec.to_builtins(signal) for signal in reading.signals],
            rules=list(reading.rules),
            provider=observation.provider,
            channel=observation.channel,
            seen_at=observation.seen_at,
            tz=observation.tz,
            bytes_left_out=left_out,
        )
        return
    console = Console(highlight=False)
    if left_out:
        console.print(f"{left_out:,} bytes in the middle were not looked at; for a whole run use --stream", style="dim")
    _print_signals(console, reading.signals, seen_at=observation.seen_at, zone=zone)
    if reading.rules:
        console.print("rules: " + ", ".join(reading.rules), markup=False)
    if not reading.signals:
        _print_nothing(console, observation.provider)


def read_run(provider: str, files: dict[Channel, str], *, seen_at: float, zone: ZoneInfo, exit_code: int | None) -> Run:
    """Feed a whole run to the reader, chunk by chunk, however large it is."""
    reader = StreamReader(provider, tz=zone.key)
    signals: list[Signal] = []
    for channel, source in files.items():
        with opened(source) as file:
            for chunk in chunks_of(file):
                signals += reader.feed(chunk, channel=channel, seen_at=seen_at)
    signals += reader.close(exit_code=exit_code, seen_at=seen_at)
    return Run(
        signals=signals,
        session_id=reader.session_id,
        tokens=reader.tokens,
        auth_mode=reader.auth_mode,
        turns=reader.turns,
        outcome=reader.outcome,
    )


def show_run(run: Run, *, provider: str, seen_at: float, zone: ZoneInfo, as_json: bool) -> None:
    if as_json:
        print_json(provider=provider, seen_at=seen_at, tz=zone.key, **msgspec.to_builtins(run))
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
        _print_fact(console, name, value or "not said")
    if not run.signals and outcome not in ("success", "interrupted"):
        _print_nothing(console, provider)


def print_json(**values: object) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(values), indent=2).decode() + "\n")


def _print_signals(console: Console, signals: list[Signal], *, seen_at: float, zone: ZoneInfo) -> None:
    if signals:
        console.print(f"seen at {absolute(seen_at, zone)}", style="dim")
    for signal in signals:
        console.print(title_of(signal), style="bold")
        for name, value in rows_of(signal, seen_at=seen_at, zone=zone):
            _print_fact(console, name, value)


def _print_fact(console: Console, name: str, value: str) -> None:
    """Words from outside are shown as text and nothing else: no markup, and nothing that steers a terminal."""
    printable = "".join(letter if letter.isprintable() else "?" for letter in value)
    console.print(Text.assemble((f"  {name:<15}", "dim"), printable), soft_wrap=True)


def _print_nothing(console: Console, provider: str) -> None:
    console.print(f"Nothing about limits was recognised (read as {provider}).", markup=False, style="bold")
    console.print("If it should have been: `paceline report FILE` writes a redacted sample to attach to an issue.")

"""What Paceline reads in the words of agents and providers: `detect` shows it, `report` writes a redacted sample.

Input is a file or a pipe of any size, a time, a zone, headers: bounded, and checked once. Wrong values raise
`typer.BadParameter`, which names the option and exits with 2.
"""

import getpass
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal
from zoneinfo import ZoneInfo

import msgspec
import typer
from rich.console import Console

from paceline.agents.dialect import RunConclusion
from paceline.cli.output import SOURCES, AsJson, argument, flag, option, print_fact, print_value
from paceline.core.signals import (
    AuthFailed,
    BillingStop,
    Budget,
    Overloaded,
    PlatformLimit,
    QuotaClosed,
    RateLimited,
    Signal,
    Unreachable,
)
from paceline.core.values.fields import fields_of
from paceline.core.values.session_output import Channel as StreamChannel
from paceline.daemon.times import absolute, local_zone, moment, zone_named
from paceline.detect import Observation, Reading, StreamReader, explain
from paceline.redaction import Redacted, Redactor

# -- input --------------------------------------------------------------------------------------------

CHUNK_BYTES = 64 * 1024
KEPT_BYTES = 128 * 1024
"""Kept from each end of a huge text: a limit is at the start of an error message or at the end of a log."""
LARGEST_TIME = 253402300800.0  # the year 10000
STDIN = "-"


@contextmanager
def opened(source: str) -> Iterator[BinaryIO]:
    """Open a file by its name, or standard input for `-`."""
    if source == STDIN:
        yield sys.stdin.buffer
        return
    try:
        with Path(source).open("rb") as file:
            yield file
    except OSError as error:
        raise typer.BadParameter(f"cannot read {source}: {error.strerror or error}") from error


def read_ends(source: str) -> tuple[bytes, int]:
    """Return the start and the end of a text of any size, and how many bytes between them were left out."""
    head, tail, total = b"", b"", 0
    with opened(source) as file:
        for chunk in chunks_of(file):
            total += len(chunk)
            taken = max(0, KEPT_BYTES - len(head))
            head += chunk[:taken]
            tail = (tail + chunk[taken:])[-KEPT_BYTES:]
    if total <= len(head) + len(tail):
        return head + tail, 0
    # Whole lines only: half a secret would not be recognised as one.
    kept = head.rpartition(b"\n")[0] + b"\n" + tail.partition(b"\n")[2]
    return kept, total - len(kept) + 1


def chunks_of(file: BinaryIO) -> Iterator[bytes]:
    return iter(lambda: file.read(CHUNK_BYTES), b"")


def parse_time(text: str | None) -> float:
    """Return now, or parse Unix seconds, or an ISO 8601 date and time (UTC if it has no zone)."""
    if text is None:
        return time.time()
    try:
        at = float(text)
    except ValueError:
        try:
            named = datetime.fromisoformat(text)
        except ValueError as error:
            hint = "use Unix seconds or ISO 8601, such as 2026-11-15T12:00:00Z"
            raise typer.BadParameter(f"{text!r} is not a time; {hint}", param_hint="--seen-at") from error
        at = (named if named.tzinfo else named.replace(tzinfo=UTC)).timestamp()
    if not 0 <= at < LARGEST_TIME:
        raise typer.BadParameter(f"{text!r} is not a time between 1970 and 9999", param_hint="--seen-at")
    return at


def parse_zone(name: str | None) -> ZoneInfo:
    """Return the zone with this name, or the zone of this machine."""
    if name is None:
        return local_zone()
    zone = zone_named(name)
    if zone is None:
        raise typer.BadParameter(f"there is no time zone {name!r}; try Europe/Paris or UTC", param_hint="--tz")
    return zone


def parse_headers(lines: list[str]) -> dict[str, str]:
    """Parse lines of the form `name: value`, as curl prints them."""
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise typer.BadParameter(f"{line!r} is not a header; write it as 'name: value'", param_hint="--header")
        headers[name.strip().lower()] = value.strip()
    return headers


# -- what was observed --------------------------------------------------------------------------------

Source = Annotated[str, argument("FILE", "A file, or - for standard input.")]
Provider = Annotated[
    str, option(None, "Who printed it: claude-code, codex, gemini-cli, opencode, anthropic-api, openai-api, ...")
]
Channel = Annotated[
    Literal["screen", "stderr", "stdout-json", "stdout", "http"] | None,
    option(None, "Where it was seen.", show_default="http with --status or --header, else screen"),
]
Status = Annotated[int | None, option(None, "The HTTP status that came with it.", min=100, max=599)]
Header = Annotated[list[str] | None, option("'NAME: VALUE'", "A response header; may be repeated.", "--header", "-H")]
Zone = Annotated[
    str | None, option(None, "The time zone of clock times without one.", "--tz", show_default="this machine's")
]
SeenAt = Annotated[str | None, option("TIME", "When it was seen: Unix seconds or ISO 8601.", show_default="now")]
ExitCode = Annotated[int | None, option(None, "The exit code of the process, if it has ended.")]


def read_observation(
    source: str, *, header: list[str] | None, channel: str | None, status: int | None, **seen: Any
) -> tuple[Observation, int]:
    """Return what was seen with its text, and how many bytes in the middle of a huge text were left out."""
    headers = parse_headers(header or []) or None
    channel = channel or ("http" if headers or status is not None else "screen")
    text, left_out = read_ends(source)
    return Observation(text=text, headers=headers, channel=channel, status=status, **seen), left_out


# -- signals as text ----------------------------------------------------------------------------------

TITLES: dict[type[Signal], str] = {
    QuotaClosed: "Quota window spent",
    RateLimited: "Rate limited",
    Overloaded: "Provider overloaded",
    Unreachable: "Nobody answered",
    PlatformLimit: "Platform limit reached",
    BillingStop: "Billing stop",
    AuthFailed: "Login or key not accepted",
    Budget: "Budget reading",
}
ADVICE: dict[type[Signal], str] = {
    QuotaClosed: "parks the work until the reset, then one canary goes first",
    RateLimited: "pauses the scope, then resumes; repeated refusals lower its limit or its pace",
    Overloaded: "pauses with a growing backoff; limits stay unchanged",
    Unreachable: "waits 5 s to 5 min, then one session tries first; limits and attempts stay unchanged",
    PlatformLimit: "uses it as the limit of the scope and probes upward later",
    BillingStop: "holds the account until a person has fixed the cause",
    AuthFailed: "asks again after 60 s and 5 min, then holds the account and asks once an hour",
    Budget: "slows down before the provider refuses",
}
REACHES = {"model": "this model only", "account": "the whole account", "provider": "the whole provider"}
WINDOWS = {"5h": "5 hours", "daily": "a day", "weekly": "a week", "monthly": "a month"}


def rows_of(signal: Signal, *, seen_at: float, zone: ZoneInfo) -> list[tuple[str, str]]:
    """Return what is known, as names and values. Only a missing end is mentioned although it is unknown."""
    rows = [*_own_rows(signal, seen_at, zone)]
    if signal.reach is not None:
        rows.append(("reach", REACHES[signal.reach]))
    source = SOURCES.get(signal.source or "", "an unknown source")
    rows.append(("confidence", f"{signal.confidence:.0%}, read from {source}"))
    if type(signal) in ADVICE:
        rows.append(("Paceline", ADVICE[type(signal)]))
    return rows


def _own_rows(signal: Signal, seen_at: float, zone: ZoneInfo) -> list[tuple[str, str]]:
    match signal:
        case QuotaClosed():
            resets = "not stated; probed with backoff" if signal.resets_at is None else ""
            window = [("window", WINDOWS.get(signal.window, signal.window))] if signal.window else []
            return [*window, ("resets", resets or moment(signal.resets_at or 0.0, seen_at, zone))]
        case RateLimited():
            cause = [("cause", f"too many {signal.cause}")] if signal.cause in ("requests", "tokens", "starts") else []
            if signal.cause == "concurrency":
                cause = [("cause", "too many at once")]
            return [*cause, ("retry", _retry(signal.retry_after, seen_at, zone))]
        case Overloaded() | Unreachable():
            return [("retry", _retry(signal.retry_after, seen_at, zone))]
        case PlatformLimit():
            known = [("limit", signal.limit), ("in use", signal.in_use)]
            return [(name, str(value)) for name, value in known if value is not None]
        case BillingStop() | AuthFailed():
            return [("message", signal.detail)] if signal.detail else []
        case Budget():
            return _budget_rows(signal, seen_at, zone)
    return []


def _of_limit(left: int | None, limit: int | None) -> str | None:
    return None if left is None else str(left) if limit is None else f"{left} of {limit}"


def _budget_rows(signal: Budget, seen_at: float, zone: ZoneInfo) -> list[tuple[str, str]]:
    window = WINDOWS.get(signal.window or "", signal.window)
    counts = [
        ("requests left", _of_limit(signal.requests_remaining, signal.requests_limit)),
        ("tokens left", _of_limit(signal.tokens_remaining, signal.tokens_limit)),
        ("window", window),
    ]
    rows = [(name, str(value)) for name, value in counts if value is not None]
    if signal.used_ratio is not None:
        rows.append(("used", f"{signal.used_ratio:.0%}"))
    for name, at in (
        ("requests reset", signal.requests_reset_at),
        ("tokens reset", signal.tokens_reset_at),
        ("resets", signal.resets_at),
    ):
        if at is not None:
            rows.append((name, moment(at, seen_at, zone)))
    return rows


def _retry(retry_after: float | None, seen_at: float, zone: ZoneInfo) -> str:
    if retry_after is None:
        return "not stated"
    return moment(seen_at + retry_after, seen_at, zone)


# -- detect -------------------------------------------------------------------------------------------

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


def detect_command(
    source: Source,
    provider: Provider = "generic",
    channel: Channel = None,
    status: Status = None,
    header: Header = None,
    tz: Zone = None,
    seen_at: SeenAt = None,
    exit_code: ExitCode = None,
    stream: Annotated[bool, flag("It is the whole output of an agent run.", "--stream")] = False,
    stderr: Annotated[str | None, option("FILE", "With --stream: the stderr of the same run.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what Paceline reads in a message: which limit, whose, until when, and by which rule.

    [bold]echo "You've hit your session limit · resets 3pm" | paceline detect -[/bold]

    [bold]paceline detect body.json --provider anthropic-api --status 429 -H "retry-after: 30"[/bold]

    [bold]paceline detect run.ndjson --stream --provider claude-code --exit-code 1[/bold]

    With --stream the whole output of an agent run is read as the engine would read it: signals, session, tokens,
    who pays, and how the run ended.
    """
    at, zone = parse_time(seen_at), parse_zone(tz)
    if stream:
        files = _stream_files(source, channel, stderr)
        reader = StreamReader(provider, tz=zone.key)
        signals = _read_run(reader, files, seen_at=at, exit_code=exit_code)
        _show_run(reader, signals, provider=provider, seen_at=at, zone=zone, as_json=as_json)
        return
    if stderr is not None:
        raise typer.BadParameter("it belongs to a whole run; add --stream", param_hint="--stderr")
    seen = {"provider": provider, "tz": zone.key, "seen_at": at, "exit_code": exit_code}
    observation, left_out = read_observation(source, header=header, channel=channel, status=status, **seen)
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
    reader: StreamReader, files: dict[StreamChannel, str], *, seen_at: float, exit_code: int | None
) -> list[Signal]:
    """Feed a whole run to the reader, chunk by chunk, so that its size does not matter."""
    signals: list[Signal] = []
    for channel, source in files.items():
        with opened(source) as file:
            for chunk in chunks_of(file):
                signals += reader.feed(chunk, channel=channel, seen_at=seen_at)
    return [*signals, *reader.close(exit_code=exit_code, seen_at=seen_at)]


def _show_run(
    run: StreamReader, signals: list[Signal], *, provider: str, seen_at: float, zone: ZoneInfo, as_json: bool
) -> None:
    if as_json:
        found = {**fields_of(RunConclusion, run), "signals": signals}
        print_value({"provider": provider, "seen_at": seen_at, "tz": zone.key, **found})
        return
    console = Console(highlight=False)
    _print_signals(console, signals, seen_at=seen_at, zone=zone)
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
        print_fact(f"  {name}", value or "not stated", width=17)
    for name, value in (("reason", run.failure_text), ("denied", run.denial_reason)):
        print_fact(f"  {name}", value, width=17)
    if not signals and outcome not in ("success", "interrupted", "denied"):
        _print_nothing(console, provider)


def _print_signals(console: Console, signals: list[Signal], *, seen_at: float, zone: ZoneInfo) -> None:
    if signals:
        console.print(f"seen at {absolute(seen_at, zone)}", style="dim")
    for signal in signals:
        console.print(TITLES.get(type(signal), type(signal).__name__), style="bold")
        for name, value in rows_of(signal, seen_at=seen_at, zone=zone):
            print_fact(f"  {name}", value, width=17)


def _print_nothing(console: Console, provider: str) -> None:
    console.print(f"Nothing about limits was recognised (read as {provider}).", markup=False, style="bold")
    console.print("If it is about a limit: `paceline report FILE` writes a redacted sample to attach to an issue.")


# -- report -------------------------------------------------------------------------------------------

SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSW", "CREDENTIAL", "COOKIE", "AUTH")
"""A variable whose name has one of these holds a secret."""
SHORTEST_SECRET = 8
"""Shorter values of such variables are flags and numbers: redacting them would blank ordinary words."""
HEADERS_NEVER_KEPT = ("authorization", "cookie", "set-cookie", "x-api-key", "x-goog-api-key", "proxy-authorization")


class Report(Observation, frozen=True, kw_only=True):
    """The content of the file. It leaves the machine only if the user attaches it somewhere."""

    paceline: str
    bytes_left_out: int
    """Bytes of the middle of a huge text that are not in `text`."""
    understood: Reading
    """What Paceline reads in the redacted text."""
    redacted: dict[str, int]


def report_command(
    source: Source,
    provider: Provider = "generic",
    channel: Channel = None,
    status: Status = None,
    header: Header = None,
    tz: Zone = None,
    seen_at: SeenAt = None,
    exit_code: ExitCode = None,
    output: Annotated[
        Path | None, option(None, "Where to write it.", "--output", "-o", show_default="paceline-report-TIME.json")
    ] = None,
    force: Annotated[bool, flag("Overwrite an existing file.", "--force")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a redacted sample of a message that Paceline does not recognise, to attach to an issue.

    Keys, tokens, e-mail addresses, home folders, ids, hosts and everything that looks like one of them are removed.
    Nothing is sent anywhere: you get a file. Read it before you attach it.
    """
    at, zone = parse_time(seen_at), parse_zone(tz)
    seen = {"provider": provider, "tz": zone.key, "seen_at": at, "exit_code": exit_code}
    observation, left_out = read_observation(source, header=header, channel=channel, status=status, **seen)
    report = make_report(observation, Redactor(_known_values()), bytes_left_out=left_out)
    path = _write_report(report, output, force=force)
    if as_json:
        print_value({"path": str(path), "redacted": report.redacted})
        return
    typer.echo(f"written to {path}")
    for kind, count in sorted(report.redacted.items()):
        typer.echo(f"  redacted: {count} x {kind}")
    if not report.redacted:
        typer.echo("  nothing in it looked like a secret")
    typer.echo("Read it before you attach it to an issue: only you know what must not leave your machine.")


def make_report(observation: Observation, redactor: Redactor, *, bytes_left_out: int = 0) -> Report:
    """Return a report without secrets. `understood` is read from the redacted text, so it has none either."""
    raw = observation.text or ""
    body = redactor.redact(raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw)
    provider = redactor.redact(observation.provider)
    counts = Counter(body.counts) + Counter(provider.counts)
    headers: dict[str, str] = {}
    for name, value in (observation.headers or {}).items():
        is_secret = name.lower() in HEADERS_NEVER_KEPT
        clean = Redacted("<secret>", {"secret": 1}) if is_secret else redactor.redact(value)
        headers[redactor.redact(name).text] = clean.text
        counts += Counter(clean.counts)
    redacted = msgspec.structs.replace(observation, text=body.text, headers=headers or None, provider=provider.text)
    return Report(
        **msgspec.structs.asdict(redacted) | {"headers": headers},
        paceline=version("paceline"),
        bytes_left_out=bytes_left_out,
        understood=explain(redacted),
        redacted=dict(counts),
    )


def _known_values() -> list[str]:
    """Return values that are redacted whatever they look like: names of this machine, secrets of this environment."""
    values = [name for name in (_user_name(), platform.node().partition(".")[0], platform.node()) if name]
    home = str(Path.home())
    secrets = [
        value
        for name, value in os.environ.items()
        if len(value) >= SHORTEST_SECRET and any(word in name.upper() for word in SECRET_WORDS)
    ]
    return [*values, *([home] if home.count("/") > 1 else []), *secrets]


def _write_report(report: Report, output: Path | None, *, force: bool) -> Path:
    """Write the report, and return its path. An existing file is overwritten only with `force`."""
    path = output or Path(time.strftime("paceline-report-%Y%m%d-%H%M%S.json", time.gmtime()))
    content = msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"
    try:
        with path.open("wb" if force else "xb") as file:
            file.write(content)
    except FileExistsError as error:
        raise typer.BadParameter(f"{path} exists; choose another name or add --force", param_hint="--output") from error
    except OSError as error:
        raise typer.BadParameter(f"cannot write {path}: {error.strerror or error}", param_hint="--output") from error
    return path


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user without a name, as in some containers
        return ""

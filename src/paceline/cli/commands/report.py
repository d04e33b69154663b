"""`report`: a message that Paceline does not recognise, redacted, as a file to attach to an issue."""

import getpass
import os
import platform
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from paceline.cli.inputs import parse_time, parse_zone
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
from paceline.detect import Observation, explain
from paceline.detect.observation import Reading
from paceline.redaction.redactor import Redacted, Redactor

SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSW", "CREDENTIAL", "COOKIE", "AUTH")
"""A variable whose name has one of these holds a secret."""
SHORTEST_SECRET = 8
"""Shorter values of such variables are flags and numbers: redacting them would blank ordinary words."""
HEADERS_NEVER_KEPT = ("authorization", "cookie", "set-cookie", "x-api-key", "x-goog-api-key", "proxy-authorization")


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file. It leaves the machine only if the user attaches it somewhere."""

    paceline: str
    provider: str
    channel: str
    status: int | None
    headers: dict[str, str]
    exit_code: int | None
    seen_at: float
    tz: str
    text: str
    bytes_left_out: int
    """Bytes of the middle of a huge text that are not in `text`."""
    understood: Reading
    """What Paceline reads in the redacted text."""
    redacted: dict[str, int]


def command(
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
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a redacted sample of a message that Paceline does not recognise, to attach to an issue.

    Keys, tokens, e-mail addresses, home folders, ids, hosts and everything that looks like one of them are removed.
    Nothing is sent anywhere: you get a file. Read it before you attach it.
    """
    at, zone = parse_time(seen_at, default=time.time()), parse_zone(tz)
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
        clean = _redacted_header(name, value, redactor)
        headers[redactor.redact(name).text] = clean.text
        counts += Counter(clean.counts)
    redacted = msgspec.structs.replace(observation, text=body.text, headers=headers or None, provider=provider.text)
    return Report(
        paceline=version("paceline"),
        provider=provider.text,
        channel=observation.channel,
        status=observation.status,
        headers=headers,
        exit_code=observation.exit_code,
        seen_at=observation.seen_at,
        tz=observation.tz,
        text=body.text,
        bytes_left_out=bytes_left_out,
        understood=explain(redacted),
        redacted=dict(counts),
    )


def _redacted_header(name: str, value: str, redactor: Redactor) -> Redacted:
    if name.lower() in HEADERS_NEVER_KEPT:
        return Redacted("<secret>", {"secret": 1})
    return redactor.redact(value)


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

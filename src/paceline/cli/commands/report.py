"""`paceline report`: a message that Paceline does not know, redacted, as a file for an issue."""

import getpass
import os
import platform
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import msgspec
import typer

from paceline.detect import Observation, explain
from paceline.detect.observation import Reading
from paceline.redaction.redactor import Redacted, Redactor

SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSW", "CREDENTIAL", "COOKIE", "AUTH")
SHORTEST_SECRET = 8
HEADERS_NEVER_KEPT = ("authorization", "cookie", "set-cookie", "x-api-key", "x-goog-api-key", "proxy-authorization")


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What is written. Nothing else leaves the machine, and this only by the user's own hand."""

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
    """How much of the middle of a huge text is not in `text`."""
    understood: Reading
    """What Paceline makes of the redacted text."""
    redacted: dict[str, int]


def make_report(observation: Observation, redactor: Redactor, *, bytes_left_out: int = 0) -> Report:
    """A report without secrets. What was understood is read from the redacted text, so it holds none either."""
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


def known_values() -> list[str]:
    """What must not leave this machine whatever it looks like: its names, and the secrets of this environment."""
    values = [name for name in (_user_name(), platform.node().partition(".")[0], platform.node()) if name]
    home = str(Path.home())
    secrets = [
        value
        for name, value in os.environ.items()
        if len(value) >= SHORTEST_SECRET and any(word in name.upper() for word in SECRET_WORDS)
    ]
    return [*values, *([home] if home.count("/") > 1 else []), *secrets]


def write_report(report: Report, output: Path | None, *, force: bool) -> Path:
    """Never over an existing file, unless told to."""
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

"""Options that describe a message which an agent or provider printed, and the observation made from them.

`detect` and `report` share them.
"""

from typing import Annotated, Literal

import msgspec
import typer

from paceline.cli.inputs import parse_headers, read_ends
from paceline.detect import Observation

Source = Annotated[str, typer.Argument(metavar="FILE", help="A file, or - for standard input.")]
Provider = Annotated[
    str, typer.Option(help="Who printed it: claude-code, codex, gemini-cli, opencode, anthropic-api, openai-api, ...")
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
    str | None,
    typer.Option("--tz", help="The time zone of clock times without one.", show_default="this machine's"),
]
SeenAt = Annotated[
    str | None, typer.Option(metavar="TIME", help="When it was seen: Unix seconds or ISO 8601.", show_default="now")
]
ExitCode = Annotated[int | None, typer.Option(help="The exit code of the process, if it has ended.")]


class ObservedFields(msgspec.Struct, frozen=True, kw_only=True):
    """What the options say about a message besides its text."""

    provider: str
    channel: str | None
    status: int | None
    header: list[str] | None
    tz: str
    seen_at: float
    exit_code: int | None


def read_observation(source: str, fields: ObservedFields) -> tuple[Observation, int]:
    """Return the observation, and how many bytes in the middle of a huge text were left out."""
    headers = parse_headers(fields.header or [])
    default_channel = "http" if headers or fields.status is not None else "screen"
    text, left_out = read_ends(source)
    observation = Observation(
        provider=fields.provider,
        channel=fields.channel or default_channel,
        text=text,
        status=fields.status,
        headers=headers or None,
        exit_code=fields.exit_code,
        seen_at=fields.seen_at,
        tz=fields.tz,
    )
    return observation, left_out

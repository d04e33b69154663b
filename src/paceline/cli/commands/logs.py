"""`logs UNIT`: the output of the last attempt."""

import sys
import time
from collections.abc import Callable, Iterator
from typing import Annotated, Final, Protocol
from zoneinfo import ZoneInfo

import typer
from rich.console import Console
from rich.text import Text

from paceline.agents.account import split_login
from paceline.cli.options import AsJson, Follow, UnitName
from paceline.cli.output import FOLLOW_SECONDS, print_value, say
from paceline.cli.remote_logs import print_remote_output
from paceline.cli.unit_lookup import find_unit
from paceline.cli.wiring import Home, open_home
from paceline.core.values.channels import Channel
from paceline.detect.transcripts.reader import TranscriptReader
from paceline.errors import UnknownName
from paceline.executors.spool import OutputReader, is_locked
from paceline.store import Unit
from paceline.views.safe_text import printable
from paceline.views.transcript import Passage, TranscriptText, transcript_provider

CHANNELS: tuple[Channel, ...] = ("stdout", "stderr", "screen")
LABEL_STYLES: Final = {"said": "bold", "tool": "bold cyan", "result": "dim", "error": "bold red", "notice": "yellow"}


def command(
    unit: UnitName,
    channel: Annotated[Channel | None, typer.Option(help="Only this channel.")] = None,
    follow: Follow = False,
    raw: Annotated[bool, typer.Option("--raw", help="The events of the agent as it printed them.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what the last attempt of a unit said and did.

    Agents that print events are shown as a transcript: what was said, tools, results and notices. `--raw` prints the
    events themselves. The output of other commands is printed as it is; on a terminal, control characters are removed,
    because the output of an agent may be hostile, and a pipe gets the bytes unchanged.
    """
    channels = [each for each in CHANNELS if channel in (None, each)]
    with open_home() as home:
        found = find_unit(home.store, unit)
        if split_login(found.account or "")[1] and found.attempt_id is not None:
            provider = None if raw else transcript_provider(home.store, home.settings, found)
            writers = {each: _writer(each, provider, home.zone) for each in channels}
            print_remote_output(found, writers, follow=follow, as_json=as_json)
            return
        folder = _output_folder(home, found)
        if as_json:
            answer: dict[str, str | None] = {"unit": found.id, "attempt": found.attempt_id}
            answer.update((each, text) for each in channels if (text := _read_all(folder, each)))
            print_value(answer)
            return
        provider = None if raw else transcript_provider(home.store, home.settings, found)
        outputs = [(OutputReader(folder, each), _writer(each, provider, home.zone)) for each in channels]
        has_output = _print_output(outputs, lambda: _output_folder(home, found), follow=follow)
        if not has_output and sys.stdout.isatty():
            say("(nothing was printed)", style="dim")


def _output_folder(home: Home, unit: Unit) -> str:
    if unit.attempt_id is None:
        raise UnknownName(f"{unit.id} has not been started yet; `paceline why {unit.id}` shows what holds it")
    folder = home.spool().folder(unit.attempt_id)
    if folder is None:
        raise UnknownName(f"the output of {unit.id} has been removed (attempt {unit.attempt_id})")
    return folder


def _read_all(folder: str, channel: Channel) -> str:
    reader = OutputReader(folder, channel)
    return b"".join(iter(reader.read, b"")).decode(errors="replace")


def _print_output(
    outputs: list[tuple[OutputReader, "Writer"]], find_folder: Callable[[], str], *, follow: bool
) -> bool:
    """Print the output, with `follow` until the session ends. Returns whether there was any."""
    has_output = False
    while True:
        folder = find_folder()
        is_live = is_locked(folder)  # checked before reading, so that the last output is not missed
        is_last = not (follow and is_live)
        for reader, writer in outputs:
            reader.continue_in(folder)
            while piece := reader.read(is_over=not is_live):
                has_output = True
                writer.write(piece)
        if is_last and find_folder() == folder:  # else it was moved to the archive meanwhile
            for _, writer in outputs:
                writer.close()
            return has_output
        if not is_last:
            time.sleep(FOLLOW_SECONDS)


def _writer(channel: Channel, provider: str | None, zone: ZoneInfo) -> "Writer":
    return TranscriptWriter(provider, zone) if provider is not None and channel == "stdout" else PlainWriter()


class Writer(Protocol):
    """Prints one channel."""

    def write(self, piece: bytes) -> None:
        """Print further bytes of the channel."""

    def close(self) -> None:
        """Print what was kept back until the end."""


class PlainWriter:
    """Prints bytes unchanged to a pipe, and without control characters to a terminal."""

    def write(self, piece: bytes) -> None:
        if sys.stdout.isatty():
            sys.stdout.write(printable(piece.decode(errors="replace").replace("\r\n", "\n")))
            sys.stdout.flush()
        else:
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()

    def close(self) -> None:
        """Print nothing: nothing is kept back."""


class TranscriptWriter:
    """Prints the events of an agent as a transcript, with colours on a terminal."""

    def __init__(self, provider: str, zone: ZoneInfo) -> None:
        self._reader = TranscriptReader(provider)
        self._text = TranscriptText(zone)
        self._console = Console(highlight=False, markup=False, soft_wrap=True)

    def write(self, piece: bytes) -> None:
        self._print(self._text.passages(self._reader.feed(piece)))

    def close(self) -> None:
        self._print(self._text.passages(self._reader.flush()))
        self._print(self._text.close())

    def _print(self, passages: Iterator[Passage]) -> None:
        if self._console.is_terminal:
            for passage in passages:
                self._console.print(Text(passage.text, style=LABEL_STYLES.get(passage.label, "")), end="")
        else:
            sys.stdout.buffer.write("".join(passage.text for passage in passages).encode("utf-8", "replace"))
        sys.stdout.flush()

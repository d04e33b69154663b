"""`logs UNIT`: the output of the last attempt."""

import sys
import time
from typing import Annotated

import typer

from paceline.cli.options import AsJson, Follow, UnitName
from paceline.cli.output import FOLLOW_SECONDS, print_value, say
from paceline.cli.unit_lookup import find_unit
from paceline.cli.wiring import Home, open_home
from paceline.detect.stream import Channel
from paceline.errors import UnknownName
from paceline.executors.spool import OutputReader, is_locked
from paceline.store import Unit
from paceline.views.safe_text import printable

CHANNELS: tuple[Channel, ...] = ("stdout", "stderr", "screen")


def command(
    unit: UnitName,
    channel: Annotated[Channel | None, typer.Option(help="Only this channel.")] = None,
    follow: Follow = False,
    as_json: AsJson = False,
) -> None:
    """Show what the last attempt of a unit printed.

    On a terminal, control characters are removed: the output of an agent may be hostile. A pipe gets the bytes
    unchanged.
    """
    channels = [each for each in CHANNELS if channel in (None, each)]
    with open_home() as home:
        found = find_unit(home.store, unit)
        folder = _output_folder(home, found)
        if as_json:
            answer: dict[str, str | None] = {"unit": found.id, "attempt": found.attempt_id}
            answer.update((each, text) for each in channels if (text := _read_all(folder, each)))
            print_value(answer)
            return
        has_output = _print_output(folder, channels, follow=follow)
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


def _print_output(folder: str, channels: list[Channel], *, follow: bool) -> bool:
    """Print the output, with `follow` until the session ends. Returns whether there was any."""
    readers = [OutputReader(folder, channel) for channel in channels]
    has_output = False
    while True:
        is_live = is_locked(folder)  # checked before reading, so that the last output is not missed
        for reader in readers:
            while piece := reader.read():
                has_output = True
                _write(piece)
        if not (follow and is_live):
            return has_output
        time.sleep(FOLLOW_SECONDS)


def _write(piece: bytes) -> None:
    """Write bytes unchanged to a pipe, and without control characters to a terminal."""
    if sys.stdout.isatty():
        sys.stdout.write(printable(piece.decode(errors="replace").replace("\r\n", "\n")))
        sys.stdout.flush()
    else:
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()

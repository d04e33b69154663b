"""`diff UNIT`: what a unit changed."""

import sys
from collections.abc import Iterator

import msgspec
import typer

from paceline.cli.options import AsJson, UnitName
from paceline.cli.output import print_value, say
from paceline.cli.remote_changes import read_remote_change
from paceline.cli.unit_lookup import find_unit
from paceline.cli.wiring import open_home
from paceline.store import Unit
from paceline.views.safe_text import printable
from paceline.views.unit_changes import unit_change, unit_patch


def command(unit: UnitName, as_json: AsJson = False) -> None:
    """Show what a unit changed, as a patch: its commit once it is done, before that also what is not committed yet.

    `git apply` reads the output. On a terminal, control characters are removed: an agent's work may be hostile.
    """
    with open_home() as home:
        found = find_unit(home.store, unit)
    change = unit_change(found)
    there = None if change.host is None or found.state == "done" else read_remote_change(found)
    pieces = unit_patch(found) if there is None else iter([there.patch.encode()])
    if there is not None and there.truncated:
        typer.echo(f"Only the beginning: all of it comes from {change.host} when it is committed.", err=True)
    if as_json:
        print_value({**msgspec.structs.asdict(change), "patch": b"".join(pieces).decode(errors="replace")})
        return
    if sys.stdout.isatty():
        _print_safely(found, pieces)
        return
    for piece in pieces:
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


def _print_safely(unit: Unit, pieces: Iterator[bytes]) -> None:
    has_change = False
    for line in _lines(pieces):
        has_change = True
        sys.stdout.write(printable(line.decode(errors="replace").replace("\r\n", "\n")))
    if not has_change:
        say(f"({unit.id} changed nothing)", style="dim")


def _lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield whole lines, so that no character is cut."""
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).splitlines(keepends=True)
        yield from lines
    if rest:
        yield rest

"""What people are shown of campaigns, units and their output, in the same words in CLI, API and page. Looks only."""

import os
import re
from collections.abc import Mapping

import msgspec

from paceline.core.unit_lifecycle import UnitState
from paceline.detect.parsing.screen import COLUMNS, ROWS, BoundedScreen
from paceline.executors.spool import read_status, read_tail
from paceline.executors.terminal import LAST_SCREEN, TERMINAL_MARK
from paceline.store import Unit, UnitCounts

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
SCREEN_BYTES = 16 * 1024
DRAWN_BYTES = 64 * 1024
"""A screen is drawn from so much of the end of its recording."""
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])")


# -- text from outside -------------------------------------------------------------------------------


def printable(text: str) -> str:
    """Text from agents and files is hostile: whatever could steer a terminal is replaced; lines and tabs stay."""
    return text if text.isprintable() else "\n".join(map(_printable_line, text.split("\n")))


def _printable_line(line: str) -> str:
    if line.replace("\t", "").isprintable():
        return line
    return "".join(letter if letter.isprintable() or letter == "\t" else REPLACEMENT for letter in line)


def plain_text(output: bytes) -> str:
    """What an agent printed, as text to read: without colours, cursor movements and other orders to a terminal."""
    text = output.decode(errors="replace").replace("\r\n", "\n")
    return printable(_ESCAPES.sub("", text))


def last_screen(folder: str) -> str:
    """The end of what a try showed: its screen where it had a terminal, else the last that it printed."""
    try:
        with open(os.path.join(folder, LAST_SCREEN), "rb") as file:
            return plain_text(file.read(SCREEN_BYTES))
    except OSError:
        pass  # it runs still, or never had one
    if os.path.exists(os.path.join(folder, TERMINAL_MARK)):
        return _drawn(folder)
    return plain_text(read_tail(folder, "stdout", SCREEN_BYTES) + read_tail(folder, "stderr", SCREEN_BYTES))


def _drawn(folder: str) -> str:
    status = read_status(folder)
    columns, rows = (status.columns, status.rows) if status is not None else (None, None)
    screen = BoundedScreen(columns or COLUMNS, rows or ROWS)
    screen.feed(read_tail(folder, "screen", DRAWN_BYTES))
    return printable("\n".join(screen.display()).rstrip())


# -- campaigns and units -----------------------------------------------------------------------------


def phase_of(unit: Unit) -> str:
    """The state, with what is todo told apart into waiting and parked."""
    if unit.state != "todo":
        return unit.state
    return "waiting" if unit.resume_at is None else "parked"


def stored_state(phase: str) -> UnitState:
    """The state that units of this phase have in the store."""
    state: UnitState = msgspec.convert("todo" if phase in ("waiting", "parked") else phase, UnitState)
    return state


def total_counts(counts: Mapping[str, UnitCounts]) -> UnitCounts:
    """Of all campaigns together."""
    each = counts.values()
    return UnitCounts(
        todo=sum(count.todo for count in each),
        running=sum(count.running for count in each),
        done=sum(count.done for count in each),
        quarantined=sum(count.quarantined for count in each),
        held=sum(count.held for count in each),
        cancelled=sum(count.cancelled for count in each),
        parked=sum(count.parked for count in each),
    )

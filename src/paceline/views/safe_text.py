"""Text from agents and files, made safe to print.

Such text is hostile: it may hold escape sequences that control a terminal. Never here: markup of any display.
"""

import os
import re

from paceline.detect.parsing.screen import COLUMNS, ROWS, BoundedScreen
from paceline.executors.spool import read_session_status, read_tail
from paceline.executors.terminal import LAST_SCREEN, TERMINAL_MARK

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
SCREEN_BYTES = 16 * 1024
"""How much of the end of an attempt's output is shown: some screens full."""
DRAWN_BYTES = 64 * 1024
"""How much of the end of a recording a screen is drawn from: a full redraw of a large terminal fits."""
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])")


def printable(text: str) -> str:
    """Replace every character that could control a terminal. Line ends and tabs stay."""
    return text if text.isprintable() else "\n".join(map(_printable_line, text.split("\n")))


def _printable_line(line: str) -> str:
    if line.replace("\t", "").isprintable():
        return line
    return "".join(letter if letter.isprintable() or letter == "\t" else REPLACEMENT for letter in line)


def plain_text(output: bytes) -> str:
    """Return an agent's output as text, without colours, cursor movements and other escape sequences."""
    return without_escapes(output.decode(errors="replace"))


def without_escapes(text: str) -> str:
    """Return text without colours, cursor movements and other escape sequences, and harmless."""
    return printable(_ESCAPES.sub("", text.replace("\r\n", "\n")))


def last_screen(folder: str) -> str:
    """Return the end of what an attempt showed: its screen where it had a terminal, else its last output.

    `folder` is the attempt's spool folder.
    """
    try:
        with open(os.path.join(folder, LAST_SCREEN), "rb") as file:
            return plain_text(file.read(SCREEN_BYTES))
    except OSError:
        pass  # the attempt still runs, or had no terminal
    if os.path.exists(os.path.join(folder, TERMINAL_MARK)):
        return _drawn(folder)
    return plain_text(read_tail(folder, "stdout", SCREEN_BYTES) + read_tail(folder, "stderr", SCREEN_BYTES))


def _drawn(folder: str) -> str:
    status = read_session_status(folder)
    columns, rows = (status.columns, status.rows) if status is not None else (None, None)
    screen = BoundedScreen(columns or COLUMNS, rows or ROWS)
    screen.feed(read_tail(folder, "screen", DRAWN_BYTES))
    return printable("\n".join(screen.display()).rstrip())

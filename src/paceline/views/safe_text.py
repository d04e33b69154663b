"""Text from agents and files, made safe to print.

Such text is hostile: it may hold escape sequences that control a terminal. Never here: markup of any display.
"""

import re

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
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

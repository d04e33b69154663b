"""The normaliser: replaces what differs from run to run, and prose, by a word in angle brackets."""

import re
from pathlib import Path
from typing import Any

from paceline.engine.command_log import person

PROSE = {"detail", "notice", "reason", "error", "state", "hint", "mend", "held", "message", "quota"}
"""Fields that may hold a sentence. Codes have no space in them and stay."""
PROMISED = re.compile(r"\S+ at its cap \(\d+/\d+\) on \S+")
"""Sentences that the public contract spells out."""
CHANGING = {"pid", "port", "attempt", "owner", "version", "ticket", "ticket_id"}
DURATIONS = {"waited", "held", "waited_seconds", "parked_seconds", "ran_seconds"}
"""Measured ones. `held` is also a count of units, which is a whole number and stays."""
EARLIEST, LATEST = 1.6e9, 2.5e9
"""Numbers in between are wall-clock seconds of our days; nothing else here is that large."""
MARKS = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?( ?UTC|Z|[+-]\d\d:\d\d)?"), "<time>"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<id>"),
    (re.compile(r"\b[0-9a-f]{16,64}\b"), "<id>"),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:<port>"),
    (re.compile(re.escape(person())), "<user>@<host>"),
    (re.compile(r"\b1[6-9]\d{8}(\.\d+)?\b"), "<time>"),
)


def normal(value: Any, folder: Path, key: str = "") -> Any:
    """Return the JSON value with everything replaced that may differ while the behaviour is the same."""
    if isinstance(value, dict):
        return {normal_text(name, folder): normal(each, folder, name) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [normal(each, folder, key) for each in value]
    if value is None or isinstance(value, bool):
        return value
    if key in CHANGING:
        return f"<{key}>"
    if isinstance(value, int | float):
        return _normal_number(value, key)
    if key == "host":
        return "<host>"
    if key in PROSE and " " in value and not PROMISED.fullmatch(value):
        return "<text>"
    return normal_text(value, folder)


def _normal_number(value: float, key: str) -> Any:
    if EARLIEST < value < LATEST:
        return "<time>"
    if EARLIEST * 1000 < value < LATEST * 1000:
        return "<time in ms>"
    return "<seconds>" if key in DURATIONS and isinstance(value, float) else value


def normal_text(text: str, folder: Path) -> str:
    """Replace the test's folder, ids, ports and times in a text."""
    text = text.replace(str(folder), "<folder>")
    for pattern, mark in MARKS:
        text = pattern.sub(mark, text)
    return text


def normal_screen(text: str, folder: Path) -> str:
    """Replace in what a person reads also relative times, and the width of columns, which follows from them."""
    text = normal_text(text, folder)
    text = re.sub(r"\b\d\d:\d\d:\d\d\b", "<clock>", text)
    text = re.sub(r"\b\d+(\.\d+)? (s|min) ago", "<while> ago", text)
    lines = [re.sub(r"(?<=\S) {2,}", "  ", line).rstrip() for line in text.splitlines()]
    return "".join(f"{line}\n" for line in lines)

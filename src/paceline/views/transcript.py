"""Transcripts as text: a column of labels (said, tool, result, error, notice), and what belongs to each.

Here: the text of entries, and the end of a transcript. Never here: how a CLI writes its events, or colours.
"""

import datetime
import os
from collections.abc import Iterable, Iterator
from typing import Final, Literal
from zoneinfo import ZoneInfo

import msgspec

from paceline.agents.dialect import TranscriptEntry
from paceline.agents.stream.screen import BoundedScreen
from paceline.agents.transcript_reader import TranscriptReader
from paceline.errors import PacelineError
from paceline.executors.process import LAST_SCREEN, TERMINAL_MARK
from paceline.executors.spool import read_tail
from paceline.redaction import without_secrets
from paceline.settings import Settings
from paceline.store import Store, Unit
from paceline.views.safe_text import plain_text, printable, without_escapes

Label = Literal["said", "tool", "result", "error", "notice", ""]
WIDTH: Final = 8
"""Columns of the labels: the longest and two spaces. What was said is indented by them, so it cannot pass for another
entry."""
SCREEN_BYTES: Final = 16 * 1024
"""How much of the end of an attempt's output is shown: some screens full."""
DRAWN_BYTES: Final = 64 * 1024
"""How much of the end of a recording a screen is drawn from: a full redraw of a large terminal fits."""
TAIL_BYTES: Final = 256 * 1024
"""How much of the end of an output the end of a transcript is read from: events are much longer than their text."""
NO_OUTPUT: Final = "has no output: its session never began, or the output has been removed"
_INDENT: Final = " " * WIDTH


class Passage(msgspec.Struct, frozen=True):
    """A piece of text to print: its label, and the text with the line ends that belong to it."""

    label: Label
    text: str


class TranscriptText:
    """Turns entries into passages. Pieces of one message continue on one line, so that they can be shown live."""

    def __init__(self, zone: ZoneInfo) -> None:
        self._zone = zone
        self._is_open = False

    def passages(self, entries: Iterable[TranscriptEntry]) -> Iterator[Passage]:
        """Yield the passages of further entries."""
        for entry in entries:
            if self._is_open and not entry.is_piece:
                yield self._end_of_line()
            yield from self._passages_of(entry)

    def close(self) -> Iterator[Passage]:
        """Yield the end of an open line."""
        if self._is_open:
            yield self._end_of_line()

    def _end_of_line(self) -> Passage:
        self._is_open = False
        return Passage("", "\n")

    def _passages_of(self, entry: TranscriptEntry) -> Iterator[Passage]:
        text = without_secrets(without_escapes(entry.text))
        if entry.kind == "plain":
            yield Passage("", f"{text}\n")
            return
        if entry.resets_at is not None:
            text += f", until {_moment(entry.resets_at, self._zone)}"
        text = text.replace("\n", f"\n{_INDENT}")
        if entry.is_piece:
            if not self._is_open:
                text = text.lstrip()
                yield Passage("said", "said".ljust(WIDTH))
            self._is_open = True
            yield Passage("", text)
            return
        label: Label = "error" if entry.is_error else entry.kind
        yield Passage(label, label.ljust(WIDTH))
        yield Passage("", f"{text.rstrip()}\n")


def _moment(at: float, zone: ZoneInfo) -> str:
    try:
        return datetime.datetime.fromtimestamp(at, zone).strftime("%Y-%m-%d %H:%M %Z").strip()
    except (OverflowError, OSError, ValueError):
        return "an unknown time"


# -- the transcript of a unit ------------------------------------------------------------------------


def transcript_provider(store: Store, settings: Settings, unit: Unit) -> str | None:
    """Return whose events the unit's agent prints; None where it prints plain text, as a command does."""
    agent = unit.result.agent
    if agent is None:  # its first attempt has not ended
        agent = next((each.agent for each in store.campaigns() if each.name == unit.campaign), None)
    try:
        profile = None if agent is None else settings.agent(agent)
    except PacelineError:
        return None  # its profile has been removed from the settings
    return profile.provider if profile is not None and profile.stream == "json" else None


def last_output(folder: str, provider: str | None, zone: ZoneInfo) -> str:
    """Return the end of what an attempt showed: a transcript for an agent that prints events, else its last screen.

    `folder` is the attempt's spool folder.
    """
    is_terminal = os.path.exists(os.path.join(folder, TERMINAL_MARK))
    shown = _last_screen(folder) if provider is None or is_terminal else _transcript_tail(folder, provider, zone)
    return without_secrets(shown)


def _transcript_tail(folder: str, provider: str, zone: ZoneInfo) -> str:
    output = read_tail(folder, "stdout", TAIL_BYTES)
    if len(output) >= TAIL_BYTES:
        output = output.partition(b"\n")[2]  # the first line is cut
    reader, text = TranscriptReader(provider), TranscriptText(zone)
    entries = [*reader.feed(output), *reader.flush()]
    lines = "".join(passage.text for passage in (*text.passages(entries), *text.close()))
    if len(lines) > SCREEN_BYTES:
        lines = lines[-SCREEN_BYTES:].partition("\n")[2] or lines[-SCREEN_BYTES:]
    return lines + plain_text(read_tail(folder, "stderr", SCREEN_BYTES))


def _last_screen(folder: str) -> str:
    """Return the end of what an attempt showed: its screen where it had a terminal, else its last output."""
    try:
        with open(os.path.join(folder, LAST_SCREEN), "rb") as file:
            return plain_text(file.read(SCREEN_BYTES))
    except OSError:
        pass  # the attempt still runs, or had no terminal
    if os.path.exists(os.path.join(folder, TERMINAL_MARK)):
        return _drawn(folder)
    return plain_text(read_tail(folder, "stdout", SCREEN_BYTES) + read_tail(folder, "stderr", SCREEN_BYTES))


def _drawn(folder: str) -> str:
    screen = BoundedScreen()
    screen.feed(read_tail(folder, "screen", DRAWN_BYTES))
    return printable("\n".join(screen.display()).rstrip())

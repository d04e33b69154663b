"""The bytes of one run as a transcript.

Here: which lines are events, what is repeated, and notices about sessions, limits and endings, which the provider of a
CLI reads. Never here: what the model says in the events of one CLI, or how an entry is printed.
"""

import functools
from collections.abc import Iterable

from paceline.agents.dialect import Facts, TranscriptEntry, notice, said
from paceline.agents.known import CLIS, LIMITS
from paceline.agents.stream.lines import LineSplitter, LongLine, decode_json_event, events_within, salvage
from paceline.core.values.session_output import Tokens
from paceline.detect.json_objects import Event
from paceline.detect.observation import Kind
from paceline.detect.observation_reader import read_error_event
from paceline.detect.provider import LimitReading

_KINDS: dict[Kind, str] = {
    "quota": "usage limit reached",
    "rate": "rate limited",
    "overloaded": "provider overloaded",
    "platform": "platform limit reached",
    "billing": "billing stop",
    "auth": "login or key not accepted",
    "unreachable": "nobody answered",
}
LEFT_OUT = "a line of more than 1 MB is left out"


class TranscriptReader:
    """Reads stdout of an agent CLI, cut anywhere, in bounded memory. `provider` is the name that its profile has."""

    def __init__(self, provider: str) -> None:
        self._dialect = CLIS.cli(provider).dialect
        self._splitter = LineSplitter()
        self._session_id: str | None = None
        self._model: str | None = None
        self._last_text = ""
        """The last text that was said or noticed: the event that ends a turn repeats it."""

    def feed(self, chunk: bytes) -> list[TranscriptEntry]:
        """Return the entries of the lines that a chunk completes."""
        return [entry for line in self._splitter.feed(chunk) for entry in self._read_line(line)]

    def flush(self) -> list[TranscriptEntry]:
        """Return the entries of an unfinished last line."""
        rest = self._splitter.flush()
        return [] if rest is None else list(self._read_line(rest))

    def _read_line(self, line: bytes | LongLine) -> Iterable[TranscriptEntry]:
        if isinstance(line, LongLine):
            event = salvage(line)
            return [notice(LEFT_OUT)] if event is not None and self._is_own(event) else [_long_plain(line)]
        if not line.strip():
            return ()
        event = decode_json_event(line)
        events = [event] if event is not None else events_within(line)
        if not events or not all(self._is_own(each) for each in events):
            return [TranscriptEntry(kind="plain", text=line.decode("utf-8", "replace"))]
        return self._without_repeats([entry for each in events for entry in self._read_event(each)])

    def _is_own(self, event: Event) -> bool:
        kind = event.get("type")
        is_known = isinstance(kind, str) and (kind in self._dialect.quiet or kind in self._dialect.news)
        return is_known or (kind is None and self._dialect.is_own_event(event))

    def _read_event(self, event: Event) -> list[TranscriptEntry]:
        found = () if self._dialect.entries is None else self._dialect.entries(event)
        if found or event.get("type") in self._dialect.quiet:
            return list(found)
        facts = self._dialect.read(event)
        entries = [*self._session(facts), *_trouble(facts, read_error_event(event, LIMITS))]
        if facts.ending is not None and facts.ending.ok:
            entries += [*said(facts.answer), notice(_ended(facts))]
        return entries

    def _session(self, facts: Facts) -> list[TranscriptEntry]:
        """Return a notice where the session or its model became known, or changed."""
        parts = []
        if facts.session_id is not None and facts.session_id != self._session_id:
            self._session_id = facts.session_id
            parts.append(f"session {facts.session_id}")
        if facts.model is not None and facts.model != self._model:
            self._model = facts.model
            parts.append(f"model {facts.model}")
        return [notice(", ".join(parts))] if parts else []

    def _without_repeats(self, entries: list[TranscriptEntry]) -> list[TranscriptEntry]:
        kept = []
        for entry in entries:
            is_prose = entry.kind in ("said", "notice") and not entry.is_piece
            if is_prose and entry.text == self._last_text and (entry.kind == "said" or entry.is_error):
                continue
            self._last_text = entry.text if is_prose else ""
            kept.append(entry)
        return kept


def _trouble(facts: Facts, reading: LimitReading | None) -> list[TranscriptEntry]:
    kind = None if reading is None else reading.kind or reading.default
    named = _KINDS.get(kind) if kind is not None else None
    reset = None if reading is None else reading.reset
    status = "" if facts.status is None else f" (status {facts.status})"
    if facts.is_retry:
        delay = "" if reset is None or reset.after is None else f" in {reset.after:.3g} s"
        cause = facts.error or named
        return [notice(f"retry{delay}{'' if cause is None else f': {cause}'}{status}")]
    if facts.ending is not None and not facts.ending.ok:
        how = "interrupted" if facts.ending.interrupted else "failed"
        return [notice(facts.error or how, is_error=True)]
    if facts.error is not None:
        return [notice(f"{facts.error}{status}", is_error=True)]
    if named is None or kind == "none":
        return []
    window = f" ({reading.window} window)" if reading is not None and reading.window else ""
    return [notice(f"{named}{window}{status}", is_error=True, resets_at=None if reset is None else reset.at)]


def _ended(facts: Facts) -> str:
    """Return that a turn ended, with the tokens that its event counts."""
    if facts.usage is None:
        return "turn ended"
    tokens = functools.reduce(Tokens.plus, facts.usage.by_model.values(), Tokens())
    counts = [(tokens.input, "input"), (tokens.output, "output")]
    counts += [(tokens.cache_read, "cache read"), (tokens.cache_write, "cache write")]
    return f"turn ended; tokens: {', '.join(f'{number:,} {name}' for number, name in counts if number) or '0'}"


def _long_plain(line: LongLine) -> TranscriptEntry:
    head, tail = (part.decode("utf-8", "replace") for part in (line.head, line.tail))
    return TranscriptEntry(kind="plain", text=f"{head} […] {tail}")

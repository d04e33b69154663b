"""The work of one run: its tokens by kind and model, its turns, and the last words of the agent.

A turn ends when all tools that the model called are done, and the agent asks it again. There a run can be ended and
resumed without loss: the conversation has the results of all tools, and none is at work. Here: counting, and keeping
the last message undecoded. Never here: how one CLI writes any of this.
"""

from collections.abc import Callable

import msgspec

from paceline.agents.dialect import AnswerEvents, TurnEvents
from paceline.agents.stream.facts import MOST_ANSWER_BYTES, Head, MessageHead, ReportedUsage, Requests, RunUsage
from paceline.agents.stream.lines import UNREADABLE, decode_json_event
from paceline.core.values.tokens import Tokens
from paceline.detect.json_objects import Event, text_at

_MESSAGES_COUNTED = 64
"""Messages whose usage is kept apart: it is repeated with each part, and parts of several messages may interleave."""


class TokenRecord:
    """The tokens of a run: those that the CLI counted, and those of messages since."""

    def __init__(self) -> None:
        self.requests: Requests | None = None
        self._reported: RunUsage | None = None
        self._messages: dict[str, MessageHead] = {}
        self._older: dict[str, Tokens] = {}
        self._older_total = 0

    @property
    def running_total(self) -> int:
        """Tokens of the messages since the CLI last counted, without cache reads."""
        if not self._messages:
            return self._older_total
        return self._older_total + sum(each.usage.total for each in self._messages.values() if each.usage is not None)

    @property
    def usage(self) -> RunUsage | None:
        """All that was counted, or None if nothing was."""
        if self._reported is None and not self._messages:
            return None
        by_model = {} if self._reported is None else dict(self._reported.by_model)
        for model, tokens in self._older.items():
            _add(by_model, model, tokens)
        for message in self._messages.values():
            if message.usage is not None:
                _add(by_model, message.model, message.usage.tokens)
        if not by_model:
            return None
        is_conversation = self._reported is not None and self._reported.is_conversation
        return RunUsage(by_model=by_model, is_conversation=is_conversation)

    def note_request(self, sent: Tokens) -> None:
        """Take one request of the agent. Further parts of its answer repeat it."""
        if sent.sent:
            first = sent if self.requests is None else self.requests.first
            self.requests = Requests(first=first, last=sent)

    def count_message(self, message: MessageHead) -> None:
        """Add the usage of a message, or of a further part of it."""
        usage = message.usage
        if usage is None:
            return
        counted = self._messages
        known = counted.get(message.id)
        if known is None and len(counted) == _MESSAGES_COUNTED:
            self._add_up(counted.pop(next(iter(counted))))
        if known is None or known.usage is None or usage.total >= known.usage.total:
            counted[message.id] = message

    def report(self, reported: ReportedUsage) -> None:
        """Take what the CLI itself counted. A turn that was broken off may count nothing although its messages did."""
        if reported.is_request:
            for tokens in reported.by_model.values():
                self.note_request(tokens)
        if reported.reach == "turn":
            turn = sum(_limited_total(tokens) for tokens in reported.by_model.values())
            if turn < self.running_total:
                self._take_over()
                return
            by_model = {} if self._reported is None else dict(self._reported.by_model)
            for model, tokens in reported.by_model.items():
                _add(by_model, model, tokens)
            self._replace(by_model, is_conversation=self._reported is not None and self._reported.is_conversation)
        else:
            self._replace(dict(reported.by_model), is_conversation=reported.reach == "conversation")

    def _take_over(self) -> None:
        usage = self.usage
        if usage is not None:
            self._replace(usage.by_model, is_conversation=usage.is_conversation)

    def _replace(self, by_model: dict[str, Tokens], *, is_conversation: bool) -> None:
        self._reported = RunUsage(by_model=by_model, is_conversation=is_conversation)
        self.forget_messages()

    def forget_messages(self) -> None:
        """Drop the messages up to here: the CLI has counted them itself."""
        self._messages.clear()
        self._older.clear()
        self._older_total = 0

    def _add_up(self, message: MessageHead) -> None:
        if message.usage is not None:
            _add(self._older, message.model, message.usage.tokens)
            self._older_total += message.usage.total


def _add(by_model: dict[str, Tokens], model: str, tokens: Tokens) -> None:
    by_model[model] = by_model.get(model, Tokens()).plus(tokens)


def _limited_total(tokens: Tokens) -> int:
    return tokens.input + tokens.cache_write + tokens.output


_PARENT = b'"parent_tool_use_id":'
_HEAD_BYTES = 512
"""Where the first call or result of an event is found: its text, which may be long, follows. Most events have none."""


class TurnRecord:
    """Counts the ends of turns. Sub-agents are tools of the agent, so their own tools do not count."""

    def __init__(self, events: TurnEvents) -> None:
        self.ends = 0
        self._events = events
        self._types = events.calls | events.results | events.speech
        self._open = 0

    def take(self, head: Head, line: bytes) -> None:
        """Count an event of the stream."""
        events, kind = self._events, head.type
        if kind not in self._types:
            return
        item = head.item.type if head.item is not None else ""
        is_tool = not events.tool_items or item in events.tool_items
        done = called = 0
        if is_tool and kind in events.results:
            done = _count(events.result, line, most=max(1, self._open))
        elif is_tool and kind in events.calls:
            called = _count(events.call, line)
        if not (done or called or self._open) or is_of_sub_agent(line):
            return
        if done:
            self._finish(done)
        elif called:
            self._open += called
        elif kind in events.speech and head.role != "user" and (not item or item in events.spoken_items):
            self._open = 0

    def take_long(self, kind: object) -> None:
        """Count an event that was too long to be kept: the result of one tool, or a call with a long text."""
        if kind in self._events.results:
            self._finish(1)
        elif kind in self._events.calls:
            self._open += 1

    def _finish(self, done: int) -> None:
        self._open = max(0, self._open - done)
        self.ends += self._open == 0


def _count(marks: tuple[bytes, ...], line: bytes, most: int | None = None) -> int:
    """Return how often the event has one of the marks, as far as that matters."""
    if not marks:
        return 1
    head = line[:_HEAD_BYTES]
    for mark in marks:
        if mark in head:
            return 1 if most == 1 else line.count(mark)
    return 0


def is_of_sub_agent(line: bytes) -> bool:
    """Return whether an event is a sub-agent's. Quotes inside a JSON string are escaped, so no text looks like this."""
    place = line.rfind(_PARENT)
    value = place + len(_PARENT)
    return place >= 0 and line[value : value + 2].lstrip().startswith(b'"')


class _Piece(msgspec.Struct, gc=False):
    content: str = ""


_decode_piece: Callable[[bytes], _Piece] = msgspec.json.Decoder(_Piece).decode


class AnswerText:
    """The last message of a run. Whole messages are kept undecoded; of pieces the text is kept, up to a bound."""

    def __init__(self, events: AnswerEvents) -> None:
        self._events = events
        self._last: bytes | None = None
        self._pieces: list[str] = []
        self._size = 0

    def take(self, head: Head, line: bytes) -> None:
        """Keep an event if it is a part of an answer."""
        events = self._events
        if head.type in events.ends or head.role == "user":
            self._pieces, self._size = [], 0
        elif head.type in events.types:
            if events.ends:
                self._add_piece(line)
            elif events.item is None or (head.item is not None and head.item.type == events.item):
                self._last = line

    @property
    def text(self) -> str | None:
        """The answer so far, or None."""
        if self._pieces:
            return "".join(self._pieces)
        event: Event | None = None if self._last is None else decode_json_event(self._last)
        return None if event is None else text_at(event, *self._events.path)

    def _add_piece(self, line: bytes) -> None:
        if self._size < MOST_ANSWER_BYTES:
            try:
                piece = _decode_piece(line).content
            except UNREADABLE:
                return
            self._pieces.append(piece)
            self._size += len(piece)

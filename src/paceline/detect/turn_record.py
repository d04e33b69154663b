"""The turns of a run: a turn ends when all tools that the model called are done, and the agent asks it again.

There a run can be ended and resumed without loss: the conversation has the results of all tools, and none is at work.
Here: which events call tools and which report them done. Never here: how one CLI writes them.
"""

import msgspec

from paceline.detect.run_facts import Head

_PARENT = b'"parent_tool_use_id":'
_HEAD_BYTES = 512
"""Where the first call or result of an event is found: its text, which may be long, follows. Most events have none."""


class TurnEvents(msgspec.Struct, frozen=True, kw_only=True):
    """How the stream of a CLI shows its tools at work."""

    calls: frozenset[str] = frozenset()
    """Event types in which the model calls tools."""
    call: tuple[bytes, ...] = ()
    """Bytes of which one is in such an event for each call. Without any the event is one call."""
    results: frozenset[str]
    """Event types which report that tools are done."""
    result: tuple[bytes, ...] = ()
    """Bytes of which one is in such an event for each tool. Without any the event reports one."""
    speech: frozenset[str] = frozenset()
    """Event types in which the model speaks. Tools that were called before are over, or continue in the background."""
    tool_items: frozenset[str] = frozenset()
    """The types of items that are tools, where events have items."""
    spoken_items: frozenset[str] = frozenset()


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

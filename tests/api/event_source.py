"""Reads `text/event-stream` as a browser does, by the rules of the HTML standard."""

import json
from typing import Any

import msgspec


class Message(msgspec.Struct, frozen=True):
    """One dispatched event."""

    event: str
    data: str
    id: str

    @property
    def value(self) -> Any:
        return json.loads(self.data)


class EventSource:
    """What an `EventSource` would make of these bytes, fed in any pieces."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.comments: list[str] = []
        self.last_event_id = ""
        self.retry: int | None = None
        self._unread = b""
        self._id, self._event = "", ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> None:
        *lines, self._unread = (self._unread + piece).split(b"\n")
        for line in lines:
            self._line(line.decode())

    def _line(self, line: str) -> None:
        if not line:
            self._dispatch()
            return
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match field:
            case "":
                self.comments.append(value)
            case "id":
                self._id = value
            case "event":
                self._event = value
            case "data":
                self._data.append(value)
            case "retry":
                self.retry = int(value)
            case _:
                raise AssertionError(f"no field of the standard: {line!r}")

    def _dispatch(self) -> None:
        self.last_event_id = self._id
        if self._data:
            self.messages.append(Message(self._event or "message", "\n".join(self._data), self._id))
        self._event, self._data = "", []

    @property
    def ids(self) -> list[int]:
        """Of the events proper."""
        return [int(message.id) for message in self.messages if message.event == "message"]

"""The values that pass between the server and the protocol modules, and the one thing they share: how SSE looks.

A protocol module shapes bytes and decides nothing: it reads a request body into a `Call` and turns a `Reply`
into its own JSON or its own stream of `Chunk`s.
"""

from collections.abc import Iterator
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from paceline.simulation.provider.scenario import ToolCall

Json = dict[str, Any]
T = TypeVar("T")
ProtocolName = Literal["anthropic", "openai-chat", "openai-responses", "gemini"]


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """What a request asks for. `prompts` are the texts of the user's messages, oldest first."""

    model: str
    stream: bool
    prompts: tuple[str, ...]
    answers: int
    """How many answers the conversation already holds."""
    session: str | None = None


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What is answered: `words` are sent one by one, each counts as one token; then the call of a `tool`, if any."""

    id: str
    model: str
    words: tuple[str, ...]
    input_tokens: int
    created_at: int
    tool: ToolCall | None = None

    @property
    def tool_id(self) -> str:
        return f"call_{self.id}"

    @property
    def tool_arguments(self) -> str:
        """As JSON in a string, which is how most protocols carry them."""
        return msgspec.json.encode(self.tool.arguments if self.tool is not None else {}).decode()

    @property
    def text(self) -> str:
        return "".join(self.words)

    @property
    def output_tokens(self) -> int:
        return len(self.words)


class Chunk(msgspec.Struct, frozen=True):
    """A piece of a stream, and how many tokens of the answer it carries."""

    data: bytes
    tokens: int = 0


class MalformedCallError(Exception):
    """The body is not what this protocol's clients send."""


class Wire(Protocol):
    """What a protocol module offers (the modules themselves are the implementations)."""

    NAME: ProtocolName
    STREAM_TYPE: str

    def read_call(self, body: bytes, model: str | None) -> Call: ...

    def whole(self, reply: Reply) -> Json: ...

    def stream(self, reply: Reply) -> Iterator[Chunk]: ...

    def error_event(self, body: Json, reply: Reply) -> bytes: ...


class Part(msgspec.Struct):
    """A piece of a message's content; pieces that are no text (images, tool results) have none."""

    type: str = ""
    text: str | None = None


Content = str | list[Part] | None


def text_of(content: Content) -> str:
    """The text of a message, whichever of its forms the client chose."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "\n".join(part.text for part in content if part.text)


def decode(body: bytes, shape: type[T]) -> T:
    """The body as `shape`; fields that the fake has no use for are passed over."""
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedCallError(str(error)) from error


def sse(data: Json | str, event: str | None = None) -> bytes:
    """One server-sent event."""
    payload = data.encode() if isinstance(data, str) else msgspec.json.encode(data)
    name = f"event: {event}\n".encode() if event else b""
    return name + b"data: " + payload + b"\n\n"

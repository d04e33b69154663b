"""The values between the server and the protocol modules, and the format of SSE that they share.

A protocol module formats bytes and decides nothing. It reads a request body into a `ModelCall`, and turns a `Reply`
into its own JSON or its own stream of `Chunk`s.
"""

from collections.abc import Iterator
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from paceline.simulation.provider.scenario import ToolCall

Json = dict[str, Any]
T = TypeVar("T")
ProtocolName = Literal["anthropic", "openai-chat", "openai-responses", "gemini"]


class ModelCall(msgspec.Struct, kw_only=True):
    """What a request asks for. `prompts` are the texts of the user's messages, oldest first."""

    model: str
    stream: bool
    prompts: tuple[str, ...]
    answers: int
    """Number of answers that the conversation already has."""
    session: str | None = None


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """An answer: `words` are sent one by one, each counts as one token; then the call of a `tool`, if any."""

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
        """Return the arguments as JSON in a string, as most protocols have them."""
        return msgspec.json.encode(self.tool.arguments if self.tool is not None else {}).decode()

    @property
    def text(self) -> str:
        return "".join(self.words)

    @property
    def output_tokens(self) -> int:
        return len(self.words)


class Chunk(msgspec.Struct, frozen=True):
    """A piece of a stream, and how many tokens of the answer it has."""

    data: bytes
    tokens: int = 0


class MalformedCallError(Exception):
    """The body does not follow the protocol."""


class ProtocolModule(Protocol):
    """The interface of a protocol module; the modules themselves implement it."""

    NAME: ProtocolName
    STREAM_TYPE: str

    def read_call(self, body: bytes, model: str | None) -> ModelCall: ...

    def whole(self, reply: Reply) -> Json: ...

    def stream(self, reply: Reply) -> Iterator[Chunk]: ...

    def error_event(self, body: Json, reply: Reply) -> bytes: ...


class Part(msgspec.Struct):
    """A piece of the content of a message. Images and tool results have no text."""

    type: str = ""
    text: str | None = None


Content = str | list[Part] | None


def text_of(content: Content) -> str:
    """Return the text of a message, in either of its two forms."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "\n".join(part.text for part in content if part.text)


def decode(body: bytes, shape: type[T]) -> T:
    """Decode the body as `shape`. Unknown fields are ignored."""
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedCallError(str(error)) from error


def sse(data: Json | str, event: str | None = None) -> bytes:
    """Return one server-sent event."""
    payload = data.encode() if isinstance(data, str) else msgspec.json.encode(data)
    name = f"event: {event}\n".encode() if event else b""
    return name + b"data: " + payload + b"\n\n"

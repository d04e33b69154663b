"""The Gemini protocol (generateContent, streamGenerateContent?alt=sse): its wire format. Decides nothing.

The URL contains the model, and the name of the method decides about streaming. So the server passes both.
"""

from collections.abc import Iterator

import msgspec

from paceline.simulation.provider.protocol_module import (
    Chunk,
    Json,
    ModelCall,
    Part,
    ProtocolName,
    Reply,
    decode,
    sse,
    text_of,
)

NAME: ProtocolName = "gemini"
STREAM_TYPE = "text/event-stream"
STREAM_METHOD = "streamGenerateContent"


class _Content(msgspec.Struct):
    role: str = "user"
    parts: list[Part] = []


class _Body(msgspec.Struct):
    contents: list[_Content]


def read_call(body: bytes, model: str | None) -> ModelCall:
    """Read a request. `model` is the last part of the URL: `gemini-2.5-pro:streamGenerateContent`."""
    request = decode(body, _Body)
    name, _, method = (model or "").partition(":")
    users = (text_of(content.parts) for content in request.contents if content.role == "user")
    return ModelCall(
        model=name,
        stream=method == STREAM_METHOD,
        prompts=tuple(text for text in users if text),  # a message without text carries only tool results
        answers=sum(content.role == "model" for content in request.contents),
    )


def whole(reply: Reply) -> Json:
    return _piece(reply, reply.text, finish_reason="STOP")


def stream(reply: Reply) -> Iterator[Chunk]:
    *words, last = reply.words
    for word in words:
        yield Chunk(sse(_piece(reply, word)), tokens=1)
    yield Chunk(sse(_piece(reply, last, finish_reason="STOP")), tokens=1)


def error_event(body: Json, reply: Reply) -> bytes:
    return sse(body)


def _piece(reply: Reply, text: str, finish_reason: str | None = None) -> Json:
    parts: list[Json] = [{"text": text}]
    if finish_reason and reply.tool is not None:
        parts.append({"functionCall": {"name": reply.tool.name, "args": reply.tool.arguments}})
    candidate: Json = {"content": {"role": "model", "parts": parts}, "index": 0}
    if finish_reason:
        candidate["finishReason"] = finish_reason
    return {
        "candidates": [candidate],
        "usageMetadata": {
            "promptTokenCount": reply.input_tokens,
            "candidatesTokenCount": reply.output_tokens,
            "totalTokenCount": reply.input_tokens + reply.output_tokens,
        },
        "modelVersion": reply.model,
        "responseId": reply.id,
    }

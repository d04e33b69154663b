"""The Anthropic Messages protocol: its wire format. Decides nothing."""

from collections.abc import Iterator

import msgspec

from paceline.simulation.provider.protocol_module import (
    Chunk,
    Content,
    Json,
    ModelCall,
    ProtocolName,
    Reply,
    decode,
    sse,
    text_of,
)

NAME: ProtocolName = "anthropic"
STREAM_TYPE = "text/event-stream"


class _Message(msgspec.Struct):
    role: str
    content: Content = None


class _Metadata(msgspec.Struct):
    user_id: str | None = None


class _Body(msgspec.Struct):
    model: str
    messages: list[_Message]
    stream: bool = False
    metadata: _Metadata | None = None


def read_call(body: bytes, model: str | None) -> ModelCall:
    request = decode(body, _Body)
    users = (text_of(message.content) for message in request.messages if message.role == "user")
    return ModelCall(
        model=request.model,
        stream=request.stream,
        prompts=tuple(text for text in users if text),  # a message without text carries only tool results
        answers=sum(message.role == "assistant" for message in request.messages),
        session=_session_in(request.metadata),
    )


def _session_in(metadata: _Metadata | None) -> str | None:
    """Return the session that Claude Code puts into `metadata.user_id`: `user_..._session_UUID`, or JSON."""
    user_id = metadata.user_id if metadata else None
    if not user_id:
        return None
    if user_id.startswith("{"):
        try:
            hidden = msgspec.json.decode(user_id, type=dict[str, str])
        except msgspec.MsgspecError:
            return None
        return hidden.get("session_id")
    _, found, session = user_id.rpartition("_session_")
    return session if found else None


def whole(reply: Reply) -> Json:
    message = _message(reply)
    message["content"] = [{"type": "text", "text": reply.text}, *_tool_blocks(reply)]
    message["stop_reason"] = _stop_reason(reply)
    message["usage"] = {"input_tokens": reply.input_tokens, "output_tokens": reply.output_tokens}
    return message


def stream(reply: Reply) -> Iterator[Chunk]:
    yield Chunk(_event("message_start", message=_message(reply)))
    yield Chunk(_event("content_block_start", index=0, content_block={"type": "text", "text": ""}))
    yield Chunk(_event("ping"))
    for word in reply.words:
        yield Chunk(_event("content_block_delta", index=0, delta={"type": "text_delta", "text": word}), tokens=1)
    yield Chunk(_event("content_block_stop", index=0))
    for block in _tool_blocks(reply):
        yield Chunk(_event("content_block_start", index=1, content_block=block | {"input": {}}))
        delta = {"type": "input_json_delta", "partial_json": reply.tool_arguments}
        yield Chunk(_event("content_block_delta", index=1, delta=delta))
        yield Chunk(_event("content_block_stop", index=1))
    stop = {"stop_reason": _stop_reason(reply), "stop_sequence": None}
    yield Chunk(_event("message_delta", delta=stop, usage={"output_tokens": reply.output_tokens}))
    yield Chunk(_event("message_stop"))


def error_event(body: Json, reply: Reply) -> bytes:
    return sse(body, "error")


def _tool_blocks(reply: Reply) -> list[Json]:
    if reply.tool is None:
        return []
    return [{"type": "tool_use", "id": reply.tool_id, "name": reply.tool.name, "input": reply.tool.arguments}]


def _stop_reason(reply: Reply) -> str:
    return "end_turn" if reply.tool is None else "tool_use"


def _event(kind: str, **fields: object) -> bytes:
    return sse({"type": kind, **fields}, kind)


def _message(reply: Reply) -> Json:
    return {
        "id": f"msg_{reply.id}",
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": reply.input_tokens, "output_tokens": 1},
    }

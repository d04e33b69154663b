"""The OpenAI Responses protocol, as Codex uses it: its wire format. Decides nothing."""

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

NAME: ProtocolName = "openai-responses"
STREAM_TYPE = "text/event-stream"
TOOL_CALL = "function_call"


class _Item(msgspec.Struct):
    """An input item: a message, or a tool call and its output (which have no role)."""

    type: str = "message"
    role: str | None = None
    content: Content = None


class _Body(msgspec.Struct):
    model: str
    input: str | list[_Item] = ""
    stream: bool | None = None
    prompt_cache_key: str | None = None


def read_call(body: bytes, model: str | None) -> ModelCall:
    request = decode(body, _Body)
    items = [_Item(role="user", content=request.input)] if isinstance(request.input, str) else request.input
    return ModelCall(
        model=request.model,
        stream=bool(request.stream),
        prompts=tuple(text_of(item.content) for item in items if item.role == "user"),
        answers=sum(item.role == "assistant" or item.type == TOOL_CALL for item in items),
        session=request.prompt_cache_key,  # Codex sends the id of its conversation here
    )


def whole(reply: Reply) -> Json:
    return _response(reply, "completed", output=[_item(reply, "completed"), *_tool_items(reply)], usage=_usage(reply))


def stream(reply: Reply) -> Iterator[Chunk]:
    place = {"item_id": f"msg_{reply.id}", "output_index": 0, "content_index": 0}
    yield Chunk(_event("response.created", response=_response(reply, "in_progress")))
    yield Chunk(_event("response.output_item.added", output_index=0, item=_item(reply, "in_progress")))
    yield Chunk(_event("response.content_part.added", **place, part=_text("")))
    for word in reply.words:
        yield Chunk(_event("response.output_text.delta", **place, delta=word), tokens=1)
    yield Chunk(_event("response.output_text.done", **place, text=reply.text))
    yield Chunk(_event("response.content_part.done", **place, part=_text(reply.text)))
    yield Chunk(_event("response.output_item.done", output_index=0, item=_item(reply, "completed")))
    for item in _tool_items(reply):
        yield Chunk(_event("response.output_item.added", output_index=1, item=item | {"status": "in_progress"}))
        yield Chunk(_event("response.output_item.done", output_index=1, item=item))
    yield Chunk(_event("response.completed", response=whole(reply)))


def error_event(body: Json, reply: Reply) -> bytes:
    """Return the event of a failed stream: the response itself, whose error has only code and message."""
    error = body["error"]
    named = {"code": error.get("code") or error.get("type"), "message": error["message"]}
    return _event("response.failed", response=_response(reply, "failed", error=named))


def _event(kind: str, **fields: object) -> bytes:
    return sse({"type": kind, **fields}, kind)


def _response(reply: Reply, status: str, **fields: object) -> Json:
    return {
        "id": f"resp_{reply.id}",
        "object": "response",
        "created_at": reply.created_at,
        "status": status,
        "model": reply.model,
        "output": [],
        "error": None,
        "usage": None,
    } | fields


def _item(reply: Reply, status: str) -> Json:
    return {
        "id": f"msg_{reply.id}",
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": [_text(reply.text)] if status == "completed" else [],
    }


def _tool_items(reply: Reply) -> list[Json]:
    if reply.tool is None:
        return []
    called = {"call_id": reply.tool_id, "name": reply.tool.name, "arguments": reply.tool_arguments}
    return [{"id": f"fc_{reply.id}", "type": TOOL_CALL, "status": "completed"} | called]


def _text(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": []}


def _usage(reply: Reply) -> Json:
    return {
        "input_tokens": reply.input_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": reply.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": reply.input_tokens + reply.output_tokens,
    }

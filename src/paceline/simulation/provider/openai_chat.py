"""The OpenAI Chat Completions protocol, also of compatible servers: its wire format. Decides nothing."""

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

NAME: ProtocolName = "openai-chat"
STREAM_TYPE = "text/event-stream"


class _Message(msgspec.Struct):
    role: str
    content: Content = None


class _Body(msgspec.Struct):
    model: str
    messages: list[_Message]
    stream: bool | None = None
    user: str | None = None


def read_call(body: bytes, model: str | None) -> ModelCall:
    request = decode(body, _Body)
    return ModelCall(
        model=request.model,
        stream=bool(request.stream),
        prompts=tuple(text_of(message.content) for message in request.messages if message.role == "user"),
        answers=sum(message.role == "assistant" for message in request.messages),
        session=request.user,
    )


def whole(reply: Reply) -> Json:
    message = {"role": "assistant", "content": reply.text, "refusal": None} | _tool_calls(reply)
    return {
        "id": f"chatcmpl-{reply.id}",
        "object": "chat.completion",
        "created": reply.created_at,
        "model": reply.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(reply)}],
        "usage": _usage(reply),
    }


def stream(reply: Reply) -> Iterator[Chunk]:
    yield Chunk(_delta(reply, {"role": "assistant", "content": ""}))
    for word in reply.words:
        yield Chunk(_delta(reply, {"content": word}), tokens=1)
    if reply.tool is not None:
        yield Chunk(_delta(reply, _tool_calls(reply)))
    yield Chunk(_delta(reply, {}, finish_reason=_finish(reply)))
    # Always sent: clients that did not ask for it ignore a chunk without choices.
    yield Chunk(sse(_chunk(reply) | {"choices": [], "usage": _usage(reply)}))
    yield Chunk(sse("[DONE]"))


def error_event(body: Json, reply: Reply) -> bytes:
    return sse(body)


def _tool_calls(reply: Reply) -> Json:
    if reply.tool is None:
        return {}
    function = {"name": reply.tool.name, "arguments": reply.tool_arguments}
    return {"tool_calls": [{"index": 0, "id": reply.tool_id, "type": "function", "function": function}]}


def _finish(reply: Reply) -> str:
    return "stop" if reply.tool is None else "tool_calls"


def _delta(reply: Reply, delta: Json, finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    return sse(_chunk(reply) | {"choices": [choice]})


def _chunk(reply: Reply) -> Json:
    return {
        "id": f"chatcmpl-{reply.id}",
        "object": "chat.completion.chunk",
        "created": reply.created_at,
        "model": reply.model,
    }


def _usage(reply: Reply) -> Json:
    return {
        "prompt_tokens": reply.input_tokens,
        "completion_tokens": reply.output_tokens,
        "total_tokens": reply.input_tokens + reply.output_tokens,
    }

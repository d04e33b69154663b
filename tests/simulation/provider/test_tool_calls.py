"""Answers that call a tool, and steps that wait for a conversation to have begun."""

import json
from typing import Any

import httpx
import pytest

from paceline.testing import FakeProvider
from paceline.testing.provider import Step, ToolCall

LOOK = ToolCall(name="Look", arguments={"path": "a.py"})
BODIES: dict[str, dict[str, Any]] = {
    "/v1/messages": {"model": "claude-opus-4-6", "messages": [{"role": "user", "content": "hi"}]},
    "/v1/chat/completions": {"model": "gpt-5", "messages": [{"role": "user", "content": "hi"}]},
    "/v1/responses": {"model": "gpt-5", "input": [{"type": "message", "role": "user", "content": "hi"}]},
    "/v1beta/models/gemini-2.5-pro:generateContent": {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
}
CALLS: dict[str, dict[str, Any]] = {
    "/v1/messages": {"type": "tool_use", "id": "call_fake000001", "name": "Look", "input": {"path": "a.py"}},
    "/v1/chat/completions": {"name": "Look", "arguments": '{"path":"a.py"}'},
    "/v1/responses": {"call_id": "call_fake000001", "name": "Look", "arguments": '{"path":"a.py"}'},
    "/v1beta/models/gemini-2.5-pro:generateContent": {"name": "Look", "args": {"path": "a.py"}},
}


def call_in(path: str, body: dict[str, Any]) -> Any:
    match path:
        case "/v1/messages":
            return body["content"][1]
        case "/v1/chat/completions":
            return body["choices"][0]["message"]["tool_calls"][0]["function"]
        case "/v1/responses":
            return {name: body["output"][1][name] for name in ("call_id", "name", "arguments")}
    return body["candidates"][0]["content"]["parts"][1]["functionCall"]


@pytest.mark.parametrize("path", BODIES)
async def test_an_answer_may_call_a_tool_once(path: str) -> None:
    async with FakeProvider() as provider, httpx.AsyncClient(base_url=provider.url) as client:
        provider.script("ok", tool=LOOK)
        first = (await client.post(path, json=BODIES[path])).json()
        second = (await client.post(path, json=BODIES[path])).text

    assert call_in(path, first) == CALLS[path]
    assert "Look" not in second


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions", "/v1/responses"])
async def test_a_streamed_answer_carries_the_call_too(path: str) -> None:
    async with FakeProvider() as provider, httpx.AsyncClient(base_url=provider.url) as client:
        provider.script("ok", tool=LOOK)
        streamed = (await client.post(path, json=BODIES[path] | {"stream": True})).text

    assert '"name":"Look"' in streamed
    assert r"{\"path\":\"a.py\"}" in streamed
    assert "tool_use" in streamed or "tool_calls" in streamed or "function_call" in streamed


async def test_a_step_may_wait_for_a_conversation_that_has_begun() -> None:
    begun = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "yes?"},
        {"role": "user", "content": "go"},
    ]
    async with FakeProvider() as provider, httpx.AsyncClient(base_url=provider.url) as client:
        provider.script("429_retry_after", answers=1)
        path = "/v1/messages"
        fresh = await client.post(path, json=BODIES[path])
        later = await client.post(path, json=BODIES[path] | {"messages": begun})

    assert (fresh.status_code, later.status_code) == (200, 429)


async def test_a_call_of_a_tool_counts_as_an_answer_of_the_conversation() -> None:
    called = [
        {"type": "message", "role": "user", "content": "hi"},
        {"type": "function_call", "call_id": "c1", "name": "Look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "nothing"},
    ]
    async with FakeProvider() as provider, httpx.AsyncClient(base_url=provider.url) as client:
        await client.post("/v1/responses", json={"model": "gpt-5", "input": called})

    assert [record.answers for record in provider.requests] == [1]


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions", "/v1/responses"])
async def test_a_step_may_be_meant_for_the_conversations_about_something(path: str) -> None:
    about = json.loads(json.dumps(BODIES[path]).replace('"hi"', '"Write it.\\nThe file is parser.py."'))
    async with FakeProvider() as provider, httpx.AsyncClient(base_url=provider.url) as client:
        provider.add_step(Step(error="ok", prompts="*parser.py*", text="I wrote the parser."))
        answers = [(await client.post(path, json=body)).text for body in (BODIES[path], about, about)]

    assert ["I wrote the parser." in answer for answer in answers] == [False, True, False]

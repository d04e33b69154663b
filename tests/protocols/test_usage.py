"""Tokens of a response, read from bodies and streams of every protocol, cut anywhere."""

import gzip
import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.protocols import response_reader
from paceline.protocols.usage import LONGEST_EVENT, EventReader, ResponseReader

JSON = [(b"content-type", b"application/json; charset=utf-8")]
SSE = [(b"content-type", b"text/event-stream")]


def events(*values: object) -> bytes:
    return b"".join(b"event: x\ndata: " + json.dumps(value).encode() + b"\n\n" for value in values)


ANTHROPIC_STREAM = events(
    {"type": "message_start", "message": {"model": "m", "usage": {
        "input_tokens": 10, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 900, "output_tokens": 1}}},
    {"type": "content_block_delta", "delta": {"text": '"usage": {"input_tokens": 7}'}},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 20}},
    {"type": "message_stop"},
)  # fmt: skip
CHAT_STREAM = events(
    {"choices": [{"delta": {"content": "a"}}], "usage": None},
    {"choices": [], "usage": {"prompt_tokens": 8, "completion_tokens": 4, "total_tokens": 12}},
) + b"data: [DONE]\n\n"  # fmt: skip
RESPONSES_STREAM = events(
    {"type": "response.created", "response": {"usage": None, "error": None}},
    {"type": "response.completed", "response": {"output": [], "error": None, "usage": {
        "input_tokens": 30, "input_tokens_details": {"cached_tokens": 3}, "output_tokens": 6, "total_tokens": 36}}},
)  # fmt: skip
GEMINI_CHUNKS = [
    {"candidates": [{"content": {"parts": [{"text": "a"}]}}], "usageMetadata": {"promptTokenCount": 9}},
    {"candidates": [], "usageMetadata": {
        "promptTokenCount": 9, "candidatesTokenCount": 4, "thoughtsTokenCount": 2, "totalTokenCount": 15}},
]  # fmt: skip
GROQ_STREAM = events({"choices": [], "x_groq": {"usage": {"prompt_tokens": 1, "completion_tokens": 2}}})

STREAMS = [
    (ANTHROPIC_STREAM, 35),
    (CHAT_STREAM, 12),
    (RESPONSES_STREAM, 36),
    (events(*GEMINI_CHUNKS), 15),
    (GROQ_STREAM, 3),
    (ANTHROPIC_STREAM.replace(b"\n", b"\r\n"), 35),
]


def read(reader: ResponseReader | None, chunks: Iterable[bytes]) -> ResponseReader:
    assert reader is not None
    for chunk in chunks:
        reader.feed(chunk)
    return reader


@pytest.mark.parametrize(("stream", "tokens"), STREAMS)
def test_tokens_of_a_stream_however_it_is_cut(stream: bytes, tokens: int) -> None:
    whole = read(response_reader(SSE), [stream])
    in_bytes = read(response_reader(SSE), [stream[at : at + 1] for at in range(len(stream))])

    assert (whole.tokens, whole.error) == (in_bytes.tokens, in_bytes.error) == (tokens, None)


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        ({"content": [{"usage": {"input_tokens": 99}}], "usage": {"input_tokens": 10, "output_tokens": 2}}, 12),
        ({"usage": {"prompt_tokens": 8, "completion_tokens": 4, "total_tokens": 12}, "choices": []}, 12),
        ({"usageMetadata": {"totalTokenCount": 15}}, 15),
        (GEMINI_CHUNKS, 15),
        ({"data": [{"embedding": [0.5]}], "usage": {"prompt_tokens": 8, "total_tokens": 8}}, 8),
        ({"usage": None, "choices": []}, None),
        ({"usage": {"input_tokens": "many"}}, None),
        ({"usage": {"input_tokens": -1, "output_tokens": 10**30}}, None),
        ({"usage": [1]}, None),
        ({}, None),
    ],
)
def test_tokens_of_a_body(body: object, tokens: int | None) -> None:
    data = json.dumps(body).encode()

    assert read(response_reader(JSON), [data]).tokens == tokens
    assert read(response_reader(JSON), [data[at : at + 3] for at in range(0, len(data), 3)]).tokens == tokens


@pytest.mark.parametrize(
    "stream",
    [
        events({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
        events({"type": "response.failed", "response": {"error": {"code": "rate_limit_exceeded"}}}),
        events({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}}),
    ],
)
def test_an_error_within_a_stream_is_kept_for_detect(stream: bytes) -> None:
    reader = read(response_reader(SSE), [ANTHROPIC_STREAM[:200], stream[:20], stream[20:]])

    assert reader.error == stream.split(b"data: ")[1].strip()


def test_compressed_and_other_responses_are_unknown() -> None:
    assert response_reader([*JSON, (b"content-encoding", b"gzip")]) is None
    assert response_reader([*SSE, (b"content-encoding", b"br")]) is None
    assert response_reader([(b"content-type", b"audio/mpeg")]) is None
    assert response_reader([]) is None
    assert response_reader([*JSON, (b"content-encoding", b"identity")]) is not None


def test_bytes_that_are_not_what_the_headers_said_are_unknown() -> None:
    data = gzip.compress(ANTHROPIC_STREAM)

    assert read(response_reader(JSON), [data]).tokens is None
    assert read(response_reader(SSE), [data]).tokens is None


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_survives_any_bytes(chunks: list[bytes]) -> None:
    for headers in (JSON, SSE):
        read(response_reader(headers), [b'data: {"usage": {', *chunks, b"\n", b'data: {"error":"', *chunks, b"\n"])
        read(response_reader(headers), [b'{"usage": {', *chunks])


def test_deep_nesting_is_unknown_and_no_crash() -> None:
    deep = b"[" * 100_000

    assert read(response_reader(SSE), [b'data: {"usage": {}, "x": ' + deep + b"\n"]).tokens is None
    assert read(response_reader(JSON), [b'{"usage": ' + deep]).tokens is None


def test_a_line_without_end_is_not_kept_and_the_next_is_read() -> None:
    reader = EventReader()
    for _ in range(LONGEST_EVENT // 10_000 + 5):
        reader.feed(b"x" * 10_000)
    kept = sum(map(len, reader._begun))

    reader.feed(b"\n" + CHAT_STREAM)

    assert (kept, reader.tokens) == (0, 12)

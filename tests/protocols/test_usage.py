"""Tokens of a response, read from bodies and streams of every protocol, cut anywhere."""

import gzip
import json
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.values.session_output import Tokens
from paceline.protocols import TokensUsed, response_reader, tokens_used
from paceline.protocols.usage import LONGEST_EVENT, LONGEST_TAIL, EventReader, ResponseReader

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
    (ANTHROPIC_STREAM, 35, Tokens(input=10, output=20, cache_read=900, cache_write=5)),
    (CHAT_STREAM, 12, Tokens(input=8, output=4)),
    (RESPONSES_STREAM, 36, Tokens(input=27, output=6, cache_read=3)),
    (events(*GEMINI_CHUNKS), 15, Tokens(input=9, output=6)),
    (GROQ_STREAM, 3, Tokens(input=1, output=2)),
    (ANTHROPIC_STREAM.replace(b"\n", b"\r\n"), 35, Tokens(input=10, output=20, cache_read=900, cache_write=5)),
]


def read(reader: ResponseReader | None, chunks: Iterable[bytes]) -> ResponseReader:
    assert reader is not None
    for chunk in chunks:
        reader.feed(chunk)
    return reader


@pytest.mark.parametrize(("stream", "tokens", "split"), STREAMS)
def test_tokens_of_a_stream_however_it_is_cut(stream: bytes, tokens: int, split: Tokens) -> None:
    whole = read(response_reader(SSE), [stream])
    in_bytes = read(response_reader(SSE), [stream[at : at + 1] for at in range(len(stream))])

    assert (whole.tokens, whole.error) == (in_bytes.tokens, in_bytes.error) == (tokens, None)
    for reader in (whole, in_bytes):
        assert tokens_used(reader, 4000, is_whole=True) == TokensUsed(split)


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
    ("usage", "split"),
    [
        (
            {"input_tokens": 10, "output_tokens": 2, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 3},
            Tokens(input=10, output=2, cache_read=7, cache_write=3),
        ),
        (
            {"input_tokens": 10, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 7}},
            Tokens(input=3, output=2, cache_read=7),
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": {
                "cached_tokens": 5, "cache_write_tokens": 4}},
            Tokens(input=1, output=2, cache_read=5, cache_write=4),
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 2, "prompt_cache_hit_tokens": 6, "prompt_cache_miss_tokens": 4},
            Tokens(input=4, output=2, cache_read=6),
        ),
        ({"prompt_tokens": 10, "total_tokens": 10}, Tokens(input=10)),
        (  # a call that compacts its context says only its last part beside the list
            {"input_tokens": 10, "output_tokens": 2, "iterations": [
                {"type": "compaction", "input_tokens": 100, "output_tokens": 30, "cache_read_input_tokens": 5},
                {"type": "message", "input_tokens": 10, "output_tokens": 2}]},
            Tokens(input=110, output=32, cache_read=5),
        ),
        (  # xAI and Google count thoughts in the sum alone
            {"prompt_tokens": 32, "completion_tokens": 9, "total_tokens": 135,
             "completion_tokens_details": {"reasoning_tokens": 94}},
            Tokens(input=32, output=103),
        ),
        ({"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 3}, Tokens(input=10, output=2)),
        ({"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": None}, Tokens(input=10, output=2)),
        ({"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": "?"}, Tokens(input=10, output=2)),
        (
            {"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": 9}},
            Tokens(cache_read=9),
        ),
    ],
)  # fmt: skip
def test_the_tokens_that_a_body_is_paid_for_by_kind(usage: dict[str, object], split: Tokens) -> None:
    reader = read(response_reader(JSON), [json.dumps({"usage": usage}).encode()])

    assert tokens_used(reader, 4000, is_whole=True) == TokensUsed(split)


def test_what_gemini_reads_from_a_cache_is_part_of_its_prompt() -> None:
    usage = {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 60,
        "toolUsePromptTokenCount": 5,
        "candidatesTokenCount": 7,
        "thoughtsTokenCount": 3,
    }

    reader = read(response_reader(JSON), [json.dumps({"usageMetadata": usage}).encode()])

    assert tokens_used(reader, 0, is_whole=True) == TokensUsed(Tokens(input=45, output=10, cache_read=60))


def test_an_array_of_answers_that_was_left_before_any_usage_counts_its_bytes() -> None:
    reader = read(response_reader(JSON), [b'[{"candidates": [{"text": "' + b"x" * 4000])

    assert tokens_used(reader, 400, 4000, is_whole=False) == TokensUsed(
        Tokens(input=100, output=1000), is_estimated=True
    )


def test_a_stream_that_was_left_counts_as_far_as_it_came() -> None:
    begun = ANTHROPIC_STREAM[: ANTHROPIC_STREAM.index(b"event: x", 10)]
    deltas = events(*({"type": "content_block_delta", "delta": {"text": "a"}} for _ in range(6)))

    reader = read(response_reader(SSE), [begun, deltas])

    tokens = Tokens(input=10, output=7, cache_read=900, cache_write=5)
    assert tokens_used(reader, 4000, is_whole=False) == TokensUsed(tokens, is_estimated=True)
    larger = Tokens(input=10, output=21, cache_read=900, cache_write=5)
    assert tokens_used(reader, 4000, is_whole=False, factor=3.0) == TokensUsed(larger, is_estimated=True)


ANSWER = 'She said "yes" 2x.'  # 20 bytes between its quotes
FIVE_TOKENS = [
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": ANSWER}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": ANSWER}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": ANSWER}},
    {"choices": [{"index": 0, "delta": {"content": ANSWER, "role": "assistant"}}], "obfuscation": 99 * "x"},
    {"choices": [{"delta": {"content": None, "reasoning_content": ANSWER}, "logprobs": {"content": []}}]},
    {"choices": [{"delta": {"tool_calls": [{"id": 99 * "x", "function": {"arguments": ANSWER}}]}}]},
    {"type": "response.output_text.delta", "item_id": 99 * "x", "delta": ANSWER, "logprobs": []},
    {"candidates": [{"content": {"role": "model", "parts": [{"text": ANSWER}]}}], "modelVersion": 99 * "x"},
]
REPEATED = [
    {"type": "response.output_text.done", "text": 99 * "x"},
    {"type": "response.output_item.done", "item": {"content": [{"text": 99 * "x"}]}},
]


@pytest.mark.parametrize("delta", FIVE_TOKENS)
@given(cuts=st.lists(st.integers(0, 8000), max_size=5))
def test_a_stream_counts_the_text_that_has_come_if_that_is_more_than_its_events(
    delta: dict[str, object], cuts: list[int]
) -> None:
    stream = events(*[delta] * 40, *(REPEATED if "type" in delta else []))
    bounds = [0, *sorted(cuts), len(stream)]

    reader = read(response_reader(SSE), [stream[start:end] for start, end in pairwise(bounds)])

    assert tokens_used(reader, 40, is_whole=False) == TokensUsed(Tokens(input=10, output=200), is_estimated=True)


@pytest.mark.parametrize("end", [b"", events({"type": "error", "error": {"type": "overloaded_error", "message": "x"}})])
def test_a_stream_that_ends_before_it_says_what_its_answer_used_counts_as_far_as_it_came(end: bytes) -> None:
    begun = ANTHROPIC_STREAM[: ANTHROPIC_STREAM.index(b"event: x", 10)]
    deltas = events(*({"type": "content_block_delta", "delta": {"text": "a"}} for _ in range(6)))

    reader = read(response_reader(SSE), [begun, deltas, end])

    tokens = Tokens(input=10, output=8 if end else 7, cache_read=900, cache_write=5)
    assert tokens_used(reader, 4000, is_whole=True) == TokensUsed(tokens, is_estimated=True)


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_stream_that_says_no_usage_is_estimated(is_whole: bool) -> None:
    stream = events(*({"choices": [{"delta": {"content": "a"}}]} for _ in range(6)))

    reader = read(response_reader(SSE), [stream])

    expected = TokensUsed(Tokens(input=1000, output=6), is_estimated=True)
    assert tokens_used(reader, 4000, is_whole=is_whole) == expected


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"input_tokens": -5, "output_tokens": -1}, Tokens(input=1000, output=200)),
        ({"input_tokens": 3, "output_tokens": -1}, Tokens(input=1000, output=200)),
        ({"prompt_tokens": 5000, "completion_tokens": -7}, Tokens(input=5000, output=200)),
        ({"promptTokenCount": -1, "candidatesTokenCount": 900}, Tokens(input=1000, output=900)),
        ({"input_tokens": 1, "output_tokens": 2_000_000_000}, Tokens(input=1000, output=200)),
        (
            {"input_tokens": 9, "output_tokens": -1, "cache_read_input_tokens": 990},
            Tokens(input=10, output=200, cache_read=990),
        ),
    ],
)
def test_numbers_that_cannot_be_true_are_estimated_by_bytes(usage: dict[str, int], expected: Tokens) -> None:
    reader = read(response_reader(JSON), [json.dumps({"usage": usage}).encode()])

    assert tokens_used(reader, 4000, 800, is_whole=True) == TokensUsed(expected, is_estimated=True)


def test_a_body_without_usage_has_used_nothing_that_is_known() -> None:
    assert tokens_used(read(response_reader(JSON), [b'{"data": []}']), 4000, is_whole=True) is None
    only_a_sum = read(response_reader(JSON), [b'{"usageMetadata": {"totalTokenCount": 5}}'])
    assert tokens_used(only_a_sum, 4000, is_whole=True) is None


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


def test_of_a_line_without_end_the_end_is_kept_and_the_next_is_read() -> None:
    reader = EventReader()
    for _ in range(LONGEST_EVENT // 10_000 + 5):
        reader.feed(b"x" * 10_000)
    kept = sum(map(len, reader._begun))

    reader.feed(b"\n" + CHAT_STREAM)

    assert (kept, reader.tokens) == (LONGEST_TAIL, 12)


IMAGE = LONGEST_EVENT * "A"
LONG_LINES = [
    {"candidates": [{"content": {"parts": [{"inlineData": {"data": IMAGE}}]}}], "usageMetadata": {
        "promptTokenCount": 9, "candidatesTokenCount": 1290, "promptTokensDetails": [
            {"modality": "TEXT", "tokenCount": 9}]}},
    {"type": "response.completed", "response": {
        "output": [{"result": IMAGE + '"usage": {"input_tokens": 7}'}],
        "usage": {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 1290},
        "metadata": {"note": "x"}}},
]  # fmt: skip


@pytest.mark.parametrize("line", LONG_LINES)
def test_the_usage_in_a_line_that_is_too_long_to_be_kept_counts(line: object) -> None:
    stream = events(line)
    reader = read(response_reader(SSE), [stream[at : at + 65_000] for at in range(0, len(stream), 65_000)])

    assert tokens_used(reader, 0, is_whole=True) == TokensUsed(Tokens(input=9, output=1290))


def test_a_line_that_is_too_long_to_be_kept_and_has_no_usage_counts_as_text() -> None:
    stream = events({"delta": {"text": IMAGE}})
    reader = read(response_reader(SSE), [stream[at : at + 65_000] for at in range(0, len(stream), 65_000)])

    used = tokens_used(reader, 400, is_whole=True)
    assert used is not None
    assert used.is_estimated
    assert used.tokens.output >= len(IMAGE) // 4


SERVED = [
    ({"service_tier": "priority", "usage": {"prompt_tokens": 1}}, {"service_tier": "priority"}),
    ({"usage": {"input_tokens": 1, "service_tier": "priority", "speed": "fast", "inference_geo": "us"}},
     {"speed": "fast", "inference_geo": "us"}),
    ({"usageMetadata": {"promptTokenCount": 1, "serviceTier": "SERVICE_TIER_PRIORITY"}}, {"service_tier": "priority"}),
    ({"usageMetadata": {"promptTokenCount": 1, "trafficType": "ON_DEMAND_PRIORITY"}}, {"service_tier": "priority"}),
    ({"service_tier": 5, "usage": {"input_tokens": 1, "speed": 7}}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "served"), SERVED)
def test_an_answer_names_how_it_was_served(answer: object, served: dict[str, str]) -> None:
    body = read(response_reader(JSON), [json.dumps(answer).encode()])
    stream = read(response_reader(SSE), [events(answer)])

    assert (body.served, stream.served) == (served, served)
    assert (body.tokens, stream.tokens) == (1, 1)


def test_a_header_of_google_names_how_an_answer_was_served() -> None:
    reader = response_reader([*JSON, (b"x-gemini-service-tier", b"priority")])

    assert read(reader, []).served == {"service_tier": "priority"}


def test_an_answer_names_what_has_a_price_of_its_own() -> None:
    claude = {"input_tokens": 1, "cache_creation": {"ephemeral_1h_input_tokens": 7, "ephemeral_5m_input_tokens": 3},
              "server_tool_use": {"web_search_requests": 2}}  # fmt: skip
    gemini = {"promptTokenCount": 9, "promptTokensDetails": [{"modality": "AUDIO", "tokenCount": 6}, {"x": 1}]}

    assert [read(response_reader(JSON), [json.dumps(each).encode()]).usage.extras for each in (
        {"usage": claude}, {"usageMetadata": gemini})] == [
        {"audio": 0, "hour_cache_write": 7, "web_search": 2},
        {"audio": 6, "hour_cache_write": 0, "web_search": 0},
    ]  # fmt: skip

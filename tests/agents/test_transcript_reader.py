"""Transcripts of any bytes: no exception, the same entries for every chunking, bounded memory, no unknown line lost."""

import json
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st
from tests.agents.stream.golden_cases import PROVIDERS, cut, golden_cases
from tests.detect.each_row import each_row
from tests.detect.sample_files import RECORDED

from paceline.agents.dialect import TranscriptEntry
from paceline.agents.transcript_reader import LEFT_OUT, TranscriptReader

READERS = sorted({*PROVIDERS.values(), "command", "no-such-provider"})
OUTPUTS = [path.read_bytes() for path in sorted(RECORDED.glob("*/*.out"))] + [case.stdout for case in golden_cases()]
TYPES = [
    "assistant",
    "user",
    "system",
    "result",
    "rate_limit_event",
    "stream_event",
    "item.started",
    "item.completed",
    "turn.completed",
    "error",
    "init",
    "message",
    "tool_use",
    "tool_result",
    "text",
    "step_finish",
    "tool.execution_start",
    "tool.execution_complete",
    "assistant.message",
    "session.info",
    "session.error",
    "thread.started",
]
KEYS = [
    "message",
    "content",
    "text",
    "name",
    "input",
    "is_error",
    "role",
    "delta",
    "item",
    "command",
    "aggregated_output",
    "exit_code",
    "status",
    "changes",
    "path",
    "part",
    "state",
    "output",
    "error",
    "data",
    "toolName",
    "arguments",
    "success",
    "result",
    "usage",
    "model",
    "session_id",
    "subtype",
    "server",
    "tool",
    "kind",
]

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12) | st.sampled_from([*TYPES, *KEYS]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", *KEYS]) | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)
events = st.builds(
    lambda kind, body: json.dumps({"type": kind, **body}).encode() + b"\n",
    st.sampled_from(TYPES),
    st.dictionaries(st.sampled_from(KEYS), values, max_size=5),
)
streams = st.lists(events | st.binary(max_size=40), max_size=8).map(b"".join)


def read(provider: str, chunks: list[bytes]) -> list[TranscriptEntry]:
    reader = TranscriptReader(provider)
    return [*(entry for chunk in chunks for entry in reader.feed(chunk)), *reader.flush()]


@given(provider=st.sampled_from(READERS), stream=streams)
def test_no_line_raises_and_chunking_makes_no_difference(provider: str, stream: bytes) -> None:
    assert read(provider, cut(stream, 5)) == read(provider, [stream])


@each_row("provider", READERS)
def test_the_output_of_any_cli_can_be_read_as_that_of_any_other(provider: str) -> None:
    for output in OUTPUTS:
        assert isinstance(read(provider, [output]), list)


@each_row("provider", READERS)
@each_row("line", ['{"type": "unheard-of", "x": 1}', '{"answer": 42}', "[1, 2]", "plain words", "{cut"])
def test_a_line_that_is_no_event_is_kept_as_it_is(provider: str, line: str) -> None:
    assert read(provider, [line.encode()]) == [TranscriptEntry(kind="plain", text=line)]


def test_an_endless_line_takes_bounded_memory_and_is_named() -> None:
    reader = TranscriptReader("claude-code")
    chunk = b"x" * (1 << 20)
    head = b'{"type":"user","session_id":"s","message":{"content":[{"type":"tool_result","content":"'
    tail = b'"}]},"uuid":"u","timestamp":"t"}\n'

    tracemalloc.start()
    found = reader.feed(head)
    for _ in range(64):
        found += reader.feed(chunk)
    found += reader.feed(tail)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert [entry.text for entry in found] == [LEFT_OUT]
    assert peak < 8 << 20

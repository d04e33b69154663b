"""The speed of a stream reader on realistic agent output on one core, and its memory.

    python -m benchmarks.stream               MB/s for each CLI, beside decoding each line with msgspec
    python -m benchmarks.stream --stderr      MB/s of stderr for each CLI, beside splitting the same bytes into lines
    python -m benchmarks.stream --gigabyte    one GB through one reader, and what it added to memory

The ratio of stdout compares with `msgspec.json.decode(line)` for every line of the same bytes in the same run:
the least that a reader of every line would cost.
"""

import json
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator

import msgspec

from paceline.core.values.session_output import Channel
from paceline.detect import StreamReader

NEWLINE = b"\n"
CHUNK = 1 << 16
SIZE = 32 << 20
SESSION = "045c5682-d588-411a-ae31-8741450dbe04"
TEXT = 'the limit of "429" is\n    return await fetch(url, retries=3)  # rate limit reached\tö → {} [x]'
WORDS = TEXT.split(" ")

Lines = Iterator[dict[str, object]]


def prose(rng: random.Random, words: int) -> str:
    """Return text as agents and their tools write it, with quotes and escapes."""
    return " ".join(rng.choices(WORDS, k=words))


def claude_turns(rng: random.Random) -> Lines:
    """Yield messages, tool calls and tool results, and the events between them."""
    yield {"type": "system", "subtype": "init", "session_id": SESSION, "apiKeySource": "none", "tools": ["Bash"] * 30}
    number = 0
    while True:
        number += 1
        usage = {"input_tokens": 12, "cache_read_input_tokens": 80_000, "output_tokens": 300}
        for content in (
            {"type": "text", "text": prose(rng, 80)},
            {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": prose(rng, 20)}},
        ):
            message = {"id": f"msg_{number}", "role": "assistant", "model": "m", "content": [content], "usage": usage}
            yield {"type": "assistant", "message": message, "session_id": SESSION, "uuid": "u"}
        result = {"type": "tool_result", "tool_use_id": "t1", "content": prose(rng, rng.choice((50, 300, 2000)))}
        yield {"type": "user", "message": {"role": "user", "content": [result]}, "session_id": SESSION}
        if number % 20 == 0:
            info = {"status": "allowed", "resetsAt": 1794712823, "rateLimitType": "five_hour"}
            yield {"type": "rate_limit_event", "rate_limit_info": info, "session_id": SESSION}


def claude_deltas(rng: random.Random) -> Lines:
    """Yield the same with partial messages: very many short lines."""
    yield {"type": "system", "subtype": "init", "session_id": SESSION, "apiKeySource": "none"}
    while True:
        delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": prose(rng, 3)}}
        yield {"type": "stream_event", "event": delta, "session_id": SESSION, "parent_tool_use_id": None, "uuid": "u"}


def codex_items(rng: random.Random) -> Lines:
    """Yield commands with their output, and messages of the agent."""
    yield {"type": "thread.started", "thread_id": SESSION}
    while True:
        output = prose(rng, rng.choice((20, 300, 1500)))
        command = {"id": "item_1", "type": "command_execution", "command": "ls", "aggregated_output": output}
        yield {"type": "item.started", "item": command | {"aggregated_output": ""}}
        yield {"type": "item.completed", "item": command | {"exit_code": 0}}
        yield {"type": "item.completed", "item": {"id": "item_2", "type": "agent_message", "text": prose(rng, 60)}}


def gemini_deltas(rng: random.Random) -> Lines:
    """Yield short deltas and tool results."""
    yield {"type": "init", "timestamp": "2026-11-15T02:02:52.525Z", "session_id": SESSION, "model": "m"}
    while True:
        for _ in range(8):
            yield {"type": "message", "timestamp": "t", "role": "assistant", "content": prose(rng, 12), "delta": True}
        yield {"type": "tool_result", "timestamp": "t", "tool_id": "x", "output": prose(rng, 400)}


def opencode_parts(rng: random.Random) -> Lines:
    """Yield steps with text, tools and token counts."""
    while True:
        for kind, part in (
            ("step_start", {"type": "step-start"}),
            ("text", {"type": "text", "text": prose(rng, 120)}),
            ("tool_use", {"type": "tool", "state": {"output": prose(rng, 600)}}),
            ("step_finish", {"type": "step-finish", "reason": "tool-calls", "tokens": {"input": 12, "output": 8}}),
        ):
            yield {"type": kind, "timestamp": 1794706016542, "sessionID": "ses_1", "part": part}


def written(lines: Lines, size: int) -> bytes:
    """Return lines up to the given size, as a process would print them."""
    out = bytearray()
    for line in lines:
        out += json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        if len(out) >= size:
            return bytes(out)
    return bytes(out)


def plain_text(rng: random.Random, size: int) -> bytes:
    """Return the output of a CLI in text mode."""
    paragraph = "\n".join(prose(rng, 15) for _ in range(2000)).encode() + b"\n"
    return paragraph * (size // len(paragraph) + 1)


def retry_notices(size: int) -> bytes:
    """Return stderr of a CLI that only meets limits: notices, which are read closely, and stack traces."""
    notice = b"Attempt 1 failed with status 429. Retrying with backoff... _ApiError: Resource has been exhausted\n"
    trace = b"    at async GeminiChat.makeApiCallAndProcessStream (file:///opt/cli:332326:28)\n" * 9
    block = notice + trace + b"  status: 429\n}\n"
    return block * (size // len(block) + 1)


def stderr_cases(size: int) -> dict[str, bytes]:
    """Return what noisy agents and their tools print to stderr: floods of errors, logs, prose and data."""
    rng = random.Random(7)
    letters = "abcdefghijklmnop"
    words = [
        "Error:", "rate", "limit", "quota", "exceeded", "429",
        "connection", "refused", "retry", "overloaded", "usage", "reached", "failed",
    ]  # fmt: skip
    logs = (
        "[{0}/9000] Building CXX object src/lib/CMakeFiles/foo.dir/{1}.cc.o\n",
        "   Compiling {1} v1.0.{0}\n",
        "\x1b[32m✓\x1b[0m src/components/{1}.test.tsx (12 tests) {0}ms\n",
        "warning: unused variable: `{1}`\n  --> src/main.rs:{0}:9\n",
    )

    def lines_of(make: Callable[[int], str]) -> bytes:
        made = bytearray()
        number = 0
        while len(made) < size:
            number += 1
            made += make(number).encode()
        return bytes(made)

    def name() -> str:
        return "".join(rng.choices(letters, k=9))

    return {
        "the same error": lines_of(lambda _: "Error: 429 rate limited, retrying\n"),
        "errors with numbers": lines_of(
            lambda number: f"Error: 429 rate limited, retrying in {number % 90} s ({number})\n"
        ),
        "errors of any words": lines_of(lambda _: " ".join(rng.choices(words, k=8)) + f" {name()}\n"),
        "build log": lines_of(lambda number: rng.choice(logs).format(number, name())),
        "prose": lines_of(lambda _: prose(rng, 15) + f" {name()}\n"),
        "stack traces": retry_notices(size),
        "JSON log": lines_of(lambda number: f'{{"level":"error","msg":"429 rate limit reached","n":{number}}}\n'),
        "two-byte lines": b"y\n" * (size // 2),
        "open brackets": b"{\n" * (size // 2),
        "binary": rng.randbytes(size),
    }


def run_stderr() -> None:
    """Print one line per kind of stderr and CLI, beside a plain split of the same bytes into lines."""
    print(f"{'stderr of':14}{'kind':22}{'MB/s':>8}{'split':>10}{'ratio':>10}{'read closely per MB':>22}")
    for name, data in stderr_cases(4 << 20).items():
        split = megabytes_per_second(lambda d=data: split_lines(d), len(data))  # type: ignore[misc]
        for provider in ("claude-code", "codex", "gemini-cli", "command"):
            speed = megabytes_per_second(lambda p=provider, d=data: read_stream(p, d, "stderr"), len(data))  # type: ignore[misc]
            closely = read_stream(provider, data, "stderr") / len(data) * 1e6
            print(f"{provider:14}{name:22}{speed:8.1f}{split:10.0f}{speed / split:10.4f}{closely:22.1f}")


def split_lines(data: bytes) -> None:
    """Split bytes into lines, chunk by chunk: the baseline for text."""
    for start in range(0, len(data), CHUNK):
        data[start : start + CHUNK].split(NEWLINE)


def read_stream(provider: str, data: bytes, channel: Channel = "stdout") -> int:
    """Read a process's output as the engine does. Return how many notices were read closely."""
    reader = StreamReader(provider, tz="UTC")
    for start in range(0, len(data), CHUNK):
        reader.feed(data[start : start + CHUNK], channel=channel, seen_at=1794705600.0)
    reader.close(exit_code=0, seen_at=1794705600.0)
    return reader.closely_read


def decode_all(data: bytes) -> None:
    """Decode every line into Python objects: the baseline."""
    for line in data.splitlines():
        msgspec.json.decode(line)


def megabytes_per_second(work: Callable[[], object], size: int) -> float:
    """Return the best of three runs, which other load on the machine disturbs least."""
    best = min(_seconds(work) for _ in range(3))
    return size / best / 1e6


def _seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def run_speed() -> None:
    """Print one line per kind of output."""
    sources: list[tuple[str, str, Lines]] = [
        ("claude, messages and tools", "claude-code", claude_turns(random.Random(1))),
        ("claude, partial messages", "claude-code", claude_deltas(random.Random(2))),
        ("codex, items", "codex", codex_items(random.Random(3))),
        ("gemini, deltas and tools", "gemini-cli", gemini_deltas(random.Random(4))),
        ("opencode, parts", "opencode", opencode_parts(random.Random(5))),
    ]
    print(f"{'output':30}{'bytes/line':>12}{'MB/s':>8}{'decode all':>12}{'ratio':>8}")
    for name, provider, lines in sources:
        data = written(lines, SIZE)
        speed = megabytes_per_second(lambda p=provider, d=data: read_stream(p, d), len(data))  # type: ignore[misc]
        baseline = megabytes_per_second(lambda d=data: decode_all(d), len(data))  # type: ignore[misc]
        per_line = len(data) // data.count(b"\n")
        print(f"{name:30}{per_line:12}{speed:8.0f}{baseline:12.0f}{speed / baseline:8.2f}")
    text, notices = plain_text(random.Random(6), SIZE), retry_notices(SIZE // 64)
    print_text_speed("claude, plain text", text, lambda: read_stream("claude-code", text))
    print_text_speed("gemini, retries on stderr", notices, lambda: read_stream("gemini-cli", notices, "stderr"))


def print_text_speed(name: str, data: bytes, work: Callable[[], object]) -> None:
    """Print the speed for text, which has no decoder to compare with."""
    speed = megabytes_per_second(work, len(data))
    print(f"{name:30}{len(data) // data.count(NEWLINE):12}{speed:8.1f}{'-':>12}{'-':>8}")


def run_gigabyte() -> None:
    """Send one GB through one reader. The peak memory after 64 MB and at the end must be the same."""
    data = written(claude_turns(random.Random(1)), 8 << 20)
    reader = StreamReader("claude-code", tz="UTC")
    peaks: list[int] = []
    start = time.process_time()
    for round_number in range(128):
        for offset in range(0, len(data), CHUNK):
            reader.feed(data[offset : offset + CHUNK], channel="stdout", seen_at=1794705600.0)
        if round_number in (7, 127):
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    seconds = time.process_time() - start
    total = 128 * len(data)
    print(f"{total / 1e9:.2f} GB in {seconds:.1f} s, {total / seconds / 1e6:.0f} MB/s")
    print(f"peak memory after 64 MB {peaks[0] / 1024:.1f} MB, after all of it {peaks[1] / 1024:.1f} MB")


if __name__ == "__main__":
    if "--gigabyte" in sys.argv[1:]:
        run_gigabyte()
    elif "--stderr" in sys.argv[1:]:
        run_stderr()
    else:
        run_speed()

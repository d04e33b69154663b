"""Arbitrary bytes: no exception, the same answer for every chunking, and work that grows with the input only."""

import itertools
import json
import os
import random
import sys
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agents.stream.golden_cases import PROVIDERS, SEEN_AT, cut, read_run
from tests.detect.sample_files import GOLDEN, MESSAGES, RECORDED, rows_of

from paceline.core.values.session_output import Channel
from paceline.detect import Observation, StreamReader, detect

READERS = [*PROVIDERS.values(), "aider", "command", "no-such-provider"]
CHANNELS: list[Channel] = ["stdout", "stderr", "screen"]

# --- streams made of what real ones are made of --------------------------------------------------------------

PIECES = [
    b'{"type":"system","subtype":"init","session_id":"s1","apiKeySource":"none"}\n',
    b'{"type":"system","subtype":"api_retry","attempt":1,"retry_delay_ms":3000,"error_status":429,"session_id":"s1"}\n',
    b'{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1794712805},"session_id":"s1"}\n',
    b'{"type":"assistant","message":{"id":"m1","content":[{"type":"text","text":"429"}],"usage":{"output_tokens":8}}}\n',
    b'{"usage":{"input_tokens":5},"is_error":true,"api_error_status":529,"type":"result","session_id":"s2"}\n',
    b'{"type":"thread.started","thread_id":"t1"}\n',
    b'{"type":"error","message":"Reconnecting... 1/5 (exceeded retry limit, last status: 429 Too Many Requests)"}\n',
    b'{"type":"turn.completed","usage":{"input_tokens":12,"output_tokens":8}}\n',
    b'{"type":"init","timestamp":"t","session_id":"g1"}\n',
    b'{"type":"error","sessionID":"ses_1","error":{"data":{"statusCode":429,"responseBody":"{\\"error\\":{}}"}}}\n',
    b'{\n  "session_id": "g2",\n  "error": {\n    "message": "Resource exhausted",\n    "code": 429\n  }\n}\n',
    b'[{"type":"system","session_id":"s3"},{"type":"result","is_error":false,"session_id":"s3"}]\n',
    b"Attempt 1 failed: You exceeded your current quota, limit: 10\nPlease retry in 3.2s.\n",
    b"Suggested retry after 3.2s.. Retrying after 5607ms...\n    at f (x:1)\n  status: 429\n}\n",
    b"OpenAI Codex v0.166.0\nsession id: 01a1\nuser\nhi\ncodex\nhello\ntokens used\n1,020\n",
    b"ERROR: You\xe2\x80\x99ve hit your usage limit. Try again at 4:02 AM.\n",
    b"You've hit your session limit \xc2\xb7 resets 3:20am (UTC)\n",
    b"[API Error: 503 The server is overloaded or not ready yet.]\n",
    b"litellm.RateLimitError: Rate limit exceeded\nRetrying in 0.2 seconds...\n",
    b"Operation cancelled.\n",
    b"\x1b[2K\x1b[1G\x1b]0;title\x07",
    b"\x1b[?1049h\x1b[31m\xe2\x95\xad\xe2\x94\x80\xe2\x95\xae\x1b[0m\r\n",
    b"\r\n",
    b"\n\n",
    b'{"type":"',
    b'\\"}',
    b"\xff\xfe\x00",
    b"{" * 40,
]
stream_bytes = st.lists(st.sampled_from(PIECES) | st.binary(max_size=20), max_size=12).map(b"".join)
exit_codes = st.sampled_from([0, 1, 124, 130, 143, 173, -9, None])


@st.composite
def chunked(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """Generate bytes, and the same bytes cut anywhere."""
    data = draw(stream_bytes)
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=8)))
    edges = [0, *cuts, len(data)]
    return data, [data[start:end] for start, end in itertools.pairwise(edges)]


@settings(max_examples=300)
@given(provider=st.sampled_from(READERS), stdout=chunked(), stderr=chunked(), exit_code=exit_codes)
def test_every_chunking_is_understood_alike(
    provider: str, stdout: tuple[bytes, list[bytes]], stderr: tuple[bytes, list[bytes]], exit_code: int | None
) -> None:
    whole = read_run(provider, [stdout[0]], [stderr[0]], exit_code=exit_code)

    assert read_run(provider, stdout[1], stderr[1], exit_code=exit_code) == whole


@settings(max_examples=100)
@given(provider=st.sampled_from(READERS), channel=st.sampled_from(CHANNELS), data=st.binary(max_size=2000))
def test_arbitrary_bytes_never_raise(provider: str, channel: Channel, data: bytes) -> None:
    reader = StreamReader(provider, tz="UTC")

    reader.feed(data, channel=channel, seen_at=SEEN_AT)
    reader.close(exit_code=1, seen_at=SEEN_AT)

    assert reader.outcome is not None


# --- linear work, counted in calls ---------------------------------------------------------------------------

REPEATED = {
    "events": PIECES[0] + PIECES[1] + PIECES[3],
    "open braces": b"{",
    "open objects": b'{"a":',
    "objects on one line": b'{"type":"result","session_id":"s1"}',
    "quotes": b'"',
    "escaped quotes": b'\\"',
    "escapes": b"\x1b]",
    "terminal codes": b"\x1b[1;31m",
    "carriage returns": b"x\r",
    "open documents": b"{\n",
    "open notices": b"Attempt 1 failed: \n",
    "blank lines": b"\n",
    "plain text": b"word word\n",
}


def calls_made(work: Callable[[], None]) -> int:
    """Count the functions, Python's and C's, that a piece of work calls."""
    count = 0

    def counting(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counting)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def feed_all(provider: str, channel: Channel, chunks: list[bytes]) -> Callable[[], None]:
    def work() -> None:
        reader = StreamReader(provider, tz="UTC")
        for chunk in chunks:
            reader.feed(chunk, channel=channel, seen_at=SEEN_AT)
        reader.close(exit_code=1, seen_at=SEEN_AT)

    return work


@pytest.mark.parametrize("channel", ["stdout", "stderr"])
@pytest.mark.parametrize("unit", REPEATED.values(), ids=REPEATED.keys())
def test_twice_the_input_is_at_most_twice_the_work(unit: bytes, channel: Channel) -> None:
    once = PIECES[0] + unit * (20_000 // len(unit))
    twice = PIECES[0] + unit * (40_000 // len(unit))

    work_once = calls_made(feed_all("claude-code", channel, cut(once, 100)))
    work_twice = calls_made(feed_all("claude-code", channel, cut(twice, 100)))

    assert work_twice <= 2.2 * work_once + 1000


# --- as long as there is time: `make fuzz` -------------------------------------------------------------------


def seeds() -> list[bytes]:
    """Return all real output of the samples, and the pieces above."""
    files = [file for folder in (RECORDED, GOLDEN) for end in ("out", "err") for file in folder.glob(f"*/*.{end}")]
    outputs = [file.read_bytes()[:16_000] for file in files]
    outputs += [json.loads(row)["text"].encode() for row in rows_of(MESSAGES)]
    return [*PIECES, *(output for output in outputs if output)]


def mutate(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Change bytes as pipes and terminals do, and as they do not."""
    for _ in range(rng.randint(0, 6)):
        start = rng.randint(0, len(data))
        end = min(len(data), start + rng.choice((1, 3, 40, 400)))
        data = rng.choice(
            (
                lambda d, s, e: d[:s] + d[e:],
                lambda d, s, e: d[:s] + d[s:e] * rng.randint(2, 20) + d[e:],
                lambda d, s, e: d[:s] + rng.choice(PIECES) + d[s:],
                lambda d, s, e: d[:s] + rng.randbytes(rng.randint(1, 8)) + d[e:],
                lambda d, s, e: d[:s] + other[rng.randint(0, len(other)) :] + d[e:],
                lambda d, s, e: d[:s] + b"\n" + d[s:],
            )
        )(data, start, end)[:32_000]
    return data


def random_chunks(rng: random.Random, data: bytes) -> list[bytes]:
    return cut(data, rng.choice((1, 2, 13, 200, 5000))) if len(data) < 4000 else cut(data, rng.randint(50, 9000))


def fuzz_once(seed: int, pool: list[bytes]) -> None:
    """Run one seeded round over the reader and over `detect`."""
    rng = random.Random(seed)
    stdout, stderr = (mutate(rng, rng.choice(pool), rng.choice(pool)) for _ in range(2))
    provider, exit_code = rng.choice(READERS), rng.choice((0, 1, 124, 143, 173, None))
    whole = read_run(provider, [stdout], [stderr], exit_code=exit_code)
    pieces = read_run(provider, random_chunks(rng, stdout), random_chunks(rng, stderr), exit_code=exit_code)
    assert pieces == whole, f"seed {seed}: chunks of {provider} are understood differently"
    screen = StreamReader(provider, tz="UTC")
    for chunk in random_chunks(rng, stderr[:6000]):
        screen.feed(chunk, channel="screen", seen_at=SEEN_AT)
    screen.close(exit_code=exit_code, seen_at=SEEN_AT)
    channel = rng.choice(("stdout-json", "stderr", "screen", "http"))
    text = stdout[:8000].decode("utf-8", rng.choice(("replace", "surrogateescape")))
    status, headers = rng.choice((None, 200, 429, 529)), rng.choice((None, {"retry-after": text[:20]}))
    detect(
        Observation(
            provider=provider, channel=channel, text=text, status=status, headers=headers, seen_at=SEEN_AT, tz="UTC"
        )
    )


@pytest.mark.fuzz
def test_mutated_output_for_as_long_as_asked() -> None:
    """Fuzz until the time is over. A failure names its seed: `fuzz_once(SEED, seeds())` repeats it."""
    pool = seeds()
    first_seed = random.SystemRandom().randrange(1 << 48)
    end = time.monotonic() + float(os.environ.get("PACELINE_FUZZ_SECONDS", "600"))
    rounds = 0
    while time.monotonic() < end:
        seed = first_seed + rounds
        begun = time.process_time()
        try:
            fuzz_once(seed, pool)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
        assert time.process_time() - begun < 20, f"seed {seed} takes far too long"
        rounds += 1
    print(f"{rounds} rounds from seed {first_seed}")

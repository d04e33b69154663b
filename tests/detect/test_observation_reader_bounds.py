"""Arbitrary input: never an exception, never more than linear time."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.detect import Observation, detect
from paceline.detect.observation_reader import read_event, read_line

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
words = st.sampled_from(
    (
        "limit",
        "resets",
        "429",
        "{",
        "}",
        '"',
        "\\",
        "in 5",
        "at 3pm",
        ":",
        "·",
        "rate limit exceeded",
        "\n",
        "│",
        "|",
        "-1",
    )
)


@settings(max_examples=150)
@given(st.fixed_dictionaries(dict.fromkeys(("provider", "channel", "text", "status", "headers", "seen_at"), anything)))
def test_no_value_of_any_type_raises(fields: dict[str, object]) -> None:
    detect(Observation(**fields))  # type: ignore[arg-type]


@settings(max_examples=200)
@given(st.lists(words, max_size=40), st.sampled_from(("screen", "stderr", "stdout-json", "http")), st.floats())
def test_no_mixture_of_the_words_raises(mixture: list[str], channel: str, seen_at: float) -> None:
    detect(Observation(provider="claude-code", channel=channel, text=" ".join(mixture), seen_at=seen_at))


@settings(max_examples=150)
@given(st.dictionaries(st.sampled_from(("type", "error", "result", "message", "is_error", "item", "data")), anything))
def test_no_event_raises(fields: dict[str, object]) -> None:
    for kind in ("result", "error", "assistant", "rate_limit_event", "system", "item.completed", "event_msg"):
        read_event("codex", {**fields, "type": kind}, seen_at=0.0, tz="UTC")


@pytest.mark.parametrize("tz", ["", "Mars/Phobos", "\x00", "../../etc/passwd", "UTC"])
def test_a_zone_that_does_not_exist_is_no_trouble(tz: str) -> None:
    text = "You've hit your limit · resets 3pm"
    assert read_line("claude-code", text, channel="screen", seen_at=0.0, tz=tz)


REPEATED = (
    "you've hit your ", "limit ", '{"a":', "{", '"', "(", ": ", "- ", "\\", "│ ", "\x1b[0m ", "1", "retrying ",
    "resets at ", "reset in 5", "limit=a ", "限额", "Ab3/+=,;:", "\n", " ", "try again in 5 days ", "error: 429 ",
)  # fmt: skip


@pytest.mark.parametrize("piece", REPEATED)
@pytest.mark.parametrize("channel", ["screen", "http"])
def test_a_hundred_times_more_text_takes_no_longer_than_the_bound(piece: str, channel: str) -> None:
    text = (piece * (2_000_000 // len(piece)))[:2_000_000] + " limit 429"
    begun = time.process_time()
    detect(Observation(provider="claude-code", channel=channel, text=text, status=None, seen_at=0.0))
    assert time.process_time() - begun < 2.0


def test_lines_that_mean_nothing_cost_almost_nothing() -> None:
    line = "the quick brown fox jumps over the lazy dog, again and again; " * 16
    begun = time.process_time()
    for _ in range(2_000):
        read_line("claude-code", line, channel="stderr", seen_at=0.0, tz="UTC")
    assert time.process_time() - begun < 0.5  # 2 MB

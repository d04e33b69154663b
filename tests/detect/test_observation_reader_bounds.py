"""Arbitrary input: never an exception, never more than linear time."""

import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.detect.readings import read_event, read_line

from paceline.detect import Observation, detect

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
def test_ten_times_more_text_takes_no_longer(piece: str, channel: str) -> None:
    def cpu_seconds_of(length: int) -> float:
        text = (piece * (length // len(piece) + 1))[:length] + " limit 429"
        observation = Observation(provider="claude-code", channel=channel, text=text, status=None, seen_at=0.0)
        return cpu_seconds(lambda: detect(observation))

    assert is_seen(lambda: cpu_seconds_of(2_000_000) < 4 * cpu_seconds_of(200_000))


def test_lines_that_mean_nothing_cost_almost_nothing() -> None:
    def cpu_seconds_of(line: str) -> float:
        return cpu_seconds(lambda: read_line("claude-code", line, channel="stderr", seen_at=0.0, tz="UTC"))

    nothing = "the quick brown fox jumps over the lazy dog, again and again; " * 16

    assert is_seen(lambda: 10 * cpu_seconds_of(nothing) < cpu_seconds_of(nothing.replace("the quick", "the limit")))


def cpu_seconds(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def is_seen(is_so: Callable[[], bool]) -> bool:
    """Compare up to three times: other programs slow down single runs."""
    return any(is_so() for _ in range(3))

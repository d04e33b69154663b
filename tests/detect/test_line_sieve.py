"""The sieve of a whole block lets no line through that a look at the line alone would have found."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.detect.test_line_memory import memory, sample_lines

from paceline.detect.parsing.line_splitter import LongLine
from paceline.detect.providers import KNOWN

PIECES = [
    "limit", "429", "lim", "it",
    "over", "loaded", "doesn", "t", "x-co", "dex", "(http", "ok", "7", " ", "  ", "{", "[", '"',
    "\x1b[1m", "\x1b]0;", "\x1b", "\x07", "\\n", "\\r", "\\u0069", "\\u001b[0m", "\\u200b", "\\", "\u200b", "\u2019",
    "\u2011", "\u00ad", "\x00", "\x0b", "\x1f", "\u2028", "\r", "\t", "✓ ", "⎿ ", "│ ", "• ", "é", "ß", "İ",
    "限流", "配",
    "额", "\ufffd", "' + '", "at ", "ERROR ", "tokens used", "user", "Operation cancelled.", "12\t",
]  # fmt: skip
lines_of_pieces = st.lists(st.lists(st.sampled_from(PIECES), max_size=8).map("".join), min_size=9, max_size=24)


def assert_all_are_found(lines: list[bytes | LongLine], cli: str = "claude-code") -> None:
    known = memory(cli)
    doubtful = set(known.doubtful(lines))

    assert [line for place, line in enumerate(lines) if place not in doubtful and not known.is_plain(line)] == []


@settings(max_examples=400)
@given(lines_of_pieces, st.sampled_from(["claude-code", "codex", "command"]))
def test_every_line_that_is_not_plain_is_found_whatever_hides_its_words(texts: list[str], cli: str) -> None:
    assert_all_are_found([text.encode() for text in texts], cli)


@settings(max_examples=100)
@given(st.lists(st.binary(max_size=40).map(lambda data: data.replace(b"\n", b"")), min_size=9, max_size=40))
def test_every_line_of_arbitrary_bytes_that_is_not_plain_is_found(lines: list[bytes]) -> None:
    assert_all_are_found([*lines])


@pytest.mark.parametrize("cli", ["claude-code", "codex", "gemini-cli", "opencode", "command"])
def test_every_line_of_the_samples_that_is_not_plain_is_found(cli: str) -> None:
    assert_all_are_found([*sample_lines()], cli)


def test_an_over_long_line_is_found() -> None:
    lines: list[bytes | LongLine] = [*[b"y"] * 20, LongLine(b"x", b"y"), *[b"y"] * 20]

    assert memory().doubtful(lines) == [20]


def test_lines_that_mean_nothing_are_not_found() -> None:
    log = [f"\x1b[32m✓\x1b[0m C:\\\\build\\\\obj{number} “done” — ok".encode() for number in range(100)]

    assert memory().doubtful([*log]) == []


@pytest.mark.parametrize("text", ["x Reconnecting... 2/5", "stream error: gone; retrying 1/5 in 2s"])
def test_a_retry_of_codex_is_found_by_its_words(text: str) -> None:
    assert KNOWN.words.may_be_notice(text)

"""Lines that are passed over: none of them means anything, and their test costs next to nothing."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.detect.golden_cases import golden_cases
from tests.detect.sample_files import MESSAGES, MORE_MESSAGES, WORDINGS, rows_of

from paceline.detect.line_memory import FLOOD_LINES, REPETITIONS_KEPT, LineMemory
from paceline.detect.line_sieve import Lines
from paceline.detect.notices import status_in_text
from paceline.detect.observation_reader import read_line
from paceline.detect.parsing.line_splitter import clean_text
from paceline.detect.providers import KNOWN


def memory(cli: str = "claude-code") -> LineMemory:
    return LineMemory(KNOWN, KNOWN.stderr_reader(KNOWN.cli(cli)), cancelled_line="Operation cancelled.")


def sample_lines() -> list[bytes]:
    texts = [json.loads(row)["text"] or "" for file in (MESSAGES, MORE_MESSAGES, WORDINGS) for row in rows_of(file)]
    recorded = [line for case in golden_cases() for line in case.stderr.split(b"\n")]
    return [*(line.encode() for text in texts for line in text.split("\n")), *recorded]


def means_something(line: bytes) -> bool:
    text = clean_text(line)
    return (
        bool(read_line("claude-code", text, channel="stderr", seen_at=1.79e9, tz="UTC"))
        or status_in_text(text) is not None
        or KNOWN.notices.session_in(text) is not None
        or KNOWN.notices.denial_in(text) is not None
        or bool(KNOWN.notices.retry.search(text) or KNOWN.notices.untrusted.search(text))
    )


def test_no_line_of_the_samples_that_means_something_is_passed_over() -> None:
    known = memory()

    assert [line for line in sample_lines() if known.is_plain(line) and means_something(line)] == []


@given(st.lists(st.sampled_from(["limit", "429", "reached", "error", "connect", "ok", "7", "\x1b[1m", "\\u0069", "é"])))
def test_no_line_of_such_words_that_means_something_is_passed_over(words: list[str]) -> None:
    line = " ".join(words).encode()

    assert not (memory().is_plain(line) and means_something(line))


@pytest.mark.parametrize(
    ("line", "other"),
    [(b"job 17 done", b"job 18 done"), (b"[1/90] Building a.o", b"[2/90] Building a.o"), (b"", b"")],
)
def test_lines_that_differ_in_numbers_are_alike(line: bytes, other: bytes) -> None:
    known = memory()

    assert (known.is_plain(line), known.is_plain(other)) == (True, True)


def test_a_number_with_a_meaning_is_not_overlooked() -> None:
    known = memory()

    assert known.is_plain(b"answer 200 in 3 s")
    assert not known.is_plain(b"answer 429 in 3 s")


@pytest.mark.parametrize("line", [b'{"type":"result"}', b"[", b"    at foo (a.js:1:2)", b"Operation cancelled."])
def test_what_may_begin_something_is_not_plain(line: bytes) -> None:
    assert not memory().is_plain(line)


def test_of_a_flood_the_first_and_the_last_lines_are_kept() -> None:
    flood = [b"retry " + b"7" * number for number in range(1, 2 * FLOOD_LINES)]
    thin = memory().thinned([*flood, b"the end"])

    assert thin == [*flood[:REPETITIONS_KEPT], *flood[-2:], b"the end"]


def test_of_a_flood_of_the_same_lines_every_line_is_kept_once() -> None:
    lines: Lines = [*[b"a"] * 5000, b"odd", *[b"b"] * 5000]
    thin = memory().thinned(lines)

    assert (thin[0], thin[-1], thin.count(b"odd")) == (b"a", b"b", 1)
    assert len(thin) < FLOOD_LINES


def test_lines_that_are_no_flood_are_all_kept() -> None:
    few: Lines = [b"a"] * (FLOOD_LINES - 1)
    different: Lines = [b"line " + b"x" * number for number in range(2 * FLOOD_LINES)]

    assert (memory().thinned(few), memory().thinned(different)) == (few, different)

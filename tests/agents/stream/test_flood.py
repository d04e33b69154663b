"""Lines that are passed over, one by one and in blocks: none of them means anything. And the bound on close reading."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agents.stream.golden_cases import golden_cases
from tests.detect.each_row import each_row
from tests.detect.readings import read_line
from tests.detect.sample_files import MESSAGES, MORE_MESSAGES, WORDINGS, rows_of

from paceline.agents.dialect import status_in_text
from paceline.agents.known import CLIS
from paceline.agents.stream.flood import (
    FLOOD_LINES,
    FREE_AT_A_TIME,
    FREE_NOTICES,
    LAST_OF_BLOCK,
    PER_BLOCK,
    PER_SHAPE,
    REPETITIONS_KEPT,
    LineFilter,
    Lines,
    NoticeBudget,
)
from paceline.agents.stream.lines import LongLine, clean_text


def memory(cli: str = "claude-code") -> LineFilter:
    return LineFilter(CLIS.line_words, CLIS.stderr_reader(CLIS.cli(cli)), cancelled_line="Operation cancelled.")


def sample_lines() -> list[bytes]:
    texts = [json.loads(row)["text"] or "" for file in (MESSAGES, MORE_MESSAGES, WORDINGS) for row in rows_of(file)]
    recorded = [line for case in golden_cases() for line in case.stderr.split(b"\n")]
    return [*(line.encode() for text in texts for line in text.split("\n")), *recorded]


def means_something(line: bytes) -> bool:
    text = clean_text(line)
    return (
        bool(read_line("claude-code", text, channel="stderr", seen_at=1.79e9, tz="UTC"))
        or status_in_text(text) is not None
        or CLIS.session_in(text) is not None
        or CLIS.denial_in(text) is not None
        or bool(CLIS.patterns["retry"].search(text) or CLIS.patterns["untrusted"].search(text))
    )


def test_no_line_of_the_samples_that_means_something_is_passed_over() -> None:
    known = memory()

    assert [line for line in sample_lines() if known.is_plain(line) and means_something(line)] == []


@given(st.lists(st.sampled_from(["limit", "429", "reached", "error", "connect", "ok", "7", "\x1b[1m", "\\u0069", "é"])))
def test_no_line_of_such_words_that_means_something_is_passed_over(words: list[str]) -> None:
    line = " ".join(words).encode()

    assert not (memory().is_plain(line) and means_something(line))


@each_row(
    ("line", "other"),
    [(b"job 17 done", b"job 18 done"), (b"[1/90] Building a.o", b"[2/90] Building a.o"), (b"", b"")],
)
def test_a_line_without_words_of_a_limit_is_plain(line: bytes, other: bytes) -> None:
    known = memory()

    assert (known.is_plain(line), known.is_plain(other)) == (True, True)


def test_a_number_with_a_meaning_is_not_overlooked() -> None:
    known = memory()

    assert known.is_plain(b"answer 200 in 3 s")
    assert not known.is_plain(b"answer 429 in 3 s")


@each_row("line", [b'{"type":"result"}', b"[", b"    at foo (a.js:1:2)", b"Operation cancelled."])
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


@each_row("cli", ["claude-code", "codex", "gemini-cli", "opencode", "command"])
def test_every_line_of_the_samples_that_is_not_plain_is_found(cli: str) -> None:
    assert_all_are_found([*sample_lines()], cli)


def test_an_over_long_line_is_found() -> None:
    lines: list[bytes | LongLine] = [*[b"y"] * 20, LongLine(b"x", b"y"), *[b"y"] * 20]

    assert memory().doubtful(lines) == [20]


def test_lines_that_mean_nothing_are_not_found() -> None:
    log = [f"\x1b[32m✓\x1b[0m C:\\\\build\\\\obj{number} “done” — ok".encode() for number in range(100)]

    assert memory().doubtful([*log]) == []


@each_row("text", ["x Reconnecting... 2/5", "stream error: gone; retrying 1/5 in 2s"])
def test_a_retry_of_codex_is_found_by_its_words(text: str) -> None:
    assert CLIS.line_words.may_be_notice(text)


def words(number: int) -> str:
    return "limit " + "x" * number


def spent() -> NoticeBudget:
    budget = NoticeBudget()
    for _ in range(FREE_NOTICES // FREE_AT_A_TIME):
        budget.end_block()
        assert all(budget.allows(words(number)) for number in range(FREE_AT_A_TIME))
    return budget


def test_after_the_free_notices_each_block_has_a_few() -> None:
    budget = spent()

    assert [budget.allows(words(number)) for number in range(PER_BLOCK + 2)] == [True] * PER_BLOCK + [False] * 2
    assert budget.is_spent
    budget.end_block()
    assert budget.allows(words(0))


def test_the_last_notices_of_a_block_are_read_at_its_end() -> None:
    budget = spent()
    for number in range(100):
        budget.allows(words(number))

    assert budget.end_block() == [words(number) for number in range(100 - LAST_OF_BLOCK, 100)]
    assert budget.end_block() == []


def test_notices_that_differ_in_numbers_share_their_part() -> None:
    budget = spent()

    assert [budget.allows(f"attempt {number}") for number in range(PER_SHAPE + 1)] == [True] * PER_SHAPE + [False]
    assert budget.allows("another limit")
    assert budget.end_block() == [f"attempt {PER_SHAPE}"]


def test_time_frees_notices() -> None:
    budget = spent()
    for number in range(PER_BLOCK):
        budget.allows(words(number))
    budget.add_time(-5.0)
    assert budget.is_spent
    budget.add_time(1.0)

    assert budget.allows(words(0))
    budget.add_time(1e9)
    assert [budget.allows(words(number)) for number in range(FREE_AT_A_TIME)] == [True] * FREE_AT_A_TIME


def test_one_piece_of_output_has_a_part_of_the_free_notices() -> None:
    budget = NoticeBudget()

    allowed = [budget.allows(words(number)) for number in range(FREE_NOTICES)]

    assert allowed.count(True) == FREE_AT_A_TIME + PER_BLOCK
    budget.add_time(0.1)
    assert [budget.allows(words(number)) for number in range(FREE_AT_A_TIME)] == [True] * FREE_AT_A_TIME


def test_of_a_flood_of_events_the_last_are_read_at_the_end_of_the_block() -> None:
    budget = spent()
    events: list[dict[str, object]] = [{"type": "x" * number} for number in range(100)]
    for event in events:
        budget.allows(str(event), event)

    assert budget.end_block() == events[-LAST_OF_BLOCK:]

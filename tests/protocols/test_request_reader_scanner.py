"""Members found in a body in pieces: the same as a parser finds, however the body is cut."""

import itertools
import json
from collections.abc import Iterable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.protocols.request_reader import MemberScanner

WANTED = frozenset({"model", "usage"})
KEYS = st.sampled_from(["model", "usage", "messages", "mod\\el", 'mo"del', "", "modèle", "stream"])
TEXTS = st.text(st.characters(blacklist_categories=["Cs"]), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=5)
SPACING = st.sampled_from([None, 1, "\t"])


def pieces(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def scan(chunks: Iterable[bytes], **options: int) -> dict[str, Any]:
    scanner = MemberScanner(WANTED, **options)
    for chunk in chunks:
        scanner.feed(chunk)
    return {name: json.loads(raw) for name, raw in scanner.found.items()}


@given(OBJECTS, SPACING, st.booleans(), st.lists(st.integers(0, 10_000), max_size=8))
def test_finds_what_a_parser_finds_in_any_spacing_and_cut_anywhere(
    value: dict[str, Any], indent: int | str | None, ascii_only: bool, cuts: list[int]
) -> None:
    body = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()

    found = scan(pieces(body, cuts))

    assert found == {name: value[name] for name in WANTED & value.keys()}


@given(OBJECTS)
def test_byte_by_byte_is_the_same_as_at_once(value: dict[str, Any]) -> None:
    body = json.dumps(value).encode()

    assert scan(body[at : at + 1] for at in range(len(body))) == scan([body])


@given(st.lists(OBJECTS, max_size=4), st.lists(st.integers(0, 10_000), max_size=5))
def test_of_an_array_the_last_object_counts(values: list[dict[str, Any]], cuts: list[int]) -> None:
    body = json.dumps(values).encode()
    expected: dict[str, Any] = {}
    for value in values:
        expected |= {name: value[name] for name in WANTED & value.keys()}

    assert scan(pieces(body, cuts)) == expected


@given(OBJECTS, st.integers(0, 10_000), st.lists(st.integers(0, 10_000), max_size=4))
def test_a_body_cut_short_gives_only_whole_members(value: dict[str, Any], end: int, cuts: list[int]) -> None:
    body = json.dumps(value).encode()

    found = scan(pieces(body[: end % (len(body) + 1)], cuts))

    assert found.items() <= value.items()


@given(st.binary(max_size=60), st.lists(st.integers(0, 100), max_size=4))
def test_survives_any_bytes(data: bytes, cuts: list[int]) -> None:
    for begin in (b"", b"{", b'{"model":', b"[", b'[{"usage":'):
        scan_raw = MemberScanner(WANTED)
        for chunk in pieces(begin + data, cuts):
            scan_raw.feed(chunk)


def test_a_member_that_comes_twice_counts_as_it_came_last() -> None:
    body = b'{"model": "first", "model": "last"}'

    assert scan([body]) == scan([body[:12], body[12:]]) == {"model": "last"}


def test_a_value_beyond_the_bound_is_skipped_and_not_kept() -> None:
    body = json.dumps({"usage": "x" * 500, "model": "m"}).encode()

    assert scan([body], longest=100) == {"model": "m"}
    assert scan([body[:50], body[50:]], longest=100) == {"model": "m"}


@settings(max_examples=20)
@given(st.integers(1, 64))
def test_a_long_body_is_not_kept(kilobytes: int) -> None:
    scanner = MemberScanner(WANTED)
    scanner.feed(b'{"messages": ["')
    for _ in range(kilobytes):
        scanner.feed(b"x" * 1024)
    scanner.feed(b'"], "model": "m"')

    kept = sum(len(value) for value in vars(scanner).values() if isinstance(value, bytes | bytearray))
    assert (kept, scanner.found) == (0, {"model": b' "m"'})

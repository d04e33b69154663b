"""Every reported line is the right one."""

import json
import tomllib

from hypothesis import given
from hypothesis import strategies as st

from paceline.settings.checks import KeyPath, toml_lines

TRICKY = '''# comment = 1
top = 1
[a]  # [not.a.table]
text = """
[b]
key = 1 "quoted" \\"""
"""
literal = \'\'\'
x = 1
\'\'\'
"quo\\u0074ed key" = [
  1, # ] = 2
  "]",
  { inner = "}" },
]
dotted . "part" = { p = 1, q = [2] }
[[unit]]
id = 'a#b'
[[unit]]
id = """""two quotes inside"""""
[unit.more]
deep = 1
[[unit.list]]
x = 1
[[unit.list]]
x = 2
'''


def test_every_statement_is_found_on_its_line() -> None:
    tomllib.loads(TRICKY)

    assert toml_lines(TRICKY) == {
        ("top",): 2,
        ("a",): 3,
        ("a", "text"): 4,
        ("a", "literal"): 8,
        ("a", "quoted key"): 11,
        ("a", "dotted"): 16,
        ("a", "dotted", "part"): 16,
        ("unit",): 17,
        ("unit", 0): 17,
        ("unit", 0, "id"): 18,
        ("unit", 1): 19,
        ("unit", 1, "id"): 20,
        ("unit", 1, "more"): 21,
        ("unit", 1, "more", "deep"): 22,
        ("unit", 1, "list"): 23,
        ("unit", 1, "list", 0): 23,
        ("unit", 1, "list", 0, "x"): 24,
        ("unit", 1, "list", 1): 25,
        ("unit", 1, "list", 1, "x"): 26,
    }


def test_windows_line_ends_change_nothing() -> None:
    assert toml_lines(TRICKY.replace("\n", "\r\n")) == toml_lines(TRICKY)


NAMES = st.text(min_size=1, max_size=6)
NOISE = st.sampled_from(["", "# [x]", "  # a = 1", "\t"])
VALUES = st.one_of(
    st.integers(-9, 9).map(str),
    st.text(max_size=12).map(json.dumps).filter(lambda text: "\\u" not in text and "\x7f" not in text),
    st.sampled_from(
        ['"""\n[a]\nb = 1\n"""', "'''\n]\n'''", '[\n1, # [\n"]",\n]', '{ a = "#", b = [1] }', "'it''s'"[:4] + "'"]
    ),
)


@given(st.lists(st.tuples(NOISE, NAMES, VALUES), max_size=12, unique_by=lambda part: part[1]), st.booleans())
def test_lines_are_right_in_any_layout(parts: list[tuple[str, str, str]], in_tables: bool) -> None:
    lines: list[str] = []
    expected: dict[KeyPath, int] = {}
    for number, (noise, name, value) in enumerate(parts):
        key = json.dumps(name).replace("\x7f", "\\u007f")
        lines.append(noise)
        if in_tables:
            expected.setdefault(("t",), len(lines) + 1)
            lines.append("[[t]]")
            expected[("t", number)] = len(lines)
        expected[("t", number, name) if in_tables else (name,)] = len(lines) + 1
        lines += f"{key} = {value}".split("\n")
    text = "\n".join(lines)
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return

    assert toml_lines(text) == expected


@given(st.text())
def test_any_text_is_survived(text: str) -> None:
    try:
        tomllib.loads(text)
    except (ValueError, RecursionError):
        return
    toml_lines(text)

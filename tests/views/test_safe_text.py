"""Text of agents and files: nothing of it controls a terminal."""

import pytest

from paceline.views.safe_text import REPLACEMENT, plain_text, printable


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain, with ümlauts and 漢字", "plain, with ümlauts and 漢字"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("\x1b[2Jgone\x07", f"{REPLACEMENT}[2Jgone{REPLACEMENT}"),
        ("\u202eevil", f"{REPLACEMENT}evil"),
    ],
    ids=["letters", "lines and tabs", "escape and bell", "right to left"],
)
def test_what_could_control_a_terminal_is_replaced(text: str, expected: str) -> None:
    assert printable(text) == expected


def test_output_loses_its_colours_and_its_broken_bytes() -> None:
    output = b"\x1b[31mred\x1b[0m \x1b]0;title\x07end\r\n\xff"

    assert plain_text(output) == "red end\n\N{REPLACEMENT CHARACTER}"

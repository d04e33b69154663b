"""A terminal screen, rendered from any bytes."""

from paceline.agents.stream.screen import BoundedScreen


def render_screen(data: bytes, *, columns: int, rows: int) -> list[str]:
    screen = BoundedScreen(columns, rows)
    screen.feed(data)
    return screen.display()


def test_a_screen_is_rendered_as_a_terminal_shows_it() -> None:
    data = "\x1b[31mfirst\x1b[0m\r\n⚠️ sec\u0301ond\x00!\r\ngone\rthird wraps".encode()

    assert render_screen(data, columns=10, rows=5) == ["first", "⚠ second!", "third wrap", "s", ""]


def test_a_code_that_never_ends_does_not_swallow_the_screen_forever() -> None:
    endless = b"\x1b]0;" + b"x" * 300_000

    assert render_screen(endless + b"\x1b[2J\x1b[Hback again", columns=20, rows=2) == ["back again", ""]


def test_what_pyte_cannot_read_is_dropped() -> None:
    number = b"9" * 5000

    assert render_screen(b"\x1b[" + number + b"A\x1b[?1;2;3zback again", columns=20, rows=1)[0].endswith("back again")

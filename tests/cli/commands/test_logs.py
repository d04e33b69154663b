"""`logs`: the output of the last attempt."""

from tests.cli.conftest import Place, finish
from tests.cli.terminal import on_terminal


def test_logs_show_the_last_try_and_pass_bytes_to_a_pipe(place: Place) -> None:
    place.give("run", place.plan(r"printf 'out \033[31mred\n'; echo err >&2", "a"))

    code, out, _ = finish(place.start("logs", "a"))

    assert code == 0
    assert "\x1b[31mred" in out
    assert place.ask("logs", "docs/a")["stderr"] == "err\n"
    assert place.give("logs", "a", "--channel", "stderr").stdout == "err\n"


def test_logs_of_what_never_ran_say_so(place: Place) -> None:
    place.give("add", place.plan("true", "a"))

    assert "has not been started yet" in place.give("logs", "a", code=2).stderr


def test_logs_on_a_terminal_hold_nothing_that_steers_it(place: Place) -> None:
    place.give("run", place.plan(r"printf 'plain\033]0;owned\007\033[2Jtext\n'", "a"))

    with on_terminal(place, "logs", "a") as terminal:
        terminal.wait_end()

    assert b"\x1b" not in terminal.raw
    assert b"\x07" not in terminal.raw
    assert "plain" in terminal.text

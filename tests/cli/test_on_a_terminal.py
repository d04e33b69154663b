"""What a person at a terminal sees: the live screen of `run`, a terminal inside `exec`, and no escape of an agent's."""

import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyte
from tests.cli.conftest import LOOKS, PATIENCE_SECONDS, Place

COLUMNS, ROWS = 100, 30


class Terminal:
    """A command on a screen of its own."""

    def __init__(self, process: "subprocess.Popen[bytes]", master: int) -> None:
        self.process = process
        self.raw = b""
        self._master = master
        self._screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.ByteStream(self._screen)

    def wait_for(self, is_shown: Callable[[str], bool]) -> str:
        """The screen, once it shows that."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_shown(self.text):
            assert time.monotonic() < deadline, self.text
            if not self._read():
                assert is_shown(self.text), self.text
        return self.text

    def wait_end(self) -> int:
        while self._read():
            pass
        return self.process.wait(PATIENCE_SECONDS)

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip()

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def _read(self) -> bool:
        try:
            piece = os.read(self._master, 65536)
        except OSError:  # the end of a terminal
            return False
        self.raw += piece
        self._stream.feed(piece)
        return bool(piece)


def _as_a_shell_would() -> None:
    """The terminal is its own, and Ctrl-C is heard, also where the tests run in the background."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def on_terminal(place: Place, *argv: str) -> Iterator[Terminal]:
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "paceline", *argv],
        env={**os.environ, **LOOKS, "TERM": "xterm"},
        cwd=place.folder,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=_as_a_shell_would,
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)


def test_the_live_screen_shows_what_runs_and_what_waits_and_ctrl_c_stops(place: Place) -> None:
    plan = place.plan("while [ ! -e go ]; do sleep 0.05; done", "a", "b", head="max_sessions = 1")

    with on_terminal(place, "run", str(plan)) as terminal:
        shown = terminal.wait_for(lambda text: "waiting\n" in text)
        terminal.type(b"\x03")
        code = terminal.wait_end()

    assert "docs/a for" in shown
    assert "docs: campaign:docs at its limit (1/1)" in shown
    assert "0/2" in shown
    assert code == 130
    assert "1 session goes on without the engine: docs/a" in terminal.text
    (place.folder / "go").touch()
    place.give("run", plan)


def test_a_parked_unit_is_shown_with_its_time(place: Place) -> None:
    plan = place.plan("exit 75", "a")

    with on_terminal(place, "run", str(plan)) as terminal:
        shown = terminal.wait_for(lambda text: "parked\n" in text)

    assert "docs: 1 until" in shown
    assert "asked to be tried later (exit code 75)" in shown


def test_logs_on_a_terminal_hold_nothing_that_steers_it(place: Place) -> None:
    place.give("run", place.plan(r"printf 'plain\033]0;owned\007\033[2Jtext\n'", "a"))

    with on_terminal(place, "logs", "a") as terminal:
        terminal.wait_end()

    assert b"\x1b" not in terminal.raw
    assert b"\x07" not in terminal.raw
    assert "plain" in terminal.text


def test_deleting_asks_first(place: Place) -> None:
    place.give("add", place.plan("true", "a"))

    codes = []
    for answer in (b"n\r", b"y\r"):
        with on_terminal(place, "delete", "docs") as terminal:
            terminal.wait_for(lambda text: "Delete docs with all its units" in text)
            terminal.type(answer)
            codes.append(terminal.wait_end())
        codes.append(len(place.ask("list")["campaigns"]))

    assert codes == [1, 1, 0, 0]


def test_exec_gives_its_command_a_terminal(place: Place) -> None:
    script = "test -t 0 && test -t 1 && stty size; printf 'name? '; read name; echo hello $name; exit 5"

    with on_terminal(place, "exec", "--", "sh", "-c", script) as terminal:
        terminal.wait_for(lambda text: "name?" in text)
        terminal.type(b"bob\r")
        code = terminal.wait_end()

    assert f"{ROWS} {COLUMNS}" in terminal.text
    assert "hello bob" in terminal.text
    assert code == 5


def test_ctrl_c_is_the_commands_to_answer(place: Place) -> None:
    script = "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.05; done"

    with on_terminal(place, "exec", "--", "sh", "-c", script) as terminal:
        terminal.wait_for(lambda text: "ready" in text)
        terminal.type(b"\x03")
        code = terminal.wait_end()

    assert "caught" in terminal.text
    assert code == 9

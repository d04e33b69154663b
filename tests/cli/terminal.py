"""A command on a terminal of its own, as a person sees it."""

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
from tests.cli.conftest import PATIENCE_SECONDS, TERMINAL_ENV, Workspace

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
    """Give the process its own terminal with Ctrl-C enabled, also where the tests run in the background."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def on_terminal(workspace: Workspace, *argv: str) -> Iterator[Terminal]:
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "paceline", *argv],
        env={**os.environ, **TERMINAL_ENV, "TERM": "xterm"},
        cwd=workspace.folder,
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

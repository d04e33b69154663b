"""A runner for one command that forwards its output and lets the caller read it: in pipes, or in a terminal.

In a terminal of its own a command keeps its colours, its width and its prompts. Never here: the meaning of the output.
"""

import contextlib
import fcntl
import os
import pty
import selectors
import signal
import subprocess
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from typing import IO

from paceline.detect.stream import Channel
from paceline.executors.supervisor import die_with

OnOutput = Callable[[Channel, bytes], None]
POLL_SECONDS = 0.2
"""How often `meanwhile` runs while the command prints nothing."""
PIECE_BYTES = 1 << 16
NOT_STARTED = 126
"""The exit code that shells use for a command that cannot be executed."""


def run_in_pipes(
    command: tuple[str, ...], env: dict[str, str], on_output: OnOutput, meanwhile: Callable[[], None]
) -> int:
    """Run the command and return its exit code as a shell reports it.

    The command is killed if this process ends for any reason, because its slot is then released.
    """
    us = os.getpid()
    with (
        _ignored(signal.SIGINT),  # Ctrl-C is meant for the command
        subprocess.Popen(
            command,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: die_with(us),
        ) as process,
    ):
        before = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        try:
            _forward(process, on_output, meanwhile)
            code = process.wait()
        finally:
            signal.signal(signal.SIGTERM, before)
    return 128 - code if code < 0 else code


def _forward(process: "subprocess.Popen[bytes]", on_output: OnOutput, meanwhile: Callable[[], None]) -> None:
    assert process.stdout is not None
    assert process.stderr is not None
    targets: dict[int, tuple[Channel, IO[bytes]]] = {
        process.stdout.fileno(): ("stdout", sys.stdout.buffer),
        process.stderr.fileno(): ("stderr", sys.stderr.buffer),
    }
    with selectors.DefaultSelector() as selector:
        for pipe in targets:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(POLL_SECONDS)
            for key, _ in ready:
                piece = os.read(key.fd, PIECE_BYTES)
                if not piece:
                    selector.unregister(key.fd)
                    continue
                channel, target = targets[key.fd]
                target.write(piece)
                target.flush()
                on_output(channel, piece)
            meanwhile()
            if not ready and process.poll() is not None:
                return  # a background process of the command may hold the pipes open; do not wait for it


def run_in_terminal(
    command: tuple[str, ...], env: dict[str, str], on_output: OnOutput, meanwhile: Callable[[], None]
) -> int:
    """Run the command in a terminal of its own that is connected to ours. Return its exit code."""
    pid, master = pty.fork()
    if pid == 0:
        try:
            os.execvpe(command[0], command, env)
        finally:
            os._exit(NOT_STARTED)
    try:
        with _ignored(signal.SIGINT), _same_size_as_ours(master), _raw(sys.stdin.fileno()):
            _connect(master, on_output, meanwhile)
    finally:
        os.close(master)
    return _shell_code(os.waitpid(pid, 0)[1])


def _connect(master: int, on_output: OnOutput, meanwhile: Callable[[], None]) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(master, selectors.EVENT_READ)
        selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
        while True:
            for key, _ in selector.select(POLL_SECONDS):
                try:
                    piece = os.read(key.fd, PIECE_BYTES)
                except OSError:  # on Linux this is the end of a terminal
                    return
                if key.fd != master:
                    os.write(master, piece)
                elif piece:
                    sys.stdout.buffer.write(piece)
                    sys.stdout.buffer.flush()
                    on_output("screen", piece)
                else:
                    return
            meanwhile()


def _shell_code(status: int) -> int:
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


@contextlib.contextmanager
def _ignored(number: signal.Signals) -> Iterator[None]:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(number, before)


@contextlib.contextmanager
def _raw(fd: int) -> Iterator[None]:
    """Send every key to the command, also Ctrl-C."""
    before = termios.tcgetattr(fd)
    tty.setraw(fd)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _same_size_as_ours(master: int) -> Iterator[None]:
    def fit(*_: object) -> None:
        size = fcntl.ioctl(sys.stdout.fileno(), termios.TIOCGWINSZ, b"\0" * 8)
        fcntl.ioctl(master, termios.TIOCSWINSZ, size)

    fit()
    before = signal.signal(signal.SIGWINCH, fit)
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)

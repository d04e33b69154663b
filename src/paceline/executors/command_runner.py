"""A runner for one command that forwards its output and lets the caller read it: in pipes, or in a terminal.

In a terminal of its own a command keeps its colours, its width and its prompts. Never here: the meaning of the output.
"""

import contextlib
import fcntl
import os
import pty
import selectors
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from typing import IO

from paceline.core.values.channels import Channel
from paceline.executors.process_reaper import become_guard, shell_code

OnOutput = Callable[[Channel, bytes], None]
POLL_SECONDS = 0.2
"""How often `meanwhile` runs while the command prints nothing."""
PIECE_BYTES = 1 << 16


def run_in_pipes(
    command: tuple[str, ...], env: dict[str, str], on_output: OnOutput, meanwhile: Callable[[], None]
) -> int:
    """Run the command and return its exit code as a shell reports it.

    The command and all its descendants end with this process, because its slot is then released.
    """
    us = os.getpid()
    (out_read, out_write), (err_read, err_write) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        become_guard(command, env, us, lambda: _connect_outputs(out_write, err_write))
    os.close(out_write)
    os.close(err_write)
    guard = _Guard(pid)
    try:
        with _ignored(signal.SIGINT), guard.asked_by_term():  # Ctrl-C is meant for the command
            _forward(
                {out_read: ("stdout", sys.stdout.buffer), err_read: ("stderr", sys.stderr.buffer)},
                guard,
                on_output,
                meanwhile,
            )
            return guard.wait()
    finally:
        os.close(out_read)
        os.close(err_read)


def _connect_outputs(out: int, err: int) -> None:
    os.dup2(out, 1)
    os.dup2(err, 2)


class _Guard:
    """The guard of a command, as its parent sees it."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._status: int | None = None

    @contextlib.contextmanager
    def asked_by_term(self) -> Iterator[None]:
        """Ask the command to end when this process is asked to."""
        before = signal.signal(signal.SIGTERM, lambda *_: os.kill(self._pid, signal.SIGTERM))
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)

    def is_over(self) -> bool:
        if self._status is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            self._status = status if pid else None
        return self._status is not None

    def wait(self) -> int:
        """Return the exit code of the command as a shell reports it."""
        if self._status is None:
            self._status = os.waitpid(self._pid, 0)[1]
        return shell_code(self._status)


def _forward(
    targets: dict[int, tuple[Channel, IO[bytes]]], guard: _Guard, on_output: OnOutput, meanwhile: Callable[[], None]
) -> None:
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
            if not ready and guard.is_over():
                return  # a background process of the command may hold the pipes open; do not wait for it


def run_in_terminal(
    command: tuple[str, ...], env: dict[str, str], on_output: OnOutput, meanwhile: Callable[[], None]
) -> int:
    """Run the command in a terminal of its own that is connected to ours. Return its exit code."""
    us = os.getpid()
    pid, master = pty.fork()
    if pid == 0:
        become_guard(command, env, us, lambda: None)
    guard = _Guard(pid)
    try:
        with (
            _ignored(signal.SIGINT),
            _same_size_as_ours(master),
            _raw(sys.stdin.fileno()),
            guard.asked_by_term(),
        ):
            _connect(master, guard, on_output, meanwhile)
            return guard.wait()
    finally:
        os.close(master)


def _connect(master: int, guard: _Guard, on_output: OnOutput, meanwhile: Callable[[], None]) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(master, selectors.EVENT_READ)
        selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
        while True:
            ready = selector.select(POLL_SECONDS)
            for key, _ in ready:
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
            if not ready and guard.is_over():
                return  # a background process of the command may hold the terminal open; do not wait for it


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

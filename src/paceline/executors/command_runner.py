"""A runner for one command that forwards its output and lets the caller read it: in pipes, or in a terminal.

In a terminal of its own a command keeps its colours, its width and its prompts.

Between us and the command is a guard, a fork of this process. It is the reaper of every orphan below it, so no
descendant of the command escapes it, whatever its group or session. If we are killed, it kills the tree at once,
because its slot is then free. If we are asked to end, it asks the tree, and kills what is left after a grace. Never
here: the meaning of the output, or why the command runs.
"""

import contextlib
import fcntl
import os
import pty
import selectors
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO

from paceline.core.values.session_output import Channel
from paceline.executors import supervisor
from paceline.executors.proc_table import children_of, descendants_of

NOT_STARTED = 126
"""The exit code that shells use for a command that cannot be executed."""
GRACE_SECONDS = 10.0
"""How long the tree may take to end after TERM: as long as sessions get."""
_WATCHED = (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
_KILLED = 128 + signal.SIGKILL


def become_guard(command: Sequence[str], env: Mapping[str, str], parent: int, connect: Callable[[], None]) -> None:
    """Turn this process, a fork of `parent`, into a guard that runs the command. It never returns.

    `connect` is called in the command's process: it connects standard input and output.
    """
    code = NOT_STARTED
    try:
        supervisor.LIBC.prctl(supervisor.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        supervisor.LIBC.prctl(supervisor.PR_SET_PDEATHSIG, signal.SIGTERM)
        signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP):
            signal.signal(number, signal.SIG_IGN)  # keys of the terminal are meant for the command
        us = os.getpid()
        pid = os.fork()
        if pid == 0:
            _become_command(command, env, us, connect)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # pipes of the command, and locks that must end with our parent
        code = _watch(pid, parent)
    finally:
        os._exit(code)


def _become_command(command: Sequence[str], env: Mapping[str, str], guard: int, connect: Callable[[], None]) -> None:
    try:
        supervisor.die_with(guard)
        connect()
        # An ignored signal stays ignored after exec. Python ignores some, and the guard ignores others.
        for number in signal.valid_signals():
            if signal.getsignal(number) not in (signal.SIG_DFL, None):
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.execvpe(command[0], list(command), env)
    except OSError as error:
        os.write(2, f"paceline: cannot run {command[0]!r}: {error.strerror}\n".encode("utf-8", "replace"))
    finally:
        os._exit(NOT_STARTED)


def _watch(command: int, parent: int) -> int:
    """Return the exit code of the command as a shell reports it, once it is over."""
    kill_at: float | None = None
    while True:
        received = signal.sigtimedwait(_WATCHED, _seconds_until(kill_at))
        if os.getppid() != parent:
            _kill_tree()
            return _KILLED
        code = _reap(command)
        if code is not None:
            if kill_at is not None:
                supervisor.end_descendants()
            return code
        if received is not None and received.si_signo != signal.SIGCHLD and kill_at is None:
            kill_at = time.monotonic() + GRACE_SECONDS
            for pid in descendants_of(os.getpid()):
                supervisor.signal_one(pid, received.si_signo)
        if kill_at is not None and time.monotonic() >= kill_at:
            _kill_tree()
            return _KILLED


def _seconds_until(at: float | None) -> float:
    """Return the time to wait. It is bounded, because a signal that came before it was blocked is not seen."""
    return 1.0 if at is None else max(0.0, min(1.0, at - time.monotonic()))


def _reap(command: int) -> int | None:
    """Reap everything that has ended. Return the exit code of the command if it is among them."""
    code = None
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == command:
                code = shell_code(ended[1])
    except ChildProcessError:
        return code
    return code


def _kill_tree() -> None:
    """Kill all descendants. As their parents end, they become our children."""
    give_up_at = time.monotonic() + supervisor.UNKILLABLE_SECONDS
    while supervisor.has_children() and time.monotonic() < give_up_at:
        for pid in children_of(os.getpid()):
            supervisor.signal_one(pid, signal.SIGKILL)
        time.sleep(0.01)


def shell_code(status: int) -> int:
    """Return the exit code of a process as a shell reports it, from its wait status."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


# -- the output of a command -------------------------------------------------------------------------

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

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
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import IO

from paceline.core.values.session_output import Channel
from paceline.executors import supervisor
from paceline.executors.proc_table import descendants_of

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
        supervisor.reset_signals()
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
        # The wait is bounded, because a signal that came before it was blocked is not seen.
        left = 1.0 if kill_at is None else max(0.0, min(1.0, kill_at - time.monotonic()))
        received = signal.sigtimedwait(_WATCHED, left)
        if os.getppid() != parent:
            supervisor.end_descendants(patience=0.0)
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
            supervisor.end_descendants(patience=0.0)
            return _KILLED


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


def shell_code(status: int) -> int:
    """Return the exit code of a process as a shell reports it, from its wait status."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


# -- the output of a command -------------------------------------------------------------------------

OnOutput = Callable[[Channel, bytes], None]
Sink = Callable[[bytes], object]
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

    def connect() -> None:
        os.dup2(out_write, 1)
        os.dup2(err_write, 2)

    guard = os.fork()
    if guard == 0:
        become_guard(command, env, us, connect)
    os.close(out_write)
    os.close(err_write)
    out, err = _sink("stdout", sys.stdout.buffer, on_output), _sink("stderr", sys.stderr.buffer, on_output)
    try:
        return _follow(guard, {out_read: out, err_read: err}, {out_read, err_read}, meanwhile)
    finally:
        os.close(out_read)
        os.close(err_read)


def run_in_terminal(
    command: tuple[str, ...], env: dict[str, str], on_output: OnOutput, meanwhile: Callable[[], None]
) -> int:
    """Run the command in a terminal of its own that is connected to ours. Return its exit code."""
    us = os.getpid()
    guard, master = pty.fork()
    if guard == 0:
        become_guard(command, env, us, lambda: None)
    keyboard = sys.stdin.fileno()
    sinks = {master: _sink("screen", sys.stdout.buffer, on_output), keyboard: lambda piece: os.write(master, piece)}
    try:
        with _same_size_as_ours(master), _raw(keyboard):
            return _follow(guard, sinks, {master}, meanwhile)
    finally:
        os.close(master)


def _sink(channel: Channel, target: IO[bytes], on_output: OnOutput) -> Sink:
    def forward(piece: bytes) -> None:
        target.write(piece)
        target.flush()
        on_output(channel, piece)

    return forward


def _follow(guard: int, sinks: Mapping[int, Sink], outputs: Set[int], meanwhile: Callable[[], None]) -> int:
    """Pass on what is read until all `outputs` have ended. Return the exit code of the guard's command.

    A background process of the command may hold them open; it is not waited for.
    """
    with (
        _handled(signal.SIGINT, signal.SIG_IGN),  # Ctrl-C is meant for the command
        _handled(signal.SIGTERM, lambda *_: os.kill(guard, signal.SIGTERM)),
        selectors.DefaultSelector() as selector,
    ):
        for fd in sinks:
            selector.register(fd, selectors.EVENT_READ)
        while outputs & selector.get_map().keys():
            ready = selector.select(POLL_SECONDS)
            for key, _ in ready:
                if piece := _read_piece(key.fd):
                    sinks[key.fd](piece)
                else:
                    selector.unregister(key.fd)
            meanwhile()
            if not ready and os.waitid(os.P_PID, guard, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                break
        return shell_code(os.waitpid(guard, 0)[1])


def _read_piece(fd: int) -> bytes:
    try:
        return os.read(fd, PIECE_BYTES)
    except OSError:  # on Linux this is the end of a terminal
        return b""


@contextlib.contextmanager
def _handled(number: signal.Signals, handler: Callable[..., object] | int) -> Iterator[None]:
    before = signal.signal(number, handler)
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
    with _handled(signal.SIGWINCH, fit):
        yield

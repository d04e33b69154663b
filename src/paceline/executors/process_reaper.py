"""A guard between us and a command: it ends the command's whole process tree when we are ended.

The guard is a fork of this process. It is the reaper of every orphan below it, so no descendant of the command escapes
it, whatever its group or session. If we are killed, it kills the tree at once, because its slot is then free. If we are
asked to end, it asks the tree, and kills what is left after a grace. Never here: output, or why the command runs.
"""

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence

from paceline.executors.proc_table import children_of, descendants_of
from paceline.executors.supervisor import (
    LIBC,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    UNKILLABLE_SECONDS,
    die_with,
    end_descendants,
    has_children,
    signal_one,
)

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
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
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
        die_with(guard)
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
                end_descendants()
            return code
        if received is not None and received.si_signo != signal.SIGCHLD and kill_at is None:
            kill_at = time.monotonic() + GRACE_SECONDS
            for pid in descendants_of(os.getpid()):
                signal_one(pid, received.si_signo)
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
    give_up_at = time.monotonic() + UNKILLABLE_SECONDS
    while has_children() and time.monotonic() < give_up_at:
        for pid in children_of(os.getpid()):
            signal_one(pid, signal.SIGKILL)
        time.sleep(0.01)


def shell_code(status: int) -> int:
    """Return the exit code of a process as a shell reports it, from its wait status."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)

"""How a worker is started on a host, whatever it is: a protocol for ssh, Slurm, Ray and commands, and what they share.

Never here: when a worker is started (`leader/worker_supervision.py`), and what it does (`hosts/worker`).
"""

import contextlib
import hashlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from paceline.errors import LaunchFailed
from paceline.executors.spool_writer import replace_file
from paceline.settings import HostSettings

Record = TypeVar("Record")


def write_private(path: Path, text: str) -> None:
    """Write the file whole or not at all. Nobody else can read it at any moment."""
    replace_file(str(path), text.encode(), fresh=str(path.with_name(f".{path.name}.{os.getpid()}")))


def read_record(path: Path, kind: type[Record]) -> Record | None:
    """Return what the file holds; None if it is not there or cannot be read."""
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(path.read_bytes(), type=kind)
    return None


class ProgramResult(NamedTuple):
    """The exit code of a program, and what it printed."""

    code: int
    output: str
    errors: str


def last_words(printed: str, *, lines: int = 0, most: int = 300) -> str:
    """Return the end of what a program printed in one line. Without `lines`, all of them count."""
    return " / ".join(printed.strip().splitlines()[-lines:])[-most:] or "it printed nothing"


def run_program(
    argv: Sequence[str],
    *,
    seconds: float,
    silent: str,
    environ: Mapping[str, str] | None = None,
    content: bytes = b"",
    merged: bool = False,
) -> ProgramResult:
    """Run a program with the content as its input. With `merged`, what it prints as errors is part of its output.

    Raise `LaunchFailed(silent)` after this time, when it was killed with all that it started, and `OSError` if it
    cannot be run.
    """
    # Pipes would stay open as long as what the program leaves behind.
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE if content else subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT if merged else errors,
            env=environ,
            start_new_session=True,
        )
        try:
            process.communicate(content or None, timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise LaunchFailed(silent) from None
        output.seek(0)
        errors.seek(0)
        printed = [file.read().decode(errors="replace") for file in (output, errors)]
        return ProgramResult(process.returncode, *printed)


class WorkerStart(msgspec.Struct, frozen=True, kw_only=True):
    """What the worker of a host is started with. It holds a secret: it is never logged, and on no command line."""

    name: str
    """The name of the host."""
    connect: tuple[str, ...] = ()
    """The URLs of the leader, as the host reaches them. The worker tries one after the other."""
    token: str = ""
    """The token of the host, `NAME.SECRET`. Without one, it only finds a worker by its home."""
    labels: tuple[str, ...] = ()
    home: str
    """The folder of the worker on the host. `~` at its beginning is the home of the user there."""
    program: tuple[str, ...] = ()
    """What runs in place of `paceline worker`, with its options behind it. Tests use it."""


def worker_home(host: HostSettings) -> str:
    """Return the folder of the worker on its host, which may begin with `~`. Hosts may share a home of the user."""
    return host.home or f"~/.local/state/paceline/workers/{host.name}"


def start_digest(worker: WorkerStart) -> str:
    """Return what differs if anything that a worker is started with differs. It reveals no token."""
    return hashlib.sha256(msgspec.json.encode(worker)).hexdigest()


class WorkerLauncher(Protocol):
    """Starts and ends the worker of one host. It belongs to that host for all its life, and keeps nothing in memory.

    All methods block, and are called in threads. A new launcher of the same host, in another process or on another
    machine, finds the worker that an earlier one has started. Each method raises `LaunchFailed` if the host cannot be
    asked or does not do it: with the name of the host, what is wrong, and what a person can do about it. Then nothing
    was started, or what was started is found by the next call.

    `paceline.testing.launcher_contract` tests an implementation.
    """

    def start(self, worker: WorkerStart) -> None:
        """Start the worker, and return when it has started, or when the host has promised to start it.

        A worker that runs already, or that waits to be started, stays as it is if it was started with the same values.
        Otherwise it is replaced: its sessions continue, and the new one finds them.

        The worker outlives the connection and the process of the launcher. Its token is given to it through a pipe or
        a file that only its user can read, never through an argument or a variable that other users can see.
        """

    def is_alive(self) -> bool | None:
        """Return whether a worker runs, or waits to be started. None: that is not known."""

    def stop(self) -> None:
        """End the worker, and return when it is gone. Its sessions continue unless the host ends them itself.

        Nothing happens if none runs.
        """

    def describe(self) -> str:
        """Return for people how the worker is started, in a few words: `ssh user@box1`."""

"""How a worker is started on a host, whatever the host is: one protocol for ssh, Slurm, Ray and commands.

Never here: when a worker is started (`leader/worker_supervision.py`), and what it does (`hosts/worker`).
"""

import hashlib
import os
from pathlib import Path
from typing import Protocol

import msgspec

from paceline.settings import HostSettings


def write_private(path: Path, text: str) -> None:
    """Write the file whole or not at all. Nobody else can read it at any moment."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(text)
    fresh.replace(path)


class WorkerStart(msgspec.Struct, frozen=True, kw_only=True):
    """What the worker of a host is started with. It holds a secret: it is never logged, and on no command line."""

    name: str
    """The name of the host."""
    connect: tuple[str, ...]
    """The URLs of the leader, as the host reaches them. The worker tries one after the other."""
    token: str
    """The token of the host, `NAME.SECRET`."""
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

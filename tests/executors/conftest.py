"""Real processes in a spool of their own, and a check after every test that none of them is left."""

import contextlib
import errno
import json
import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paceline.executors.interface import Handle, Launch, SessionState
from paceline.executors.proc_table import all_processes, contents
from paceline.executors.process import MARK_VARIABLE, ProcessExecutor

DEADLINE_SECONDS = 60.0


class Fifo:
    """A place to meet a process at. Our side never waits longer than the deadline."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    def read_line(self) -> str:
        """The line that the process writes."""
        received = bytearray()
        fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)

        def has_line() -> bool:
            with contextlib.suppress(BlockingIOError):
                received.extend(os.read(fd, 4096))
            return received.endswith(b"\n")

        try:
            until(has_line)
        finally:
            os.close(fd)
        return received.decode().strip()

    def write_line(self, line: str = "go") -> None:
        """Writes a line once the process is there to read it."""
        until(lambda: self._wrote(f"{line}\n".encode()))

    def _wrote(self, data: bytes) -> bool:
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return False
        with open(fd, "wb", buffering=0) as file:
            file.write(data)
        return True


class Sandbox:
    """A spool, a working folder, and the processes that belong to them."""

    def __init__(self, path: Path) -> None:
        self.spool = path / "spool"
        self.work = path / "work"
        self.work.mkdir()

    def launch(
        self,
        attempt: str,
        *argv: str,
        env: dict[str, str] | None = None,
        stdin: bytes = b"",
        timeout: float | None = None,
        stall: float | None = None,
        grace: float = 5.0,
        start_by: float = math.inf,
    ) -> Launch:
        return Launch(
            attempt_id=attempt,
            argv=argv,
            env={"PATH": os.environ["PATH"], **(env or {})},
            cwd=str(self.work),
            stdin=stdin,
            timeout=timeout,
            stall=stall,
            grace=grace,
            start_by=start_by,
        )

    def shell(self, attempt: str, script: str, **more: float) -> Launch:
        return self.launch(attempt, "sh", "-c", script, **more)  # type: ignore[arg-type]

    def fifo(self, name: str) -> "Fifo":
        """A fifo in the working folder: whoever opens it waits for the other side."""
        return Fifo(self.work / name)

    def processes(self) -> list[int]:
        """All that run with a mark of this spool: supervisors, agents and their children."""
        mark = f"{MARK_VARIABLE}={self.spool}/".encode()
        return [pid for pid, fields in all_processes() if fields[0] != b"Z" and mark in environment(pid)]


def environment(pid: int) -> bytes:
    try:
        return contents(f"/proc/{pid}/environ")
    except OSError:
        return b""


def until(holds: Callable[[], bool], seconds: float = DEADLINE_SECONDS) -> None:
    """Looks again and again until it holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come to hold in time"
        time.sleep(0.005)


def is_gone(pid: int) -> bool:
    """Whether the process has ended; a zombie has."""
    try:
        return b") Z" in contents(f"/proc/{pid}/stat")
    except OSError:
        return True


def read_all(handle: Handle, channel: str = "stdout") -> bytes:
    pieces = []
    while piece := handle.read_new(channel):  # type: ignore[arg-type]
        pieces.append(piece)
    return b"".join(pieces)


async def ended(executor: ProcessExecutor, handle: Handle) -> SessionState:
    """Waits for the end of one session by the executor's own wake-up."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not handle.state().is_over:
        assert time.monotonic() < deadline, "it did not end in time"
        await executor.wait_ended(DEADLINE_SECONDS)
    return handle.state()


def write_status(sandbox: Sandbox, attempt: str, **changes: object) -> None:
    """Changes what a supervisor has written, and removes its copy."""
    os.truncate(sandbox.spool / attempt / "lock", 0)
    path = sandbox.spool / attempt / "status.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    sandbox = Sandbox(tmp_path)
    yield sandbox
    left = sandbox.processes()
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, f"processes were left behind: {left}"


@pytest.fixture
def executor(sandbox: Sandbox) -> Iterator[ProcessExecutor]:
    executor = ProcessExecutor(str(sandbox.spool))
    yield executor
    for handle in list(executor._handles.values()):
        executor.kill(handle)
    executor.close()

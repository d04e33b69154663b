"""`paceline` in a process of its own that needs no time to start: a fork of `tests/warm_server.py`.

It behaves as `subprocess.Popen` of `python -m paceline`. That a cold start works is proven elsewhere: by the tests of
`cli/main.py`, of sessions that call Paceline, and of hosts.
"""

import atexit
import contextlib
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

STACKS_SECONDS = 30
"""How long a process that is aborted may take to print the stacks of its threads."""
SERVER = Path(__file__).with_name("warm_server.py")


class WarmProcess:
    """One command that runs, with its output and its errors as text."""

    def __init__(self, *argv: str, cwd: Path, env: Mapping[str, str]) -> None:
        self.returncode: int | None = None
        self.stdout, out = _pipe()
        self.stderr, err = _pipe()
        self._report, report = _pipe()
        has_nohup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN  # what a new process would inherit
        command = {"argv": argv, "cwd": str(cwd), "env": dict(env), "has_nohup": has_nohup}
        request = json.dumps(command).encode()
        try:
            socket.send_fds(_server(), [request], [out, err, report])
        finally:
            for each in (out, err, report):
                os.close(each)
        self.pid = int(self._report.readline())

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._report], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("paceline", timeout or 0)
            self.returncode = int(self._report.readline())
            self._report.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Read everything up to the end of the process. One that does not end is made to say where it stands."""
        give_up_at = None if timeout is None else time.monotonic() + timeout
        texts: dict[int, str] = {}
        readers = [threading.Thread(target=_read, args=(file, texts), daemon=True) for file in self._files()]
        for reader in readers:
            reader.start()
        try:
            self.wait(timeout)
        except subprocess.TimeoutExpired:
            self.send_signal(signal.SIGABRT)
            give_up_at = time.monotonic() + STACKS_SECONDS
        for reader in readers:
            reader.join(None if give_up_at is None else max(0.0, give_up_at - time.monotonic()))
        found = texts.get(id(self.stdout), ""), texts.get(id(self.stderr), "")
        assert self.returncode is not None, f"paceline did not end within {timeout} s: {found[1]}"
        return found

    def _files(self) -> Iterator[IO[str]]:
        return (file for file in (self.stdout, self.stderr) if not file.closed)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def _pipe() -> tuple[IO[str], int]:
    reader, writer = os.pipe()
    return open(reader, encoding="utf-8"), writer


def _read(file: IO[str], texts: dict[int, str]) -> None:
    texts[id(file)] = file.read()
    file.close()


@functools.cache
def _server() -> socket.socket:
    """Start the process that forks, once for all tests of this one. It ends with it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    argv = [sys.executable, str(SERVER), str(theirs.fileno())]
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours

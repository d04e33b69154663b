"""The host's own side of a launch: start the worker so that it outlives everything, and find it again.

    python -m paceline.hosts.launchers.detached_worker start|alive|stop < ORDER

The order is JSON on standard input, because it has the token. The answer is one line on standard output that begins
with `MARK`; the profile of a login shell may print other lines before it. Never here: how the host is reached.
"""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from paceline.errors import LaunchFailed, PacelineError
from paceline.executors.proc_table import boot_id, has_ended, start_ticks
from paceline.executors.spool import make_private
from paceline.hosts.launchers.interface import WorkerStart, last_words, read_record, start_digest, write_private

MARK: Final = "paceline-worker: "
TOKEN_FILE: Final = "token"
LOG_FILE: Final = "worker-output.log"
RECORD_FILE: Final = "worker-process.json"
_LOCK_FILE: Final = "launch.lock"
_LARGEST_LOG: Final = 10_000_000
"""Bytes after which the log of earlier workers is put aside at a start: weeks of warnings, and no burden for a disk."""
_FIRST_SECONDS: Final = 1.0
"""How long a start watches its worker. One whose arguments or environment are wrong has ended by then."""
_STOP_SECONDS: Final = 20.0
"""How long a worker may take to end: it stores what it knows, and reports that it leaves."""
_SPAWN: Final = """
import os, sys
if pid := os.fork():
    print(pid, flush=True)
    os._exit(0)
os.setsid()
os.dup2(2, 1)
if os.read(0, 1):
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:
        os.execvp(sys.argv[1], sys.argv[1:])
    except OSError as error:
        sys.exit(f"{sys.argv[1]} cannot be run: {error.strerror}")
"""
"""The worker waits for a byte before it begins. If its launcher dies before the record is written, none comes."""
_POLL_SECONDS: Final = 0.05
_SHOWN_LINES: Final = 5
_LONGEST_SHOWN: Final = 2000


class WorkerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The process of a worker, and what it was started with. The token is there as its digest alone."""

    pid: int
    boot_id: str
    start_ticks: int | None
    version: str
    order: str
    """A digest of what it was started with. A worker with another one is replaced."""


class LaunchAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of a request: the process of the worker, if one runs, or what went wrong."""

    pid: int | None = None
    error: str | None = None


def start_detached(worker: WorkerStart, environ: Mapping[str, str]) -> LaunchAnswer:
    """Start the worker in a session of its own, unless it runs already. Raise `LaunchFailed` if it ends at once."""
    home = _folder(worker)
    make_private(str(home))
    with one_at_a_time(home):
        order = start_digest(worker)
        record = read_record(home / RECORD_FILE, WorkerRecord)
        pid = _pid(record)
        if pid is not None and record is not None and (record.order, record.version) == (order, version("paceline")):
            return LaunchAnswer(pid=pid)
        if pid is not None:
            _end(pid, record)
        token_file = home / TOKEN_FILE
        write_private(token_file, f"{worker.token}\n")
        begin, go = os.pipe()
        try:
            pid = _spawn(worker_argv(worker, token_file), worker_environment(environ, home), home, begin)
            started = _write_record(home, pid, order)
            os.write(go, b"\n")
        finally:
            os.close(begin)
            os.close(go)
        give_up_at = time.monotonic() + _FIRST_SECONDS
        while time.monotonic() < give_up_at:
            if _pid(started) is None:
                raise LaunchFailed(f"the worker ended at once: {_tail(home / LOG_FILE)}")
            time.sleep(_POLL_SECONDS)
        return LaunchAnswer(pid=pid)


def detached_pid(home: Path) -> int | None:
    """Return the process of the worker that was started in this home; None if it is gone."""
    return _pid(read_record(home / RECORD_FILE, WorkerRecord))


def stop_detached(home: Path) -> None:
    """End the worker of the home. Its sessions are processes of their own, and continue."""
    if not home.is_dir():
        return
    with one_at_a_time(home):
        record = read_record(home / RECORD_FILE, WorkerRecord)
        if (pid := _pid(record)) is not None:
            _end(pid, record)


def main(arguments: list[str]) -> int:
    """Carry out one request, and print its answer."""
    action = arguments[0] if len(arguments) == 1 else ""
    try:
        worker = msgspec.json.decode(sys.stdin.buffer.read(), type=WorkerStart)
        if action == "start":
            answer = start_detached(worker, os.environ)
        elif action == "stop":
            stop_detached(_folder(worker))
            answer = LaunchAnswer()
        elif action == "alive":
            answer = LaunchAnswer(pid=detached_pid(_folder(worker)))
        else:
            answer = LaunchAnswer(error=f"unknown request {action!r:.40}; there are start, alive and stop")
    except (PacelineError, OSError, msgspec.DecodeError) as error:
        answer = LaunchAnswer(error=str(error))
    print(f"{MARK}{msgspec.json.encode(answer).decode()}", flush=True)
    return 0 if answer.error is None else 1


def _folder(worker: WorkerStart) -> Path:
    return Path(worker.home).expanduser()


def worker_argv(worker: WorkerStart, token_file: Path) -> list[str]:
    program = worker.program or (sys.executable, "-m", "paceline", "worker")
    connect = [word for url in worker.connect for word in ("--connect", url)]
    labels = [word for label in worker.labels for word in ("--label", label)]
    # Who names a plain address of another machine in the settings trusts the network between them.
    insecure = ["--insecure"] if any(_is_plain(url) for url in worker.connect) else []
    return [*program, *connect, "--name", worker.name, "--token-file", str(token_file), *labels, *insecure]


def _is_plain(url: str) -> bool:
    """Return whether the token would go to another machine without TLS."""
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname not in ("127.0.0.1", "localhost", "::1")


def worker_environment(environ: Mapping[str, str], home: Path) -> dict[str, str]:
    """Return the environment of a login, without what belongs to this connection or to another Paceline."""
    kept = {name: value for name, value in environ.items() if not name.startswith(("SSH_CO", "SSH_CLI", "SSH_TTY"))}
    kept = {name: value for name, value in kept.items() if not name.startswith("PACELINE_")}
    return {**kept, "PACELINE_HOME": str(home)}


def _spawn(argv: list[str], env: Mapping[str, str], home: Path, begin: int) -> int:
    """Start a process that is nobody's child, in a session of its own, and return its pid. It waits for `begin`.

    Its parent ends at once. So it gets no signal when a connection ends, and this process need not reap it.
    """
    with _log(home) as log:
        between = subprocess.run(
            [sys.executable, "-I", "-c", _SPAWN, *argv],
            stdin=begin,
            stdout=subprocess.PIPE,
            stderr=log,
            env=env,
            cwd=Path.home(),
        )
    if between.returncode != 0:
        raise LaunchFailed(f"no worker can be started: {_tail(home / LOG_FILE)}")
    return int(between.stdout)


@contextlib.contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Let other starts and stops of the same worker wait, also those of other processes."""
    fd = os.open(folder / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _write_record(home: Path, pid: int, order: str) -> WorkerRecord:
    record = WorkerRecord(
        pid=pid, boot_id=boot_id(), start_ticks=start_ticks(pid), version=version("paceline"), order=order
    )
    write_private(home / RECORD_FILE, msgspec.json.encode(record).decode())
    return record


def _pid(record: WorkerRecord | None) -> int | None:
    """Return the process if it is still the one of the record. A dead one that nobody has reaped is none."""
    if record is None or record.boot_id != boot_id() or start_ticks(record.pid) != record.start_ticks:
        return None
    return None if has_ended(record.pid) else record.pid


def _end(pid: int, record: WorkerRecord | None) -> None:
    give_up_at = time.monotonic() + _STOP_SECONDS
    number = signal.SIGTERM
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        while _pid(record) is not None:
            if time.monotonic() > give_up_at and number != signal.SIGKILL:
                number = signal.SIGKILL
                os.kill(pid, number)
            time.sleep(_POLL_SECONDS)


@contextlib.contextmanager
def _log(home: Path) -> Iterator[int]:
    path = home / LOG_FILE
    if path.exists() and path.stat().st_size > _LARGEST_LOG:
        path.replace(path.with_name(f"{LOG_FILE}.1"))
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)


def _tail(path: Path) -> str:
    printed = path.read_bytes()[-_LONGEST_SHOWN:].decode(errors="replace")
    return last_words(printed, lines=_SHOWN_LINES, most=_LONGEST_SHOWN)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A pilot: the process in an allocation of Slurm that runs one worker, and ends its sessions in good time.

    python -m paceline.hosts.launchers.slurm_job HOME

Launchers order what it runs through a file in the home of the worker, on a file system that all nodes share. It
answers through another. When Slurm warns it that the time is up, it ends the sessions, so that the next pilot resumes
their conversations. Never here: how an allocation is asked for (`slurm.py`).
"""

import contextlib
import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from paceline.executors.proc_table import boot_id
from paceline.executors.spool import Spool, is_locked, read_session_status, spool_root
from paceline.hosts.launchers.detached_worker import TOKEN_FILE, worker_argv, worker_environment
from paceline.hosts.launchers.interface import WorkerStart, write_private
from paceline.hosts.values import END_VARIABLE, allocation_end

ORDER_FILE: Final = "pilot-order.json"
STATE_FILE: Final = "pilot-state.json"
POLL_SECONDS: Final = 1.0
"""How often the order is read: reading a small file costs a server of files little, and a person waits for a stop."""
RESTART_SECONDS: Final = 10.0
"""How long a pilot waits for its launcher before it starts a worker that died again by itself."""
LONGEST_RESTART_SECONDS: Final = 300.0
"""The longest of the growing waits before the next start of a worker that ends again and again."""
ENDING_SECONDS: Final = 45.0
"""How long sessions may take to end. Slurm warns two minutes before it kills."""
NEWS_SECONDS: Final = 3.0
"""How long the worker has to report that it leaves, and the ends of its sessions: it reports news at once."""
GOODBYE_SECONDS: Final = 20.0
"""How long a worker may take to end."""
"""When the allocation ends, in Unix seconds. Slurm sets it since 23.02; older ones are asked."""
_PR_SET_CHILD_SUBREAPER: Final = 36
_SQUEUE_SECONDS: Final = 30.0
"""How long Slurm may take to answer: a busy controller needs seconds."""


class PilotOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a pilot is to run. It holds the token: only its user can read the file."""

    order_id: str
    """Another one for each order, also if it says the same: then a worker that died is started again."""
    worker: WorkerStart
    is_wanted: bool = True
    """Whether a worker is to run at all. Without one, the pilot ends with the last session."""


class PilotState(msgspec.Struct, frozen=True, kw_only=True):
    """What a pilot does."""

    job: str
    node: str
    order_id: str
    pid: int | None = None
    """The worker on its node; None if none runs."""


def read_order(home: Path) -> PilotOrder | None:
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode((home / ORDER_FILE).read_bytes(), type=PilotOrder)
    return None


def read_state(home: Path) -> PilotState | None:
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode((home / STATE_FILE).read_bytes(), type=PilotState)
    return None


class Pilot:
    """One allocation, from its first process to its last."""

    def __init__(self, home: Path, environ: Mapping[str, str]) -> None:
        self._home = home
        self._environ = dict(environ)
        self._job = environ.get("SLURM_JOB_ID", "")
        self._order: PilotOrder | None = None
        self._worker: subprocess.Popen[bytes] | None = None
        self._is_warned = False
        self._restart_at = 0.0
        self._restart_wait = RESTART_SECONDS
        self._wake_fd, self._signal_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> int:
        """Return when the time is up, or when nothing is left to do."""
        self._watch_signals()
        end = end_of_job(self._environ)
        if end is not None:
            self._environ[END_VARIABLE] = str(int(end))
        while not self._is_warned:
            self._obey()
            self._wait(POLL_SECONDS)
            has_children = self._reap()
            if not has_children and self._order is not None and not self._order.is_wanted:
                return 0
        self._leave()
        return 0

    def _watch_signals(self) -> None:
        """Wake up for signals. Processes that others leave behind become children, so they stay in the allocation."""
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        signal.set_wakeup_fd(self._signal_fd, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._warn)

    def _warn(self, *_: object) -> None:
        self._is_warned = True

    def _wait(self, seconds: float) -> None:
        select.select([self._wake_fd], [], [], seconds)
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_fd, 4096)

    def _reap(self) -> bool:
        """Reap what has ended. Return whether any process is left."""
        try:
            while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                if self._worker is not None and ended[0] == self._worker.pid:
                    self._note_death(os.waitstatus_to_exitcode(ended[1]))
        except ChildProcessError:
            return False
        return True

    def _note_death(self, code: int) -> None:
        assert self._worker is not None
        self._worker.returncode = code
        self._worker = None
        if self._order is not None and self._order.is_wanted:
            log_line(f"the worker has ended with {code}; it is started again in {self._restart_wait:g} s")
        self._restart_at = time.monotonic() + self._restart_wait
        self._restart_wait = min(2 * self._restart_wait, LONGEST_RESTART_SECONDS)
        self._write_state()

    # -- the order -----------------------------------------------------------------------------------------

    def _obey(self) -> None:
        """Run what the order says. A new order replaces the worker; sessions continue."""
        order = read_order(self._home) or self._order
        if order is None:
            return
        is_new = self._order is None or order.order_id != self._order.order_id
        if is_new:
            self._end_worker()
            self._order = order
            self._restart_at, self._restart_wait = 0.0, RESTART_SECONDS
        if order.is_wanted and self._worker is None and time.monotonic() >= self._restart_at:
            self._start_worker(order.worker)
        elif is_new:
            self._write_state()

    def _start_worker(self, worker: WorkerStart) -> None:
        token_file = self._home / TOKEN_FILE
        write_private(token_file, f"{worker.token}\n")
        self._worker = subprocess.Popen(
            worker_argv(worker, token_file),
            stdin=subprocess.DEVNULL,
            env=worker_environment(self._environ, self._home),
            cwd=Path.home(),
            start_new_session=True,
        )
        self._write_state()

    def _end_worker(self) -> None:
        if self._worker is None:
            return
        worker, give_up_at = self._worker, time.monotonic() + GOODBYE_SECONDS
        worker.terminate()
        while self._worker is not None:
            if time.monotonic() > give_up_at:
                worker.kill()
            self._wait(POLL_SECONDS)
            self._reap()

    def _write_state(self) -> None:
        state = PilotState(
            job=self._job,
            node=self._environ.get("SLURMD_NODENAME", socket.gethostname()),
            order_id="" if self._order is None else self._order.order_id,
            pid=None if self._worker is None else self._worker.pid,
        )
        with contextlib.suppress(OSError):  # a full disk must not end the sessions
            write_private(self._home / STATE_FILE, msgspec.json.encode(state).decode())

    # -- the end -------------------------------------------------------------------------------------------

    def _leave(self) -> None:
        """End all sessions, let the worker report that, then end it."""
        log_line("the time of this allocation is nearly up: its sessions are ended, and the next one continues them")
        self._order = None
        if self._worker is not None:
            self._worker.send_signal(signal.SIGUSR1)  # it takes no new session, and the leader gives it none
            self._wait_for_worker(NEWS_SECONDS)
        give_up_at = time.monotonic() + ENDING_SECONDS
        asked: set[int] = set()
        while (left := list(live_supervisors(self._home))) and time.monotonic() < give_up_at:
            for pid in set(left) - asked:
                asked.add(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            self._wait(POLL_SECONDS / 5)
            self._reap()
        if asked:
            self._wait_for_worker(NEWS_SECONDS)
        self._end_worker()

    def _wait_for_worker(self, seconds: float) -> None:
        """Let the worker do something for so long, unless it ends."""
        give_up_at = time.monotonic() + seconds
        while self._worker is not None and time.monotonic() < give_up_at:
            self._wait(POLL_SECONDS)
            self._reap()


def live_supervisors(home: Path) -> Iterator[int]:
    """Yield the processes that run the sessions of the home on this node."""
    if not (home / "spool").is_dir():
        return
    spool = Spool(spool_root(home))
    for attempt_id in spool.unarchived():
        folder = spool.folder(attempt_id)
        if folder is None or not is_locked(folder):
            continue
        status = read_session_status(folder)
        if status is not None and status.boot_id == boot_id() and status.supervisor_pid is not None:
            yield status.supervisor_pid


def end_of_job(environ: Mapping[str, str]) -> float | None:
    """Return when the allocation ends; None if it does not end, or if Slurm does not say."""
    if (end := allocation_end(environ)) is not None:
        return end
    job = environ.get("SLURM_JOB_ID")
    if job is None:
        return None
    try:
        asked = subprocess.run(
            ["squeue", "--noheader", f"--jobs={job}", "--format=%L"],
            env=dict(environ),
            capture_output=True,
            text=True,
            timeout=_SQUEUE_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        log_line(f"Slurm does not say when this allocation ends: {error}")
        return None
    left = seconds_left(asked.stdout.strip())
    return None if left is None else time.time() + left


def seconds_left(text: str) -> float | None:
    """Return what `squeue` prints as the time left, such as 1-02:03:04 or 59:00; None if it is no time."""
    days, dash, clock = text.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdecimal() for part in parts) or (dash and not days.isdecimal()):
        return None
    parts = [*parts, "0", "0"][:3] if dash else ["0", "0", *parts][-3:]
    hours, minutes, seconds = map(int, parts)
    return float((int(days or 0) * 24 + hours) * 3600 + minutes * 60 + seconds)


def log_line(text: str) -> None:
    """Write to the log of the job."""
    print(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} paceline pilot: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(Pilot(Path(sys.argv[1]), os.environ).run())

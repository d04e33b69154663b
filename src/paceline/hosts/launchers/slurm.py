"""Starting a worker in an allocation of Slurm: a pilot job, in which one worker runs many sessions.

    python -m paceline.hosts.launchers.slurm HOME

This is the pilot: the process in an allocation that runs the worker, and ends its sessions in good time. Launchers
order what it runs through a file in the home of the worker. It answers through another. When Slurm warns it that the
time is up, it ends the sessions, so that the next pilot resumes their conversations.

The leader runs where `sbatch` works, and the home of the worker is on a file system that it shares with all nodes.
Slurm itself is the record of what was submitted: jobs are found by their names. At most one pilot of a host runs,
because the next one waits for those of its name to end (`--dependency=singleton`).
"""

import contextlib
import ctypes
import hashlib
import os
import secrets
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from paceline.errors import LaunchFailed
from paceline.executors.proc_table import boot_id
from paceline.executors.spool import Spool, is_locked, make_private, read_session_status, spool_root
from paceline.hosts.launchers.detached_worker import TOKEN_FILE, one_at_a_time, worker_argv, worker_environment
from paceline.hosts.launchers.interface import (
    WorkerStart,
    last_words,
    read_record,
    run_program,
    start_digest,
    worker_home,
    write_private,
)
from paceline.hosts.messages import END_VARIABLE, allocation_end
from paceline.settings import HostSettings

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
    return read_record(home / ORDER_FILE, PilotOrder)


def read_state(home: Path) -> PilotState | None:
    return read_record(home / STATE_FILE, PilotState)


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
        # Not by methods of the process: those would reap one that has just died, and `_reap` would never see it.
        os.kill(self._worker.pid, signal.SIGTERM)
        self._wait_for_worker(GOODBYE_SECONDS)
        while self._worker is not None:
            os.kill(self._worker.pid, signal.SIGKILL)
            self._wait_for_worker(POLL_SECONDS)

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
            os.kill(self._worker.pid, signal.SIGUSR1)  # it takes no new session, and the leader gives it none
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


# -- the launcher, on the machine of the leader ------------------------------------------------------

COMMAND_SECONDS: Final = 60.0
"""How long a program of Slurm may take: a busy controller answers after many seconds."""
WARNING_SECONDS: Final = 120
"""How long before its end a pilot is warned: sessions get their grace, and the leader gets their ends."""
SUCCESSOR_SECONDS: Final = 600.0
"""With less time left, a pilot gets a successor, which waits in the queue until this one has ended."""
STOP_SECONDS: Final = 60.0
"""How long a pilot may take to end its worker, before its job is cancelled."""
PILOT_LOG: Final = "pilot.log"
_JOB_FILE: Final = "pilot-job"
_POLL_SECONDS: Final = 0.5
_SHOWN_LINES: Final = 3
_OVER: Final = frozenset({"COMPLETING", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL"})
_STUCK: Final = ("launch failed requeued held", "BadConstraints", "JobHeldAdmin", "PartitionDown", "InvalidQOS")
"""Reasons for which a job waits until a person does something. A job that its own user holds is meant to wait."""


class PilotJob(msgspec.Struct, frozen=True):
    """A job in the queue, as `squeue` prints it."""

    job_id: str
    state: str
    reason: str
    left: str

    @property
    def is_waiting(self) -> bool:
        return self.state not in ("RUNNING", "SUSPENDED", "STOPPED")

    @property
    def ends_soon(self) -> bool:
        left = seconds_left(self.left)
        return not self.is_waiting and left is not None and left < SUCCESSOR_SECONDS


class SlurmLauncher:
    """Submits, finds and ends the pilot jobs of one host."""

    def __init__(self, host: HostSettings, environ: Mapping[str, str]) -> None:
        self._host = host
        self._environ = {name: value for name, value in environ.items() if not name.startswith("PACELINE_")}
        self._home = Path(os.path.expanduser(worker_home(host)))
        place = hashlib.sha256(str(self._home).encode()).hexdigest()[:8]
        self._job_name = f"paceline-{host.name}-{place}"

    def start(self, worker: WorkerStart) -> None:
        make_private(str(self._home))
        with one_at_a_time(self._home):
            jobs = self._jobs()
            self._refuse_stuck(jobs)
            if not jobs:
                self._report_failed_pilot()
            order = read_order(self._home)
            is_same = order is not None and order.is_wanted and start_digest(order.worker) == start_digest(worker)
            if not is_same or (jobs and self._has_died(jobs)):
                order = PilotOrder(order_id=secrets.token_hex(8), worker=worker)
                self._give(order)
            if not jobs or (all(job.ends_soon for job in jobs)):
                self._submit()

    def is_alive(self) -> bool:
        """Return whether a pilot waits or has a worker. One that ends soon and has no successor does not count."""
        order = read_order(self._home)
        if order is None or not order.is_wanted:
            return False
        jobs = self._jobs()
        self._refuse_stuck(jobs)
        return bool(jobs) and not all(job.ends_soon for job in jobs) and not self._has_died(jobs)

    def stop(self) -> None:
        """End the worker. The job ends with the last session in it."""
        order = read_order(self._home)
        if order is None:
            return
        with one_at_a_time(self._home):
            jobs = self._jobs()
            order = msgspec.structs.replace(order, order_id=secrets.token_hex(8), is_wanted=False)
            self._give(order)
            if waiting := [job.job_id for job in jobs if job.is_waiting]:
                self._run("scancel", *waiting)
            self._await_end(order)

    def describe(self) -> str:
        partition = (self._host.slurm or {}).get("partition")
        return f"slurm {partition}" if partition else "slurm"

    def _jobs(self) -> list[PilotJob]:
        return [job for job in self._listed() if job.state not in _OVER]

    def _listed(self) -> list[PilotJob]:
        """Return all pilots that Slurm still has to do with, also those that are about to end."""
        listed = self._run("squeue", "--noheader", "--me", f"--name={self._job_name}", "--format=%A|%T|%r|%L")
        return [PilotJob(*line.strip().split("|", 3)) for line in listed.splitlines() if line.count("|") == 3]

    def _has_died(self, jobs: list[PilotJob]) -> bool:
        """Return whether the running pilot has no worker, by its own account of the present order."""
        order, state = read_order(self._home), read_state(self._home)
        running = [job.job_id for job in jobs if not job.is_waiting]
        if order is None or state is None or not running or state.job not in running:
            return False
        return state.order_id == order.order_id and state.pid is None

    def _submit(self) -> None:
        python = os.path.expanduser(self._host.python or sys.executable)
        pilot = shlex.join([python, "-m", "paceline.hosts.launchers.slurm", str(self._home)])
        log = self._home / PILOT_LOG
        ours = [
            "--parsable",
            "--nodes=1",
            "--requeue",
            f"--chdir={self._home}",
            f"--output={log}",
            "--open-mode=append",
            f"--signal=B:TERM@{WARNING_SECONDS}",
        ]
        theirs = [_option(key, value) for key, value in (self._host.slurm or {}).items()]
        # Slurm checks jobs with a dependency only now and then, so the first pilot has none.
        order = ["--dependency=singleton"] if self._listed() else []
        said = self._run(
            "sbatch", *ours, *theirs, f"--job-name={self._job_name}", *order, text=f"#!/bin/sh\nexec {pilot}\n"
        )
        write_private(self._home / _JOB_FILE, said.strip().partition(";")[0])

    def _report_failed_pilot(self) -> None:
        """Raise, once, if the last job ended before it did anything: the reason is in its log."""
        file, state = self._home / _JOB_FILE, read_state(self._home)
        job_id = file.read_text() if file.exists() else None
        file.unlink(missing_ok=True)
        if job_id is None or (state is not None and state.job == job_id):
            return
        log = self._home / PILOT_LOG
        printed = log.read_text(errors="replace") if log.exists() else ""
        said = last_words(printed, lines=_SHOWN_LINES)
        fix = f"look at {log}; a Python with Paceline on the nodes is named with `python`"
        raise LaunchFailed(f"host {self._host.name}: job {job_id} ended before its worker started: {said}; {fix}")

    def _refuse_stuck(self, jobs: list[PilotJob]) -> None:
        for job in jobs:
            reason = next((each for each in _STUCK if each.lower() in job.reason.lower()), None)
            if job.is_waiting and reason is not None:
                fix = f"correct it, then run `scontrol release {job.job_id}` or `scancel {job.job_id}`"
                raise LaunchFailed(f"host {self._host.name}: job {job.job_id} waits in Slurm: {job.reason}; {fix}")

    def _await_end(self, order: PilotOrder) -> None:
        give_up_at = time.monotonic() + STOP_SECONDS
        while jobs := [job for job in self._jobs() if not job.is_waiting]:
            state = read_state(self._home)
            if state is not None and state.order_id == order.order_id and state.pid is None:
                return
            if time.monotonic() > give_up_at:
                self._run("scancel", *(job.job_id for job in jobs))
                give_up_at = time.monotonic() + STOP_SECONDS
            time.sleep(_POLL_SECONDS)

    def _give(self, order: PilotOrder) -> None:
        write_private(self._home / ORDER_FILE, msgspec.json.encode(order).decode())

    def _run(self, program: str, *arguments: str, text: str = "") -> str:
        who = f"host {self._host.name}: {program}"
        silent = f"{who} did not answer within {COMMAND_SECONDS:g} s; look at `scontrol ping`"
        argv = [program, *arguments]
        try:
            done = run_program(
                argv, seconds=COMMAND_SECONDS, silent=silent, environ=self._environ, content=text.encode()
            )
        except FileNotFoundError:
            fix = "run the leader on a machine that submits jobs to Slurm"
            raise LaunchFailed(f"{who} is not installed here; {fix}") from None
        if done.code != 0:
            raise LaunchFailed(f"{who} refused: {last_words(done.errors or done.output)}")
        return done.output


def _option(key: str, value: str) -> str:
    option = f"--{key.replace('_', '-')}"
    return f"{option}={value}" if value else option


if __name__ == "__main__":
    sys.exit(Pilot(Path(sys.argv[1]), os.environ).run())

"""Starting a worker in an allocation of Slurm: a pilot job, in which one worker runs many sessions.

The leader runs where `sbatch` works, and the home of the worker is on a file system that it shares with all nodes.
Slurm itself is the record of what was submitted: jobs are found by their names. At most one pilot of a host runs,
because the next one waits for those of its name to end (`--dependency=singleton`).
"""

import hashlib
import os
import secrets
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from paceline.errors import LaunchFailed
from paceline.executors.private_folder import make_private
from paceline.hosts.launchers.detached_worker import one_at_a_time
from paceline.hosts.launchers.interface import WorkerStart, start_digest, worker_home, write_private
from paceline.hosts.launchers.slurm_job import ORDER_FILE, PilotOrder, read_order, read_state, seconds_left
from paceline.settings import HostSettings

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
_LONGEST_SHOWN: Final = 300
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

    # -- jobs ----------------------------------------------------------------------------------------------

    def _jobs(self) -> list[PilotJob]:
        """Return the pilots of this host that run or wait."""
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
        pilot = shlex.join([python, "-m", "paceline.hosts.launchers.slurm_job", str(self._home)])
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
        lines = log.read_text(errors="replace").strip().splitlines()[-_SHOWN_LINES:] if log.exists() else []
        said = " / ".join(lines)[-_LONGEST_SHOWN:] or "it printed nothing"
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

    # -- files and programs --------------------------------------------------------------------------------

    def _give(self, order: PilotOrder) -> None:
        write_private(self._home / ORDER_FILE, msgspec.json.encode(order).decode())

    def _run(self, program: str, *arguments: str, text: str = "") -> str:
        try:
            done = subprocess.run(
                [program, *arguments],
                input=text,
                env=self._environ,
                capture_output=True,
                text=True,
                timeout=COMMAND_SECONDS,
                check=False,
            )
        except FileNotFoundError:
            fix = "run the leader on a machine that submits jobs to Slurm"
            raise LaunchFailed(f"host {self._host.name}: {program} is not installed here; {fix}") from None
        except subprocess.TimeoutExpired:
            fix = "look at `scontrol ping`"
            raise LaunchFailed(
                f"host {self._host.name}: {program} did not answer within {COMMAND_SECONDS:g} s; {fix}"
            ) from None
        if done.returncode != 0:
            what = " / ".join((done.stderr or done.stdout).strip().splitlines())[-_LONGEST_SHOWN:]
            raise LaunchFailed(f"host {self._host.name}: {program} refused: {what or 'it printed nothing'}")
        return done.stdout


def _option(key: str, value: str) -> str:
    option = f"--{key.replace('_', '-')}"
    return f"{option}={value}" if value else option

"""A worker with real processes under a folder of its own, and a leader that the test drives."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest
from tests.daemon import run_daemon as run_daemon
from tests.executors.conftest import Fifo, environment
from tests.hosts.worker.leader import ScriptedLeader

from paceline.agents import Task, load_agent
from paceline.agents.profile import AgentProfile
from paceline.clock import Clock, SystemClock
from paceline.executors.proc_table import all_processes
from paceline.executors.process import MARK_VARIABLE, ProcessExecutor
from paceline.hosts.messages import SessionOrder
from paceline.hosts.worker.sessions import HostContext
from paceline.hosts.worker.worker import RunCall, Worker
from paceline.leadership.host_lease import HostLease
from paceline.testing import DirectLink

ENVIRON = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}


class WorkerHost:
    """A machine for workers: its home, its work folder, and the workers that run there one after the other."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.work = folder / "work"
        self.home.mkdir(parents=True)
        self.work.mkdir()
        self.clock: Clock = SystemClock()
        self.leader = ScriptedLeader(self.clock)
        self.link = DirectLink(self.leader, self.clock)

    @contextlib.asynccontextmanager
    async def worker(
        self, run_call: RunCall | None = None, *, environ: dict[str, str] | None = None
    ) -> AsyncIterator[Worker]:
        """Yield a worker that runs. It leaves at the end; its sessions continue."""
        lease = HostLease(self.home)
        executor = ProcessExecutor(str(self.home / "spool"), lease_file=str(lease.file))
        environ = ENVIRON | (environ or {})
        context = HostContext(identity="w1", labels=("gpu",), environ=environ, gateway_url=lambda: "http://here:1")
        worker = Worker(self.link, executor, self.home, context, clock=self.clock, lease=lease, run_call=run_call)
        running = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.leave()
            try:
                await running
            finally:
                executor.close()

    def order(self, attempt: str, *argv: str, output: str | None = None, is_command: bool = False) -> SessionOrder:
        """Return a session that runs a command."""
        task = Task(unit_id="night/u0", attempt_id=attempt, prompt="", cwd=str(self.work), command=argv)
        return SessionOrder(profile=load_agent("command"), task=task, output=output, is_command=is_command)

    def start(self, attempt: str, script: str, *, is_command: bool = False) -> SessionOrder:
        return self.order(attempt, "sh", "-c", script, is_command=is_command)

    def follow(self, attempt: str, provider: str | None = None) -> SessionOrder:
        """Return the order to follow a session, whose output is read by this name."""
        order = msgspec.structs.replace(self.order(attempt, "true"), is_begun=True)
        if provider is None:
            return order
        return msgspec.structs.replace(order, profile=msgspec.structs.replace(order.profile, provider=provider))

    def start_agent(self, attempt: str, transcript: bytes, *more: str) -> SessionOrder:
        """Return a session of an agent that prints the transcript, then does more."""
        (self.work / f"{attempt}.jsonl").write_bytes(transcript)
        profile = agent_profile("sh", "-c", "; ".join((f"cat {attempt}.jsonl", *more)))
        task = Task(unit_id="night/u0", attempt_id=attempt, prompt="do it", cwd=str(self.work))
        return SessionOrder(profile=profile, task=task)

    def gate(self, name: str) -> Fifo:
        """Return a fifo in the work folder: whoever reads it waits for the other side."""
        return Fifo(self.work / name)

    def lines(self, name: str) -> list[str]:
        file = self.work / name
        return file.read_text().split() if file.exists() else []

    def processes(self) -> list[int]:
        """Return all processes of sessions of this host."""
        mark = f"{MARK_VARIABLE}={self.home / 'spool'}/".encode()
        return [pid for pid, fields in all_processes() if fields[0] != b"Z" and mark in environment(pid)]


def agent_profile(*start: str) -> AgentProfile:
    """Return a profile whose output is read as that of Claude Code."""
    return msgspec.structs.replace(
        load_agent("claude"), start=start, start_by_stdin=start, resume=(), resume_by_stdin=(), permissions={}
    )


@pytest.fixture
def host(tmp_path: Path) -> Iterator[WorkerHost]:
    host = WorkerHost(tmp_path / "box1")
    yield host
    for pid in host.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

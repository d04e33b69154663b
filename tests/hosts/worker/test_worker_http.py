"""A worker and a whole daemon, over HTTP: sessions run where the worker is, and the leader sees them as its own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from tests.daemon import Daemon, RunDaemon
from tests.daemon import run_daemon as run_daemon
from tests.hosts.worker.conftest import WorkerHost

from paceline.api.tokens import host_token_of
from paceline.errors import Refused
from paceline.executors.process import ProcessExecutor
from paceline.hosts.jobs import OutputPiece, read_output
from paceline.hosts.leader.host import RemoteHost
from paceline.hosts.worker.job_runner import JobRunner
from paceline.hosts.worker.link import HttpLink, read_token
from paceline.hosts.worker.sessions import HostContext
from paceline.hosts.worker.worker import Worker
from paceline.leadership.host_lease import HostLease

SETTINGS = "[hosts.box1]\nmax_sessions = 4\n"


@contextlib.asynccontextmanager
async def worker_of(daemon: Daemon, host: WorkerHost, identity: str = "w1") -> AsyncIterator[asyncio.Task[None]]:
    """Yield the task of a worker that serves the daemon as box1."""
    token = read_token(host_token_of(daemon.store, daemon.home.path, "box1"), "the store")
    lease = HostLease(host.home)
    executor = ProcessExecutor(str(host.home / "spool"), lease_file=str(lease.file))
    link = HttpLink([daemon.url], token)
    environ = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
    context = HostContext(identity=identity, labels=("gpu",), environ=environ, gateway_url=lambda: link.url)
    runner = JobRunner(host.home, executor.spool, link, lambda: worker.joining, host.clock)
    worker = Worker(link, executor, host.home, context, clock=host.clock, lease=lease, run_call=runner.run)
    running = asyncio.create_task(worker.run())
    try:
        yield running
    finally:
        worker.leave()
        with contextlib.suppress(Refused):
            await running
        executor.close()
        await link.aclose()


def box1(daemon: Daemon) -> RemoteHost:
    host = daemon.engine.hosts.of("#box1")
    assert isinstance(host, RemoteHost)
    return host


def presence(daemon: Daemon) -> str:
    return next(each.presence for each in daemon.engine.hosts.states() if each.name == "box1")


async def test_a_session_runs_where_the_worker_is(run_daemon: RunDaemon, host: WorkerHost) -> None:
    async with run_daemon(SETTINGS) as daemon, worker_of(daemon, host):
        await daemon.until(lambda: presence(daemon) == "joined")
        handle = box1(daemon).begin(host.order("a1", "sh", "-c", "pwd; exit 3"))
        await daemon.until(lambda: handle.state().is_over)
        job = box1(daemon).jobs.start(read_output, "a1", "stdout", None, 1000)
        await daemon.until(lambda: job.done())

    assert (handle.state().phase, handle.state().exit_code) == ("ended", 3)
    assert job.result() == OutputPiece(data=f"{host.work}\n".encode(), position=0, is_complete=True)


async def test_what_a_host_has_is_shown_by_the_api(run_daemon: RunDaemon, host: WorkerHost) -> None:
    async with run_daemon(SETTINGS) as daemon, worker_of(daemon, host):
        facts = box1(daemon)
        await daemon.until(lambda: facts.facts is not None and facts.facts.clis)
        shown = (await daemon.get("/v1/hosts"))["hosts"][0]

    assert (shown["name"], shown["presence"], shown["labels"]) == ("box1", "joined", ["gpu"])
    assert shown["home"] == str(host.home)
    assert shown["free_memory"] > 0
    assert {each["agent"] for each in shown["clis"]} >= {"claude", "codex"}


async def test_sessions_outlive_a_leader_and_are_read_by_the_next_one(run_daemon: RunDaemon, host: WorkerHost) -> None:
    gate = host.gate("gate")
    order = host.order("a1", "sh", "-c", "echo ran >> runs; read line < gate; exit 4")
    async with run_daemon(SETTINGS) as daemon:
        port = int(daemon.url.rpartition(":")[2])
        async with worker_of(daemon, host):
            await daemon.until(lambda: presence(daemon) == "joined")
            box1(daemon).begin(order)
            await daemon.until(lambda: host.lines("runs"))
    async with run_daemon(SETTINGS, port=port) as daemon:
        handle = box1(daemon).adopt(order)
        async with worker_of(daemon, host):
            await daemon.until(lambda: presence(daemon) == "joined")
            await asyncio.to_thread(gate.write_line)
            await daemon.until(lambda: handle.state().is_over)

    assert handle.state().exit_code == 4
    assert host.lines("runs") == ["ran"]


async def test_a_second_worker_for_the_same_name_is_refused(run_daemon: RunDaemon, host: WorkerHost) -> None:
    async with run_daemon(SETTINGS) as daemon, worker_of(daemon, host):
        await daemon.until(lambda: presence(daemon) == "joined")
        box1(daemon).begin(host.order("a1", "sleep", "1000"))
        async with worker_of(daemon, host, identity="w2") as second:
            with pytest.raises(Refused, match="host box1 has a worker already"):
                await second


async def test_a_token_that_was_rotated_is_refused(run_daemon: RunDaemon, host: WorkerHost) -> None:
    async with run_daemon(SETTINGS) as daemon:
        link = HttpLink([daemon.url], read_token("box1.stolen", "a thief"))
        worker = Worker(
            link,
            ProcessExecutor(str(host.home / "spool")),
            host.home,
            HostContext(identity="w1", environ={}),
            clock=host.clock,
            lease=HostLease(host.home),
        )
        with pytest.raises(Refused, match="Invalid token"):
            await worker.run()
        await link.aclose()

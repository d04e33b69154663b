"""A real worker and a real daemon over HTTP: units run on the host, and the leader reads what they printed."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

from tests.daemon import Daemon, RunDaemon

from paceline.api.tokens import host_token_of
from paceline.daemon.worker_process import serve_worker
from paceline.executors.spool import make_private
from paceline.hosts.worker.link import read_token
from paceline.hosts.worker.worker import WorkerRequest

BOX1 = "[hosts.box1]\nmax_sessions = 2\nhost_lease = '60s'\n"
ENVIRON = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}


@contextlib.asynccontextmanager
async def worker_of(daemon: Daemon, home: Path) -> AsyncIterator[None]:
    """Run a worker of box1. At the end it is killed: it says nothing, and its sessions continue."""
    make_private(str(home))
    token = read_token(host_token_of(daemon.store, daemon.home.path, "box1"), "the test")
    request = WorkerRequest(home=home, addresses=[daemon.url], token=token, labels=())
    running = asyncio.create_task(serve_worker(request, ENVIRON))
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_units_run_on_the_host_that_the_plan_names(run_daemon: RunDaemon, tmp_path: Path) -> None:
    async with run_daemon(BOX1) as daemon, worker_of(daemon, tmp_path / "box1"):
        daemon.add("docs", "echo hello {id}; env | grep -c ^PACELINE_UNIT=", "a", "b", "c", hosts=("box1",))
        await daemon.until(lambda: daemon.counts("docs").done == 3)

        units = (await daemon.get("/v1/units"))["units"]
        log = await daemon.get("/v1/units/docs/a/log")
        output = await daemon.client.get("/v1/units/docs/a/output")

    assert [(unit["host"], unit["account"], unit["attempts"], unit["tries"]) for unit in units] == [
        ("box1", None, 0, 1)
    ] * 3
    assert (log["stdout"], output.content) == ("hello a\n1\n", b"hello a\n1\n")


async def test_a_unit_waits_for_its_host_and_never_runs_elsewhere(run_daemon: RunDaemon) -> None:
    async with run_daemon(BOX1) as daemon:
        daemon.add("docs", "true", "a", hosts=("box1",))
        daemon.add("others", "true", "a")
        await daemon.until(lambda: daemon.counts("others").done == 1)
        why = await daemon.get("/v1/units/docs/a/why")
    assert (why["reason"], why["scope"]) == ("unreachable", "host:box1")
    assert "box1 has no worker" in why["detail"]


async def test_a_killed_worker_costs_no_unit_anything(run_daemon: RunDaemon, tmp_path: Path) -> None:
    started, go = tmp_path / "started", tmp_path / "go"
    script = f"echo {{id}} >> {started}; while [ ! -e {go} ]; do sleep 0.02; done"
    async with run_daemon(BOX1) as daemon:
        async with worker_of(daemon, tmp_path / "box1"):
            daemon.add("docs", script, "a", "b", hosts=("box1",))
            await daemon.until(lambda: started.exists() and len(started.read_text().split()) == 2)
        go.touch()
        async with worker_of(daemon, tmp_path / "box1"):
            await daemon.until(lambda: daemon.counts("docs").done == 2)
        counters = [daemon.unit(f"docs/{name}").counters for name in ("a", "b")]
    assert sorted(started.read_text().split()) == ["a", "b"]
    assert [(each.attempts, each.failures, each.losses) for each in counters] == [(1, 0, 0)] * 2


async def test_a_new_leader_finds_the_sessions_of_a_worker(run_daemon: RunDaemon, tmp_path: Path) -> None:
    started, go = tmp_path / "started", tmp_path / "go"
    script = f"echo {{id}} >> {started}; while [ ! -e {go} ]; do sleep 0.02; done"
    async with run_daemon(BOX1) as daemon, worker_of(daemon, tmp_path / "box1"):
        daemon.add("docs", script, "a", hosts=("box1",))
        await daemon.until(started.exists)
    async with run_daemon(BOX1) as daemon, worker_of(daemon, tmp_path / "box1"):
        go.touch()
        await daemon.until(lambda: daemon.counts("docs").done == 1)
        unit = daemon.unit("docs/a")
    assert started.read_text().split() == ["a"]
    assert (unit.counters.attempts, unit.counters.losses) == (1, 0)

"""Units with workspaces on two hosts with real workers: each is set up and checked where its workspace is."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.daemon import Daemon, RunDaemon
from tests.daemon import run_daemon as run_daemon
from tests.workspaces.conftest import TestRepository
from tests.workspaces.finished_units import new_repository

from paceline.api.tokens import host_token_of
from paceline.daemon.worker_process import serve_worker
from paceline.engine import command_log
from paceline.hosts.worker.link import read_token
from paceline.hosts.worker.worker import WorkerRequest
from paceline.store import Campaign, UnitSpec

HOSTS = """
[pool]
sessions = 6
[engine]
heartbeat = "200ms"
[hosts.local]
max_sessions = 0
[hosts.box1]
max_sessions = 2
[hosts.box2]
max_sessions = 2
"""
UNITS = ("a", "b", "c", "d", "e", "f", "g", "h")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestRepository:
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    return new_repository(tmp_path / "project")


@contextlib.asynccontextmanager
async def two_workers(daemon: Daemon, folder: Path) -> AsyncIterator[None]:
    tokens = {name: host_token_of(daemon.store, daemon.home.path, name) for name in ("box1", "box2")}
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    workers = []
    for name, token in tokens.items():
        home = folder / name
        home.mkdir()
        request = WorkerRequest(home=home, addresses=[daemon.url], token=read_token(token, "the test"), labels=())
        workers.append(asyncio.create_task(serve_worker(request, environ)))
    try:
        yield
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


SET_UP = "echo set up >> setups"


def add(
    daemon: Daemon, repository: TestRepository, command: str, *units: str, setup: str = SET_UP, **fields: object
) -> None:
    workspace = repository.settings(setup=("sh", "-c", setup), keep="all")
    campaign = Campaign(name="docs", command=("sh", "-c", command), workspace=workspace, **fields)  # type: ignore[arg-type]
    specs = [UnitSpec(id=unit, prompt="x", cwd=str(repository.top)) for unit in units]
    daemon.store.add_campaign(campaign, specs, update=False, now=time.time())
    command_log.send(daemon.store, "campaigns", now=time.time())
    daemon.engine.apply_commands()


async def test_a_unit_runs_where_it_was_set_up(
    run_daemon: RunDaemon, repository: TestRepository, tmp_path: Path
) -> None:
    async with run_daemon(HOSTS) as daemon, two_workers(daemon, tmp_path):
        add(daemon, repository, "pwd > where", *UNITS)
        await daemon.until(lambda: daemon.counts("docs").done == len(UNITS))
        units = [daemon.unit(f"docs/{name}") for name in UNITS]

    assert {unit.result.host for unit in units} == {"box1", "box2"}
    assert [unit.result.branch for unit in units] == [f"paceline/docs/{name}" for name in UNITS]
    for unit in units:
        path = f"{tmp_path}/{unit.result.host}/workspaces/docs/{unit.spec.id}"
        assert unit.result.workspace == path
        assert repository.git("show", f"{unit.result.commit}:where") == path
        assert repository.git("show", f"{unit.result.commit}:setups") == "set up"


async def test_work_that_never_passes_its_check_ends_whatever_hosts_it_was_on(
    run_daemon: RunDaemon, repository: TestRepository, tmp_path: Path
) -> None:
    async with run_daemon(HOSTS) as daemon, two_workers(daemon, tmp_path):
        add(daemon, repository, "true", "a", check=("false",), check_rounds=3)
        await daemon.until(lambda: daemon.counts("docs").unverified == 1)
        assert len(daemon.unit("docs/a").result.checks) == 4


async def test_a_host_that_cannot_set_a_workspace_up_leaves_the_work_to_the_others(
    run_daemon: RunDaemon, repository: TestRepository, tmp_path: Path
) -> None:
    async with run_daemon(HOSTS) as daemon, two_workers(daemon, tmp_path):
        setup = "case $PWD in */box1/*) echo no compiler; exit 1;; esac"
        add(daemon, repository, "true", *UNITS, setup=setup, check=("true",))
        await daemon.until(lambda: daemon.counts("docs").done == len(UNITS))
        units = [daemon.unit(f"docs/{name}") for name in UNITS]
        (campaign,) = daemon.store.campaigns()
        waits = [each.detail for each in daemon.engine.wait_reasons().values()]

    assert {(unit.result.host, unit.counters.failures) for unit in units} == {("box2", 0)}
    assert campaign.state == "active"
    assert waits == [] or "the setup failed (exit code 1): no compiler" in waits[0]


async def test_a_unit_that_broke_its_workspace_is_held_with_its_files_on_its_host(
    run_daemon: RunDaemon, repository: TestRepository, tmp_path: Path
) -> None:
    breaks = "echo work > work.txt; case $PWD in */a) rm .git;; esac"
    before = (
        repository.git("for-each-ref", "refs/heads/main", "--format=%(objectname)"),
        repository.git("status", "-sb"),
    )
    async with run_daemon(HOSTS) as daemon, two_workers(daemon, tmp_path):
        add(daemon, repository, breaks, "a", "c")
        await daemon.until(lambda: daemon.counts("docs").done + daemon.counts("docs").held == 2)
        broken, fine = (daemon.unit(f"docs/{name}") for name in "ac")
        (campaign,) = daemon.store.campaigns()

    folder = Path(broken.result.workspace or "")
    assert (broken.state, fine.state, campaign.state) == ("held", "done", "active")
    assert str(folder) in (broken.reason or "")
    assert (folder / "work.txt").read_text() == "work\n"
    assert repository.git("show", "paceline/docs/c:work.txt") == "work"
    after = repository.git("for-each-ref", "refs/heads/main", "--format=%(objectname)"), repository.git("status", "-sb")
    assert after == before

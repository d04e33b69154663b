"""Commits between the leader and the workers of hosts, over HTTP: each worker gets those of its own calls alone."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from concurrent.futures import Future
from pathlib import Path

import msgspec
import pytest
from tests.api.routes.test_hosts import FACTS
from tests.daemon import Daemon, RunDaemon
from tests.workspaces.conftest import TestRepository, git, write
from tests.workspaces.finished_units import new_repository

from paceline.api.tokens import host_token_of
from paceline.errors import Refused, WorkspaceError
from paceline.hosts.messages import Call, CallReport, HostLoad, JoinRequest, OrdersRequest, Reports
from paceline.hosts.worker.link import HttpLink, read_token
from paceline.workspaces import Change, Prepared, commit_all, prepare

HOSTS = "[hosts.box1]\n[hosts.box2]\n"
BRANCH = "paceline/docs/a"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestRepository:
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    return new_repository(tmp_path / "project")


class HandWorker:
    """A worker whose steps the test takes."""

    def __init__(self, link: HttpLink, joining: str) -> None:
        self.link = link
        self.joining = joining
        self._seen = 0

    async def call(self) -> Call:
        """Return the next call of the leader."""
        while True:
            orders = await self.link.orders(OrdersRequest(joining=self.joining, after=self._seen, wait=10.0))
            for number, order in orders.orders:
                self._seen = number
                if isinstance(order, Call):
                    return order

    async def report(self, number: int, call: Call, result: object) -> None:
        report = CallReport(call_id=call.call_id, result=msgspec.Raw(msgspec.json.encode(result)))
        numbered = ((number, report),)
        await self.link.report(Reports(joining=self.joining, load=HostLoad(), reports=numbered))


@contextlib.asynccontextmanager
async def worker_of(daemon: Daemon, name: str) -> AsyncIterator[HandWorker]:
    tokens = {each: host_token_of(daemon.store, daemon.home.path, each) for each in ("box1", "box2")}
    link = HttpLink([daemon.url], read_token(tokens[name], "the test"))
    try:
        joined = await link.join(JoinRequest(worker=f"home of {name}", facts=FACTS))
        yield HandWorker(link, joined.joining)
    finally:
        await link.aclose()


async def test_commits_go_to_the_host_and_come_back(
    run_daemon: RunDaemon, repository: TestRepository, tmp_path: Path
) -> None:
    place, file, clone = repository.place(), tmp_path / "bundle", tmp_path / "clone"
    async with run_daemon(HOSTS) as daemon, worker_of(daemon, "box1") as worker:
        jobs = daemon.engine.hosts.named("box1").jobs
        preparing: Future[Prepared] = jobs.start(prepare, place, repository.settings())
        call = await worker.call()
        await worker.link.fetch_commits(worker.joining, call.call_id, (), file)
        git(tmp_path, "init", "-q", str(clone))
        git(clone, "fetch", "-q", str(file), f"refs/paceline/wanted/base:refs/heads/{BRANCH}")
        assert git(clone, "rev-parse", BRANCH) == place.base
        await worker.report(1, call, Prepared(created=True))
        assert await asyncio.wrap_future(preparing) == Prepared(created=True)

        git(clone, "switch", "-q", BRANCH)
        write(clone / "new.txt", "new\n")
        git(clone, "add", "-A")
        git(clone, "commit", "-qm", "work")
        change = Change(commit=git(clone, "rev-parse", "HEAD"), files_changed=1, lines_added=1)
        committing: Future[Change] = jobs.start(commit_all, place, "docs: a")
        call = await worker.call()
        git(clone, "bundle", "create", "-q", str(file), f"refs/heads/{BRANCH}", f"^{place.base}")
        for _ in range(2):  # the answer to the first one was lost
            await worker.link.send_commits(worker.joining, call.call_id, file)
        await worker.report(2, call, change)
        assert await asyncio.wrap_future(committing) == change
        assert repository.git("rev-parse", BRANCH) == change.commit
        assert [*(daemon.home.path / "incoming").iterdir()] == [], "what was sent is deleted"


async def test_a_worker_gets_and_sends_only_what_its_own_calls_need(
    run_daemon: RunDaemon, repository: TestRepository, tmp_path: Path
) -> None:
    place, file = repository.place(), tmp_path / "bundle"
    async with run_daemon(HOSTS) as daemon, worker_of(daemon, "box1") as one, worker_of(daemon, "box2") as other:
        jobs = daemon.engine.hosts.named("box1").jobs
        jobs.start(prepare, place, repository.settings())
        call = await one.call()
        with pytest.raises(Refused, match="host box2 has no call"):
            await other.link.fetch_commits(other.joining, call.call_id, (), file)
        write(file, "anything")
        with pytest.raises(Refused, match="nothing is to be sent for the call"):
            await one.link.send_commits(one.joining, call.call_id, file)
        jobs.start(commit_all, place, "docs: a")
        committing = await one.call()
        with pytest.raises(Refused, match="needs no commits"):
            await one.link.fetch_commits(one.joining, committing.call_id, (), file)


async def test_what_arrives_damaged_fails_the_job_and_no_branch_is_made(
    run_daemon: RunDaemon, repository: TestRepository, tmp_path: Path
) -> None:
    place, file = repository.place(), tmp_path / "bundle"
    write(file, "not a bundle")
    async with run_daemon(HOSTS) as daemon, worker_of(daemon, "box1") as worker:
        committing: Future[Change] = daemon.engine.hosts.named("box1").jobs.start(commit_all, place, "docs: a")
        call = await worker.call()
        await worker.link.send_commits(worker.joining, call.call_id, file)
        await worker.report(1, call, Change(commit="1" * 40))
        with pytest.raises(WorkspaceError, match="what arrived is no bundle of git"):
            await asyncio.wrap_future(committing)
    assert repository.git("branch", "--list", BRANCH) == ""


async def test_a_commit_that_the_leader_has_lost_is_named_to_the_worker(
    run_daemon: RunDaemon, repository: TestRepository, tmp_path: Path
) -> None:
    place = msgspec.structs.replace(repository.place(), base="1" * 40)
    async with run_daemon(HOSTS) as daemon, worker_of(daemon, "box1") as worker:
        daemon.engine.hosts.named("box1").jobs.start(prepare, place, repository.settings())
        call = await worker.call()
        with pytest.raises(Refused, match=r"the commit 1111111111.* is no longer in the repository"):
            await worker.link.fetch_commits(worker.joining, call.call_id, (), tmp_path / "bundle")

"""A leader and a worker, each with a folder of its own in place of a machine, and a link in place of a network."""

import asyncio
import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
from tests.workspaces.conftest import TestRepository, git

from paceline.errors import LinkDown
from paceline.executors.spool import Spool
from paceline.hosts.jobs import make_call, may_send, read_result, write_wanted
from paceline.hosts.messages import Call, CallReport
from paceline.hosts.worker.job_runner import JobRunner
from paceline.hosts.worker.link import Link
from paceline.store.interface import WorkspaceSettings
from paceline.store.unit_result import UnitResult
from paceline.testing import VirtualClock
from paceline.workspaces import WorkspaceLocation, location_of


class TwoMachines:
    """Jobs that the leader starts by their functions, and that the worker does.

    `repository` is the one of the leader, which the worker cannot see. All values go through their encoding, as over a
    network.
    """

    def __init__(self, folder: Path, repository: TestRepository) -> None:
        self.repository = repository
        self.home = folder / "worker"
        self.home.mkdir(exist_ok=True)
        self.inbox = folder / "leader-inbox"
        self.inbox.mkdir(exist_ok=True)
        self.spool = Spool(str(self.home / "spool"))
        self.clock = VirtualClock()
        self.runner = JobRunner(self.home, self.spool, cast(Link, self), lambda: "j1", self.clock)
        self.remote: str | None = None
        self.fetched: list[tuple[str, ...]] = []
        self.sent: list[int] = []
        self.downs = 0
        self._calls: dict[str, Call] = {}
        self._away = folder / "of-the-leader"
        self._here = folder / "of-the-worker"

    async def job(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Do the work on the worker as the engine would, and return its result or raise its error."""
        call = make_call(f"call-{len(self._calls)}", work, arguments, self.remote)
        call = msgspec.json.decode(msgspec.json.encode(call), type=Call)
        self._calls[call.call_id] = call
        with self._machine_of_worker():
            report = await self.runner.run(call)
        report = msgspec.json.decode(msgspec.json.encode(report), type=CallReport)
        received = self.inbox / call.call_id
        return read_result(call, report, received if received.exists() else None)

    def place(self, unit: str = "a", settings: WorkspaceSettings | None = None, **stored: str) -> WorkspaceLocation:
        settings = settings or self.repository.settings()
        return location_of(settings, "docs", unit, str(self.repository.top), self.home, UnitResult(**stored))  # type: ignore[arg-type]

    def clone_on_worker(self) -> Path:
        """Give the worker a clone at the path that the repository has on the leader. Return where it lies meanwhile."""
        git(self._away.parent, "clone", "-q", str(self.repository.top), str(self._here))
        return self._here

    def forget_everything(self) -> None:
        """Replace the machine of the worker by a new one."""
        self.delete(str(self.home))
        self.home.mkdir()

    def delete(self, folder: str) -> None:
        shutil.rmtree(folder)

    async def pass_time_until(self, done: "asyncio.Future[Any]") -> None:
        while not done.done():
            await asyncio.sleep(0)
            await self.clock.advance(1.0)

    @contextlib.contextmanager
    def _machine_of_worker(self) -> Iterator[None]:
        """Hide the repository of the leader, and show the worker's own clone, if it has one."""
        self.repository.top.rename(self._away)
        if self._here.exists():
            self._here.rename(self.repository.top)
        try:
            yield
        finally:
            if self.repository.top.exists():
                self.repository.top.rename(self._here)
            self._away.rename(self.repository.top)

    @contextlib.contextmanager
    def _machine_of_leader(self) -> Iterator[None]:
        """Show the repository of the leader while the worker works."""
        if self.repository.top.exists():
            self.repository.top.rename(self._here)
        self._away.rename(self.repository.top)
        try:
            yield
        finally:
            self.repository.top.rename(self._away)
            if self._here.exists():
                self._here.rename(self.repository.top)

    # The link of the worker. A transfer runs on the leader, which sees its own repository.

    async def fetch_commits(self, joining: str, call_id: str, have: tuple[str, ...], file: Path) -> None:
        self._fail_sometimes()
        self.fetched.append(have)
        with self._machine_of_leader():
            write_wanted(self._calls[call_id], have, file)

    async def send_commits(self, joining: str, call_id: str, file: Path) -> None:
        self._fail_sometimes()
        assert may_send(self._calls[call_id])
        self._take(call_id, file)

    def _take(self, call_id: str, file: Path) -> None:
        self.sent.append(file.stat().st_size)
        shutil.copyfile(file, self.inbox / call_id)

    def _fail_sometimes(self) -> None:
        if self.downs:
            self.downs -= 1
            raise LinkDown("no leader answers")

"""What a worker is made of in a home: its identity, its locks, its executor and its link.

Here too: the name of a machine in its fleet. Engines on several machines may share a store. For the one that leads, its
own machine is `local` and the others are hosts, which their standbys serve as workers do. Never here: what changes when
the lead moves (`leader/registry.py`).
"""

import contextlib
import hashlib
import logging
import os
import re
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import msgspec

from paceline.clock import SystemClock
from paceline.errors import EngineBusy, LinkDown, NotJoined, PacelineError
from paceline.executors.private_folder import can_be_used
from paceline.executors.spool import spool_root
from paceline.executors.terminal import TerminalExecutor
from paceline.hosts.values import (
    StoredHost,
    known_hosts,
    save_hosts,
    stored_hosts,
)
from paceline.hosts.worker.facts import FactsReader
from paceline.hosts.worker.job_runner import JobRunner
from paceline.hosts.worker.link import HostToken, HttpLink
from paceline.hosts.worker.sessions import HostContext
from paceline.hosts.worker.worker import Worker
from paceline.leadership.election import ENGINE, Leader, LeaderLock, new_owner
from paceline.leadership.host_lease import HostLease
from paceline.settings import HostSettings
from paceline.settings.host_fields import LOCAL_HOST
from paceline.store import Store

IDENTITY_FILE = "worker_id"
WORKER_LOCK = "worker.lock"
"""Held by the worker of a home, besides the lock of engines."""

log = logging.getLogger("paceline.worker")


class WorkerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker serves, and in which home."""

    home: Path
    addresses: list[str]
    token: HostToken
    labels: tuple[str, ...] = ()
    neighbours: Mapping[str, str] = {}
    """The spools of other homes on this machine whose engines have led the same store (`Spool`)."""


@contextlib.asynccontextmanager
async def open_worker(request: WorkerRequest, environ: Mapping[str, str], tz: str) -> AsyncIterator[Worker]:
    """Yield a worker for the running loop, in a home that nobody else uses."""
    home, clock = request.home, SystemClock()
    lease = HostLease(home)
    lease.neighbours = {Path(root).parent for root in request.neighbours.values() if can_be_used(root)}
    executor = TerminalExecutor(spool_root(home), lease_file=str(lease.file))
    executor.spool.neighbours = dict(request.neighbours)
    link = HttpLink(request.addresses, request.token)
    context = HostContext(
        identity=worker_identity(home), labels=request.labels, environ=environ, tz=tz, gateway_url=lambda: link.url
    )
    worker = Worker(link, executor, home, context, clock=clock, lease=lease)
    worker.serve_calls(JobRunner(home, executor.spool, _Transfers(link, worker), clock).run)
    log.warning("the worker of %s begins, in %s", request.token.host, home)
    try:
        yield worker
    finally:
        executor.close()
        await link.aclose()


class _Transfers:
    """The link with the joining of now. When that is over, another try may find the next one."""

    def __init__(self, link: HttpLink, worker: Worker) -> None:
        self._link = link
        self._worker = worker

    async def fetch_commits(self, call_id: str, have: tuple[str, ...], file: Path) -> None:
        with _as_link_down():
            await self._link.fetch_commits(self._worker.joining, call_id, have, file)

    async def send_commits(self, call_id: str, file: Path) -> None:
        with _as_link_down():
            await self._link.send_commits(self._worker.joining, call_id, file)


@contextlib.contextmanager
def _as_link_down() -> Iterator[None]:
    try:
        yield
    except NotJoined as error:
        raise LinkDown(str(error)) from error


def worker_identity(home: Path) -> str:
    """Return what identifies the home to leaders. It is made once."""
    file = home / IDENTITY_FILE
    with contextlib.suppress(OSError):
        if found := file.read_text().strip():
            return found
    made = secrets.token_hex(16)
    try:
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(fd, "w") as opened:
            opened.write(f"{made}\n")
    except OSError as error:
        raise PacelineError(f"cannot write {file}: {error.strerror}") from error
    return made


@contextlib.contextmanager
def sole_user(home: Path) -> Iterator[None]:
    """Hold the locks of the home, so that neither another worker nor an engine uses it. Raise `EngineBusy` if one does.

    The file of the engines' lock is left as it is: it names the last engine, whose lease the next one must end.
    """
    with contextlib.ExitStack() as taken:
        for name, what in ((WORKER_LOCK, "another worker"), (ENGINE, "an engine")):
            lock = LeaderLock(home, name)
            if not lock.take():
                holder = lock.holder()
                who = what if holder is None else f"{what} ({holder})"
                raise EngineBusy(f"{who} uses {home}: stop it, or set PACELINE_HOME to another folder")
            taken.callback(lock.release)
            if name == WORKER_LOCK:
                lock.announce(Leader(owner=new_owner(), pid=os.getpid(), since=time.time()))
        yield


# -- this machine in a fleet ------------------------------------------------------------------------------


def own_host(
    store: Store, configured: Mapping[str, HostSettings], home: Path, environ: Mapping[str, str]
) -> tuple[str, StoredHost]:
    """Return the name of this machine in the fleet, and what the next leader must know of it.

    It is the host name, unless another machine, another user of this one or a host with a launcher has that name.
    """
    facts = FactsReader(home, environ).known
    settings = {**known_hosts(store), **configured}
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", facts.hostname).strip("._-")[:50] or "host"
    before = stored_hosts(store).get(name)
    is_other = before is not None and (before.facts.machine, before.facts.user_home) != (facts.machine, facts.user_home)
    has_launcher = name in settings and settings[name].launcher is not None
    if is_other or has_launcher or name == LOCAL_HOST:
        name += "." + hashlib.sha256(f"{facts.machine}\0{facts.user_home}".encode()).hexdigest()[:6]
    return name, StoredHost(worker=worker_identity(home), host_lease=None, facts=facts)


def add_own_host(store: Store, configured: Mapping[str, HostSettings], name: str) -> None:
    """Let the leader know the machine of a standby, as `paceline hosts add` does."""
    if name not in configured:
        with store.together():
            known = known_hosts(store)
            if name not in known:
                save_hosts(store, {**known, name: HostSettings(name=name)})

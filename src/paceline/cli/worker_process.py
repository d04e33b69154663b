"""The process of a worker: its home, its lock, its log, and its loop."""

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import uvloop

from paceline.cli.home_engine import session_variables
from paceline.cli.inputs import local_zone
from paceline.cli.log_file import LOG_FILE, LineFormatter, LogFile
from paceline.cli.stop_signals import on_stop_signals
from paceline.clock import SystemClock
from paceline.errors import EngineBusy, LinkDown, NotJoined, PacelineError
from paceline.executors.file_limit import raise_file_limit
from paceline.executors.private_folder import make_private
from paceline.executors.spool import spool_root
from paceline.executors.terminal import TerminalExecutor
from paceline.hosts.job_runner import JobRunner
from paceline.leadership import ENGINE, Leader, LeaderLock, new_owner
from paceline.worker.host_lease import HostLease
from paceline.worker.host_sessions import SessionPlace
from paceline.worker.http_link import HostToken, HttpLink
from paceline.worker.worker import Worker, WorkerOptions

IDENTITY_FILE = "worker_id"
WORKER_LOCK = "worker.lock"
"""Held by the worker of a home, besides the lock of engines."""
MOST_SESSIONS = 1000
"""Sessions for which files are kept free: more than a host runs, and a limit that all systems allow."""

log = logging.getLogger("paceline.worker")


class WorkerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a person has asked for."""

    home: Path
    addresses: list[str]
    token: HostToken
    labels: tuple[str, ...]


def run_worker(request: WorkerRequest, environ: Mapping[str, str]) -> None:
    """Serve leaders until a stop signal. Raise `Refused` if one refuses this worker, `EngineBusy` for a used home."""
    make_private(str(request.home))
    with contextlib.ExitStack() as opened:
        opened.enter_context(_sole_user(request.home))
        opened.enter_context(_logging(request.home))
        warning = raise_file_limit(MOST_SESSIONS)
        if warning is not None:
            log.warning("%s", warning)
        uvloop.run(serve_worker(request, session_variables(environ)))


async def serve_worker(request: WorkerRequest, environ: Mapping[str, str]) -> None:
    """Serve leaders on the running loop, in a home that nobody else uses."""
    home, clock = request.home, SystemClock()
    lease = HostLease(home)
    executor = TerminalExecutor(spool_root(home), lease_file=str(lease.file))
    link = HttpLink(request.addresses, request.token)
    place = SessionPlace(environ=environ, tz=local_zone().key, gateway_url=lambda: link.url)
    options = WorkerOptions(identity=_identity(home), labels=request.labels)
    worker = Worker(link, executor, home, place, clock=clock, options=options, lease=lease)
    worker.serve_calls(JobRunner(home, executor.spool, _Transfers(link, worker), clock).run)
    log.warning("the worker of %s begins, in %s", request.token.host, home)
    try:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, worker.drain)
        with on_stop_signals(lambda _: worker.leave()):
            await worker.run()
        log.warning("the worker ends; its sessions continue, and the next worker of this home finds them")
    finally:
        executor.close()
        await link.aclose()


class _Transfers:
    """The link with the joining of now. When that is over, another try may find the next one."""

    def __init__(self, link: HttpLink, worker: Worker) -> None:
        self._link = link
        self._worker = worker

    async def fetch_commits(self, call_id: str, have: tuple[str, ...], file: Path) -> None:
        try:
            await self._link.fetch_commits(self._worker.joining, call_id, have, file)
        except NotJoined as error:
            raise LinkDown(str(error)) from error

    async def send_commits(self, call_id: str, file: Path) -> None:
        try:
            await self._link.send_commits(self._worker.joining, call_id, file)
        except NotJoined as error:
            raise LinkDown(str(error)) from error


def _identity(home: Path) -> str:
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
def _sole_user(home: Path) -> Iterator[None]:
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
                lock.announce(Leader(owner=new_owner(), pid=os.getpid(), since=time.time(), is_engine=False))
        yield


@contextlib.contextmanager
def _logging(home: Path) -> Iterator[None]:
    """Log to the terminal, or to whoever has started the worker, and to the file of the home."""
    terminal = logging.StreamHandler(sys.stderr)
    terminal.setFormatter(LineFormatter("%(asctime)s %(message)s", "%H:%M:%S"))
    handlers: list[logging.Handler] = [terminal, LogFile(home / LOG_FILE)]
    loggers = [logging.getLogger(name) for name in ("paceline", "asyncio")]
    for logger in loggers:
        logger.propagate = False
        for handler in handlers:
            logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            for handler in handlers:
                logger.removeHandler(handler)
        for handler in handlers:
            handler.close()

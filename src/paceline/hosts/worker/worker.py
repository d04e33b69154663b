"""The worker of one host: it joins a leader, carries out its orders, and reports.

All of it runs on one loop. Orders come through one open request, reports go through another. Sessions are read and the
lease is watched also while no leader answers.

Here too: what a host is and has, without a secret; what a worker is made of in a home; and the name of a machine in its
fleet. Engines on several machines may
share a store. For the one that leads, its own machine is `local` and the others are hosts, which their standbys serve
as workers do. Never here: what changes when the lead moves (`leader/registry.py`).
"""

import asyncio
import contextlib
import hashlib
import logging
import os
import re
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from paceline.agents import agent_names, load_agent
from paceline.agents.account import DEFAULT, Account, account_id
from paceline.clock import Clock, SystemClock
from paceline.errors import EngineBusy, LinkDown, NotJoined, PacelineError
from paceline.executors.interface import Executor
from paceline.executors.process import ProcessExecutor
from paceline.executors.spool import can_be_used, spool_root
from paceline.hosts import messages
from paceline.hosts.jobs import in_daemon_thread
from paceline.hosts.messages import HostCli, HostFacts, Login, ProbedAccount, memory
from paceline.hosts.worker.job_runner import JobRunner
from paceline.hosts.worker.link import HttpLink, Link, host_of_token
from paceline.hosts.worker.sessions import KILL_SECONDS, HostContext, HostSessions, LeaderTime, Outbox
from paceline.leadership.election import ENGINE, Leader, LeaderLock, new_owner, this_machine
from paceline.leadership.host_lease import HostLease
from paceline.settings import LOCAL_HOST, HostSettings
from paceline.settings.environment import expand_home, user_home
from paceline.settings.preflight import troubles_here
from paceline.store import Store

VERSION_SECONDS = 30.0
"""Some agent CLIs start a whole runtime to print their version. 10 s are too short for Gemini CLI on a busy machine."""
LONGEST_VERSION = 60
COMPARED_VARIABLES = ("PATH", "LANG", "LC_ALL", "TZ", "SHELL", "EDITOR", "XDG_CONFIG_HOME", "NODE_ENV")
"""What agents and their tools go by, and what often differs in a login without a terminal. None of it is secret."""
NO_PROGRAMS: Mapping[str, str] = {}
COMPARED_PROGRAMS = ("git", "node", "python3", "bash")
"""Programs that agents use. Their versions are compared as variables are."""


class FactsReader:
    """Reads the facts of one host. The version of a program is read again only when its file has changed."""

    def __init__(self, home: Path, environ: Mapping[str, str], *, labels: tuple[str, ...] = ()) -> None:
        self._environ = dict(environ)
        self._versions: dict[str, tuple[tuple[int, int], str | None]] = {}
        self.known = HostFacts(
            version=version("paceline"),
            machine=this_machine(),
            hostname=socket.gethostname(),
            home=str(home),
            user_home=str(user_home(environ)),
            cpus=len(os.sched_getaffinity(0)),
            memory=memory("MemTotal") or 0,
            labels=labels,
            variables={name: environ[name] for name in COMPARED_VARIABLES if name in environ},
        )
        """What was found so far. Logins and programs are there after the first `read`."""

    def read(
        self, accounts: Iterable[ProbedAccount], agents: Iterable[str], programs: Mapping[str, str] = NO_PROGRAMS
    ) -> HostFacts:
        """Return what the host has now. It takes as long as the programs take to print their versions.

        `programs` are those of agents that are not shipped.
        """
        versions = {f"{name} --version": self._version_of(name) for name in COMPARED_PROGRAMS}
        found = {name: self._environ[name] for name in COMPARED_VARIABLES if name in self._environ} | {
            name: text for name, text in versions.items() if text is not None
        }
        clis = tuple(self._cli(agent, programs.get(agent)) for agent in agents)
        there = {cli.agent for cli in clis if cli.path is not None}
        self.known = msgspec.structs.replace(
            self.known,
            logins=tuple(
                Login(account=each.account, problem=login_problem(each, self._environ))
                for each in accounts
                if not _is_default(each) or there.intersection(each.agents)
            ),
            clis=clis,
            variables=found,
        )
        return self.known

    def _cli(self, agent: str, program: str | None) -> HostCli:
        """Return the CLI of an agent, whose program is that of the shipped profile unless another one is given."""
        if program is None and agent in agent_names():
            program = next(iter(load_agent(agent).start), None)
        path = None if program is None else shutil.which(program, path=self._environ.get("PATH"))
        return HostCli(agent=agent, version=None if path is None else self._version_of(path), path=path)

    def _version_of(self, program: str) -> str | None:
        path = shutil.which(program, path=self._environ.get("PATH"))
        if path is None:
            return None
        try:
            found = os.stat(path)
        except OSError:
            return None
        mark = (found.st_mtime_ns, found.st_size)
        known = self._versions.get(path)
        if known is None or known[0] != mark or known[1] is None:
            known = self._versions[path] = (mark, printed_version(path, self._environ))
        return known[1]


def _is_default(probed: ProbedAccount) -> bool:
    """Return whether it is the default login of agent CLIs, which exists only where one of them is installed."""
    return probed.account == account_id(probed.provider, DEFAULT) and bool(probed.agents)


def printed_version(path: str, environ: Mapping[str, str]) -> str | None:
    """Return the first line that a program prints for `--version`, or `unknown`; None if it does not end."""
    try:
        done = subprocess.run(
            [path, "--version"],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    first = done.stdout.decode(errors="replace").strip().partition("\n")[0]
    return " ".join(first.split())[:LONGEST_VERSION] or "unknown"


def login_problem(probed: ProbedAccount, environ: Mapping[str, str]) -> str | None:
    """Return why sessions of the account could not use it on this host; None if they can, as far as files show."""
    if not probed.needs_login:
        return None
    account = Account(
        name=probed.account,
        provider=probed.provider,
        kind="subscription" if probed.key_env is None else "metered",
        env={name: expand_home(value, environ) for name, value in probed.env.items()},
        key_env=probed.key_env,
    )
    troubles = troubles_here(account, environ)
    return troubles[0] if troubles else None


# -- the worker ----------------------------------------------------------------------------------------------

log = logging.getLogger("paceline.worker")

FIRST_WAIT_SECONDS = 0.2
"""A leader that restarts is often back within a second."""
LONGEST_WAIT_SECONDS = 5.0
"""How much later than the leader a worker may be back. Fifty workers then make ten requests a second."""


Answer = TypeVar("Answer", messages.Joined, messages.Orders, messages.ReportsTaken)

RunCall = Callable[[messages.Call], Awaitable[messages.CallReport]]
"""Does what a call asks for. An error is part of the report."""
KEPT_RESULTS = 256
"""Results that stay known, for a leader that asks again because the first answer was lost. Most are a few words."""
READ_SECONDS = 1.0
"""How often the output of all sessions is read, as an engine does. Ends do not wait for it."""
ORDERS_WAIT_SECONDS = 20.0
"""How long a request for orders stays open: proxies end silent ones after thirty seconds or more."""
BEAT_SECONDS = 3.0
"""The longest time between two reports, by which the leader knows that the host is there."""
LEAST_GAP_SECONDS = 0.2
"""The shortest time between two reports: news of many sessions at once go together."""
FACTS_SECONDS = 300.0
"""How often logins, programs and variables are read again: people change them by hand, and wait for the effect."""
LEASE_CHECK_SECONDS = 5.0
"""How often the lease is checked: a machine that slept wakes up with a wait that is too long."""
LEAVE_SECONDS = 5.0
"""How long the last reports may take when the worker is asked to end."""


class Worker:
    """One worker. `run` returns after `leave`; sessions continue then."""

    def __init__(
        self,
        link: Link,
        executor: Executor,
        home: Path,
        context: HostContext,
        *,
        clock: Clock,
        lease: HostLease,
        run_call: RunCall | None = None,
    ) -> None:
        self._link = link
        self._executor = executor
        self._home = home
        self._clock = clock
        self._identity = context.identity
        self._lease = lease
        self._time = LeaderTime(clock)
        self._outbox = Outbox()
        self._sessions = HostSessions(executor, context, self._outbox, lease=lease, time=self._time)
        self._facts = FactsReader(home, context.environ, labels=context.labels)
        self._leaves_at = messages.allocation_end(context.environ)
        self._run_call = run_call
        self._running_calls: dict[str, asyncio.Task[None]] = {}
        self._done_calls: dict[str, messages.CallReport] = {}
        self._down_since: float | None = None
        """Since when no leader answers."""
        self._retry_wait = FIRST_WAIT_SECONDS
        self._joined: messages.Joined | None = None
        self._reported_facts: messages.HostFacts | None = None
        self._leaving = asyncio.Event()

    @property
    def joining(self) -> str:
        """The present joining; empty before the first one."""
        return "" if self._joined is None else self._joined.joining

    def leave(self) -> None:
        """End after the last reports. Sessions continue."""
        self._leaving.set()

    def drain(self) -> None:
        """Take no new session from now on, and say so: the host leaves soon."""
        self._sessions.takes_new = False
        self._outbox.news.set()

    async def run(self) -> None:
        """Serve leaders until `leave`. Raise `Refused` if one refuses this worker for good."""
        serving = asyncio.create_task(self._serve_leaders())
        others = [
            asyncio.create_task(work) for work in (self._watch_sessions(), self._watch_lease(), self._leaving.wait())
        ]
        try:
            done, _ = await asyncio.wait((serving, *others), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # one that failed fails the worker
            await _cancelled(serving)
            await self._say_goodbye()
        finally:
            await _cancelled(serving, *others, *self._running_calls.values())  # work in threads ends by itself

    # -- the link ------------------------------------------------------------------------------------------

    async def _serve_leaders(self) -> None:
        while True:
            joined = await self._join()
            tasks = [
                asyncio.create_task(work)
                for work in (self._take_orders(joined), self._send_reports(joined), self._send_facts(joined))
            ]
            try:
                await asyncio.gather(*tasks)
            except NotJoined as error:
                log.info("the joining is over: %s", error)
            finally:
                await _cancelled(*tasks)

    async def _join(self) -> messages.Joined:
        """Join the leader. Orders of an earlier one, and reports for it, are dropped."""

        def request() -> Awaitable[messages.Joined]:
            facts, attempts = self._facts.known, tuple(self._executor.unarchived())
            return self._link.join(messages.JoinRequest(worker=self._identity, facts=facts, attempts=attempts))

        joined = await self._ask(request)
        self._joined, self._reported_facts = joined, None
        self._outbox.start_over()
        self._sessions.start_over()
        log.warning("joined the leader %s", joined.leader)
        return joined

    async def _ask(self, request: Callable[[], Awaitable[Answer]]) -> Answer:
        """Make a request until it is answered. The answer extends the lease, and has the leader's time."""
        while True:
            asked_at = self._lease.asked()
            try:
                answer = await request()
            except LinkDown as error:
                await self._wait_for_link(error)
                continue
            if self._down_since is not None:
                log.warning("the leader answers again, after %.0f s", self._clock.now() - self._down_since)
            self._down_since, self._retry_wait = None, FIRST_WAIT_SECONDS
            self._time.learn(answer.now)
            joined = answer if isinstance(answer, messages.Joined) else self._joined
            self._lease.renew(asked_at, 0.0 if joined is None else joined.host_lease)
            return answer

    async def _wait_for_link(self, error: LinkDown) -> None:
        if self._down_since is None:
            self._down_since = self._clock.now()
            log.warning("no leader answers (%s); sessions continue, and it is asked again", error)
        wait, self._retry_wait = self._retry_wait, min(self._retry_wait * 2, LONGEST_WAIT_SECONDS)
        await self._clock.sleep(wait)

    async def _take_orders(self, joined: messages.Joined) -> None:
        after = 0
        wait = min(ORDERS_WAIT_SECONDS, joined.host_lease / 4)
        while True:
            request = messages.OrdersRequest(joining=joined.joining, after=after, wait=wait)
            answer = await self._ask(partial(self._link.orders, request))
            for number, order in answer.orders:
                if number > after:
                    self._carry_out(number, order)
                    after = number
                    await asyncio.sleep(0)  # others have their turn

    async def _send_reports(self, joined: messages.Joined) -> None:
        beat = min(BEAT_SECONDS, joined.host_lease / 5)
        while True:
            timer = self._clock.call_at(self._clock.now() + beat, self._outbox.news.set)
            try:
                await self._outbox.news.wait()
            finally:
                timer.cancel()
            await self._report(joined)
            await self._clock.sleep(LEAST_GAP_SECONDS)

    async def _report(self, joined: messages.Joined, *, is_leaving: bool = False) -> None:
        facts = self._facts.known
        reports = messages.Reports(
            joining=joined.joining,
            load=messages.read_load(self._home, self._time.of(self._leaves_at)),
            facts=None if facts == self._reported_facts else facts,
            reports=self._outbox.batch(),
            is_leaving=is_leaving or not self._sessions.takes_new,
        )
        taken = await self._ask(partial(self._link.report, reports))
        self._reported_facts = facts
        self._outbox.confirm(taken.through)

    async def _send_facts(self, joined: messages.Joined) -> None:
        """Find out what the host is and has, now and again. The next report says what has changed."""
        while True:
            read = partial(self._facts.read, joined.accounts, joined.agents, joined.programs)
            if await in_daemon_thread(read, "facts of the host") != self._reported_facts:
                self._outbox.news.set()
            await self._clock.sleep(FACTS_SECONDS)

    async def _say_goodbye(self) -> None:
        """Send the last reports. What cannot be sent in time is read again by the next worker."""
        if self._joined is None:
            return
        with contextlib.suppress(TimeoutError, LinkDown, NotJoined):
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._sessions.read_all()
                await self._report(self._joined, is_leaving=True)
                while not self._outbox.is_empty:
                    await self._report(self._joined, is_leaving=True)

    # -- orders --------------------------------------------------------------------------------------------

    def _carry_out(self, number: int, order: messages.Order) -> None:
        """Carry out one order. One that fails must not keep the others waiting."""
        sessions = self._sessions
        try:
            match order:
                case messages.SessionOrder():
                    (sessions.follow if order.is_begun else sessions.start)(order)
                case messages.Stop():
                    sessions.stop(order.attempt_id, order.grace)
                case messages.Archive():
                    sessions.archive(order.attempt_id)
                case messages.Sweep():
                    sessions.sweep(order.keep)
                case messages.Call():
                    self._take_call(order)
        except Exception:
            log.exception("order %s could not be carried out: %s", number, type(order).__name__)

    def _take_call(self, call: messages.Call) -> None:
        """Begin a call. One that runs is left alone; one that is done is reported again."""
        if (report := self._done_calls.get(call.call_id)) is not None:
            self._outbox.add(report)
        elif self._run_call is not None and call.call_id not in self._running_calls:
            self._running_calls[call.call_id] = asyncio.create_task(self._do_call(call, self._run_call))

    async def _do_call(self, call: messages.Call, run: RunCall) -> None:
        try:
            report = await run(call)
        finally:
            del self._running_calls[call.call_id]
        if report.error is None:  # what failed may succeed when it is asked for again
            self._done_calls[call.call_id] = report
        while len(self._done_calls) > KEPT_RESULTS:
            del self._done_calls[next(iter(self._done_calls))]
        self._outbox.add(report)

    # -- what continues without a leader ---------------------------------------------------------------------

    async def _watch_sessions(self) -> None:
        """Read all sessions again and again, and those that end at once."""
        read_at = self._clock.now()
        while True:
            ended = await self._executor.wait_ended(min(READ_SECONDS, max(0.0, read_at - self._clock.now())))
            await self._sessions.read_ended(ended)
            if not 0 < read_at - self._clock.now() <= READ_SECONDS:
                await self._sessions.read_all()
                read_at = self._clock.now() + (0.0 if self._sessions.is_behind else READ_SECONDS)
                if self._joined is not None:
                    self._sessions.prune(self._joined.output, self._clock.now())

    async def _watch_lease(self) -> None:
        """End all sessions when the lease is over. Their supervisors do the same, each by itself."""
        over_at: float | None = None
        while True:
            if not self._lease.is_over:
                over_at = None
                await self._clock.sleep(min(self._lease.left, LEASE_CHECK_SECONDS))
                continue
            now = self._clock.now()
            over_at = now if over_at is None else over_at
            if running := self._sessions.end_all(by_force=now - over_at > KILL_SECONDS):
                log.warning("no leader has answered within the lease of this host; %s sessions are ended", running)
            await self._clock.sleep(LEASE_CHECK_SECONDS)


async def _cancelled(*tasks: "asyncio.Task[Any]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# -- the process of a worker and its home ------------------------------------------------------------

IDENTITY_FILE = "worker_id"
WORKER_LOCK = "worker.lock"
"""Held by the worker of a home, besides the lock of engines."""


class WorkerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker serves, and in which home."""

    home: Path
    addresses: list[str]
    token: str
    labels: tuple[str, ...] = ()
    neighbours: Mapping[str, str] = {}
    """The spools of other homes on this machine whose engines have led the same store (`Spool`)."""


@contextlib.asynccontextmanager
async def open_worker(request: WorkerRequest, environ: Mapping[str, str], tz: str) -> AsyncIterator[Worker]:
    """Yield a worker for the running loop, in a home that nobody else uses."""
    home, clock = request.home, SystemClock()
    lease = HostLease(home)
    lease.neighbours = {Path(root).parent for root in request.neighbours.values() if can_be_used(root)}
    executor = ProcessExecutor(spool_root(home), lease_file=str(lease.file))
    executor.spool.neighbours = dict(request.neighbours)
    link = HttpLink(request.addresses, request.token)
    context = HostContext(
        identity=worker_identity(home), labels=request.labels, environ=environ, tz=tz, gateway_url=lambda: link.url
    )
    runner = JobRunner(home, executor.spool, link, lambda: worker.joining, clock)
    worker = Worker(link, executor, home, context, clock=clock, lease=lease, run_call=runner.run)
    log.warning("the worker of %s begins, in %s", host_of_token(request.token), home)
    try:
        yield worker
    finally:
        executor.close()
        await link.aclose()


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
) -> tuple[str, messages.StoredHost]:
    """Return the name of this machine in the fleet, and what the next leader must know of it.

    It is the host name, unless another machine, another user of this one or a host with a launcher has that name.
    """
    facts = FactsReader(home, environ).known
    settings = {**messages.known_hosts(store), **configured}
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", facts.hostname).strip("._-")[:50] or "host"
    before = messages.stored_hosts(store).get(name)
    is_other = before is not None and (before.facts.machine, before.facts.user_home) != (facts.machine, facts.user_home)
    has_launcher = name in settings and settings[name].launcher is not None
    if is_other or has_launcher or name == LOCAL_HOST:
        name += "." + hashlib.sha256(f"{facts.machine}\0{facts.user_home}".encode()).hexdigest()[:6]
    return name, messages.StoredHost(worker=worker_identity(home), host_lease=None, facts=facts)


def add_own_host(store: Store, configured: Mapping[str, HostSettings], name: str) -> None:
    """Let the leader know the machine of a standby, as `paceline hosts add` does."""
    if name not in configured:
        with store.together():
            known = messages.known_hosts(store)
            if name not in known:
                messages.save_hosts(store, {**known, name: HostSettings(name=name)})

"""The engine of a home, as the only one that leads.

Here: the choice of what an engine is made of, and where providers report their usage, as paceline.toml has it at the
time of each poll. Never here: what a command does with it.
"""

import contextlib
import functools
import logging
import os
import time
from collections.abc import Iterator, Mapping

import msgspec

from paceline.clock import SystemClock
from paceline.core.signals import Usage
from paceline.core.values.scopes import SESSIONS
from paceline.daemon.home import Home, engine_settings
from paceline.engine.engine import Engine
from paceline.errors import EngineBusy, InvalidSettings
from paceline.executors.process import ProcessExecutor, raise_file_limit
from paceline.hosts.leader.registry import NO_HOSTS
from paceline.hosts.messages import StoredHost
from paceline.leadership import election
from paceline.limiter.governor_driver import UsageSource
from paceline.limiter.usage_requests import usage_at
from paceline.settings import Settings, load_settings
from paceline.settings.checks import without_password

log = logging.getLogger("paceline.daemon")

STORE_URL_VARIABLE = "PACELINE_STORE_URL"
SLOTS_HEARTBEAT_SECONDS = 0.2
"""How often an engine that only serves slots reads the requests of programs: they look for the answer as often."""
MAKE_WAY_SECONDS = 10.0
"""How long an engine that only serves slots may take to make way: it looks five times a second."""


@contextlib.contextmanager
def leading_engine(home: Home, *, only_slots: bool = False) -> Iterator[Engine]:
    """Yield the engine of the home, which no other engine runs or leads. Raises `EngineBusy` if one does.

    With `only_slots` it starts no work, and makes way for one that does (`slot_engine.py`).
    """
    if home.store.is_shared:
        if not only_slots:
            election.wait_for_lead(home.store)
        leader = election.new_leader(home.path, only_slots=only_slots)
        with fleet_engine(home, leader) as engine, contextlib.closing(engine):
            engine.start()
            yield engine
        return
    leader = election.Leader(owner=election.new_owner(), pid=os.getpid(), since=time.time(), only_slots=only_slots)
    with _locked(home, leader), contextlib.closing(home.executor()) as executor:
        yield _engine(home, leader, executor)


@contextlib.contextmanager
def fleet_engine(home: Home, leader: election.Leader) -> Iterator[Engine]:
    """Yield an engine over a shared store. It leads once `start` was called, unless another one leads."""
    from paceline.hosts.worker.worker import add_own_host, own_host  # only a fleet needs what a worker is made of

    with contextlib.closing(home.executor()) as executor:
        name, host = own_host(home.store, home.settings.hosts, home.path, home.environ)
        add_own_host(home.store, home.settings.hosts, name)
        fleet = election.FleetHomes(home.store, leader, executor.spool)
        yield _engine(home, leader, executor, fleet=fleet, this_host={name: host})


def _engine(
    home: Home,
    leader: election.Leader,
    executor: ProcessExecutor,
    *,
    fleet: election.FleetHomes | None = None,
    this_host: Mapping[str, StoredHost] = NO_HOSTS,
) -> Engine:
    pool = home.settings.limits[SESSIONS].limit
    if pool is not None and (warning := raise_file_limit(pool)) is not None:
        log.warning("%s", warning)
    settings = engine_settings(home.settings, home.zone, home.path)
    if leader.only_slots:
        heartbeat = min(settings.heartbeat, SLOTS_HEARTBEAT_SECONDS)
        settings = msgspec.structs.replace(settings, starts_work=False, heartbeat=heartbeat)
    engine = Engine(
        settings,
        store=home.store,
        executor=executor,
        clock=SystemClock(),
        agents=home.settings.agent,
        environ=session_variables(home.environ),
        owner=leader.owner,
        usage=usage_sources(home.settings, home.environ),
        own_host=this_host,
        fleet=fleet,
    )
    engine.outage.note_in(home.path)
    return engine


def session_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the password of the database, which no session needs."""
    url = environ.get(STORE_URL_VARIABLE)
    return dict(environ) if url is None else {**environ, STORE_URL_VARIABLE: without_password(url)}


@contextlib.contextmanager
def _locked(home: Home, leader: election.Leader) -> Iterator[None]:
    """Hold the lock of the home's engine, after everybody who led before has given up the lead."""
    lock = home.lock()
    if not lock.take() and (leader.only_slots or not _replaces(lock, home)):
        holder = lock.holder()
        who = f" ({holder})" if holder else ""
        raise EngineBusy(f"another engine{who} runs {home.path}; stop it first, or use another PACELINE_HOME")
    try:
        election.resign(home.store, lock.previous)
        lock.announce(leader)
        yield
    finally:
        lock.release()


def _replaces(lock: election.LeaderLock, home: Home) -> bool:
    """Ask an engine that only serves slots to make way. Return whether the lock was taken from it."""
    give_up_at = time.monotonic() + MAKE_WAY_SECONDS
    has_asked = False
    while time.monotonic() < give_up_at:
        holder = lock.holder()
        if holder is not None and not holder.only_slots:
            return False
        if holder is not None and not has_asked:
            election.want_lead(home.store)
            has_asked = True
        if lock.take():
            return True
        time.sleep(0.05)
    return False


# -- usage readings -----------------------------------------------------------------------------------


usage_log = logging.getLogger("paceline.usage")


class CurrentSettings:
    """The settings as their file has them now. A file that cannot be read changes nothing."""

    def __init__(self, settings: Settings, environ: Mapping[str, str]) -> None:
        self._settings = settings
        self._environ = environ
        self._read = self._version()

    def read(self) -> Settings:
        """Return the settings, read again if the file has changed."""
        file, version = self._settings.file, self._version()
        if file is not None and version is not None and version != self._read:
            self._read = version
            try:
                self._settings = load_settings(file.parent, {**self._environ, "PACELINE_CONFIG": str(file)})
            except InvalidSettings as problem:
                usage_log.warning("%s has changed and cannot be read; usage is polled as before: %s", file, problem)
        return self._settings

    def _version(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._settings.file) if self._settings.file is not None else None
        except OSError:
            return None
        return None if found is None else (found.st_mtime_ns, found.st_size)


def usage_sources(settings: Settings, environ: Mapping[str, str]) -> dict[str, UsageSource]:
    """Return the providers that report their usage."""
    current = CurrentSettings(settings, environ)
    names = [name for name, provider in settings.providers.items() if provider.usage_url is not None]
    return {name: functools.partial(_usage_of, name, current, environ) for name in names}


async def _usage_of(name: str, current: CurrentSettings, environ: Mapping[str, str]) -> Usage | None:
    settings = current.read()
    provider = settings.providers.get(name)
    if provider is None or provider.usage_url is None:
        return None
    variables = [account.key_env for account in settings.accounts.values() if account.provider == name]
    # The key of its first account that has one.
    key = next((environ[each] for each in variables if each is not None and each in environ), None)
    return await usage_at(provider.usage_url, key)()

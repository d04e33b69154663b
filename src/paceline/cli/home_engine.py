"""The engine of a home, as the only one that leads, and the slot of a process that runs none.

Here: the choice of what an engine is made of. Never here: what a command does with it.
"""

import contextlib
import logging
import os
import time
from collections.abc import Iterator, Mapping

from paceline.cli.usage_sources import usage_sources
from paceline.cli.wiring import Home, engine_settings
from paceline.clock import SystemClock
from paceline.config_files.checks import without_password
from paceline.core.values.scopes import SESSIONS
from paceline.engine.engine import Engine
from paceline.engine.external_slots.standalone_host import ProcessSlot
from paceline.engine.session_keeper import SessionKeeper
from paceline.errors import EngineBusy
from paceline.executors.file_limit import raise_file_limit
from paceline.executors.terminal import TerminalExecutor
from paceline.leadership import ENGINE, HOST, Leader, LockedSeat, new_owner, resign
from paceline.shared_leadership import FleetHomes, LeasedSeat, OwnHome, new_leader, wait_for_lead

log = logging.getLogger("paceline.cli")

STORE_URL_VARIABLE = "PACELINE_STORE_URL"
STEP_BACK_SECONDS = 3.0
"""An `exec` that hands out slots checks for an engine more often than this, and then releases its lock."""


def process_slot(home: Home) -> ProcessSlot:
    """Return the slot of this process, which can be acquired with or without an engine."""
    spool = home.spool()
    seat = LeasedSeat(home.path, home.store, spool) if home.store.is_shared else LockedSeat(home.path, home.store)
    return ProcessSlot(
        home.store,
        engine_settings(home.settings, home.zone, home.path),
        spool,
        seat=seat,
        usage=usage_sources(home.settings, home.environ),
    )


@contextlib.contextmanager
def leading_engine(home: Home) -> Iterator[Engine]:
    """Yield the engine of the home, which no other engine runs or leads. Raises `EngineBusy` if one does."""
    if home.store.is_shared:
        wait_for_lead(home.store)
        with fleet_engine(home, new_leader(home.path)) as engine, contextlib.closing(engine):
            engine.start()
            yield engine
        return
    leader = Leader(owner=new_owner(), pid=os.getpid(), since=time.time())
    with _locked(home, leader), contextlib.closing(home.executor()) as executor:
        yield _engine(home, leader, executor)


@contextlib.contextmanager
def fleet_engine(home: Home, leader: Leader) -> Iterator[Engine]:
    """Yield an engine over a shared store. It leads once `start` was called, unless another one leads."""
    with contextlib.closing(home.executor()) as executor:
        engine = _engine(home, leader, executor)
        engine.lead.fleet = FleetHomes(home.store, leader, executor.spool)
        yield engine


@contextlib.contextmanager
def session_keeper(home: Home) -> Iterator[SessionKeeper | None]:
    """Yield what brings the sessions of this home to their ends; None if another process of the home does it."""
    lock = home.lock(ENGINE)
    if lock.holder() is not None or not lock.take():
        yield None
        return
    try:
        with contextlib.closing(home.executor()) as executor:
            keeper = SessionKeeper(
                engine_settings(home.settings, home.zone, home.path),
                store=home.store,
                executor=executor,
                clock=SystemClock(),
                agents=home.settings.agent,
                environ=session_variables(home.environ),
                fleet=OwnHome(home.store, new_leader(home.path), executor.spool),
            )
            with contextlib.closing(keeper):
                yield keeper
    finally:
        lock.release()


def _engine(home: Home, leader: Leader, executor: TerminalExecutor) -> Engine:
    _check_file_limit(home)
    engine = Engine(
        engine_settings(home.settings, home.zone, home.path),
        store=home.store,
        executor=executor,
        clock=SystemClock(),
        agents=home.settings.agent,
        environ=session_variables(home.environ),
        owner=leader.owner,
        usage=usage_sources(home.settings, home.environ),
    )
    engine.outage.note_in(home.path)
    return engine


def session_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the password of the database, which no session needs."""
    url = environ.get(STORE_URL_VARIABLE)
    return dict(environ) if url is None else {**environ, STORE_URL_VARIABLE: without_password(url)}


@contextlib.contextmanager
def _locked(home: Home, leader: Leader) -> Iterator[None]:
    """Hold the lock of the home's engine, after everybody who led before has given up the lead."""
    lock = home.lock(ENGINE)
    if not lock.take():
        holder = lock.holder()
        who = f" ({holder})" if holder else ""
        raise EngineBusy(f"another engine{who} runs {home.path}; stop it first, or use another PACELINE_HOME")
    try:
        resign(home.store, lock.previous)
        lock.announce(leader)
        _wait_for_host(home)
        yield
    finally:
        lock.release()


def _check_file_limit(home: Home) -> None:
    """Raise the limit of open files for the pool of the settings, and warn if that is not possible."""
    pool = home.settings.limits[SESSIONS].limit
    warning = raise_file_limit(pool) if pool is not None else None
    if warning is not None:
        log.warning("%s", warning)


def _wait_for_host(home: Home) -> None:
    """Wait until an `exec` that hands out slots has stepped back. If it was killed, end its lease."""
    host = home.lock(HOST)
    give_up_at = time.monotonic() + STEP_BACK_SECONDS
    while host.holder() is not None and time.monotonic() < give_up_at:
        time.sleep(0.05)
    resign(home.store, host.left_behind())

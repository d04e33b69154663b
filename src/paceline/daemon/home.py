"""The composition root: from the environment and paceline.toml to a home with its store and executor.

Here: the choice of every implementation. Never here: what a command does with it, or an engine (`engines`), which
most commands do not need and would wait for.
"""

import contextlib
import os
import secrets
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from paceline.core import ScopeStatus
from paceline.core.unit_lifecycle import Policy
from paceline.daemon.times import local_zone, moment
from paceline.engine.capacity.governor_state import OfflineState
from paceline.engine.settings import EngineSettings
from paceline.engine.store_outage import read_outage, store_trouble
from paceline.errors import InvalidSettings, StoreDamaged, StoreError, StoreUnreachable
from paceline.executors.interface import OutputLimits
from paceline.executors.spool import Spool, count_attempts, make_private, spool_root
from paceline.hosts.messages import HostPresence
from paceline.leadership import election
from paceline.leadership.host_lease import LEASE_FILE
from paceline.settings import Settings, governor_settings, load_settings
from paceline.settings.model import price_list
from paceline.store import Campaign, SqliteStore, Store, Unit
from paceline.store.sql_store import SqlStore
from paceline.views.capacity import FleetState, read_fleet
from paceline.views.safe_text import printable
from paceline.views.status import VERSION, EngineState
from paceline.views.why import Why, explain_unit, stored_waits

if TYPE_CHECKING:
    from paceline.executors.process import ProcessExecutor

FLEET_STATE = "fleet"
"""The key under which a shared database has its identity."""
FLEET_FILE = "fleet"
"""The file in which a home remembers the database that it belongs to."""

STANDSTILLS = (b"do_signal_stop", b"do_freezer_trap", b"__refrigerator")
"""Where the kernel keeps a process that was stopped (Ctrl-Z), or that is frozen with its container or machine."""


class Home:
    """The folder with all state of Paceline (`PACELINE_HOME`), its settings and its open store."""

    def __init__(self, settings: Settings, store: Store, environ: Mapping[str, str]) -> None:
        self.settings = settings
        self.store = store
        self.environ = dict(environ)
        self.zone: ZoneInfo = local_zone()

    @property
    def path(self) -> Path:
        return self.settings.home

    def spool(self) -> Spool:
        known = election.known_leaders(self.store) if self.store.is_shared else ()
        return Spool(spool_root(self.path), election.neighbours(known, self.path))

    def executor(self) -> "ProcessExecutor":
        from paceline.executors.process import ProcessExecutor  # imported here because it is slow

        lease_file = str(self.path / LEASE_FILE) if self.store.is_shared else None
        return ProcessExecutor(spool_root(self.path), lease_file=lease_file)

    def lock(self) -> election.LeaderLock:
        return election.LeaderLock(self.path, election.ENGINE)

    def engine_leader(self) -> election.Leader | None:
        """Return the engine that leads and runs campaigns, here or wherever a shared store has its leader."""
        leader = self.leader()
        return None if leader is None or leader.only_slots else leader

    def leader(self) -> election.Leader | None:
        """Return the engine that leads, also one that only serves slots."""
        return election.present_leader(self.store) if self.store.is_shared else self.lock().holder()

    def offline_state(self, now: float) -> OfflineState:
        """Return the state that an engine would find now, for a command that only reads."""
        return OfflineState(self.store, engine_settings(self.settings, self.zone, self.path), now)

    def read_fleet(
        self, now: float, offline: OfflineState | None = None, *, scopes: Sequence[ScopeStatus] | None = None
    ) -> FleetState:
        """Read what views are built from, as a process that does not lead.

        `scopes` are those of the running daemon, if there is one: the store does not know the calls of its gateway.
        """
        state = self.offline_state(now) if offline is None else offline
        return read_fleet(
            self.store,
            state.governor,
            self.settings,
            self.zone,
            statuses=state.governor.statuses(now=now) if scopes is None else scopes,
            now=now,
            campaigns=tuple(state.campaigns.values()),
        )

    def explain_unit(self, unit: Unit, campaign: Campaign, hosts: Iterable[HostPresence] = ()) -> list[Why]:
        """Return what the unit waits for: one answer, or one for each account that it could run on.

        `hosts` are those of a daemon that answers.
        """
        leaderless = None if self.engine_leader() is not None else str(self.path)
        now = time.time()
        return explain_unit(
            unit,
            campaign,
            stored_waits(self.store),
            leaderless=leaderless,
            statuses=self.offline_state(now).governor.statuses(now=now),
            hosts=hosts,
            trouble=self.trouble,
        )

    @property
    def trouble(self) -> str | None:
        """Why nothing can start or be stored now: an engine that stands still does neither."""
        return self.standstill or store_trouble(self.path)

    @property
    def standstill(self) -> str | None:
        """What is said of an engine here that does nothing, not even answer. None if it runs, or there is none."""
        leader = self.lock().holder()
        if leader is None or not _stands_still(leader.pid):
            return None
        process = f"process {leader.pid} of the engine"
        return f"{process} is stopped or frozen; `kill -CONT {leader.pid}` continues one that was stopped"

    @cached_property
    def lost_work(self) -> str | None:
        """Why the database seems to have lost its content, None if it does not: sessions ran, and it knows no work."""
        spool = spool_root(self.path)
        if self.store.campaigns() or not (attempts := count_attempts(spool)) or self.last_event_id():
            return None
        database = self.settings.sqlite_path or "the database"
        output = _output_of(attempts, spool)
        return f"{database} has no work, but {output}: its -wal file may be lost. {_restoring(self.path)}"

    def last_event_id(self) -> int:
        return self.store.append_events([])

    def leader_process(self) -> EngineState | None:
        """Return the engine that leads."""
        leader = self.engine_leader()
        if leader is None:
            return None
        return EngineState(
            state="leading",
            since=leader.since,
            version=VERSION,
            pid=leader.pid,
            host=leader.host or None,
            trouble=self.trouble,
        )


@contextlib.contextmanager
def open_home(environ: Mapping[str, str] | None = None, start: Path | None = None) -> Iterator[Home]:
    """Open the home that the environment names; it is created if there is none."""
    environ = os.environ if environ is None else environ
    settings = load_settings(start or Path.cwd(), environ)
    make_private(str(settings.home))
    try:
        store = open_store(settings)
    except StoreUnreachable as error:
        raise StoreUnreachable(f"{error}{_waiting_engine(settings.home)}") from error
    except StoreError as error:
        trouble = store_trouble(settings.home)
        if trouble is None or type(error) is not StoreError:
            raise
        raise StoreError(f"{error}: {trouble}") from error
    try:
        home = Home(settings, store, environ)
        if (loss := home.lost_work) is not None:
            sys.stderr.write(f"Warning: {printable(loss)}\n")
        yield home
    finally:
        store.close()


def _stands_still(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/wchan").read_bytes() in STANDSTILLS
    except OSError:  # it has ended, or is another user's
        return False


def _waiting_engine(home: Path) -> str:
    """Return what the engine of the home does while the store does not answer, if there is an engine."""
    outage = read_outage(home)
    if outage is None:
        return ""
    since = moment(outage.since, time.time(), local_zone())
    return (
        f". The engine of this home (process {outage.pid}) waits for it since {since}: "
        "nothing starts meanwhile, running sessions continue, and nothing is lost"
    )


def open_store(settings: Settings) -> Store:
    """Open the store that the settings name; it is created if there is none."""
    path = settings.sqlite_path
    if path is None:
        store = _open_postgres(settings)
        try:
            _join_fleet(settings.home, store)
        except BaseException:
            store.close()
            raise
        return store
    _check_in_no_fleet(settings.home, path)
    check_not_lost(path, Path(spool_root(settings.home)))
    return _open_sqlite(settings, path)


@contextlib.contextmanager
def open_empty_store(settings: Settings) -> Iterator[SqlStore]:
    """Open the store that the settings name for an import: it may be empty although the home has output of sessions."""
    make_private(str(settings.home))
    path = settings.sqlite_path
    store = _open_postgres(settings) if path is None else _open_sqlite(settings, path)
    with contextlib.closing(store), election.no_leader(settings.home, "it would not know what is imported"):
        yield store
        if path is None:
            _join_fleet(settings.home, store)


def _open_sqlite(settings: Settings, path: Path) -> SqliteStore:
    if path.parent != settings.home:
        _create_folder(path.parent)
    purpose = "it is of an older Paceline, and could not use the database once this one has updated it"
    return SqliteStore(path, while_migrating=lambda: election.no_leader(settings.home, purpose))


def _check_in_no_fleet(home: Path, database: Path) -> None:
    """Raise if the home uses a shared database: a file of its own would have none of the work, and run it again.

    A file that the whole fleet was copied to is there already.
    """
    mark = home / FLEET_FILE
    if mark.exists() and not database.exists():
        raise InvalidSettings(
            f"{home} belongs to a fleet on PostgreSQL, and store.url names no server: set PACELINE_STORE_URL, or "
            f"store.url in paceline.toml; or delete {mark} if the home is to begin anew, with SQLite"
        )


def _open_postgres(settings: Settings) -> SqlStore:
    try:
        from paceline.store.postgres import PostgresStore
    except ImportError as error:
        raise InvalidSettings(
            f"store.url names a PostgreSQL database, and {error.name} is not installed; "
            "run: pip install 'paceline[postgres]'"
        ) from error
    return PostgresStore(settings.store_url)


def _join_fleet(home: Path, store: Store) -> None:
    """Give the database an identity, and let the home remember it. Raise if either belongs to another fleet.

    Otherwise a wrong address would mix the work of two fleets, or run all work of a lost database again.
    """
    mark = home / FLEET_FILE
    fleet = (store.load_state(FLEET_STATE) or b"").decode()
    if not fleet:
        attempts = count_attempts(spool_root(home))
        if attempts and not store.append_events([]):
            raise StoreDamaged(
                f"the database is empty, but {spool_root(home)} has the output of {attempts} sessions: correct "
                f"store.url; or, to start with an empty home and run everything again, move {home} aside"
            )
        with store.together():
            fleet = (store.load_state(FLEET_STATE) or secrets.token_hex(8).encode()).decode()
            store.save_state(FLEET_STATE, fleet.encode())
    known = mark.read_text().strip() if mark.exists() else fleet
    if known != fleet:
        raise InvalidSettings(
            f"store.url names the database of fleet {fleet}, and {home} belongs to fleet {known}: correct store.url, "
            f"or use another PACELINE_HOME; or delete {mark} if the home is to join that fleet"
        )
    if not mark.exists():
        mark.write_text(f"{fleet}\n")


def check_not_lost(database: Path, spool: Path) -> None:
    """Raise `StoreDamaged` if the database is gone or empty although sessions ran here: a new one would repeat them."""
    if database.exists() and database.stat().st_size:
        return
    journal = Path(f"{database}-wal")
    attempts = count_attempts(str(spool))
    if attempts:
        trace = _output_of(attempts, str(spool))
    elif journal.exists() and journal.stat().st_size:
        trace = f"{journal} belongs to a database that had content"
    else:
        return
    state = "is empty" if database.exists() else "does not exist"
    raise StoreDamaged(f"{database} {state}, but {trace}: it was deleted or cut off. {_restoring(spool.parent)}")


def _output_of(attempts: int, spool: str) -> str:
    return f"{spool} has the output of {'1 session' if attempts == 1 else f'{attempts} sessions'}"


def _restoring(home: Path) -> str:
    return (
        "Restore a copy of it, with its -wal file if there is one; or, to start with an empty home and run everything "
        f"again, move {home} aside"
    )


def _create_folder(folder: Path) -> None:
    """Create a folder for the database. One that exists may have other uses, so it is left as it is."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot create {folder}: {error.strerror}; set PACELINE_HOME to a folder of yours") from error


def engine_settings(settings: Settings, zone: ZoneInfo, home: Path) -> EngineSettings:
    accounts = settings.accounts
    found = {agent: settings.login(agent) for agent in settings.agent_names()}
    logins = {agent: account for agent, account in found.items() if account is not None}
    return EngineSettings(
        governor=governor_settings(settings),
        home=str(home),
        accounts=accounts,
        logins=logins,
        programs={name: profile.start[0] for name, profile in settings.agents.items() if profile.start},
        heartbeat=settings.engine.heartbeat,
        lease=settings.engine.lease,
        stall=settings.engine.stall,
        policy=Policy(max_attempts=settings.engine.max_attempts),
        tz=zone.key,
        keep_events=settings.retention.events,
        output=output_limits(settings),
        prices=price_list(settings.prices),
        hosts=settings.hosts,
        machine=settings.machine,
    )


def output_limits(settings: Settings) -> OutputLimits:
    return OutputLimits(max_age=settings.retention.outputs, max_bytes=settings.retention.max_disk)

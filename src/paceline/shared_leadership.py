"""Leadership of a store that several machines share: who leads by its lease, and where earlier leaders ran.

Every leader announces itself in the store. So the others know whom to pass changes to, and the next leader knows where
the sessions of the one before run: in its own home, in another home on this machine, or on another machine.
"""

import functools
import os
import secrets
import socket
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from paceline.agents.account import split_login
from paceline.errors import EngineBusy
from paceline.executors.private_folder import can_be_used
from paceline.executors.spool import Spool, spool_root
from paceline.leadership import Leader, new_owner
from paceline.store import Store

LEADERS_STATE: Final = "leaders"
WANTED_STATE: Final = "lead_wanted"
SHARED_LEASE_SECONDS: Final = 10.0
"""The lease of a leader in a shared store: how long a fleet stands still after its leader was killed."""
NO_EXEC_SECONDS: Final = 5.0
"""How long no `exec` leads after an engine has asked for it: it looks often, and the engine takes the lead at once."""
KEPT_LEADERS: Final = 100
"""Earlier leaders that stay known. Each restart of an engine adds one."""
LEASE_POLL_SECONDS: Final = 0.2
"""How often `wait_for_lead` reads the lease of a leader that may be gone."""
_MACHINE_ID: Final = Path("/etc/machine-id")


@functools.cache
def this_machine() -> str:
    """Return what identifies this machine: its name and, where it has one, its id."""
    try:
        identity = _MACHINE_ID.read_text().strip()
    except OSError:
        identity = ""
    return f"{socket.gethostname()}/{identity}"


def new_leader(home: Path, *, url: str | None = None, is_engine: bool = True) -> Leader:
    """Return this process as a leader that never led before."""
    return Leader(
        owner=new_owner(),
        pid=os.getpid(),
        since=time.time(),
        host=socket.gethostname(),
        machine=this_machine(),
        home=str(home),
        url=url,
        is_engine=is_engine,
    )


def known_leaders(store: Store) -> list[Leader]:
    """Return the leaders up to the present one, the last one last."""
    stored = store.load_state(LEADERS_STATE)
    return [] if stored is None else msgspec.json.decode(stored, type=list[Leader])


def present_leader(store: Store) -> Leader | None:
    """Return who leads a shared store, by its lease."""
    left = store.lease_left(now=time.time())
    if left is None or left <= 0:
        return None
    owner = store.leader()
    return next((leader for leader in known_leaders(store) if leader.owner == owner), None)


def wait_for_lead(store: Store) -> None:
    """Wait until nobody leads: an `exec` steps back, and a lease that is not renewed runs out.

    Raise `EngineBusy` if another engine renews its lease.
    """
    left = store.lease_left(now=time.time())
    while left is not None and left > 0:
        leader = present_leader(store)
        if leader is not None and not leader.is_engine:
            want_lead(store)
        time.sleep(LEASE_POLL_SECONDS)
        now_left = store.lease_left(now=time.time())
        if now_left is not None and now_left > left and (leader is None or leader.is_engine):
            raise EngineBusy(f"another engine ({leader or 'unknown'}) leads this database; stop it first")
        left = now_left


def neighbours(leaders: Iterable[Leader], home: Path) -> dict[str, str]:
    """Return the spools of other homes on this machine, by how the names of their attempts begin."""
    machine = this_machine()
    others = (each for each in leaders if each.machine == machine and each.home != str(home))
    return {f"{each.owner}-": spool_root(Path(each.home)) for each in others}


def started_elsewhere(store: Store, attempt_id: str) -> str | None:
    """Return the machine that the attempt was started on, if it is not that of the leader."""
    leader = present_leader(store) if store.is_shared else None
    if leader is None:
        return None
    started = (each for each in known_leaders(store) if _has_started(each, [attempt_id]))
    return next((each.host for each in started if each.machine != leader.machine), None)


class FleetHomes:
    """The homes in which the leaders of a store have started sessions, seen from one of them.

    `spool` is that of this leader. It finds the sessions of other homes on this machine, too.
    """

    def __init__(self, store: Store, leader: Leader, spool: Spool) -> None:
        self._store = store
        self._leader = leader
        self._spool = spool
        self._known: list[Leader] = []

    def announce(self) -> None:
        """Store that this leader leads now. Earlier ones stay known as long as a unit runs that they started.

        The last ones are kept for longer: the logs of what they have run are found through them.
        """
        running = [unit.attempt_id or "" for unit in self._store.running_units()]
        others = [each for each in known_leaders(self._store) if each.owner != self._leader.owner]
        old = [each for each in others[:-KEPT_LEADERS] if _has_started(each, running)]
        self._known = [*old, *others[-KEPT_LEADERS:], self._leader]
        self._store.save_state(LEADERS_STATE, msgspec.json.encode(self._known))
        self._spool.neighbours = neighbours(self._known, Path(self._leader.home))

    def _is_here(self, leader: Leader) -> bool:
        """Return whether sessions of that leader can be seen from here. Those of another user cannot."""
        return leader.machine == self._leader.machine and (
            leader.home == self._leader.home or can_be_used(spool_root(Path(leader.home)))
        )

    def host_elsewhere(self, attempt_id: str) -> str | None:
        """Return the name of the other machine that the attempt was started on; None for this one."""
        for each in self._known:
            if not self._is_here(each) and _has_started(each, [attempt_id]):
                return each.host
        return None


class OwnHome(FleetHomes):
    """The same, for a process that does not lead and cares for the sessions of its own home alone."""

    def read(self) -> None:
        """Read who has led."""
        self._known = known_leaders(self._store)

    def has_sessions(self) -> bool:
        """Return whether units run that were started in this home."""
        units = self._store.running_units()
        running = [unit.attempt_id or "" for unit in units if not split_login(unit.account or "")[1]]
        return any(_has_started(each, running) for each in self._known if self._is_here(each))

    def _is_here(self, leader: Leader) -> bool:
        return super()._is_here(leader) and leader.home == self._leader.home


def _has_started(leader: Leader, attempt_ids: Iterable[str]) -> bool:
    return any(attempt_id.startswith(f"{leader.owner}-") for attempt_id in attempt_ids)


class LeasedSeat:
    """The lead of a shared store that no engine has, by its lease. An `exec` takes it to hand out slots."""

    lease: float | None = SHARED_LEASE_SECONDS

    def __init__(self, home: Path, store: Store, spool: Spool) -> None:
        self._store = store
        self._leader = new_leader(home, is_engine=False)
        self._fleet = FleetHomes(store, self._leader, spool)
        self._seen_wish = store.load_state(WANTED_STATE)
        self._steps_back_until = 0.0

    def engine_leads(self) -> bool:
        """Return whether an engine leads, or has asked for the lead a moment ago."""
        wish = self._store.load_state(WANTED_STATE)
        if wish != self._seen_wish:
            self._seen_wish = wish
            self._steps_back_until = time.monotonic() + NO_EXEC_SECONDS
        if time.monotonic() < self._steps_back_until:
            return True
        leader = present_leader(self._store)
        return leader is not None and leader.is_engine

    def take(self, now: float) -> str | None:
        left = self._store.lease_left(now=now)
        return self._leader.owner if left is None or left <= 0 else None

    def announce(self) -> None:
        self._fleet.announce()

    def leave(self) -> None:
        """Do nothing: the host has resigned."""

    def is_elsewhere(self, attempt_id: str) -> bool:
        return self._fleet.host_elsewhere(attempt_id) is not None


def want_lead(store: Store) -> None:
    """Ask an `exec` that leads to step back for an engine. Each wish is a new value: clocks may differ."""
    store.save_state(WANTED_STATE, secrets.token_bytes(8))

"""Leadership of a store that several machines share: who leads by its lease, and where earlier leaders ran.

Every leader announces itself in the store. So the others know whom to pass changes to, and the next leader knows where
the sessions of the one before run: in its own home, in another home on this machine, or on another machine.
"""

import functools
import math
import os
import secrets
import socket
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from paceline.errors import EngineBusy
from paceline.executors.private_folder import can_be_used
from paceline.executors.spool import Spool, spool_root
from paceline.leadership.election import Leader, new_owner
from paceline.leadership.host_lease import HostLease
from paceline.store import Store

LEADERS_STATE: Final = "leaders"
WANTED_STATE: Final = "lead_wanted"
SHARED_LEASE_SECONDS: Final = 10.0
"""The lease of a leader in a shared store: how long a fleet stands still after its leader was killed."""
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


def new_leader(home: Path, *, url: str | None = None, only_slots: bool = False) -> Leader:
    """Return this process as a leader that never led before."""
    return Leader(
        owner=new_owner(),
        pid=os.getpid(),
        since=time.time(),
        host=socket.gethostname(),
        machine=this_machine(),
        home=str(home),
        url=url,
        only_slots=only_slots,
    )


def known_leaders(store: Store) -> list[Leader]:
    """Return the leaders up to the present one, the last one last."""
    stored = store.load_state(LEADERS_STATE)
    return [] if stored is None else msgspec.json.decode(stored, type=list[Leader])


def present_leader(store: Store) -> Leader | None:
    """Return who leads a shared store, by its lease."""
    lease = store.leader(now=time.time())
    if lease is None or lease.seconds <= 0:
        return None
    return next((leader for leader in known_leaders(store) if leader.owner == lease.owner), None)


def wait_for_lead(store: Store) -> None:
    """Wait until nobody leads: an engine for slots makes way, and a lease that is not renewed runs out.

    Raise `EngineBusy` if another engine renews its lease.
    """
    lease = store.leader(now=time.time())
    while lease is not None and lease.seconds > 0:
        leader = present_leader(store)
        if leader is not None and leader.only_slots:
            want_lead(store)
        time.sleep(LEASE_POLL_SECONDS)
        before, lease = lease, store.leader(now=time.time())
        if lease is not None and lease.seconds > before.seconds and (leader is None or not leader.only_slots):
            raise EngineBusy(f"another engine ({leader or 'unknown'}) leads this database; stop it first")


def neighbours(leaders: Iterable[Leader], home: Path) -> dict[str, str]:
    """Return the spools of other homes on this machine, by how the names of their attempts begin."""
    machine = this_machine()
    others = (each for each in leaders if each.machine == machine and each.home != str(home))
    return {f"{each.owner}-": spool_root(Path(each.home)) for each in others}


class FleetHomes:
    """The homes on the machine of a leader whose engines have led the store.

    `spool` is that of this leader. It finds the sessions of the other homes, too.
    """

    def __init__(self, store: Store, leader: Leader, spool: Spool) -> None:
        self._store = store
        self._leader = leader
        self._spool = spool
        self._lease = HostLease(Path(leader.home))

    def announce(self) -> None:
        """Store that this leader leads now. Earlier ones stay known as long as a unit runs that they started.

        The last ones are kept for longer: the logs of what they have run are found through them.
        """
        running = [unit.attempt_id or "" for unit in self._store.running_units(also_cancelled=True)]
        others = [each for each in known_leaders(self._store) if each.owner != self._leader.owner]
        old = [each for each in others[:-KEPT_LEADERS] if _has_started(each, running)]
        known = [*old, *others[-KEPT_LEADERS:], self._leader]
        self._store.save_state(LEADERS_STATE, msgspec.json.encode(known))
        self._spool.neighbours = neighbours(known, Path(self._leader.home))
        self._lease.neighbours = {Path(root).parent for root in self._spool.neighbours.values() if can_be_used(root)}

    def keep_sessions(self) -> None:
        """Let the sessions on this machine run without a lease: only a worker here gives them one again."""
        self._lease.renew(0.0, math.inf)


def _has_started(leader: Leader, attempt_ids: Iterable[str]) -> bool:
    return any(attempt_id.startswith(f"{leader.owner}-") for attempt_id in attempt_ids)


def want_lead(store: Store) -> None:
    """Ask an engine that only serves slots to make way. Each wish is a new value: clocks may differ."""
    store.save_state(WANTED_STATE, secrets.token_bytes(8))

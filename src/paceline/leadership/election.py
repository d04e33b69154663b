"""Leadership of a home or a fleet: who leads, what engines of a shared store know of each other, and the lead of one.

In a store of one machine a locked file decides, and names its owner. The kernel releases the lock when the process
ends, in whatever way, so a killed leader is replaced at once, and a leader never doubts.

In a store that several machines share the lease in the store decides. Another engine takes the lead when the lease has
run out, so a leader that could not renew it in time stops before that: it starts nothing and grants nothing until it
has renewed it. The time is measured since the boot, from before the renewal was sent. So neither a slow answer, nor a
clock that was set, nor a machine that slept makes the trust too long. Every leader announces itself in the store. So
the others know whom to pass changes to, and the next leader knows where the sessions of the one before run: in its own
home, in another home on this machine, or on another machine. Never here: what a leader does.
"""

import contextlib
import fcntl
import functools
import logging
import math
import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from paceline.clock import seconds_since_boot
from paceline.errors import OUTAGES, EngineBusy, LeadLost, StoreError
from paceline.executors.spool import Spool, can_be_used, spool_root
from paceline.leadership.host_lease import HostLease
from paceline.store import Store

log = logging.getLogger("paceline.engine")

ENGINE = "engine.lock"
"""Held by the engine."""
TURN_SECONDS = 2.0
"""How long `no_leader` waits for a lock: another command that does the same holds it for less."""
LEADERS_STATE: Final = "leaders"
WANTED_STATE: Final = "lead_wanted"
SHARED_LEASE_SECONDS: Final = 10.0
"""The lease of a leader in a shared store: how long a fleet stands still after its leader was killed."""
KEPT_LEADERS: Final = 100
"""Earlier leaders that stay known. Each restart of an engine adds one."""
LEASE_POLL_SECONDS: Final = 0.2
"""How often `wait_for_lead` reads the lease of a leader that may be gone."""
_MACHINE_ID: Final = Path("/etc/machine-id")
RENEWALS_PER_LEASE: Final = 5
"""A server that restarts within most of a lease costs nobody the lead."""
DOUBT_SECONDS: Final = 1.0
"""How long before the end of its lease a leader stops trusting itself: more than a launch or a grant takes."""


class Leader(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A process that leads, as others see it. `url` is where its daemon listens.

    `machine` identifies the machine; `host` is its name for people.
    """

    owner: str
    pid: int
    since: float
    host: str = ""
    machine: str = ""
    home: str = ""
    url: str | None = None
    only_slots: bool = False
    """Whether it is an engine that an `exec` has started: it starts no work, and makes way for one that does."""

    def __str__(self) -> str:
        return f"process {self.pid}" if not self.host else f"process {self.pid} on {self.host}"


def new_owner() -> str:
    """Return a name that was never used before: attempt ids contain it."""
    host = re.sub(r"[^A-Za-z0-9]+", "-", socket.gethostname()).strip("-")[:40] or "host"
    return f"{host}-{os.getpid()}-{secrets.token_hex(4)}"


class LeaderLock:
    """The lock of a home. `previous` is the last holder before `take`, if it did not release.

    The file always names the owner of a lease that may be in the store: a new owner is written by `announce`, after
    the lease of the previous one was resigned and before it takes the lead. So whenever processes are killed, the next
    one knows whose lease it must end.
    """

    def __init__(self, home: Path, name: str) -> None:
        self.previous: Leader | None = None
        self._path = home / name
        self._fd: int | None = None

    def take(self) -> bool:
        """Take the lock. Returns False while another process holds it."""
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(f"cannot write {self._path}: {error.strerror}") from error
        if not _lock(fd):
            os.close(fd)
            return False
        self.previous = _read(fd)
        self._fd = fd
        return True

    def announce(self, leader: Leader) -> None:
        """Write the leader into the file that this process has locked, in place of the previous one."""
        assert self._fd is not None
        text = msgspec.json.encode(leader)
        os.pwrite(self._fd, text, 0)
        os.ftruncate(self._fd, len(text))

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def holder(self) -> Leader | None:
        """Return the present holder."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return None if _is_granted(fd, fcntl.LOCK_SH) else _read(fd)
        finally:
            os.close(fd)


@contextlib.contextmanager
def no_leader(home: Path, purpose: str) -> Iterator[None]:
    """Keep engines out of the home while the block runs. Raise `EngineBusy` if one leads it."""
    lock = LeaderLock(home, ENGINE)
    give_up_at = time.monotonic() + TURN_SECONDS
    while not lock.take():
        if time.monotonic() > give_up_at:
            raise EngineBusy(_in_the_way(lock, home, purpose))
    try:
        yield
    finally:
        lock.release()


def _in_the_way(lock: LeaderLock, home: Path, purpose: str) -> str:
    leader = lock.holder()
    process = f" ({leader})" if leader else ""
    if leader is not None and leader.only_slots:
        what = f"an engine that `paceline exec` has started{process} serves {home}"
        return f"{what}: wait until its programs have ended, or stop it; {purpose}"
    return f"an engine{process} runs {home}: stop it first; {purpose}"


def _lock(fd: int) -> bool:
    """Lock the file. Tries a few times, because a process that only inspects it holds it for a moment, too."""
    for nap in (0.0, 0.01, 0.02, 0.05, 0.1):
        time.sleep(nap)
        if _is_granted(fd, fcntl.LOCK_EX):
            return True
    return False


def _is_granted(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(fd: int) -> Leader | None:
    try:
        return msgspec.json.decode(os.pread(fd, 4096, 0), type=Leader)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def resign(store: Store, gone: Leader | None) -> None:
    """Remove the lease that a killed leader of this machine left in the store: the next leader need not wait for it."""
    if gone is not None:
        store.resign(gone.owner)


# -- a shared store -----------------------------------------------------------------------------------


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
        old = [
            each for each in others[:-KEPT_LEADERS] if any(attempt.startswith(f"{each.owner}-") for attempt in running)
        ]
        known = [*old, *others[-KEPT_LEADERS:], self._leader]
        self._store.save_state(LEADERS_STATE, msgspec.json.encode(known))
        self._spool.neighbours = neighbours(known, Path(self._leader.home))
        self._lease.neighbours = {Path(root).parent for root in self._spool.neighbours.values() if can_be_used(root)}

    def keep_sessions(self) -> None:
        """Let the sessions on this machine run without a lease: only a worker here gives them one again."""
        self._lease.renew(0.0, math.inf)


def want_lead(store: Store) -> None:
    """Ask an engine that only serves slots to make way. Each wish is a new value: clocks may differ."""
    store.save_state(WANTED_STATE, secrets.token_bytes(8))


# -- the lead of one engine ---------------------------------------------------------------------------


class LeaderLease:
    """The lease of one owner. `lease` is its length in a store that is not shared."""

    def __init__(
        self,
        store: Store,
        owner: str,
        *,
        lease: float,
        fleet: FleetHomes | None = None,
        elapsed: Callable[[], float] = seconds_since_boot,
    ) -> None:
        self.owner = owner
        self.is_shared = store.is_shared
        self._store = store
        self.fleet = fleet
        """The homes of this machine, where machines share the store."""
        self._elapsed = elapsed
        self._length = SHARED_LEASE_SECONDS if self.is_shared else lease
        self.trusted_until = math.inf
        """Until when nobody else can lead, as `seconds_since_boot`."""
        self._renew_at = -math.inf

    def take(self, now: float) -> bool:
        """Take the lead, or extend it. Return False while another engine leads. Raise `LeadLost` if it took over."""
        asked_at = self._elapsed()
        if not self._store.lead(self.owner, until=now + self._length, now=now):
            return False
        if self.fleet is not None:
            if self._renew_at == -math.inf:
                self.fleet.announce()
            else:  # by now it is stored that sessions of this machine have no end
                self.fleet.keep_sessions()
        if self.is_shared:
            self.trusted_until = asked_at + self._length - DOUBT_SECONDS
            self._renew_at = asked_at + self._length / RENEWALS_PER_LEASE
        return True

    def keep(self, now: float) -> None:
        """Extend the lease of a shared store when it is time."""
        if self.renewal_in() == 0.0 and not self.take(now):
            raise LeadLost("another engine has taken the lead")

    def renewal_in(self) -> float:
        """Return after how many seconds `keep` has something to do."""
        return max(0.0, self._renew_at - self._elapsed()) if self.is_shared else math.inf

    def resign(self) -> None:
        """Give up the lead, if it is still ours. From then on this process stores as others do.

        A store that does not answer is left alone: the lease runs out by itself.
        """
        try:
            self._store.resign(self.owner)
        except OUTAGES as error:
            log.info("the lead could not be given up; it ends with its lease: %s", error)

    @property
    def is_trusted(self) -> bool:
        """Whether nobody else can lead now."""
        return self._elapsed() < self.trusted_until

    def check(self) -> None:
        """Raise unless nobody else can lead now. A lease that may have run out is renewed first.

        Raise `LeadLost` if another engine leads, and `StoreError` if the store does not answer.
        """
        if not self.is_trusted and not self.take(now=0.0):  # a shared store goes by its own clock
            raise LeadLost("another engine has taken the lead")

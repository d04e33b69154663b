"""The place of one host at the leader: whose worker has joined, until when it is silent, and when it is lost."""

import secrets
from collections.abc import Callable
from typing import Final, NamedTuple

from paceline.engine.hosts.remote_host import RemoteHost
from paceline.engine.hosts.stored_hosts import StoredHost
from paceline.hosts.host_facts import HostLoad
from paceline.hosts.host_state import HostState, Presence
from paceline.hosts.messages import JoinRequest
from paceline.settings import HostSettings

LOSS_MARGIN_SECONDS: Final = 60.0
"""Waited beyond the lease of a silent host: its worker ends its sessions at the lease, which takes seconds."""
SILENT_SECONDS: Final = 15.0
"""Without a word for this long, a host gets nothing new: its worker reports every few seconds."""


class Clocks(NamedTuple):
    """Wall time for people, and time on a clock that nobody sets."""

    now: Callable[[], float]
    elapsed: Callable[[], float]


class HostSeat:
    """One host and its worker. A host of which nothing was received counts as silent since the leader began."""

    def __init__(self, host: RemoteHost, clocks: Clocks) -> None:
        self.host = host
        self.worker: str | None = None
        self.joining = ""
        self.load = HostLoad()
        self.is_leaving = False
        self.is_lost = False
        self.last_report = 0
        self._clocks = clocks
        self._given_lease = self._lease = 0.0
        self._joined_at: float | None = None
        self._received_at: float | None = None
        self._silent_since = clocks.elapsed()

    def remember(self, stored: StoredHost) -> None:
        """Take over what an earlier leader knew. It may have had an answer until a moment ago."""
        self.worker, self._given_lease = stored.worker, stored.host_lease
        self._lease = stored.host_lease
        self._received_at = self._clocks.now()

    @property
    def stored(self) -> StoredHost | None:
        """What is to be stored; None before a worker has joined."""
        if self.worker is None or self.host.facts is None:
            return None
        return StoredHost(worker=self.worker, host_lease=self._lease, facts=self.host.facts)

    def begin_joining(self, request: JoinRequest, lease: float) -> None:
        """Begin a joining. Until the worker uses it, it may still go by a longer lease that it was given before."""
        self.worker, self.joining = request.worker, secrets.token_hex(8)
        self._given_lease, self._lease = lease, max(lease, self._lease)
        self._joined_at, self.last_report = self._clocks.now(), 0
        self.is_leaving = self.is_lost = False
        self.host.facts = request.facts
        self.note_contact()

    def use_joining(self) -> None:
        """Note a request within the joining: the worker goes by its lease."""
        self._lease = self._given_lease
        self.note_contact()

    def note_contact(self) -> None:
        self._received_at, self._silent_since = self._clocks.now(), self._clocks.elapsed()

    @property
    def silence(self) -> float:
        """Seconds since the last request of its worker."""
        return self._clocks.elapsed() - self._silent_since

    @property
    def is_overdue(self) -> bool:
        """Whether it has been silent for so long that its sessions have ended."""
        return not self.is_lost and self.silence > self._lease + LOSS_MARGIN_SECONDS

    def lose(self, reason: str) -> None:
        """Give up everything that runs there."""
        self.is_lost = True
        self.joining = ""
        self.host.lose_all(reason)

    @property
    def may_be_replaced(self) -> bool:
        """Whether a worker of another home may take the name: nothing can run in the home before."""
        return self.is_lost or (self.is_leaving and not self.host.is_busy)

    def has_moved(self, request: JoinRequest) -> bool:
        """Return whether the home of the worker is now used from another machine, as one on a shared file system may.

        What the machine before has started may still run there.
        """
        facts = self.host.facts
        return facts is not None and facts.machine != request.facts.machine and self.host.is_busy

    @property
    def presence(self) -> Presence:
        if self.is_lost:
            return "lost"
        if self.is_leaving:
            return "leaving"
        return "joined" if self.joining and self.silence <= SILENT_SECONDS else "silent"

    def state(self, settings: HostSettings) -> HostState:
        """Return what the placement and people go by."""
        return HostState(
            name=self.host.name,
            settings=settings,
            presence=self.presence,
            facts=self.host.facts,
            load=self.load,
            sessions=self.host.sessions,
            joined_at=self._joined_at,
            heard_at=self._received_at,
        )

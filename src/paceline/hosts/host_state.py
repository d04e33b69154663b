"""A host as the leader sees it: its settings, what its worker reported, and since when it is silent."""

from typing import Literal

import msgspec

from paceline.hosts.host_facts import HostFacts, HostLoad
from paceline.settings import HostSettings

Presence = Literal["absent", "joined", "silent", "lost", "leaving"]
"""`absent`: no worker has joined. `silent`: it has not answered for a while, and its sessions may run. `lost`: it has
been silent for so long that its sessions have ended. `leaving`: its worker ends, or its allocation does."""


class HostState(msgspec.Struct, frozen=True, kw_only=True):
    """One host at one moment. Times are wall time of the leader."""

    name: str
    settings: HostSettings
    presence: Presence = "absent"
    facts: HostFacts | None = None
    load: HostLoad = HostLoad()
    sessions: int = 0
    joined_at: float | None = None
    heard_at: float | None = None
    problem: str | None = None
    """Why its worker could not be started, where Paceline starts it."""

"""What is known of a host: what it is and has, what it has left, whether it is there, and what is stored of it."""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from paceline.settings import HostSettings
from paceline.settings.host_fields import LOCAL_HOST
from paceline.store import Store


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """An account as one host has it. `problem` says why no session can use it there."""

    account: str
    problem: str | None = None


class HostCli(msgspec.Struct, frozen=True, kw_only=True):
    """An agent CLI as one host has it. Without a `version` it is missing or does not answer; one may be unknown."""

    agent: str
    version: str | None = None
    path: str | None = None


class HostLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What a host has left now. `leaves_at` is when its allocation ends, where it has one."""

    free_memory: int | None = None
    """Bytes that programs can still get."""
    free_disk: int | None = None
    load: float | None = None
    leaves_at: float | None = None


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a host is and has. It is reported when a worker joins, and again when it changes."""

    version: str
    """The version of Paceline."""
    machine: str
    """What identifies the machine (`leadership.fleet.this_machine`)."""
    hostname: str
    home: str
    """The folder of the worker: its spool, its workspaces, its copies of repositories."""
    user_home: str
    cpus: int
    memory: int
    labels: tuple[str, ...] = ()
    logins: tuple[Login, ...] = ()
    clis: tuple[HostCli, ...] = ()
    variables: dict[str, str] = {}
    """What may differ between machines and matters to agents: PATH, LANG, TZ and the like. Never a secret."""


END_VARIABLE = "SLURM_JOB_END_TIME"
"""The variable in which Slurm states when an allocation ends, in Unix seconds."""
_MEMINFO = Path("/proc/meminfo")


def read_load(home: Path, leaves_at: float | None = None) -> HostLoad:
    """Return what the host has left now."""
    free_disk = load = None
    with contextlib.suppress(OSError):
        found = os.statvfs(home)
        free_disk = found.f_bavail * found.f_frsize
    with contextlib.suppress(OSError):
        load = round(os.getloadavg()[0], 2)
    return HostLoad(free_memory=memory("MemAvailable"), free_disk=free_disk, load=load, leaves_at=leaves_at)


def memory(field: str) -> int | None:
    """Return a field of /proc/meminfo in bytes."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    return None


def allocation_end(environ: Mapping[str, str]) -> float | None:
    """Return when the allocation ends that this process runs in, where the environment states it."""
    try:
        return float(environ[END_VARIABLE])
    except (KeyError, ValueError):
        return None


Presence = Literal["absent", "joined", "silent", "lost", "leaving"]
"""`absent`: no worker has joined. `silent`: it has not answered for a while, and its sessions may run. `lost`: it has
been silent for so long that its sessions have ended. `leaving`: its worker ends, or its allocation does."""


class HostPresence(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a host is there, and what it runs. Times are wall time of the leader."""

    name: str
    presence: Presence = "absent"
    sessions: int = 0
    heard_at: float | None = None
    problem: str | None = None
    """Why its worker could not be started, where Paceline starts it."""


class HostState(HostPresence, frozen=True, kw_only=True):
    """One host at one moment."""

    fleet_name: str | None = None
    """What plans also call it: the name of the leader's own machine while it does not lead."""
    settings: HostSettings
    facts: HostFacts | None = None
    load: HostLoad = HostLoad()
    joined_at: float | None = None


HOSTS_STATE: Final = "hosts"


def known_hosts(store: Store) -> dict[str, HostSettings]:
    """Return the hosts that were added, by name."""
    stored = store.load_state(HOSTS_STATE)
    return {} if stored is None else msgspec.json.decode(stored, type=dict[str, HostSettings])


def save_hosts(store: Store, hosts: Mapping[str, HostSettings]) -> None:
    """Keep these hosts in place of the present ones. Called in a transaction that has read those."""
    store.save_state(HOSTS_STATE, msgspec.json.encode(dict(hosts)))


JOINED_STATE: Final = "hosts_joined"
LOCAL_STATE: Final = "hosts_local"
"""The name of the machine in a fleet that logins without a host mean: that of the leader."""


class StoredHost(msgspec.Struct, frozen=True, kw_only=True):
    """What the next leader must know of a host whose worker has joined."""

    worker: str
    host_lease: float | None
    """None for the machine of a leader: what it has started there runs until somebody serves the machine."""
    facts: HostFacts


def stored_host_states(store: Store, configured: Mapping[str, HostSettings]) -> list[HostState]:
    """Return the hosts as a process knows them that does not lead. Who is there now, only the leader knows."""
    settings = {**known_hosts(store), **configured}
    joined = stored_hosts(store)
    own = (LOCAL_HOST, local_machine(store))
    names = [name for name in dict.fromkeys((*settings, *joined)) if name not in own]
    return [
        HostState(
            name=name,
            settings=settings.get(name) or HostSettings(name=name),
            presence="silent" if name in joined else "absent",
            facts=joined[name].facts if name in joined else None,
        )
        for name in names
    ]


def stored_hosts(store: Store) -> dict[str, StoredHost]:
    """Return the hosts whose workers have joined, by their names."""
    stored = store.load_state(JOINED_STATE)
    return {} if stored is None else msgspec.json.decode(stored, type=dict[str, StoredHost])


def local_machine(store: Store) -> str | None:
    """Return the machine of the fleet that logins without a host mean; None in a home of its own."""
    stored = store.load_state(LOCAL_STATE)
    return None if stored is None else stored.decode()

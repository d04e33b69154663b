"""The hosts as they are stored, for the next leader and for processes that do not lead."""

from collections.abc import Mapping
from typing import Final

import msgspec

from paceline.hosts.host_facts import HostFacts
from paceline.hosts.host_state import HostState
from paceline.hosts.known_hosts import known_hosts
from paceline.settings import HostSettings
from paceline.settings.host_fields import LOCAL_HOST
from paceline.store import Store

JOINED_STATE: Final = "hosts_joined"


class StoredHost(msgspec.Struct, frozen=True, kw_only=True):
    """What the next leader must know of a host whose worker has joined."""

    worker: str
    host_lease: float
    facts: HostFacts


def stored_host_states(store: Store, configured: Mapping[str, HostSettings]) -> list[HostState]:
    """Return the hosts as a process knows them that does not lead. Who is there now, only the leader knows."""
    settings = {**known_hosts(store), **configured}
    joined = stored_hosts(store)
    names = [name for name in dict.fromkeys((*settings, *joined)) if name != LOCAL_HOST]
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

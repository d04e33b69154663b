"""The hosts that were added with `paceline hosts add`: kept in the store, so that a running engine sees them."""

from collections.abc import Mapping
from typing import Final

import msgspec

from paceline.settings import HostSettings
from paceline.store import Store

HOSTS_STATE: Final = "hosts"


def known_hosts(store: Store) -> dict[str, HostSettings]:
    """Return the hosts that were added, by name."""
    stored = store.load_state(HOSTS_STATE)
    return {} if stored is None else msgspec.json.decode(stored, type=dict[str, HostSettings])


def save_hosts(store: Store, hosts: Mapping[str, HostSettings]) -> None:
    """Keep these hosts in place of the present ones. Called in a transaction that has read those."""
    store.save_state(HOSTS_STATE, msgspec.json.encode(dict(hosts)))

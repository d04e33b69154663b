"""The hosts that were added with `paceline hosts add`: kept in the store, so that a running engine sees them."""

from typing import Final

import msgspec

from paceline.settings import HostSettings
from paceline.store import Store

HOSTS_STATE: Final = "hosts"


def known_hosts(store: Store) -> dict[str, HostSettings]:
    """Return the hosts that were added, by name."""
    stored = store.load_state(HOSTS_STATE)
    return {} if stored is None else msgspec.json.decode(stored, type=dict[str, HostSettings])

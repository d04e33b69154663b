"""The limits of hosts: the `max_sessions` of each becomes the limit of its scope."""

from collections.abc import Iterable

from paceline.core import Governor
from paceline.engine.placement import host_scope
from paceline.hosts.host_state import HostState
from paceline.settings.host_fields import LOCAL_HOST


class HostLimits:
    """Sets limits when the settings of a host change. In between, a limit that a person has set live stays."""

    def __init__(self, governor: Governor) -> None:
        self._governor = governor
        self._applied: dict[str, int | None] = {}

    def apply(self, hosts: Iterable[HostState], now: float) -> None:
        for state in hosts:
            limit = state.settings.max_sessions
            if state.name == LOCAL_HOST or self._applied.get(state.name) == limit:
                continue
            self._applied[state.name] = limit
            self._governor.set_limit(host_scope(state.name), limit, now=now)

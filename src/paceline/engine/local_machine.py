"""The machine of the engine as one of the hosts: its settings, its free memory and its load."""

import os
import platform
from collections.abc import Callable, Sequence
from pathlib import Path

from paceline.engine.settings import EngineSettings
from paceline.hosts.host_state import HostState
from paceline.hosts.messages import HostFacts, HostLoad
from paceline.settings import HostSettings
from paceline.settings.host_fields import LOCAL_HOST

READ_SECONDS = 2.0
"""How long a reading counts: memory and load change within seconds, and passes may follow within milliseconds."""
MEMINFO = Path("/proc/meminfo")
_AVAILABLE = "MemAvailable:"

HostStates = Callable[[float], Sequence[HostState]]
"""Returns the known hosts at a time."""


def no_hosts(_: float) -> Sequence[HostState]:
    """Return no hosts: every session runs on the machine of the engine."""
    return ()


class LocalMachine:
    """Adds the machine of the engine to the other hosts, if anything limits it or there are others."""

    def __init__(
        self,
        settings: EngineSettings,
        others: Callable[[], Sequence[HostState]],
        read: Callable[[], HostLoad] | None = None,
    ) -> None:
        self._settings = settings.hosts.get(LOCAL_HOST, HostSettings(name=LOCAL_HOST))
        self._is_limited = LOCAL_HOST in settings.hosts or settings.machine != type(settings.machine)()
        self._others = others
        self._read = read or read_load
        self._facts = _own_facts()
        self._load = HostLoad()
        self._read_at: float | None = None

    def states(self, now: float) -> Sequence[HostState]:
        """Return all hosts at a time. Without others and without limits there are none to choose from."""
        others = [each for each in self._others() if each.name != LOCAL_HOST]
        if not others and not self._is_limited:
            return ()
        if self._is_limited and (self._read_at is None or not 0 <= now - self._read_at < READ_SECONDS):
            self._load, self._read_at = self._read(), now
        own = HostState(name=LOCAL_HOST, settings=self._settings, presence="joined", facts=self._facts, load=self._load)
        return [own, *others]


def read_load() -> HostLoad:
    """Return what this machine has left. What cannot be read is unknown."""
    try:
        load = os.getloadavg()[0]
    except OSError:
        load = None
    return HostLoad(free_memory=_free_memory(), load=load)


def _free_memory() -> int | None:
    try:
        lines = MEMINFO.read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(_AVAILABLE))
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def _own_facts() -> HostFacts:
    return HostFacts(
        version="", machine="", hostname=platform.node(), home="", user_home="", cpus=os.cpu_count() or 1, memory=0
    )

"""The machine of the engine as one of the hosts: its settings, its free memory and its load."""

import os
import platform
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from paceline.agents.account import login_on
from paceline.engine.campaign_accounts import NO_ACCOUNT
from paceline.engine.settings import EngineSettings
from paceline.hosts.host_facts import HostFacts, HostLoad
from paceline.hosts.host_load import read_load
from paceline.hosts.host_state import HostState
from paceline.settings import HostSettings
from paceline.settings.host_fields import LOCAL_HOST

READ_SECONDS = 2.0
"""How long a reading counts: memory and load change within seconds, and passes may follow within milliseconds."""

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
        self._read = read or partial(read_load, Path(settings.home))
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


def logins_on(hosts: Sequence[HostState], accounts: Sequence[str]) -> list[str]:
    """Return the logins of accounts on all machines. A host that has reported nothing yet may have one of each."""
    found = list(accounts)
    named = frozenset(accounts)
    for state in hosts:
        if state.name != LOCAL_HOST:
            logins = accounts if state.facts is None else [login.account for login in state.facts.logins]
            found += [login_on(account, state.name) for account in sorted({NO_ACCOUNT, *logins} & named)]
    return found


def _own_facts() -> HostFacts:
    return HostFacts(
        version="", machine="", hostname=platform.node(), home="", user_home="", cpus=os.cpu_count() or 1, memory=0
    )

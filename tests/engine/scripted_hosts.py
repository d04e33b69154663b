"""An engine whose hosts are in the states that a test sets: for tests of where sessions start, without workers."""

from typing import Any

from paceline.engine.engine import Engine
from paceline.hosts.leader.registry import HostRegistry
from paceline.hosts.messages import HostCli, HostFacts, HostLoad, HostState, Login, Presence
from paceline.settings import HostSettings
from paceline.testing.engine_harness import EngineHarness, Script, succeed


def scripted_host(name: str, *accounts: str, **fields: Any) -> HostState:
    """Return a host with eight processors, Claude Code and logins of the accounts.

    `fields` are those of `HostState` and of `HostSettings`.
    """
    facts = HostFacts(
        version="1",
        machine="m",
        hostname=name,
        home="/w",
        user_home="/home/ada",
        cpus=8,
        memory=16 * 10**9,
        logins=tuple(Login(account=each) for each in accounts),
        clis=(HostCli(agent="claude", version="2.1.0"),),
    )
    presence: Presence = fields.pop("presence", "joined")
    heard_at: float | None = fields.pop("heard_at", None)
    load: HostLoad = fields.pop("load", HostLoad())
    settings = HostSettings(name=name, **fields)
    return HostState(name=name, settings=settings, presence=presence, facts=facts, load=load, heard_at=heard_at)


class ScriptedFleet(EngineHarness):
    """A harness with hosts. All sessions run on the one scripted executor, whichever host they are on."""

    def __init__(self, hosts: list[HostState], script: Script = succeed, **settings: Any) -> None:
        self.host_states = hosts
        super().__init__(script, **settings)

    def new_engine(self, owner: str | None = None) -> Engine:
        """Return an engine that sees the scripted hosts."""
        self.engine_parts = {"make_hosts": self._make_hosts}
        return super().new_engine(owner)

    def _make_hosts(self, *arguments: Any, **named: Any) -> HostRegistry:
        registry = HostRegistry(*arguments, **named)
        for name, scripted in (("of", lambda _: registry.local), ("states", lambda: self.host_states)):
            setattr(registry, name, scripted)
        return registry

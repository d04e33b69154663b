"""Hosts as an engine sees them, for tests."""

from paceline.hosts.host_state import HostState, Presence
from paceline.hosts.messages import HostCli, HostFacts, HostLoad, Login
from paceline.settings import HostSettings


def scripted_host(
    name: str,
    *accounts: str,
    presence: Presence = "joined",
    max_sessions: int | None = None,
    labels: tuple[str, ...] = (),
    heard_at: float | None = None,
    load: HostLoad | None = None,
) -> HostState:
    """Return a host with eight processors, Claude Code and logins of the accounts."""
    return HostState(
        name=name,
        settings=HostSettings(name=name, max_sessions=max_sessions, labels=labels),
        presence=presence,
        facts=HostFacts(
            version="1",
            machine="m",
            hostname=name,
            home="/w",
            user_home="/home/ada",
            cpus=8,
            memory=16 * 10**9,
            logins=tuple(Login(account=each) for each in accounts),
            clis=(HostCli(agent="claude", version="2.1.0"),),
        ),
        load=load or HostLoad(),
        heard_at=heard_at,
    )

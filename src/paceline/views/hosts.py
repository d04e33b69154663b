"""Other machines as people see them."""

from collections.abc import Iterable
from typing import Final

import msgspec

from paceline.core.values.fields import fields_of
from paceline.hosts.messages import HostCli, HostPresence, HostState, Login

MOST_PROBLEMS: Final = 3
"""How many problems of logins a row names. One account that expires has the same problem on every host."""


class HostSummary(HostPresence, frozen=True, kw_only=True):
    """What every form of a host has. Times are wall time of the leader, sizes are bytes."""

    max_sessions: int | None
    labels: list[str]
    hostname: str | None
    memory: int | None
    free_memory: int | None
    leaves_at: float | None
    clis: list[HostCli]


class HostView(HostSummary, frozen=True, kw_only=True):
    """One host. `problem` says why nothing starts there."""

    launcher: str | None
    host_lease: float
    version: str | None
    home: str | None
    cpus: int | None
    load: float | None
    joined_at: float | None
    logins: list[Login]
    variables: dict[str, str]


class HostRow(HostSummary, frozen=True, kw_only=True):
    """One host in a table: what is enough to see whether it is there and works.

    `logins` is the number of accounts that it can use; `login_problems` has a few of the others.
    """

    logins: int
    login_problems: list[str]


class Hosts(msgspec.Struct, frozen=True, kw_only=True):
    """Every known host, also those whose workers never joined."""

    hosts: list[HostView]


def host_views(states: Iterable[HostState]) -> list[HostView]:
    """Return what people are shown of the hosts."""
    return [_view(state) for state in states]


def host_rows(states: Iterable[HostState]) -> list[HostRow]:
    """Return the table of hosts. Its size does not grow with the number of accounts."""
    return [_row(_view(state)) for state in states]


def _row(view: HostView) -> HostRow:
    problems = [f"{login.account}: {login.problem}" for login in view.logins if login.problem is not None]
    fields = fields_of(HostSummary, view) | {"clis": [cli for cli in view.clis if cli.version is not None]}
    return HostRow(**fields, logins=len(view.logins) - len(problems), login_problems=problems[:MOST_PROBLEMS])


def _view(state: HostState) -> HostView:
    facts, load, settings = state.facts, state.load, state.settings
    return HostView(
        **fields_of(HostPresence, state),
        launcher=settings.launcher,
        max_sessions=settings.max_sessions,
        labels=sorted({*settings.labels, *(facts.labels if facts is not None else ())}),
        host_lease=settings.host_lease,
        hostname=None if facts is None else facts.hostname,
        version=None if facts is None else facts.version,
        home=None if facts is None else facts.home,
        cpus=None if facts is None else facts.cpus,
        memory=None if facts is None else facts.memory,
        free_memory=load.free_memory,
        load=load.load,
        leaves_at=load.leaves_at,
        joined_at=state.joined_at,
        logins=[] if facts is None else list(facts.logins),
        clis=[] if facts is None else list(facts.clis),
        variables={} if facts is None else facts.variables,
    )

"""`doctor --host`: what another machine has, compared with this one. A session should find the same on both."""

import os
from collections.abc import Iterator, Mapping

from paceline.cli.findings import Finding
from paceline.cli.host_access import read_hosts
from paceline.cli.wiring import Home
from paceline.errors import UnknownName
from paceline.hosts.host_facts import HostFacts
from paceline.hosts.messages import ProbedAccount
from paceline.plans.preflight import INSTALL
from paceline.settings import Settings
from paceline.views.hosts import HostView
from paceline.worker.host_facts import FactsReader

SHOWN_FOLDERS = 4
"""Folders of a PATH that a line names: the rest is seen with --json of `paceline hosts`."""


def examine_host(home: Home, name: str) -> list[Finding]:
    """Compare a host with this machine. Raise `UnknownName` if there is no such host."""
    hosts, is_live = read_hosts(home)
    view = next((each for each in hosts if each.name == name), None)
    if view is None:
        known = ", ".join(each.name for each in hosts) or "none"
        raise UnknownName(f"there is no host {name!r:.80}; known are: {known}")
    return list(host_findings(view, own_facts(home.settings, home.environ), is_live=is_live))


def own_facts(settings: Settings, environ: Mapping[str, str]) -> HostFacts:
    """Return what this machine has, as its worker would report it."""
    logins = [login for name in settings.agent_names() if (login := settings.login(name)) is not None]
    accounts = {account.id: account for account in (*settings.accounts.values(), *logins)}
    probed = (
        ProbedAccount(
            account=account.id,
            provider=account.provider,
            env=account.env,
            key_env=account.key_env,
            agents=tuple(name for name in settings.agent_names() if settings.login(name) == account),
            needs_login=not account.via_gateway,
        )
        for account in accounts.values()
    )
    programs = {name: profile.start[0] for name, profile in settings.agents.items() if profile.start}
    return FactsReader(settings.home, environ).read(probed, settings.agent_names(), programs)


def host_findings(view: HostView, own: HostFacts, *, is_live: bool) -> Iterator[Finding]:
    """Yield what differs there, what is missing there, and what is the same."""
    yield _presence(view, is_live=is_live)
    if view.version is None:
        return
    yield _version(view, own)
    yield from _programs(view, own)
    yield from _logins(view, own)
    yield from _variables(view, own)


def _presence(view: HostView, *, is_live: bool) -> Finding:
    where = f"{view.hostname}, {view.home}" if view.hostname else "no worker has joined yet"
    if not is_live:
        fix = "start the daemon with `paceline up`"
        return Finding(what=view.name, verdict="note", detail=f"{where}; no daemon runs that could ask it", fix=fix)
    if view.presence == "joined":
        size = f"{view.cpus} processors, {(view.memory or 0) / 1e9:.1f} GB of memory"
        return Finding(what=view.name, verdict="ok", detail=f"{where}; {size}")
    fix = view.problem or f"start its worker: `paceline hosts token {view.name}` prints the token that it needs"
    return Finding(what=view.name, verdict="wrong", detail=f"{where}; its worker is {view.presence}", fix=fix)


def _version(view: HostView, own: HostFacts) -> Finding:
    if view.version == own.version:
        return Finding(what="paceline", verdict="ok", detail=own.version)
    fix = "install the same version on both"
    return Finding(what="paceline", verdict="note", detail=f"{view.version} there, {own.version} here", fix=fix)


def _programs(view: HostView, own: HostFacts) -> Iterator[Finding]:
    here = {cli.agent: cli.version for cli in own.clis}
    for cli in view.clis:
        mine = here.get(cli.agent)
        if cli.version is not None and mine in (None, cli.version):
            yield Finding(what=cli.agent, verdict="ok", detail=f"{cli.version} ({cli.path})")
        elif cli.version is not None:
            fix = "install the same version on both: agents behave differently in others"
            yield Finding(what=cli.agent, verdict="note", detail=f"{cli.version} there, {mine} here", fix=fix)
        elif mine is not None:
            state = "does not answer --version there" if cli.path else "is not on the PATH of its worker"
            how = INSTALL.get(cli.agent, f"install {cli.agent}, or start the worker with another PATH")
            yield Finding(
                what=cli.agent, verdict="wrong", detail=f"it {state}; {mine} here", fix=f"on {view.name}: {how}"
            )


def _logins(view: HostView, own: HostFacts) -> Iterator[Finding]:
    here = {login.account: login.problem for login in own.logins}
    usable = [login.account for login in view.logins if login.problem is None]
    if usable:
        yield Finding(what="logins", verdict="ok", detail=", ".join(usable))
    for login in view.logins:
        if login.problem is not None:
            detail, _, fix = login.problem.partition("; ")
            is_only_there = here.get(login.account, login.problem) is None
            yield Finding(
                what=login.account,
                verdict="wrong" if is_only_there else "note",
                detail=detail,
                fix=f"on {view.name}: {fix}" if fix else None,
            )


def _variables(view: HostView, own: HostFacts) -> Iterator[Finding]:
    same = []
    for name in sorted({*view.variables, *own.variables}):
        there, here = view.variables.get(name), own.variables.get(name)
        if there == here:
            same.append(name.removesuffix(" --version"))
        elif name == "PATH":
            yield from _path(there or "", here or "")
        else:
            detail = f"{there or 'not set'} there, {here or 'not set'} here"
            yield Finding(what=name.removesuffix(" --version"), verdict="note", detail=detail)
    if same:
        yield Finding(what="the same", verdict="ok", detail=", ".join(same))


def _path(there: str, here: str) -> Iterator[Finding]:
    """Report folders that programs are found in here and not there: a login without a terminal often lacks some."""
    missing = [folder for folder in dict.fromkeys(here.split(os.pathsep)) if folder not in there.split(os.pathsep)]
    if missing:
        named = ", ".join(missing[:SHOWN_FOLDERS]) + (", ..." if len(missing) > SHOWN_FOLDERS else "")
        fix = "set PATH where the worker is started, if agents need what is there"
        yield Finding(what="PATH", verdict="note", detail=f"without {named}, which are in it here", fix=fix)

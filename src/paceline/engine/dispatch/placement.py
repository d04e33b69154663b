"""The placement of sessions: which logins may take new units of a campaign, and why the other hosts cannot.

A login is an account on a host (`agents/account.py`). Here: what hosts have, are and allow, the engine's own machine
among them, and how long conversations wait for a host that cannot take them. Never here: whether there is room on an
account or a host; the Governor decides that.
"""

import math
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from paceline.agents.account import login_on, split_login
from paceline.core.values.tickets import Deferred, Reason
from paceline.engine.settings import NO_ACCOUNT, CampaignAccounts, EngineSettings
from paceline.hosts.messages import HostFacts, HostLoad, HostState, read_load
from paceline.settings import LOCAL_HOST, HostSettings, MachineTable
from paceline.settings.host_fields import names_host
from paceline.store import Campaign

READ_SECONDS = 2.0
"""How long a reading counts: memory and load change within seconds, and passes may follow within milliseconds."""

HostStates = Callable[[float], Sequence[HostState]]
"""Returns the known hosts at a time."""


def with_own_machine(
    settings: EngineSettings,
    others: Callable[[], Sequence[HostState]],
    read: Callable[[], HostLoad] | None = None,
    *,
    fleet_name: str | None = None,
) -> HostStates:
    """Return what adds the machine of the engine to the other hosts, if anything limits it or there are others.

    Without others and without limits there are none to choose from.
    """
    is_limited = LOCAL_HOST in settings.hosts or settings.machine != type(settings.machine)()
    facts = HostFacts(
        version="", machine="", hostname=platform.node(), home="", user_home="", cpus=os.cpu_count() or 1, memory=0
    )
    own = HostState(
        name=LOCAL_HOST,
        fleet_name=fleet_name,
        settings=settings.hosts.get(LOCAL_HOST, HostSettings(name=LOCAL_HOST)),
        presence="joined",
        facts=facts,
        load=HostLoad(),
    )
    read = read or partial(read_load, Path(settings.home))
    read_at = -math.inf

    def states(now: float) -> Sequence[HostState]:
        nonlocal own, read_at
        found = [each for each in others() if each.name != LOCAL_HOST]
        if not found and not is_limited and fleet_name is None:
            return ()
        if is_limited and not 0 <= now - read_at < READ_SECONDS:
            own, read_at = msgspec.structs.replace(own, load=read()), now
        return [own, *found]

    return states


def logins_on(hosts: Sequence[HostState], accounts: Sequence[str]) -> list[str]:
    """Return the logins of accounts on all machines. A host that has reported nothing yet may have one of each."""
    found = list(accounts)
    named = frozenset(accounts)
    for state in hosts:
        if state.name != LOCAL_HOST:
            logins = accounts if state.facts is None else [login.account for login in state.facts.logins]
            found += [login_on(account, state.name) for account in sorted({NO_ACCOUNT, *logins} & named)]
    return found


def rough_span(seconds: float) -> str:
    """Return the span as people read it: `90 s`, `11 min`."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


LEAVING_SECONDS = 300.0
"""A host that leaves sooner takes nothing new: few sessions end within five minutes, and the others would be lost."""
LEAST_FREE_DISK = 500_000_000
"""Bytes. A checkout and the output of a session need some; a full disk on a worker loses output."""
EXCLUDED_SECONDS = 600.0
"""How long a campaign keeps away from a host that could not start its session: long enough for others to do the work,
short enough after a person has made the folder."""


def host_scope(host: str) -> str:
    """Return the scope of the sessions on a host; '' is the leader's own machine."""
    return f"host:{host or LOCAL_HOST}"


class Places(msgspec.Struct, frozen=True):
    """Where a campaign may start sessions, and what keeps it from the other hosts, by their names.

    `logins` are pairs of an account and a host, in which '' is the leader's own machine. `problems` are those of single
    accounts on hosts that other accounts of the campaign can use.
    """

    logins: tuple[tuple[str, str], ...]
    refusals: dict[str, Deferred]
    problems: dict[str, Deferred] = {}

    def shown(self, campaign: Campaign) -> dict[str, Deferred]:
        """Return the refusals to show: what passes, or what the plan names; all once no host can take it."""
        named = {host: each for host, each in self.refusals.items() if names_host(campaign.hosts, host or LOCAL_HOST)}
        if not self.logins:
            return named or self.refusals
        return {
            host: each
            for host, each in named.items()
            if each.reason != "held" or (host or LOCAL_HOST) in campaign.hosts
        }


Exclusions = dict[tuple[str, str], tuple[float, str]]
"""Until when a campaign keeps away from a host where a session could not work, and why; by campaign and host."""


class Placement:
    """The hosts at one moment. A question costs by their number and by that of logins, not by the product."""

    def __init__(
        self,
        accounts: CampaignAccounts,
        hosts: Sequence[HostState],
        *,
        now: float,
        machine: MachineTable | None = None,
        exclusions: Exclusions | None = None,
    ) -> None:
        self._accounts, self._now = accounts, now
        self._machine = machine or MachineTable()
        self._exclusions = {} if exclusions is None else exclusions
        self._is_unlimited = not hosts and not self._exclusions
        """Whether there is only the machine of the engine, and nothing keeps anything from it."""
        own = HostState(name=LOCAL_HOST, settings=HostSettings(name=LOCAL_HOST), presence="joined")
        self.hosts: Mapping[str, HostState] = {"": own} | {
            "" if each.name == LOCAL_HOST else each.name: each for each in hosts
        }
        """All hosts by name; '' is the leader's own machine."""
        self._problems: dict[str, dict[str, str | None]] = {
            host: {} if state.facts is None else {login.account: login.problem for login in state.facts.logins}
            for host, state in self.hosts.items()
            if host
        }
        self._by_account: dict[str, list[str]] = {}
        for host, problems in self._problems.items():
            for account, problem in problems.items():
                if problem is None:
                    self._by_account.setdefault(account, []).append(host)

    def places(self, campaign: Campaign) -> Places:
        """Return where the campaign may start sessions."""
        named = self._accounts.ids_of(campaign)
        if self._is_unlimited and not (campaign.hosts or campaign.labels):
            return Places(tuple((account, "") for account in named), {})
        refusals = {
            host: refusal
            for host, state in self.hosts.items()
            if (refusal := self._refusal(campaign, host, state)) is not None
        }
        # The leader's own machine is taken to have the logins of all accounts.
        hosts = {each: self.hosts if each == NO_ACCOUNT else ("", *self._by_account.get(each, ())) for each in named}
        logins = tuple((account, host) for account in named for host in hosts[account] if host not in refusals)
        with_login = {host for _, host in logins}
        problems: dict[str, Deferred] = {}
        for host in [host for host in self.hosts if host not in refusals]:
            if host not in with_login:
                refusals[host] = self._without_login(host, named)
            elif host:
                problems |= self._login_problems(host, named)
        return Places(logins, refusals, problems)

    def capacity(self, host: str) -> float:
        """Return how many sessions make the host as loaded as the others: its cap, else its processors."""
        state = self.hosts[host]
        cpus = state.facts.cpus if state.facts is not None else 1
        return float(max(1, state.settings.max_sessions or cpus))

    def refusal(self, campaign: Campaign, account: str, host: str) -> Deferred:
        """Return why the login cannot take units of the campaign, although they began there."""
        state = self.hosts.get(host)
        if state is None:
            detail = f"the host {host} is not known any more: add it with `paceline hosts add {host}`"
            return _deferred("unreachable", host, detail)
        return self._refusal(campaign, host, state) or self._without_login(host, (account,))

    # -- one host ------------------------------------------------------------------------------

    def _refusal(self, campaign: Campaign, host: str, state: HostState) -> Deferred | None:
        """Return why no session of the campaign can start on the host, whoever pays for it."""
        name = state.name
        if not names_host(campaign.hosts, name) and not names_host(campaign.hosts, state.fleet_name or name):
            named = ", ".join(campaign.hosts)
            if not any(names_host(campaign.hosts, each.name) for each in self.hosts.values()):
                fix = "add it with `paceline hosts add`, or correct hosts in the plan"
                return _deferred("held", host, f"no host is called {named}, which the plan names: {fix}")
            return _deferred("held", host, f"the plan names other hosts ({named}), not {name}")
        if state.settings.max_sessions == 0:
            return _deferred("held", host, f"{name} takes no sessions: max_sessions is 0 in [hosts.{name}]")
        return (
            (self._absence(state) if host else None)
            or _missing(campaign, host, state)
            or self._exclusion(campaign, host, name)
            or self._shortage(host, state)
        )

    def _absence(self, state: HostState) -> Deferred | None:
        name, leaves_at = state.name, state.load.leaves_at
        match state.presence:
            case "absent":
                detail = f"{name} has no worker: start it there with `paceline worker`, or see `paceline hosts`"
                return _deferred("unreachable", name, detail)
            case "silent" | "lost":
                since = "" if state.heard_at is None else f" for {rough_span(self._now - state.heard_at)}"
                fate = "its sessions may still run" if state.presence == "silent" else "its sessions have ended"
                detail = f"{name} has not answered{since}, and {fate}: see `paceline hosts`"
                return _deferred("unreachable", name, detail)
            case "leaving":
                return _deferred("unreachable", name, f"{name} is leaving: its worker ends and takes nothing new")
        if leaves_at is not None and leaves_at - self._now < LEAVING_SECONDS:
            when = rough_span(max(0.0, leaves_at - self._now))
            detail = f"{name} leaves in {when}, when its allocation ends: it takes nothing new"
            return _deferred("unreachable", name, detail)
        if state.facts is None:
            return _deferred("unreachable", name, f"{name} has joined, and has not yet reported what it has")
        return None

    def _exclusion(self, campaign: Campaign, host: str, name: str) -> Deferred | None:
        until, reason = self._exclusions.get((campaign.name, host), (0.0, ""))
        if not 0 < until - self._now <= EXCLUDED_SECONDS:
            self._exclusions.pop((campaign.name, host), None)
            return None
        detail = f"a session could not start on {name}: {reason}; put it right there, or name other hosts in the plan"
        return _deferred("held", host, detail, until)

    def _shortage(self, host: str, state: HostState) -> Deferred | None:
        """Return what the host lacks at the moment: memory, room on its disk, or time of its processors."""
        load, settings, machine = state.load, state.settings, self._machine
        floor = settings.min_free_memory if settings.min_free_memory is not None else machine.min_free_memory
        if floor is not None and load.free_memory is not None and load.free_memory < floor:
            setting = f"[hosts.{state.name}]" if settings.min_free_memory is not None else "[machine]"
            have, want = _size(load.free_memory), _size(floor)
            detail = f"{state.name} has {have} of free memory, and min_free_memory in {setting} keeps {want}"
            return _deferred("machine", host, f"{detail}: free some, or lower it")
        if host and load.free_disk is not None and load.free_disk < LEAST_FREE_DISK:
            detail = f"{state.name} has {_size(load.free_disk)} left on its disk: make room there"
            return _deferred("machine", host, detail)
        if not host and machine.max_load is not None and load.load is not None and load.load > machine.max_load:
            detail = f"the load of {state.name} is {load.load:.1f}, above max_load = {machine.max_load:g} in [machine]"
            return _deferred("machine", host, detail)
        return None

    # -- logins --------------------------------------------------------------------------------

    def _without_login(self, host: str, accounts: Sequence[str]) -> Deferred:
        problems = [found for each in accounts if (found := self._problems.get(host, {}).get(each)) is not None]
        wanted = " or ".join(each or "this command" for each in accounts[:3]) + (" …" if len(accounts) > 3 else "")
        detail = f"{host or LOCAL_HOST} has no login of {wanted}: log in there, or see `paceline doctor --host {host}`"
        if problems:
            detail = f"{host} cannot use {wanted}: {problems[0]}"
        return _deferred("held", host, detail)

    def _login_problems(self, host: str, accounts: Sequence[str]) -> dict[str, Deferred]:
        """Return what is wrong with logins of the named accounts on the host, by login."""
        known = self._problems[host]
        wrong = [account for account, problem in known.items() if problem is not None]
        named = frozenset(accounts) if wrong else frozenset()
        return {
            login_on(account, host): _deferred("held", host, f"{host} cannot use {account}: {known[account]}")
            for account in wrong
            if account in named
        }


def _missing(campaign: Campaign, host: str, state: HostState) -> Deferred | None:
    """Return what the host lacks for good: labels, or the agent's CLI. The leader's own machine reports no CLIs."""
    facts = state.facts
    have = {*state.settings.labels, *(facts.labels if facts is not None else ())}
    lacking = [label for label in campaign.labels if label not in have]
    if lacking:
        what = f"the label {lacking[0]}" if len(lacking) == 1 else f"the labels {', '.join(lacking)}"
        return _deferred("held", host, f"{state.name} lacks {what}: add it to [hosts.{state.name}], or change the plan")
    if not host or facts is None or campaign.agent == "command":  # a plan's own needs no CLI
        return None
    found = next((cli for cli in facts.clis if cli.agent == campaign.agent), None)
    if found is not None and found.version is not None:
        return None
    if found is None and not facts.clis:
        return _deferred("unreachable", host, f"{host} has joined, and has not yet reported which agent CLIs it has")
    detail = f"{host} has no {campaign.agent} that answers: install it there, then `paceline doctor --host {host}`"
    return _deferred("held", host, detail)


def _deferred(reason: Reason, host: str, detail: str, retry_at: float | None = None) -> Deferred:
    return Deferred("", reason, host_scope(host), detail, retry_at)


def _size(size: int) -> str:
    return f"{size / 1e9:.1f} GB"


class Overdue(NamedTuple):
    """Conversations of a campaign on a login that have waited for longer than the campaign's patience."""

    campaign: str
    login: str
    reason: str


class HostPatience:
    """Since when hosts are gone or refuse conversations. A new leader counts from its start, or from their silence."""

    def __init__(self) -> None:
        self._gone_since: dict[str, float] = {}
        self._refused_before: dict[tuple[str, str], float] = {}
        self._refused_since: dict[tuple[str, str], float] = {}
        self.overdue: list[Overdue] = []

    def begin(self, hosts: Iterable[HostState], now: float) -> None:
        """Begin a pass: see which hosts are there, and forget those that no conversation waited for in the last one."""
        gone: dict[str, float] = {}
        for state in hosts:
            if state.presence != "joined":
                heard_at = state.heard_at if state.presence in ("silent", "lost") else None
                since = self._gone_since.get(state.name, now if heard_at is None else heard_at)
                gone[state.name] = min(since, now)
        self._gone_since = gone
        self._refused_before, self._refused_since = self._refused_since, {}
        self.overdue.clear()

    def explain(self, campaign: Campaign, login: str, refusal: Deferred, now: float, *, has_others: bool) -> Deferred:
        """Return why conversations on the login wait. They are given up only if the campaign `has_others`."""
        _, host = split_login(login)
        key = campaign.name, host
        self._refused_since[key] = self._refused_before.get(key, now)
        since = min(self._gone_since.get(host, now), self._refused_since[key], now)
        until = since + campaign.patience
        if not has_others:
            detail = f"their conversation is there, and no other host can take them: {refusal.detail}"
            return Deferred("", refusal.reason, refusal.scope, detail, refusal.retry_at)
        if now >= until:
            reason = f"its conversation was given up after {rough_span(now - since)}: {refusal.detail}"
            self.overdue.append(Overdue(campaign.name, login, reason))
        when = f"{datetime.fromtimestamp(until, UTC):%H:%M} UTC"
        detail = f"their conversation is there until {when}, when they begin again elsewhere: {refusal.detail}"
        return Deferred("", refusal.reason, refusal.scope, detail, until)

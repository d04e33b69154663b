"""What waits for a person: held accounts, pools, budgets, stopped units by reason, paused campaigns, hosts, logins.

Each has one action that settles it. What settles itself with time is not here: a spent window, a pause, a login that is
asked again, a learnt limit that climbs back.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, get_args

import msgspec

from paceline.core.unit_lifecycle import UnitState
from paceline.core.values.scopes import is_provider_scope, path_scopes
from paceline.engine.commands import reason_family
from paceline.settings import KeyPoolSettings
from paceline.store import Campaign, StoppedUnits
from paceline.views.capacity import AccountBudget, AccountView, KeyView, ScopeCapacity, SpentBudget
from paceline.views.gateway_calls import MemberFailure
from paceline.views.hosts import HostRow
from paceline.views.safe_text import printable

NeedKind = Literal[
    "store_outage",
    "held_scope",
    "missing_key",
    "idle_pool",
    "failing_account",
    "reached_budget",
    "stopped_units",
    "paused_campaign",
    "host_problem",
    "expiring_login",
    "learnt_limit",
]
NeedAction = Literal["restore", "retry", "resume", "none"]
ORDER: Final[tuple[NeedKind, ...]] = get_args(NeedKind)
"""What stops the most comes first. A limit that stays reduced stops nothing, and is last."""
AUTH: Final = "auth"
"""The reason of a pause after a refused login."""
MOST_REASONS: Final = 200
"""Reasons that are read from the store: more would not be read by anybody."""
FAILING_SECONDS: Final = 120.0
"""How long an account of a pool must fail before a person is asked. Restarts and short outages end sooner."""


class Need(msgspec.Struct, frozen=True):
    """One thing that waits for a person. `target` is the scope, unit, campaign or host that `action` acts on.

    For stopped units `target` is one of them: `retry` acts on all that stopped for the same reason. `until` is when it
    ends by itself, null if it does not or if nobody knows. `since` and `tried_at` are when it began and when it is
    tried again, where that is known.
    """

    kind: NeedKind
    title: str
    detail: str
    action: NeedAction
    target: str
    campaign: str | None = None
    state: UnitState | None = None
    units: int = 0
    until: float | None = None
    since: float | None = None
    tried_at: float | None = None


class _Stuck(msgspec.Struct, frozen=True):
    """Why an account serves no calls. `failure` is set if it cannot be reached."""

    why: str
    failure: MemberFailure | None = None


class NeedSources(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked through for things that wait for a person."""

    now: float
    trouble: str | None = None
    """Why nothing can be stored now."""
    rows: Sequence[ScopeCapacity] = ()
    stopped: Iterable[StoppedUnits] = ()
    campaigns: Iterable[Campaign] = ()
    hosts: Iterable[HostRow] = ()
    accounts: Sequence[AccountView] = ()
    keys: Iterable[KeyView] = ()
    pools: Iterable[KeyPoolSettings] = ()
    failures: Sequence[MemberFailure] = ()


def needs(sources: NeedSources) -> list[Need]:
    """Return everything that waits for a person, the most important first."""
    found = (*_of_scopes(sources.rows), *_of_accounts(sources), *_of_pools(sources), *_of_work(sources))
    shown = [msgspec.structs.replace(need, detail=printable(need.detail)) for need in found]
    return sorted(shown, key=lambda need: (ORDER.index(need.kind), -need.units))


def _of_scopes(scopes: Sequence[ScopeCapacity]) -> Iterator[Need]:
    for row in scopes:
        if row.held is not None:
            yield Need("held_scope", f"{row.scope} is held", row.held, "restore", row.scope)
        elif _stays_reduced(row, scopes):
            title = f"{row.scope} runs {row.adaptive} at once instead of {row.auto_reduced_from}"
            yield Need("learnt_limit", title, row.notice or "learnt from refusals", "restore", row.scope)


def _of_accounts(sources: NeedSources) -> Iterator[Need]:
    for each in sources.accounts:
        if each.key is not None and not each.key.is_set:
            detail = f"it takes its key from {each.key.name}, which is not set where `paceline up` was started"
            yield Need("missing_key", f"{each.name} has no key", detail, "none", each.scope)
        if (expiry := each.expiry) is not None and expiry.is_due(sources.now):
            title, since = expiry.text(each.name, sources.now), expiry.at if expiry.at <= sources.now else None
            yield Need("expiring_login", title, expiry.fix, "none", each.name, since=since)
    spending: list[tuple[str, SpentBudget]] = [
        *((f"account {name}", budget) for name, budget in _budgets(sources.accounts)),
        *((f"key {key.name}", key) for key in sources.keys),
    ]
    for what, spent in spending:
        if spent.is_reached:
            title = f"the budget of the {what} is reached"
            detail = f"it has spent ${spent.spent or 0.0:,.2f} of {spent.budget}; its calls are refused"
            yield Need("reached_budget", title, detail, "none", what.partition(" ")[2], until=spent.resumes_at)


def _of_pools(sources: NeedSources) -> Iterator[Need]:
    stuck = _stuck_accounts(sources.rows, sources.accounts, sources.failures)
    idle = [pool for pool in sources.pools if all(name in stuck for name in pool.accounts)]
    yield from (_idle_pool(pool, stuck) for pool in idle)
    for each in sources.failures:
        if _lasts(each) and not _is_explained(each, sources.rows, idle):
            pools = f"the pool{'' if len(each.pools) == 1 else 's'} {', '.join(each.pools)}"
            what = "cannot be reached" if each.kind == "unreachable" else "refuses its calls"
            title = f"{each.account} of {pools} {what}"
            detail = f"{each.calls} calls went to another account ({each.detail})"
            since, tried_at = each.since, each.retry_at
            yield Need("failing_account", title, detail, "none", each.account, since=since, tried_at=tried_at)


def _of_work(sources: NeedSources) -> Iterator[Need]:
    if sources.trouble is not None:
        yield Need("store_outage", "nothing starts: the store cannot be used", sources.trouble, "none", "store")
    for group in by_reason(sources.stopped):
        state, units, name = group.state, group.units, group.campaign
        title = f"1 unit of {name} is {state}" if units == 1 else f"{units} units of {name} are {state}"
        reason = group.reason or "no reason was given"
        yield Need("stopped_units", title, reason, "retry", group.example, campaign=name, state=state, units=units)
    for each in sources.campaigns:
        if each.state == "paused" and each.pause_reason is not None:
            name = each.name
            yield Need("paused_campaign", f"{name} paused itself", each.pause_reason, "resume", name, campaign=name)
    for host in sources.hosts:
        if host.problem is not None:
            yield Need("host_problem", f"nothing starts on {host.name}", host.problem, "none", host.name)


def _stays_reduced(row: ScopeCapacity, scopes: Iterable[ScopeCapacity]) -> bool:
    """Return whether only a person raises the learnt limit, which lets less run than the account and the provider."""
    if row.adaptive is None or row.learnt is None or row.learnt.next_level is not None:
        return False
    above = path_scopes(row.scope)[:-1] if is_provider_scope(row.scope) else ()
    return all(row.adaptive < each.limit for each in scopes if each.scope in above and each.limit is not None)


def by_reason(stopped: Iterable[StoppedUnits]) -> list[StoppedUnits]:
    """Join the groups of one campaign and state whose reasons differ only in numbers."""
    groups: dict[tuple[str, str, str], StoppedUnits] = {}
    for group in stopped:
        key = group.campaign, group.state, reason_family(group.reason)
        known = groups.get(key)
        units = group.units + (0 if known is None else known.units)
        groups[key] = msgspec.structs.replace(known or group, units=units)
    return sorted(groups.values(), key=lambda each: -each.units)


def _stuck_accounts(
    rows: Iterable[ScopeCapacity], accounts: Iterable[AccountView], failures: Iterable[MemberFailure]
) -> dict[str, _Stuck]:
    """Return the accounts that serve no call before somebody or something else changes, by name."""
    stuck = {each.account: _Stuck(each.detail, each) for each in failures if each.kind == "unreachable"}
    by_scope = {each.scope: each for each in accounts}
    for row in rows:
        if row.scope in by_scope and row.held is not None:
            stuck[by_scope[row.scope].name] = _Stuck(f"held: {row.held}")
        elif row.scope in by_scope and row.paused_reason == AUTH:
            stuck[by_scope[row.scope].name] = _Stuck("its key was refused")
    keyless = {
        each.name: _Stuck(f"{each.key.name} is not set") for each in accounts if each.key and not each.key.is_set
    }
    spent = {name: _Stuck("its budget is reached") for name, budget in _budgets(accounts) if budget.is_reached}
    return stuck | spent | keyless


def _idle_pool(pool: KeyPoolSettings, stuck: Mapping[str, _Stuck]) -> Need:
    members = {name: stuck[name] for name in pool.accounts}
    failures = [each.failure for each in members.values() if each.failure is not None]
    fallback = "; its fallback routes are used" if pool.fallback else ""
    detail = "; ".join(f"{name}: {each.why}" for name, each in members.items()) + fallback
    since = max((each.since for each in failures), default=None)
    tried_at = min((each.retry_at for each in failures if each.retry_at is not None), default=None)
    title = f"no account of the pool {pool.name} can serve"
    return Need("idle_pool", title, detail, "none", pool.name, since=since, tried_at=tried_at)


def _lasts(failure: MemberFailure) -> bool:
    """Return whether calls have failed for minutes. What was tried once may work by now."""
    return failure.last_at - failure.since >= FAILING_SECONDS


def _is_explained(failure: MemberFailure, rows: Iterable[ScopeCapacity], idle: Iterable[KeyPoolSettings]) -> bool:
    """Return whether it is said elsewhere why the account serves nothing."""
    if any(failure.account in pool.accounts for pool in idle):
        return True
    row = next((each for each in rows if each.scope == failure.scope), None)
    return row is not None and (row.held is not None or any(each.state != "open" for each in row.windows))


def _budgets(accounts: Iterable[AccountView]) -> list[tuple[str, AccountBudget]]:
    return [(each.name, each.daily_budget) for each in accounts if each.daily_budget is not None]

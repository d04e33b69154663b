"""What waits for a person: held accounts, pools, budgets, stopped units by reason, paused campaigns, hosts, logins.

Each has one action that settles it. What settles itself with time (a spent window, a pause) is not here.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, get_args

import msgspec

from paceline.core.unit_lifecycle import UnitState
from paceline.core.values.scopes import is_provider_scope, path_scopes
from paceline.engine.stop_reasons import reason_family
from paceline.plans.login_expiry import LoginExpiry
from paceline.settings import KeyPoolSettings
from paceline.store import Campaign, StoppedUnits
from paceline.views.accounts import AccountBudget, AccountView
from paceline.views.capacity import ScopeCapacity
from paceline.views.gateway_calls import MemberFailure
from paceline.views.hosts import HostRow
from paceline.views.keys import KeyView
from paceline.views.safe_text import printable

NeedKind = Literal[
    "held_scope",
    "refused_login",
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
"""What stops the most comes first. A learnt limit stops nothing, and is last."""
AUTH: Final = "auth"
"""The reason of a pause after a refused login."""
MOST_REASONS: Final = 200
"""Reasons that are read from the store: more would not be read by anybody."""
FAILING_SECONDS: Final = 120.0
"""How long an account of a pool must fail before a person is asked. Restarts and short outages end sooner."""


class Need(msgspec.Struct, frozen=True, kw_only=True):
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
    scopes, accounts, now = sources.rows, sources.accounts, sources.now
    stuck = _stuck_accounts(scopes, accounts, sources.failures)
    idle = [pool for pool in sources.pools if all(name in stuck for name in pool.accounts)]
    failing = [each for each in sources.failures if _lasts(each) and not _is_explained(each, scopes, idle)]
    found = [
        *(_held(row) for row in scopes if row.held is not None),
        *(_refused_login(row) for row in scopes if row.held is None and row.paused_reason == AUTH),
        *(_missing_key(each) for each in accounts if each.key is not None and not each.key.is_set),
        *(_idle_pool(pool, stuck) for pool in idle),
        *(_failing(each) for each in failing),
        *(_reached("account", name, budget) for name, budget in _budgets(accounts) if budget.is_reached),
        *(_reached("key", key.name, key) for key in sources.keys if key.is_reached),
        *(_stopped(group) for group in by_reason(sources.stopped)),
        *(_paused(each) for each in sources.campaigns if each.state == "paused" and each.pause_reason is not None),
        *(_host(each) for each in sources.hosts if each.problem is not None),
        *(_expiring(each.name, each.expiry, now) for each in accounts if each.expiry and each.expiry.is_due(now)),
        *(_learnt(row) for row in scopes if row.held is None and _is_felt(row, scopes)),
    ]
    return sorted(found, key=lambda need: (ORDER.index(need.kind), -need.units))


def _is_felt(row: ScopeCapacity, scopes: Iterable[ScopeCapacity]) -> bool:
    """Return whether a learnt limit lets less run than the limits of the account and the provider do anyway."""
    if row.adaptive is None:
        return False
    above = path_scopes(row.scope)[:-1] if is_provider_scope(row.scope) else ()
    limits = [each.limit for each in scopes if each.scope in above and each.limit is not None]
    return all(row.adaptive < limit for limit in limits)


def by_reason(stopped: Iterable[StoppedUnits]) -> list[StoppedUnits]:
    """Join the groups of one campaign and state whose reasons differ only in numbers."""
    groups: dict[tuple[str, str, str], StoppedUnits] = {}
    for group in stopped:
        key = group.campaign, group.state, reason_family(group.reason)
        known = groups.get(key)
        units = group.units + (0 if known is None else known.units)
        groups[key] = msgspec.structs.replace(known or group, units=units)
    return sorted(groups.values(), key=lambda each: -each.units)


def _held(row: ScopeCapacity) -> Need:
    return Need(
        kind="held_scope",
        title=f"{row.scope} is held",
        detail=printable(row.held or ""),
        action="restore",
        target=row.scope,
    )


def _refused_login(row: ScopeCapacity) -> Need:
    return Need(
        kind="refused_login",
        title=f"the login of {row.scope} was refused",
        detail="it is asked again by itself, and held if it is refused again; sign in, or set its key, then restore it",
        action="restore",
        target=row.scope,
    )


def _missing_key(account: AccountView) -> Need:
    assert account.key is not None
    return Need(
        kind="missing_key",
        title=f"{account.name} has no key",
        detail=f"it takes its key from {account.key.name}, which is not set where `paceline up` was started",
        action="none",
        target=account.scope,
    )


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
    return Need(
        kind="idle_pool",
        title=f"no account of the pool {pool.name} can serve",
        detail=printable("; ".join(f"{name}: {each.why}" for name, each in members.items()) + fallback),
        action="none",
        target=pool.name,
        since=max((each.since for each in failures), default=None),
        tried_at=min((each.retry_at for each in failures if each.retry_at is not None), default=None),
    )


def _lasts(failure: MemberFailure) -> bool:
    """Return whether calls have failed for minutes. What was tried once may work by now."""
    return failure.last_at - failure.since >= FAILING_SECONDS


def _is_explained(failure: MemberFailure, rows: Iterable[ScopeCapacity], idle: Iterable[KeyPoolSettings]) -> bool:
    """Return whether it is said elsewhere why the account serves nothing."""
    if any(failure.account in pool.accounts for pool in idle):
        return True
    row = next((each for each in rows if each.scope == failure.scope), None)
    return row is not None and (row.held is not None or any(each.state != "open" for each in row.windows))


def _failing(failure: MemberFailure) -> Need:
    pools = f"the pool{'' if len(failure.pools) == 1 else 's'} {', '.join(failure.pools)}"
    what = "cannot be reached" if failure.kind == "unreachable" else "refuses its calls"
    return Need(
        kind="failing_account",
        title=f"{failure.account} of {pools} {what}",
        detail=printable(f"{failure.calls} calls went to another account ({failure.detail})"),
        action="none",
        target=failure.account,
        since=failure.since,
        tried_at=failure.retry_at,
    )


def _budgets(accounts: Iterable[AccountView]) -> list[tuple[str, AccountBudget]]:
    return [(each.name, each.daily_budget) for each in accounts if each.daily_budget is not None]


def _reached(what: str, name: str, spent: KeyView | AccountBudget) -> Need:
    return Need(
        kind="reached_budget",
        title=f"the budget of the {what} {name} is reached",
        detail=f"it has spent ${spent.spent or 0.0:,.2f} of {spent.budget}; its calls are refused",
        action="none",
        target=name,
        until=spent.resumes_at,
    )


def _stopped(group: StoppedUnits) -> Need:
    units = f"{group.units} unit" + ("" if group.units == 1 else "s")
    return Need(
        kind="stopped_units",
        title=f"{units} of {group.campaign} {'is' if group.units == 1 else 'are'} {group.state}",
        detail=printable(group.reason or "no reason was given"),
        action="retry",
        target=group.example,
        campaign=group.campaign,
        state=group.state,
        units=group.units,
    )


def _paused(campaign: Campaign) -> Need:
    return Need(
        kind="paused_campaign",
        title=f"{campaign.name} paused itself",
        detail=printable(campaign.pause_reason or ""),
        action="resume",
        target=campaign.name,
        campaign=campaign.name,
    )


def _host(host: HostRow) -> Need:
    return Need(
        kind="host_problem",
        title=f"nothing starts on {host.name}",
        detail=printable(host.problem or ""),
        action="none",
        target=host.name,
    )


def _expiring(account: str, expiry: LoginExpiry, now: float) -> Need:
    return Need(
        kind="expiring_login",
        title=expiry.text(account, now),
        detail=expiry.fix,
        action="none",
        target=account,
        since=expiry.at if expiry.at <= now else None,
    )


def _learnt(row: ScopeCapacity) -> Need:
    return Need(
        kind="learnt_limit",
        title=f"{row.scope} runs {row.adaptive} at once instead of {row.auto_reduced_from}",
        detail=printable(row.notice or "learnt from refusals"),
        action="restore",
        target=row.scope,
    )

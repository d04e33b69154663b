"""What waits for a person: held accounts, budgets, stopped units by reason, campaigns that paused themselves, hosts.

Each has one action that settles it. What settles itself with time (a spent window, a pause) is not here.
"""

from collections.abc import Iterable
from typing import Final, Literal, get_args

import msgspec

from paceline.core.unit_lifecycle import UnitState
from paceline.core.values.scopes import is_provider_scope, path_scopes
from paceline.engine.stop_reasons import reason_family
from paceline.store import Campaign, StoppedUnits
from paceline.views.accounts import AccountView
from paceline.views.capacity import ScopeCapacity
from paceline.views.hosts import HostRow
from paceline.views.keys import KeyView
from paceline.views.safe_text import printable

NeedKind = Literal[
    "held_scope",
    "refused_login",
    "missing_key",
    "reached_budget",
    "stopped_units",
    "paused_campaign",
    "host_problem",
    "learnt_limit",
]
NeedAction = Literal["restore", "retry", "resume", "none"]
ORDER: Final[tuple[NeedKind, ...]] = get_args(NeedKind)
"""What stops the most comes first. A learnt limit stops nothing, and is last."""
AUTH: Final = "auth"
"""The reason of a pause after a refused login."""
MOST_REASONS: Final = 200
"""Reasons that are read from the store: more would not be read by anybody."""


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that waits for a person. `target` is the scope, unit, campaign or host that `action` acts on.

    For stopped units `target` is one of them: `retry` acts on all that stopped for the same reason. `until` is when it
    ends by itself, null if it does not or if nobody knows.
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


def needs(
    rows: Iterable[ScopeCapacity],
    stopped: Iterable[StoppedUnits],
    campaigns: Iterable[Campaign],
    hosts: Iterable[HostRow],
    accounts: Iterable[AccountView] = (),
    keys: Iterable[KeyView] = (),
) -> list[Need]:
    """Return everything that waits for a person, the most important first."""
    scopes = list(rows)
    found = [
        *(_held(row) for row in scopes if row.held is not None),
        *(_refused_login(row) for row in scopes if row.held is None and row.paused_reason == AUTH),
        *(_missing_key(each) for each in accounts if each.key is not None and not each.key.is_set),
        *(_reached(key) for key in keys if key.is_reached),
        *(_stopped(group) for group in by_reason(stopped)),
        *(_paused(each) for each in campaigns if each.state == "paused" and each.pause_reason is not None),
        *(_host(each) for each in hosts if each.problem is not None),
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


def _reached(key: KeyView) -> Need:
    return Need(
        kind="reached_budget",
        title=f"the budget of the key {key.name} is reached",
        detail=f"it has spent ${key.spent or 0.0:,.2f} of {key.budget}; its calls are refused",
        action="none",
        target=key.name,
        until=key.resumes_at,
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


def _learnt(row: ScopeCapacity) -> Need:
    return Need(
        kind="learnt_limit",
        title=f"{row.scope} runs {row.adaptive} at once instead of {row.auto_reduced_from}",
        detail=printable(row.notice or "learnt from refusals"),
        action="restore",
        target=row.scope,
    )

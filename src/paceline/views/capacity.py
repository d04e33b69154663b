"""Scopes as rows for people: what is in flight, what limits it and why, and the windows of its quota. Looks only."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from zoneinfo import ZoneInfo

import msgspec

from paceline.api import schemas as wire
from paceline.api.context import Site
from paceline.core import ScopeStatus, WindowStatus
from paceline.core.values.scopes import RUNS, SESSIONS, canonical_scope, path_scopes
from paceline.errors import InvalidInput
from paceline.settings.model import SHIPPED
from paceline.store import Campaign

CAMPAIGN = "campaign:"
AGENT = "agent:"
_KINDS: tuple[wire.ScopeKind, ...] = ("provider", "account", "model")
_PLACES: dict[wire.ScopeKind, int] = {"pool": 0, "provider": 1, "account": 1, "model": 1, "agent": 2, "campaign": 3}
"""What lies in a provider comes right after it, by its name."""


def kind_of(scope: str) -> wire.ScopeKind:
    if scope in (SESSIONS, RUNS):
        return "pool"
    if scope.startswith(CAMPAIGN):
        return "campaign"
    return "agent" if scope.startswith(AGENT) else _KINDS[scope.count("/")]


def capacity_rows(site: Site, statuses: Iterable[ScopeStatus], campaigns: Iterable[Campaign]) -> list[wire.Capacity]:
    """A row for every scope that is known, and for the accounts of the settings that were never used."""
    known = {status.scope: status for status in statuses}
    for account in site.settings.accounts.values():
        for scope in path_scopes(account.scope):
            if scope not in known:
                known[scope] = _unused(site, scope)
    planned = {f"{CAMPAIGN}{campaign.name}" for campaign in campaigns}
    rows = [_row(site, status, planned) for status in known.values()]
    return sorted(rows, key=lambda row: (_PLACES[row.kind], row.scope))


def _row(site: Site, status: ScopeStatus, planned: Collection[str]) -> wire.Capacity:
    source, entry = _origin(site, status.scope, planned)
    return wire.Capacity(
        scope=status.scope,
        kind=kind_of(status.scope),
        in_flight=status.in_flight,
        cooling=status.cooling,
        limit=status.limit,
        configured=status.configured,
        configured_source=source,
        configured_by=entry,
        platform=status.platform,
        adaptive=status.adaptive,
        queued=status.queued,
        cooldown=status.cooldown,
        paused_until=status.paused_until,
        auto_reduced=status.auto_reduced,
        auto_reduced_from=status.auto_reduced_from,
        notice=status.notice,
        held=status.held,
        windows=status.windows,
    )


def _unused(site: Site, scope: str) -> ScopeStatus:
    """What there is to say of a scope that nobody has asked for yet."""
    limit = site.governor.get_limit(scope)
    return ScopeStatus(
        scope=scope,
        limit=limit,
        configured=limit,
        platform=None,
        adaptive=None,
        in_flight=0,
        cooling=0,
        queued=0,
        paused=False,
        paused_until=None,
        cooldown=site.governor.get_cooldown(scope),
        auto_reduced=False,
        auto_reduced_from=None,
        notice=None,
        window=None,
        windows=(),
        held=None,
    )


def _origin(site: Site, scope: str, planned: Collection[str]) -> tuple[str, str | None]:
    """Where the configured limit comes from, and the entry that it is."""
    ruling = site.governor.ruling_limit(scope)
    if ruling is None:
        return "", None
    entry, is_live = ruling
    if scope in planned:
        return "plan", entry
    if is_live:
        return ("live" if entry == scope else "pattern"), entry
    configured = site.settings.limits.get(entry)
    if entry != scope or configured is None:
        return "pattern", entry
    is_named = configured.source in (SHIPPED, "environment", "flags")
    return (configured.source if is_named else "file"), entry


# -- windows -----------------------------------------------------------------------------------------


def windows_of(statuses: Iterable[ScopeStatus]) -> list[wire.ScopeWindow]:
    return [
        wire.ScopeWindow(scope=status.scope, **msgspec.structs.asdict(window))
        for status in statuses
        for window in status.windows
    ]


def quota_line(site: Site, campaign: Campaign, statuses: Mapping[str, ScopeStatus], now: float) -> str | None:
    """`quota spent on max-1, resumes about 14:30`; None where no window of the campaign is spent."""
    spent: dict[str, float | None] = {}
    for name, scopes in _payers(site, campaign):
        closed = [
            window
            for scope in scopes
            if scope in statuses
            for window in statuses[scope].windows
            if window.state != "open"
        ]
        if closed:
            spent[name] = _reopens_at(closed, now)
    if not spent:
        return None
    times = [at for at in spent.values() if at is not None]
    when = f"resumes about {_clock(min(times), now, site.zone)}" if times else "tried again from time to time"
    return f"quota spent on {', '.join(spent)}, {when}"


def _payers(site: Site, campaign: Campaign) -> list[tuple[str, tuple[str, ...]]]:
    """Whose quota the campaign uses, and the scopes whose windows are about it."""
    if not campaign.accounts:
        return [(campaign.agent, (f"{AGENT}{campaign.agent}",))]
    found = [site.settings.accounts[name] for name in campaign.accounts if name in site.settings.accounts]
    return [(account.name, _path(account.scope, campaign.model)) for account in found]


def _path(account_scope: str, model: str | None) -> tuple[str, ...]:
    try:
        return path_scopes(canonical_scope(f"{account_scope}/{model}") if model else account_scope)
    except InvalidInput:  # a model that was stored by an older version
        return path_scopes(account_scope)


def _reopens_at(closed: list[WindowStatus], now: float) -> float | None:
    """When the last of them is believed to open; None where nobody knows."""
    times = [max(window.resets_at or window.probe_at or 0.0, now) for window in closed]
    is_known = all(window.resets_at is not None or window.probe_at is not None for window in closed)
    return max(times) if is_known else None


def _clock(at: float, now: float, zone: ZoneInfo) -> str:
    """The time of day, with its day where that is not today."""
    try:
        moment, today = datetime.fromtimestamp(at, zone), datetime.fromtimestamp(now, zone)
    except (ValueError, OverflowError, OSError):
        return f"Unix time {at:.0f}"
    if moment.date() == today.date():
        return f"{moment:%H:%M}"
    return f"{moment:%a %H:%M}" if at - now < 6 * 86400 else f"{moment:%Y-%m-%d %H:%M}"

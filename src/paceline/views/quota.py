"""Quota windows: those of every scope, and the sentence that a spent quota has in CLI, API and dashboard."""

from collections.abc import Iterable
from datetime import datetime
from zoneinfo import ZoneInfo

import msgspec

from paceline.core import ScopeStatus, WindowStatus
from paceline.core.gates.quota_window import TRUSTED_CONFIDENCE
from paceline.core.values.scopes import canonical_scope, path_scopes
from paceline.errors import InvalidInput
from paceline.store import Campaign
from paceline.views.capacity import CAMPAIGN
from paceline.views.fleet import FleetState

DAY_SECONDS = 86400
WEEKDAY_SECONDS = 6 * DAY_SECONDS
"""Within this time a weekday names one day only; beyond it the date is written out."""


class ScopeWindow(msgspec.Struct, frozen=True, kw_only=True):
    """A quota window: what is believed of it, the source and the time of that belief, and how far to trust it."""

    scope: str
    name: str
    state: str
    resets_at: float | None
    probe_at: float | None
    source: str | None
    seen_at: float | None
    confidence: float
    used_ratio: float | None
    estimated_ratio: float | None
    holds_seconds: float | None
    expected_reset: float | None
    length: float | None
    missed_at: float | None = None


def scope_windows(statuses: Iterable[ScopeStatus]) -> list[ScopeWindow]:
    """Return every window of every scope."""
    return [
        ScopeWindow(scope=status.scope, **msgspec.structs.asdict(window))
        for status in statuses
        for window in status.windows
    ]


def quota_line(fleet: FleetState, campaign: Campaign) -> str | None:
    """Return `quota spent on max-1, resumes about 14:30`, or None where no window of the campaign is spent."""
    spent: dict[str, float | None] = {}
    for name, scopes in _payers(fleet, campaign):
        known = [fleet.scopes[scope] for scope in scopes if scope in fleet.scopes]
        closed = [window for status in known for window in status.windows if window.state != "open"]
        if closed:
            spent[name] = _reopens_at(closed, fleet.now)
    if not spent:
        return None
    times = [at for at in spent.values() if at is not None]
    when = f"resumes about {_clock_time(min(times), fleet.now, fleet.zone)}" if times else "probed from time to time"
    return f"quota spent on {', '.join(spent)}, {when}"


def _payers(fleet: FleetState, campaign: Campaign) -> list[tuple[str, tuple[str, ...]]]:
    """Return whose quota the campaign uses, and the scopes that hold the windows of that quota."""
    found = fleet.settings.campaign_accounts(campaign.agent, campaign.accounts)
    if not found and not campaign.accounts:
        return [(campaign.name, (f"{CAMPAIGN}{campaign.name}",))]
    return [(account.id, _path(account.scope, campaign.model)) for account in found]


def _path(account_scope: str, model: str | None) -> tuple[str, ...]:
    try:
        return path_scopes(canonical_scope(f"{account_scope}/{model}") if model else account_scope)
    except InvalidInput:  # a model name that an older version accepted and stored
        return path_scopes(account_scope)


def _reopens_at(closed: list[WindowStatus], now: float) -> float | None:
    """Return when the last of the windows is believed to open, or None where that is unknown for one of them."""
    times = [window.resets_at if _is_planned_with(window) else window.probe_at for window in closed]
    known = [max(at, now) for at in times if at is not None]
    return max(known) if len(known) == len(closed) else None


def _is_planned_with(window: WindowStatus) -> bool:
    """Return whether the stated reset counts, and not the next look: one that moved after it was missed is in doubt."""
    return window.resets_at is not None and (window.missed_at is None or window.confidence >= TRUSTED_CONFIDENCE)


def _clock_time(at: float, now: float, zone: ZoneInfo) -> str:
    """Return the time of day, with its day where that is not today."""
    try:
        moment, today = datetime.fromtimestamp(at, zone), datetime.fromtimestamp(now, zone)
    except (ValueError, OverflowError, OSError):
        return f"Unix time {at:.0f}"
    if moment.date() == today.date():
        return f"{moment:%H:%M}"
    return f"{moment:%a %H:%M}" if at - now < WEEKDAY_SECONDS else f"{moment:%Y-%m-%d %H:%M}"

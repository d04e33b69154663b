"""Scopes as rows: what is in flight, what limits it, and where each limit comes from."""

from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from paceline.core import ScopeStatus, WindowStatus
from paceline.core.gates.rate_limit import RATE_SPAN_SECONDS
from paceline.core.values.scopes import KEY, LOCAL, ScopePattern, is_provider_scope, path_scopes
from paceline.core.values.status import SET_REASON, LearntLimit, PaceStatus, RateStatus
from paceline.views.accounts import known_accounts
from paceline.views.fleet import FleetState

CAMPAIGN: Final = "campaign:"
AGENT: Final = "agent:"
HOST: Final = "host:"
ScopeKind = Literal["pool", "host", "provider", "account", "model", "key", "agent", "campaign"]
LimitSource = Literal["", "file", "environment", "flags", "shipped", "live", "key", "plan", "pattern"]
_KINDS: Final[tuple[ScopeKind, ...]] = ("provider", "account", "model")
_RANKS: Final[dict[ScopeKind, int]] = {
    "pool": 0,
    "host": 0,
    "provider": 1,
    "account": 1,
    "model": 1,
    "key": 2,
    "agent": 2,
    "campaign": 3,
}
"""Accounts and models have the rank of their provider, so that sorting by name keeps them next to it."""


class ScopeCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """One scope. `limit` is the effective one, the smallest of `configured`, `platform` and `adaptive`.

    `queued` counts what waits there: calls, slots of programs and units. `in_flight` counts live slots; `cooling`
    counts slots that are released but still occupy a place.
    `configured_source` says where `configured` comes from: `file`, `environment`, `flags`, `shipped`, `live`, `plan`
    or `pattern`. `configured_by` is the entry. They are empty and null where nothing is configured.
    """

    scope: str
    kind: ScopeKind
    in_flight: int
    cooling: int
    limit: int | None
    configured: int | None
    configured_source: str
    configured_by: str | None
    platform: int | None
    adaptive: int | None
    queued: int
    cooldown: float
    paused_until: float | None
    auto_reduced: bool
    auto_reduced_from: int | None
    notice: str | None
    held: str | None
    windows: tuple[WindowStatus, ...]
    paused_since: float | None = None
    paused_reason: str | None = None
    paced_until: float | None = None
    pace: PaceStatus | None = None
    rates: tuple[RateStatus, ...] = ()
    learnt: LearntLimit | None = None


def capacity_rows(fleet: FleetState, backlog: Mapping[str, int] | None = None) -> list[ScopeCapacity]:
    """Return a row for every known scope and what it lies in, and for accounts that were never used.

    `backlog` are the units that wait in each scope without a ticket: they are queued like those with one.
    """
    accounts = [account.scope for account in known_accounts(fleet.settings, fleet.campaigns)]
    paths = [scope for scope in (*fleet.scopes, *accounts) if is_provider_scope(scope)]
    scopes = dict.fromkeys([*fleet.scopes, *(part for scope in paths for part in path_scopes(scope))])
    rows = _rows(fleet, scopes)
    if backlog:
        rows = [msgspec.structs.replace(row, queued=row.queued + backlog.get(row.scope, 0)) for row in rows]
    return sorted(rows, key=lambda row: (_RANKS[row.kind], row.scope))


def limit_rows(fleet: FleetState) -> list[ScopeCapacity]:
    """Return a row for every configured limit, patterns included, then for every other scope that is notable."""
    known = fleet.governor.snapshot()
    configured = dict.fromkeys([*fleet.settings.limits, *known.limits, *known.settings.rates, *known.rates])
    others = sorted(fleet.scopes.keys() - configured.keys())
    return [*_rows(fleet, configured), *(row for row in _rows(fleet, others) if is_notable(row))]


def _rows(fleet: FleetState, scopes: Iterable[str]) -> list[ScopeCapacity]:
    planned = {f"{CAMPAIGN}{campaign.name}" for campaign in fleet.campaigns}
    return [_row(fleet, scope, is_planned=scope in planned) for scope in scopes]


def _row(fleet: FleetState, scope: str, *, is_planned: bool) -> ScopeCapacity:
    status = fleet.scopes.get(scope) or _unused(fleet, scope)
    source, entry = _limit_origin(fleet, scope, is_planned=is_planned)
    return ScopeCapacity(
        scope=scope,
        kind=kind_of(scope),
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
        paused_since=status.paused_since,
        paused_reason=status.paused_reason,
        paced_until=status.paced_until,
        pace=status.pace,
        rates=status.rates,
        learnt=status.learnt,
    )


def _unused(fleet: FleetState, scope: str) -> ScopeStatus:
    """Return the status of a pattern, or of a scope that no ticket has named yet."""
    limit = fleet.governor.get_limit(scope)
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
        cooldown=fleet.governor.get_cooldown(scope),
        auto_reduced=False,
        auto_reduced_from=None,
        notice=None,
        window=None,
        windows=(),
        held=None,
        rates=_unused_rates(fleet, scope),
    )


def _unused_rates(fleet: FleetState, scope: str) -> tuple[RateStatus, ...]:
    """Return the rates that are set for a scope in which nothing has run yet."""
    known = fleet.governor.snapshot()
    rate = known.rates.get(scope) or known.settings.rates.get(scope)
    amounts = () if rate is None else (("requests", rate.rpm), ("tokens", rate.tpm))
    return tuple(
        RateStatus(kind, "set", 0.0, float(amount), RATE_SPAN_SECONDS, None, None, SET_REASON)
        for kind, amount in amounts
        if amount is not None
    )


def _limit_origin(fleet: FleetState, scope: str, *, is_planned: bool) -> tuple[LimitSource, str | None]:
    """Return where the configured limit comes from, and the entry that sets it."""
    if not ScopePattern(scope).is_exact:
        is_live = scope in fleet.governor.snapshot().limits
        return ("live" if is_live else _settings_source(fleet, scope)), scope
    ruling = fleet.governor.ruling_limit(scope)
    if ruling is None:
        return "", None
    entry, is_live = ruling
    if is_planned:
        return "plan", entry
    if entry != scope:
        return "pattern", entry
    if is_live:
        return ("key" if scope.startswith(KEY) else "live"), entry
    return _settings_source(fleet, scope), entry


def _settings_source(fleet: FleetState, entry: str) -> LimitSource:
    """Return which kind of settings an entry comes from. Only a file has a name of its own, its path."""
    configured = fleet.settings.limits.get(entry)
    if configured is None:
        return "file" if entry.removeprefix(HOST) in fleet.settings.hosts else "pattern"
    match configured.source:
        case "environment" | "flags" | "shipped" as source:
            return source
    return "file"


def kind_of(scope: str) -> ScopeKind:
    """Return what a scope, or a pattern of scopes, stands for."""
    if scope in LOCAL:
        return "pool"
    if scope.startswith(CAMPAIGN):
        return "campaign"
    if scope.startswith(HOST):
        return "host"
    if scope.startswith(KEY):
        return "key"
    return "agent" if scope.startswith(AGENT) else _KINDS[scope.count("/")]


def is_notable(row: ScopeCapacity) -> bool:
    """Return whether there is more to report of a scope than that it exists."""
    is_limited = row.limit is not None and ("/" in row.scope or row.kind == "host")
    return is_limited or bool(row.in_flight or row.cooling or row.platform or row.adaptive) or has_condition(row)


def has_condition(row: ScopeCapacity) -> bool:
    """Return whether the scope is held, paused or reduced, or a window of it is closed or its use is known."""
    is_window_notable = any(window.state != "open" or window.best_ratio is not None for window in row.windows)
    is_paced = row.pace is not None or bool(row.rates)
    return row.held is not None or row.paused_until is not None or row.auto_reduced or is_window_notable or is_paced

"""Accounts and keys of clients, one reading of everything that views are built from, and its scopes as rows.

A row says what is in flight, what limits it and where each limit comes from. Quota windows have a sentence besides.
Accounts and keys have what they have spent. Secrets are never shown, only names of variables.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal
from zoneinfo import ZoneInfo

import msgspec

from paceline.agents.account import Account, AccountFacts, LoginExpiry, login_expiry
from paceline.core import Governor, ScopeStatus, WindowStatus
from paceline.core.gates.quota_window import TRUSTED_CONFIDENCE
from paceline.core.gates.rates import RATE_SPAN_SECONDS
from paceline.core.values.fields import fields_of
from paceline.core.values.scopes import KEY, LOCAL, ScopePattern, canonical_scope, is_provider_scope, path_scopes
from paceline.core.values.status import SET_REASON, LimitedScope, RateStatus
from paceline.engine.commands import present_keys, scope_of_key
from paceline.settings import Settings
from paceline.store import Balances, Campaign, ClientKey, HashedKey, KeyBudget, Store, UnitCounts
from paceline.store.spend import WARNING_SHARE, KeyRules


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """The name of an environment variable and whether it is set; never its value."""

    name: str
    is_set: bool


def known_accounts(settings: Settings, campaigns: Iterable[Campaign]) -> list[Account]:
    """Return the configured accounts, and the default logins that campaigns without accounts run on."""
    used = [
        account
        for campaign in campaigns
        if campaign.agent in settings.agent_names()
        for account in settings.campaign_accounts(campaign.agent, campaign.accounts)
    ]
    return list({account.id: account for account in (*settings.accounts.values(), *used)}.values())


class AccountBudget(msgspec.Struct, frozen=True, kw_only=True):
    """What calls of the gateway may cost on the account in a day (UTC), and what they have cost today."""

    budget: str
    spent: float
    is_near: bool
    """Whether 80 % of it are spent, or more."""
    is_reached: bool
    resumes_at: float | None
    """When calls continue, if it is reached."""


class AccountView(AccountFacts, frozen=True, kw_only=True):
    """An account, what holds it, its quota windows, and when its login or key ends, where that is known."""

    scope: str
    key: Variable | None
    env: list[Variable]
    held: str | None
    windows: tuple[WindowStatus, ...]
    expiry: LoginExpiry | None = None
    daily_budget: AccountBudget | None = None


def account_views(
    accounts: Iterable[Account],
    environ: Mapping[str, str],
    statuses: Mapping[str, ScopeStatus],
    balances: Balances,
    now: float,
) -> list[AccountView]:
    """Return the accounts, with what each has spent of its budget. `statuses` are by scope."""

    def view(account: Account) -> AccountView:
        key, status = account.key_env, statuses.get(account.scope)
        return AccountView(
            **fields_of(AccountFacts, account) | {"name": account.id},
            scope=account.scope,
            key=None if key is None else Variable(name=key, is_set=bool(environ.get(key))),
            env=[Variable(name=name, is_set=bool(value)) for name, value in account.env.items()],
            held=status.held if status is not None else None,
            windows=status.windows if status is not None else (),
            expiry=login_expiry(account, environ),
            daily_budget=_account_budget(account, balances, now),
        )

    return [view(each) for each in accounts]


def _account_budget(account: Account, balances: Balances, now: float) -> AccountBudget | None:
    if account.daily_budget is None:
        return None
    budget = KeyBudget(account.daily_budget, "day")
    spent = balances.of_account(account.name, budget, now)
    is_near = spent >= WARNING_SHARE * budget.dollars
    return AccountBudget(budget=budget.text, is_near=is_near, **_use(budget, spent, now))


def _use(budget: KeyBudget, spent: float, now: float) -> dict[str, Any]:
    is_reached = spent >= budget.dollars
    resumes_at = budget.begins_again_at(now) if is_reached else None
    return {"spent": round(spent, 6), "is_reached": is_reached, "resumes_at": resumes_at}


class KeyView(KeyRules, frozen=True, kw_only=True):
    """One key of a client.

    `spent` is what it has cost in the period of its budget, null without a budget. When that is reached, `resumes_at`
    is when it continues, null if it does not.
    """

    budget: str | None
    spent: float | None = None
    is_reached: bool = False
    resumes_at: float | None = None
    created_at: float
    revoked_at: float | None = None


SpentBudget = AccountBudget | KeyView
"""What an account or a key may cost and has cost."""


class KeyList(msgspec.Struct, frozen=True, kw_only=True):
    """The keys that are not revoked."""

    keys: list[KeyView]


class NewKeyView(KeyView, frozen=True, kw_only=True):
    """A key that was just created, with its text, which is shown once."""

    key: str


class RevokedKeyView(KeyView, frozen=True, kw_only=True):
    """A key that no gateway accepts any more."""

    ok: bool = True


def key_list(keys: Iterable[HashedKey], balances: Balances, now: float) -> KeyList:
    """Return the keys that are not revoked, with what each has spent of its budget."""
    return KeyList(keys=[key_view(each.key, balances, now) for each in present_keys(keys)])


def key_view(record: ClientKey, balances: Balances, now: float) -> KeyView:
    budget = record.budget
    used = {} if budget is None else _use(budget, balances.of_key(record, budget, now), now)
    return KeyView(**_fields(record), **used)


def new_key_view(record: ClientKey, text: str) -> NewKeyView:
    return NewKeyView(**_fields(record), spent=None if record.budget is None else 0.0, key=text)


def revoked_key_view(record: ClientKey) -> RevokedKeyView:
    return RevokedKeyView(**_fields(record))


def _fields(record: ClientKey) -> dict[str, Any]:
    return fields_of(KeyView, record) | {"budget": None if record.budget is None else record.budget.text}


# -- the fleet ---------------------------------------------------------------------------------------


class FleetState(msgspec.Struct, frozen=True, kw_only=True):
    """The store, the Governor and the settings at the time `now`.

    Campaigns, counts and scopes are read once, so that views which are shown together agree.
    """

    store: Store
    governor: Governor
    settings: Settings
    zone: ZoneInfo
    now: float
    campaigns: Sequence[Campaign]
    counts: Mapping[str, UnitCounts]
    scopes: Mapping[str, ScopeStatus]

    def counts_of(self, campaign: str) -> UnitCounts:
        return self.counts.get(campaign, UnitCounts())


def read_fleet(
    store: Store,
    governor: Governor,
    settings: Settings,
    zone: ZoneInfo,
    *,
    statuses: Sequence[ScopeStatus],
    now: float,
    campaigns: Sequence[Campaign] | None = None,
) -> FleetState:
    """Read the store once. `statuses` are those of the Governor; `campaigns` are the stored ones by default."""
    return FleetState(
        store=store,
        governor=governor,
        settings=settings,
        zone=zone,
        now=now,
        campaigns=store.campaigns() if campaigns is None else campaigns,
        counts=store.counts(),
        scopes={status.scope: status for status in _without_revoked(store, statuses)},
    )


def _without_revoked(store: Store, statuses: Sequence[ScopeStatus]) -> Sequence[ScopeStatus]:
    """Leave out the scopes of keys that were revoked, once no call of theirs is left."""
    if not any(status.scope.startswith(KEY) for status in statuses):
        return statuses
    present = {scope_of_key(each.key.name) for each in present_keys(store.client_keys())}
    return [
        status for status in statuses if status.scope in present or not status.scope.startswith(KEY) or is_busy(status)
    ]


def is_busy(status: ScopeStatus) -> bool:
    """Return whether something runs or waits in the scope, or it is held or paused."""
    return bool(status.in_flight or status.queued or status.held is not None or status.paused)


# -- scopes ------------------------------------------------------------------------------------------

CAMPAIGN: Final = "campaign:"
AGENT: Final = "agent:"
HOST: Final = "host:"
ScopeKind = Literal["pool", "host", "provider", "account", "model", "key", "agent", "campaign"]
LimitSource = Literal["", "file", "environment", "flags", "shipped", "live", "key", "plan", "pattern"]
_LABELS: Final[dict[str, ScopeKind]] = {CAMPAIGN: "campaign", AGENT: "agent", HOST: "host", KEY: "key"}
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


class ScopeCapacity(LimitedScope, frozen=True, kw_only=True):
    """One scope, and where its limit comes from.

    `queued` counts what waits there: calls, slots of programs and units.
    `configured_source` says where `configured` comes from: `file`, `environment`, `flags`, `shipped`, `live`, `plan`
    or `pattern`. `configured_by` is the entry. They are empty and null where nothing is configured.
    """

    kind: ScopeKind
    configured_source: str
    configured_by: str | None


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
    shown = fields_of(LimitedScope, status)
    return ScopeCapacity(**shown, kind=kind_of(scope), configured_source=source, configured_by=entry)


def _unused(fleet: FleetState, scope: str) -> ScopeStatus:
    """Return the status of a pattern, or of a scope that no ticket has named yet."""
    limit, cooldown = fleet.governor.get_limit(scope), fleet.governor.get_cooldown(scope)
    rates = _unused_rates(fleet, scope)
    return ScopeStatus(scope=scope, limit=limit, configured=limit, cooldown=cooldown, rates=rates)


def _unused_rates(fleet: FleetState, scope: str) -> tuple[RateStatus, ...]:
    """Return the rates that are set for a scope in which nothing has run yet."""
    known = fleet.governor.snapshot()
    rate = known.rates.get(scope) or known.settings.rates.get(scope)
    amounts = () if rate is None else (("requests", rate.rpm), ("tokens", rate.tpm))
    return tuple(
        RateStatus(kind, "set", 0.0, float(amount), SET_REASON, RATE_SPAN_SECONDS)
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
    for label, kind in _LABELS.items():
        if scope.startswith(label):
            return kind
    return "pool" if scope in LOCAL else _KINDS[scope.count("/")]


def is_notable(row: ScopeCapacity) -> bool:
    """Return whether there is more to report of a scope than that it exists."""
    is_limited = row.limit is not None and ("/" in row.scope or row.kind == "host")
    return is_limited or bool(row.in_flight or row.cooling or row.platform or row.adaptive) or has_condition(row)


def has_condition(row: ScopeCapacity) -> bool:
    """Return whether the scope is held, paused or reduced, or a window of it is closed or its use is known."""
    is_window_notable = any(window.state != "open" or window.best_ratio is not None for window in row.windows)
    is_paced = row.pace is not None or bool(row.rates)
    return row.held is not None or row.paused_until is not None or row.auto_reduced or is_window_notable or is_paced


DAY_SECONDS = 86400
WEEKDAY_SECONDS = 6 * DAY_SECONDS
"""Within this time a weekday names one day only; beyond it the date is written out."""


class ScopeWindow(WindowStatus, frozen=True, kw_only=True):
    """A quota window of a scope."""

    scope: str


def scope_windows(statuses: Iterable[ScopeStatus]) -> list[ScopeWindow]:
    return [
        ScopeWindow(scope=status.scope, **msgspec.structs.asdict(window))
        for status in statuses
        for window in status.windows
    ]


def next_resume_at(fleet: FleetState, campaigns: Iterable[Campaign]) -> float | None:
    """Return when the next parked unit of the campaigns is believed to continue.

    One unit may go before the believed reset, to try the window. That is no resume yet.
    """
    due = fleet.store.next_resume_at()
    parked = [campaign for campaign in campaigns if fleet.counts_of(campaign.name).parked]
    openings = [_opens_at(_spent(fleet, campaign)) for campaign in parked]
    known = [at for at in openings if at is not None]
    if due is None or not known or len(known) < len(openings):  # what is due belongs to no window that is known
        return due
    return max(due, min(known))


def quota_line(fleet: FleetState, campaign: Campaign) -> str | None:
    """Return `quota spent on max-1, resumes about 14:30`, or None where no window of the campaign is spent."""
    spent = _spent(fleet, campaign)
    if not spent:
        return None
    at = _opens_at(spent)
    when = "probed from time to time" if at is None else f"resumes about {_clock_time(at, fleet.now, fleet.zone)}"
    return f"quota spent on {', '.join(spent)}, {when}"


def _spent(fleet: FleetState, campaign: Campaign) -> dict[str, float | None]:
    """Return whose quota is spent, each with the time at which it is believed to be back."""
    spent: dict[str, float | None] = {}
    for name, scopes in _payers(fleet, campaign):
        known = [fleet.scopes[scope] for scope in scopes if scope in fleet.scopes]
        closed = [window for status in known for window in status.windows if window.state != "open"]
        if closed:
            spent[name] = _reopens_at(closed, fleet.now)
    return spent


def _opens_at(spent: Mapping[str, float | None]) -> float | None:
    return min((at for at in spent.values() if at is not None), default=None)


def _payers(fleet: FleetState, campaign: Campaign) -> list[tuple[str, tuple[str, ...]]]:
    """Return whose quota the campaign uses, and the scopes that hold the windows of that quota."""
    found = fleet.settings.campaign_accounts(campaign.agent, campaign.accounts)
    if not found and not campaign.accounts:
        return [(campaign.name, (f"{CAMPAIGN}{campaign.name}",))]
    model = f"/{campaign.model}" if campaign.model else ""
    return [(account.id, path_scopes(canonical_scope(account.scope + model))) for account in found]


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

"""What a unit waits for: the reason, since when, until when, and what a person can do about it; and what waits for one.

A person is needed for held accounts, pools, budgets, stopped units by reason, paused campaigns, hosts and logins. Each
has one action that settles it. What settles itself with time is no need: a spent window, a pause, a login that is asked
again, a learnt limit that climbs back.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, get_args

import msgspec

from paceline.agents.account import login_text, split_login
from paceline.core.unit_lifecycle import UnitState
from paceline.core.values.fields import fields_of
from paceline.core.values.scopes import is_provider_scope, path_scopes
from paceline.core.values.status import LearntLimit, ScopeStatus
from paceline.core.values.tickets import Deferred, Reason
from paceline.engine.commands import reason_family
from paceline.engine.dispatch.ticket_queues import split_queue_name
from paceline.engine.journal import WHY_STATE
from paceline.engine.settings import LARGE_CONTEXT_TOKENS
from paceline.hosts.messages import HostPresence
from paceline.settings import KeyPoolSettings
from paceline.store import Campaign, StoppedUnits, Store, Unit
from paceline.views.capacity import AccountBudget, AccountView, KeyView, ScopeCapacity, SpentBudget
from paceline.views.gateway_calls import MemberFailure
from paceline.views.safe_text import printable
from paceline.views.status import HostRow
from paceline.views.units import UnitPhase, phase_of

STAGES = ("checking", "delivering")
"""Phases after the session, which wait while their campaign is paused."""
START = "paceline run PLAN"
ACCOUNT_REASONS = ("held", "window_closed", "reserve")
"""Reasons that another account would not have."""


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """What a unit waits for. `reason` is a code for programs, `detail` a sentence, `hint` what a person can do.

    `learnt` is what refusals taught about the limit that it waits for.
    """

    unit: str
    state: UnitPhase
    reason: str
    detail: str
    scope: str | None
    since: float | None
    until: float | None
    hint: str | None
    learnt: LearntLimit | None = None


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """What the units of a campaign wait for on one of its logins. Without an `account`, it concerns the whole host."""

    campaign: str
    account: str | None
    host: str | None
    reason: Reason
    scope: str
    detail: str
    retry_at: float | None


# -- the waits of an engine --------------------------------------------------------------------------


def stored_waits(store: Store) -> dict[str, Deferred]:
    """Return the waits that the leading engine stored last. A campaign that was deleted since has none."""
    stored = store.load_state(WHY_STATE)
    waits = msgspec.json.decode(stored, type=dict[str, Deferred]) if stored else {}
    names = {campaign.name for campaign in store.campaigns()} if waits else set()
    return {name: deferred for name, deferred in waits.items() if split_queue_name(name)[0] in names}


def wait_rows(waits: Mapping[str, Deferred], campaigns: Iterable[Campaign]) -> list[Wait]:
    """Return the waits of these campaigns as rows. A campaign that was deleted since has none."""
    names = {campaign.name for campaign in campaigns}
    named = [(*split_queue_name(name), deferred) for name, deferred in waits.items()]
    return [
        Wait(
            **fields_of(Wait, deferred),
            campaign=campaign,
            account=split_login(login)[0] or None,
            host=split_login(login)[1] or None,
        )
        for campaign, login, deferred in named
        if campaign in names
    ]


# -- one unit ----------------------------------------------------------------------------------------


def explain_unit(
    unit: Unit,
    campaign: Campaign,
    waits: Mapping[str, Deferred],
    *,
    leaderless: str | None,
    statuses: Iterable[ScopeStatus] = (),
    hosts: Iterable[HostPresence] = (),
    trouble: str | None = None,
) -> list[Why]:
    """Return one answer, or one for each account that a waiting unit could run on.

    `waits` are those of the engine; `leaderless` names the home if no engine leads it. `statuses` have what was
    learnt about the limits. `hosts` are the other machines, as far as they are known now. `trouble` says why nothing
    can be stored now.
    """
    if trouble is not None and unit.state in ("todo", "running"):
        detail = f"nothing starts, and what ends may be recorded only later: {trouble}"
        hint = "put that right; sessions that run continue, and nothing is charged or lost"
        return [_why(unit, "store_outage", detail, since=unit.started_at, hint=hint)]
    known = {each.scope: each for each in statuses}
    learnt = {scope: each.learnt for scope, each in known.items()}
    if leaderless is not None:  # other waits may have ended with the engine; a hold that was lifted since is known
        lifted = {scope for scope, each in known.items() if each.held is None}
        waits = {name: each for name, each in waits.items() if each.reason == "held" and each.scope not in lifted}
    if leaderless is None and unit.state == "running" and unit.phase not in STAGES:
        name = split_login(unit.account or "")[1]
        if any(each.name == name and each.presence in ("silent", "lost") for each in hosts):
            account, _ = split_login(unit.account or "")
            where = login_text(unit.account or "")
            detail = f"its session was started on {where}, and {name} does not answer: it may still run"
            return [_why(unit, "running", detail, scope=account or None, since=unit.started_at, hint="paceline hosts")]
    return [
        msgspec.structs.replace(why, learnt=learnt.get(why.scope or "")) if why.reason == "limit" else why
        for why in _explain(unit, campaign, waits, leaderless=leaderless)
    ]


def _explain(unit: Unit, campaign: Campaign, waits: Mapping[str, Deferred], *, leaderless: str | None) -> list[Why]:
    match unit.state:
        case "running" if campaign.state != "paused" or unit.phase not in STAGES:
            return [_running(unit, campaign, leaderless)]
        case "held" | "quarantined" | "unverified":
            return [_stopped(unit)]
        case "done":
            return [_why(unit, "done", "it ended well", since=unit.ended_at)]
        case "cancelled":
            hint = f"paceline retry {unit.id} runs it after all"
            return [_why(unit, "cancelled", "you gave it up", since=unit.ended_at, hint=hint)]
    since = unit.ended_at or campaign.created_at
    if campaign.state == "paused":
        hint = f"paceline resume {campaign.name}"
        detail = f"the campaign {campaign.name} is paused"
        if campaign.pause_reason is not None:
            detail = f"the campaign {campaign.name} paused itself: {campaign.pause_reason}"
        return [_why(unit, "paused", detail, since=since, hint=hint)]
    if unit.resume_at is not None:
        return [_parked(unit, campaign, leaderless)]
    found = _waiting(unit, campaign, waits, since)
    if leaderless is not None:
        return [*found, _why(unit, "no_engine", f"no engine runs {leaderless}", since=since, hint=START)]
    return found or [_why(unit, "queue_order", "nothing blocks it that is known: the next pass decides", since=since)]


def _running(unit: Unit, campaign: Campaign, leaderless: str | None) -> Why:
    account, _ = split_login(unit.account or "")
    where = f"on {login_text(unit.account)}" if unit.account else "on this machine"
    if unit.phase in STAGES:
        what = "checked" if unit.phase == "checking" else "delivered"
        later = "" if leaderless is None else "; no engine runs now, and the next one continues there"
        detail, hint = f"its agent has ended well, and its work is being {what}{later}", f"paceline show {unit.id}"
    elif campaign.workspace is not None and (unit.result.is_preparing or unit.result.workspace is None):
        what = "set up" if campaign.workspace.setup else "made"
        then = "its session begins after that" if leaderless is None else "no engine runs now; the next one begins it"
        hint = f"paceline show {unit.id}" if leaderless is None else START
        detail = f"its workspace is being {what} {where}; {then}"
    elif leaderless is None:
        detail, hint = f"its session runs {where}", f"paceline logs {unit.id} --follow"
    else:
        detail = f"its session was started {where}; no engine runs now, and the next one collects its outcome"
        hint = START
    return _why(unit, "running", detail, scope=account or None, since=unit.started_at, hint=hint)


def _stopped(unit: Unit) -> Why:
    hint = f"paceline logs {unit.id} shows its last output; paceline retry {unit.id} runs it again"
    reason = unit.reason or "no reason was given"
    if unit.state == "quarantined":
        times = "once" if unit.counters.failures == 1 else f"{unit.counters.failures} times"
        reason = f"failed {times}, the last time with: {reason}"
    if unit.state == "unverified":
        hint = f"paceline accept {unit.id} takes it as done; paceline retry {unit.id} lets the agent go on"
    return _why(unit, unit.state, reason, since=unit.ended_at, hint=hint)


def _parked(unit: Unit, campaign: Campaign, leaderless: str | None) -> Why:
    hint = _fresh_hint(unit, campaign)
    if leaderless is not None:
        hint = "; ".join(filter(None, (f"no engine runs, so nothing resumes by itself: {START}", hint)))
    reason = (unit.reason or "waits for its time") + (_price(unit, campaign) if unit.is_parked else "")
    where = split_login(unit.account or "")[0] or None
    code = "parked" if unit.is_parked else "backing_off"
    return _why(unit, code, reason, since=unit.ended_at, until=unit.resume_at, scope=where, hint=hint)


def _price(unit: Unit, campaign: Campaign) -> str:
    """Return what the park costs: the provider's cache forgets the conversation before the window reopens."""
    result = unit.result
    if unit.conversation_id is None or result.context_tokens is None:
        return ""
    before = f", after {result.lost_tokens:,} at earlier parks" if result.lost_tokens else ""
    if campaign.on_long_park == "restart" and result.context_tokens >= LARGE_CONTEXT_TOKENS:
        return f"; its conversation of {result.context_tokens:,} tokens is given up after an hour, and it starts over"
    return f"; resuming it pays for about {result.context_tokens:,} tokens of context again{before}"


def _fresh_hint(unit: Unit, campaign: Campaign) -> str | None:
    """Return how to give up a conversation, where the unit could run on another account without it."""
    own, _ = split_login(unit.account or "")
    others = [account for account in campaign.accounts if account != own]
    if unit.conversation_id is None or not others:
        return None
    return f"paceline retry {unit.id} --fresh starts it again, without its conversation, on {' or '.join(others)}"


def _waiting(unit: Unit, campaign: Campaign, waits: Mapping[str, Deferred], since: float) -> list[Why]:
    """Return the waits of the logins that the unit could run on, as the engine stored them last, each fact once."""
    by_login = {}
    for name, deferred in waits.items():
        campaign_name, login = split_queue_name(name)
        is_bound_elsewhere = unit.conversation_id is not None and (unit.account or "") != login
        if campaign_name == unit.campaign and not is_bound_elsewhere:
            by_login[login] = deferred
    hint = _fresh_hint(unit, campaign)
    answers = (
        _why(
            unit,
            each.reason,
            each.detail,
            scope=each.scope,
            since=since,
            until=each.retry_at,
            hint=hint_for(each.reason, each.scope) or (hint if each.reason in ACCOUNT_REASONS else None),
        )
        for each in by_login.values()
    )
    return list(dict.fromkeys(answers))


def hint_for(reason: str, scope: str) -> str | None:
    """Return the command that lifts a hold, or None where nothing or something else helps."""
    can_be_lifted = reason == "held" and not scope.startswith(("campaign:", "host:"))
    return f"paceline restore {scope}" if can_be_lifted else None


def _why(
    unit: Unit,
    reason: str,
    detail: str,
    *,
    scope: str | None = None,
    since: float | None = None,
    until: float | None = None,
    hint: str | None = None,
) -> Why:
    return Why(
        unit=unit.id,
        state=phase_of(unit),
        reason=reason,
        detail=printable(detail),
        scope=scope,
        since=since,
        until=until,
        hint=hint,
    )


# -- what waits for a person -------------------------------------------------------------------------

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
"""How long an account of a pool must fail before a person is asked. Restarts and short outages end sooner, and what was
tried once may work by now."""


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


_Stuck = tuple[str, MemberFailure | None]
"""Why an account serves no calls, with its failure if it cannot be reached."""


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
        if each.last_at - each.since >= FAILING_SECONDS and not _is_explained(each, sources.rows, idle):
            pools = f"the pool{'' if len(each.pools) == 1 else 's'} {', '.join(each.pools)}"
            what = "cannot be reached" if each.kind == "unreachable" else "refuses its calls"
            title = f"{each.account} of {pools} {what}"
            detail = f"{each.calls} calls failed there ({each.detail}), and may go to another account"
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
    stuck: dict[str, _Stuck] = {each.account: (each.detail, each) for each in failures if each.kind == "unreachable"}
    by_scope = {each.scope: each for each in accounts}
    for row in rows:
        if row.scope in by_scope and row.held is not None:
            stuck[by_scope[row.scope].name] = f"held: {row.held}", None
        elif row.scope in by_scope and row.paused_reason == AUTH:
            stuck[by_scope[row.scope].name] = "its key was refused", None
    keyless = {
        each.name: (f"{each.key.name} is not set", None) for each in accounts if each.key and not each.key.is_set
    }
    spent = {name: ("its budget is reached", None) for name, budget in _budgets(accounts) if budget.is_reached}
    return stuck | spent | keyless


def _idle_pool(pool: KeyPoolSettings, stuck: Mapping[str, _Stuck]) -> Need:
    members = {name: stuck[name] for name in pool.accounts}
    failures = [failure for _, failure in members.values() if failure is not None]
    fallback = "; its fallback routes are used" if pool.fallback else ""
    detail = "; ".join(f"{name}: {why}" for name, (why, _) in members.items()) + fallback
    since = max((each.since for each in failures), default=None)
    tried_at = min((each.retry_at for each in failures if each.retry_at is not None), default=None)
    title = f"no account of the pool {pool.name} can serve"
    return Need("idle_pool", title, detail, "none", pool.name, since=since, tried_at=tried_at)


def _is_explained(failure: MemberFailure, rows: Iterable[ScopeCapacity], idle: Iterable[KeyPoolSettings]) -> bool:
    """Return whether it is said elsewhere why the account serves nothing."""
    if any(failure.account in pool.accounts for pool in idle):
        return True
    row = next((each for each in rows if each.scope == failure.scope), None)
    return row is not None and (row.held is not None or any(each.state != "open" for each in row.windows))


def _budgets(accounts: Iterable[AccountView]) -> list[tuple[str, AccountBudget]]:
    return [(each.name, each.daily_budget) for each in accounts if each.daily_budget is not None]

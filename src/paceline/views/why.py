"""What a unit waits for: the reason, since when, until when, and what a person can do about it."""

from collections.abc import Iterable, Mapping

import msgspec

from paceline.agents.account import login_text, split_login
from paceline.core.values.status import LearntLimit, ScopeStatus
from paceline.core.values.verdicts import Deferred, Reason
from paceline.engine.dispatch.ticket_queues import split_queue_name
from paceline.engine.journal import WHY_STATE
from paceline.engine.settings import LARGE_CONTEXT_TOKENS
from paceline.store import Campaign, Store, Unit
from paceline.views.safe_text import printable
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
            campaign=campaign,
            account=split_login(login)[0] or None,
            host=split_login(login)[1] or None,
            reason=deferred.reason,
            scope=deferred.scope,
            detail=deferred.detail,
            retry_at=deferred.retry_at,
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
    trouble: str | None = None,
) -> list[Why]:
    """Return one answer, or one for each account that a waiting unit could run on.

    `waits` are those of the engine; `leaderless` names the home if no engine leads it. `statuses` have what was
    learnt about the limits. `trouble` says why nothing can be stored now.
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
    return [
        msgspec.structs.replace(why, learnt=learnt.get(why.scope or "")) if why.reason == "limit" else why
        for why in _explain(unit, campaign, waits, leaderless=leaderless)
    ]


def _explain(unit: Unit, campaign: Campaign, waits: Mapping[str, Deferred], *, leaderless: str | None) -> list[Why]:
    match unit.state:
        case "running" if campaign.state != "paused" or unit.phase not in STAGES:
            return [_running(unit, leaderless)]
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
    return found or [_why(unit, "queue_order", "nothing blocks it: it starts at the engine's next pass", since=since)]


def _running(unit: Unit, leaderless: str | None) -> Why:
    account, _ = split_login(unit.account or "")
    where = f"on {login_text(unit.account)}" if unit.account else "on this machine"
    if unit.phase in STAGES:
        what = "checked" if unit.phase == "checking" else "delivered"
        later = "" if leaderless is None else "; no engine runs now, and the next one continues there"
        detail, hint = f"its agent has ended well, and its work is being {what}{later}", f"paceline show {unit.id}"
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

"""What holds a unit, since when, until when, and what a person can do about it: one answer for CLI, API and page."""

from collections.abc import Mapping

import msgspec

from paceline.core import Deferred
from paceline.engine.dispatcher import split_line
from paceline.store import Campaign, Unit
from paceline.views.safe_text import phase_of

START = "paceline run PLAN"


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """The answer. `reason` is one word for programs, `detail` a sentence."""

    unit: str
    state: str
    reason: str
    detail: str
    scope: str | None = None
    since: float | None = None
    until: float | None = None
    hint: str | None = None


def explain_unit(unit: Unit, campaign: Campaign, waits: Mapping[str, Deferred], *, leaderless: str | None) -> list[Why]:
    """One answer, or one for each account that a waiting unit could run on.

    `waits` is what the engine says of its lines, by their names; `leaderless` names the home where no engine runs it.
    """
    match unit.state:
        case "running":
            return [_running(unit, leaderless)]
        case "held" | "quarantined":
            return [_stopped(unit)]
        case "done":
            return [_why(unit, "done", "done", since=unit.ended_at)]
        case "cancelled":
            return [_why(unit, "cancelled", "its campaign was cancelled", since=unit.ended_at)]
    since = unit.ended_at or campaign.created_at
    if campaign.state == "paused":
        hint = f"paceline resume {campaign.name}"
        return [_why(unit, "paused", f"the campaign {campaign.name} is paused", since=since, hint=hint)]
    if unit.resume_at is not None:
        return [_parked(unit, leaderless)]
    if leaderless is not None:
        return [_why(unit, "no_engine", f"no engine runs {leaderless}", since=since, hint=START)]
    return _waiting(unit, waits, since)


def _running(unit: Unit, leaderless: str | None) -> Why:
    where = f"on {unit.account}" if unit.account else "on this machine"
    if leaderless is None:
        detail, hint = f"its session runs {where}", f"paceline logs {unit.id} --follow"
    else:
        detail = f"its session was started {where}; no engine runs now, and the next one finds out how it goes"
        hint = START
    return _why(unit, "running", detail, scope=unit.account or None, since=unit.started_at, hint=hint)


def _stopped(unit: Unit) -> Why:
    hint = f"paceline logs {unit.id} shows its last output; paceline retry {unit.campaign} tries it again"
    reason = unit.reason or "no reason was given"
    if unit.state == "quarantined":
        tries = "once" if unit.counters.failures == 1 else f"{unit.counters.failures} times"
        reason = f"failed {tries}, at last with: {reason}"
    return _why(unit, unit.state, reason, since=unit.ended_at, hint=hint)


def _parked(unit: Unit, leaderless: str | None) -> Why:
    hint = None if leaderless is None else f"no engine runs, so nothing resumes by itself: {START}"
    reason = unit.reason or "waits for its time"
    where = unit.account or None
    return _why(unit, "parked", reason, since=unit.ended_at, until=unit.resume_at, scope=where, hint=hint)


def _waiting(unit: Unit, waits: Mapping[str, Deferred], since: float) -> list[Why]:
    """What the engine last said of the lines that the unit stands in."""
    lines = {}
    for line, deferred in waits.items():
        campaign, account = split_line(line)
        is_bound_elsewhere = unit.conversation_id is not None and (unit.account or "") != account
        if campaign == unit.campaign and not is_bound_elsewhere:
            lines[account] = deferred
    if not lines:
        return [_why(unit, "queue_order", "nothing holds it: it goes at the engine's next pass", since=since)]
    return [
        _why(unit, each.reason, each.detail, scope=each.scope, since=since, until=each.retry_at)
        for each in lines.values()
    ]


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
        detail=detail,
        scope=scope,
        since=since,
        until=until,
        hint=hint,
    )

"""`why UNIT`: what holds it, since when, until when, and what a person can do about it."""

import time

import msgspec
from rich.text import Text

from paceline.cli.looking import phase_of
from paceline.cli.names import find_campaign, find_unit
from paceline.cli.printing import one_line, out, print_value
from paceline.cli.wiring import Home
from paceline.cli.words import moment
from paceline.core import Deferred
from paceline.engine.engine import WHY_STATE
from paceline.store import Campaign, Unit

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


def show_why(home: Home, name: str, *, as_json: bool) -> None:
    now = time.time()
    unit = find_unit(home.store, name)
    answers = explain_unit(home, unit, find_campaign(home.store, unit.campaign))
    if as_json:
        print_value({**msgspec.to_builtins(answers[0]), "others": answers[1:]} if answers[1:] else answers[0])
        return
    console = out()
    for why in answers:
        console.print(Text.assemble((f"{why.unit} is {why.state}: ", "bold"), one_line(why.detail, 400)))
        rows = (("where", why.scope), ("since", why.since), ("until", why.until), ("to do", why.hint))
        for label, value in rows:
            if value is not None:
                shown = moment(value, now, home.zone) if isinstance(value, float) else value
                console.print(Text.assemble((f"  {label:<7}", "dim"), one_line(shown, 300)))


def explain_unit(home: Home, unit: Unit, campaign: Campaign) -> list[Why]:
    """One answer, or one for each account that a waiting unit could run on."""
    match unit.state:
        case "running":
            return [_running(home, unit)]
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
        return [_parked(home, unit)]
    if home.engine_leader() is None:
        return [_why(unit, "no_engine", f"no engine runs {home.path}", since=since, hint=START)]
    return _waiting(home, unit, since)


def _running(home: Home, unit: Unit) -> Why:
    where = f"on {unit.account}" if unit.account else "on this machine"
    if home.engine_leader() is not None:
        detail, hint = f"its session runs {where}", f"paceline logs {unit.id} --follow"
    else:
        detail = f"its session was started {where}; no engine runs now, and the next one finds out how it goes"
        hint = START
    return _why(unit, "running", detail, scope=unit.account or None, since=unit.started_at, hint=hint)


def _stopped(unit: Unit) -> Why:
    hint = f"paceline logs {unit.id} shows its last output; paceline retry {unit.campaign} tries it again"
    reason = unit.reason or "no reason was given"
    if unit.state == "quarantined":
        tries = "once" if unit.counters.attempts == 1 else f"{unit.counters.attempts} times"
        reason = f"failed {tries}, at last with: {reason}"
    return _why(unit, unit.state, reason, since=unit.ended_at, hint=hint)


def _parked(home: Home, unit: Unit) -> Why:
    hint = None if home.engine_leader() else f"no engine runs, so nothing resumes by itself: {START}"
    reason = unit.reason or "waits for its time"
    where = unit.account or None
    return _why(unit, "parked", reason, since=unit.ended_at, until=unit.resume_at, scope=where, hint=hint)


def _waiting(home: Home, unit: Unit, since: float) -> list[Why]:
    """What the engine last said of the lines that the unit stands in."""
    stored = home.store.load_state(WHY_STATE)
    reasons = msgspec.json.decode(stored, type=dict[str, Deferred]) if stored else {}
    lines = {}
    for line, deferred in reasons.items():
        campaign, _, account = line.partition(" ")
        is_bound_elsewhere = unit.session_id is not None and (unit.account or "") != account
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

"""Why a ticket waits, and what state a scope is in, in words and numbers.

The scope that binds is found in the order of deciding: gates, then room, then usage. So the gate that is named is
the one that refused. The status also has what holds runs to a pace: rates that are set, learnt or stated, and until
when the next one waits. Library, CLI, API and page say the same. Nothing is decided here.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from paceline.core.decisions.admission import is_excess
from paceline.core.gates.closures import LOGIN_DOUBT, OUTAGE, Closure, Pause
from paceline.core.gates.gate import Explanation, Gate
from paceline.core.gates.header_budget import HeaderBudget
from paceline.core.gates.quota_window import QuotaGate, Window
from paceline.core.gates.rates import RATE_SPAN_SECONDS, LearnedRate, LearnedRates, RateLimit
from paceline.core.gates.start_meters import SlowStart, StartSpacing
from paceline.core.limits import UNLIMITED
from paceline.core.state.lane import Lane
from paceline.core.state.ledger import Ledger
from paceline.core.state.scope import Scope
from paceline.core.state.usage_meter import Use
from paceline.core.values.fields import fields_of
from paceline.core.values.scopes import is_unnamed_model
from paceline.core.values.status import SET_REASON, LearntLimit, PaceStatus, RateStatus, ScopeStatus, WindowStatus
from paceline.core.values.tickets import Deferred, Reason, Ticket

Refusal = tuple[Scope, Reason, Gate | None]


def deferred(
    ledger: Ledger, lane: Lane, ticket: Ticket, position: int | None, refusing: Scope | None = None
) -> Deferred:
    """Return why the ticket waits now. `refusing` is the scope that refuses it, if the caller has just found it."""
    gate: Gate | None = None
    if refusing is not None and refusing.live >= refusing.cap and _only_room_counts(lane, refusing):
        scope, reason = refusing, refusing.room_reason() or "limit"  # the usual case, made cheap
    else:
        scope, reason, gate = _binding(ledger, lane, ticket)
    found = _explain_room(scope, reason, ledger.now) if gate is None else gate.explain(ticket, scope, ledger.now)
    return Deferred(ticket.id, reason, scope.name, found.detail, found.retry_at, position)


def _only_room_counts(lane: Lane, scope: Scope) -> bool:
    """Return whether no gate of the scope can refuse the lane's tickets, and none of them shares a place."""
    if scope.is_gated or lane.parent is not None:
        return False
    return not lane.is_spread or not scope.gates.in_order


def _binding(ledger: Ledger, lane: Lane, ticket: Ticket) -> Refusal:
    """Return the narrowest scope that refuses, and what does so there. Order binds only where nothing else does."""
    kept = None
    for scope in lane.checks:
        reason, gate = _refusal(ledger, lane, ticket, scope)
        if reason == "queue_order":
            kept = kept or scope
        elif reason is not None:
            return _last_to_open(lane, ticket, ledger.now) if isinstance(gate, QuotaGate) else (scope, reason, gate)
    return kept or lane.checks[0], "queue_order", None


def _last_to_open(lane: Lane, ticket: Ticket, now: float) -> Refusal:
    """Return the windows that refuse longest, in whichever scope: the ticket waits for the last of them."""
    found: list[tuple[float, Refusal]] = []
    for scope in lane.checks:
        gate = scope.gates.get(QuotaGate)
        reason = gate.refuses(ticket, scope, now) if gate is not None else None
        if gate is not None and reason is not None:
            found.append((gate.explain(ticket, scope, now).retry_at or 0.0, (scope, reason, gate)))
    return max(found, key=lambda each: each[0])[1]


def _refusal(ledger: Ledger, lane: Lane, ticket: Ticket, scope: Scope) -> tuple[Reason | None, Gate | None]:
    session = lane.parent
    covered = session is not None and session.covers(scope)
    if session is not None and covered and is_excess(ledger, scope, session):
        return "limit", None  # a gate opens by itself, an excess lasts until a session ends
    refusal = scope.gates.refusal(ticket, scope, ledger.now)
    if refusal is not None:
        return refusal[1], refusal[0]
    own_claims = sum([waiter.ticket is ticket for waiter in ledger.place_claims]) if ledger.place_claims else 0
    return scope.refuses(ticket, ledger.now, needs_room=not covered, own_claims=own_claims), None


def _explain_room(scope: Scope, reason: Reason, now: float) -> Explanation:
    """Explain a refusal for lack of room, by the provider's own count, or by the order."""
    if reason == "cooldown":
        cooling = len(scope.cooling)
        numbers = f"{scope.live} live and {cooling} cooling down of {scope.cap}"
        return Explanation(f"{scope.name} has {numbers}", scope.cooling[0] if cooling else None)
    if reason == "queue_order":
        return Explanation(f"others are ahead of it in the queue for {scope.name}")
    if reason == "usage_gate" and scope.usage is not None:
        cap = "no limit" if scope.cap == UNLIMITED else str(scope.cap)
        return scope.usage.explain(scope.name, cap, now)
    return _explain_full(scope.name, reason, scope.live, scope.cap)


@lru_cache(maxsize=1024)
def _explain_full(scope: str, reason: Reason, live: int, cap: int) -> Explanation:
    numbers = f"({live}/{cap})"
    parts = scope.split("/")
    what = "platform limit" if reason == "platform_limit" else "cap" if len(parts) == 3 else "limit"
    if is_unnamed_model(scope) and what == "cap":
        return Explanation(f"the strictest model cap {numbers} on {parts[1]} is reached; no model was named")
    if len(parts) == 3:
        return Explanation(f"{parts[2]} at its {what} {numbers} on {parts[1]}")
    return Explanation(f"{scope} at its {what} {numbers}")


# -- the status of a scope ---------------------------------------------------------------------


class _Pacing(NamedTuple):
    """What holds the runs of a scope to a pace, and until when the next one of the usual size waits for it."""

    rates: list[RateStatus]
    paces: list[PaceStatus]
    waits: list[float]


def _pacing(scope: Scope, now: float) -> _Pacing:
    """Return what the gates of the scope say: rates that were set first, then those that the provider showed."""
    found, mean = _Pacing([], [], []), scope.tokens.mean
    for gate in scope.gates.in_order:
        match gate:
            case SlowStart():
                found.waits.append(gate.next_at)
                if gate.last_at is not None and now < gate.next_at:
                    gap = gate.next_at - gate.last_at
                    found.paces.append(PaceStatus(gap, "one by one after a pause", gate.last_at, gate.next_at))
            case StartSpacing():
                found.waits.append(gate.next_at)
                found.paces.append(PaceStatus(gate.interval, "starts were refused as too many at once", gate.since))
            case HeaderBudget():
                found.rates.extend(_stated(gate, now))
                for part, need in ((gate.requests, 1.0), (gate.tokens, max(1.0, mean))):
                    if part is not None and (at := part.ready_at(need, now)) is not None:
                        found.waits.append(at)
            case LearnedRates():
                for rate in gate.rates.values():
                    found.waits.append(rate.next_at(mean))
                    found.rates.append(learnt := _learnt(rate, now))
                    found.paces.append(PaceStatus(rate.interval(mean), learnt.reason, learnt.since, learnt.until))
            case RateLimit():
                rates = list(_set_rates(gate, now))
                found.waits.extend(rate.until for rate in rates if rate.until is not None)
                found.rates[:0] = rates
    return found


def _set_rates(gate: RateLimit, now: float) -> Iterator[RateStatus]:
    recent = [entry for entry in gate.entries if entry.leaves_at > now]
    for kind, limit, used in (
        ("requests", gate.rate.rpm, sum(entry.runs for entry in recent)),
        ("tokens", gate.rate.tpm, sum(entry.tokens for entry in recent)),
    ):
        if limit is not None:
            until = recent[0].leaves_at if recent and used >= limit else None
            yield RateStatus(kind, "set", float(used), float(limit), SET_REASON, RATE_SPAN_SECONDS, None, until)


def _stated(gate: HeaderBudget, now: float) -> Iterator[RateStatus]:
    for kind in ("requests", "tokens"):
        part = gate.current(kind, now)
        if part is not None and part.limit is not None:
            span = part.limit / part.per_second if part.per_second else None
            used = max(0.0, part.limit - part.level(now))
            reason = "stated by the provider's headers"
            yield RateStatus(kind, "headers", used, part.limit, reason, span, part.since, part.resets_at)


def _learnt(rate: LearnedRate, now: float) -> RateStatus:
    kind = "tokens" if rate.counts_tokens else "requests"
    share = min(1.0, RATE_SPAN_SECONDS / max(1.0, now - rate.refused_at))
    limit = rate.per_second * RATE_SPAN_SECONDS
    reason = f"learnt from refusals for {rate.cause}"
    since, until = rate.since, rate.forgotten_at()
    return RateStatus(kind, "learnt", rate.spent * share, limit, reason, RATE_SPAN_SECONDS, since, until)


def scope_status(scope: Scope, now: float) -> ScopeStatus:
    """Return the scope as a value for people, APIs and pages."""
    adaptive = scope.adaptive.limit if scope.adaptive else None
    reduced_from = scope.adaptive.reduced_from if scope.adaptive else None
    quota = scope.gates.get(QuotaGate)
    pause = scope.gates.get(Pause)
    paused_until = _paused_until(scope)
    is_paused = paused_until is not None and now < paused_until
    use, windows = scope.use(now), quota.windows.values() if quota is not None else ()
    shown = tuple(_window_status(window, use, now) for window in windows)
    held = next((closure.cause for closure in scope.gates.closures if closure.is_held), None)
    pacing = _pacing(scope, now)
    return ScopeStatus(
        scope=scope.name,
        limit=None if scope.cap == UNLIMITED else scope.cap,
        configured=scope.configured,
        platform=scope.platform.limit if scope.platform else None,
        adaptive=adaptive,
        in_flight=scope.live,
        cooling=len(scope.cooling),
        queued=scope.waiting,
        paused=is_paused,
        paused_until=paused_until if is_paused else None,
        cooldown=scope.cooldown,
        auto_reduced=adaptive is not None,
        auto_reduced_from=reduced_from,
        notice=_notice(scope, held, adaptive, reduced_from),
        window=next((window for window in shown if window.state != "open"), shown[0] if shown else None),
        windows=shown,
        held=held,
        reserve=scope.reserve,
        paused_since=pause.since if is_paused and pause is not None else None,
        paused_reason=_pause_reason(scope, paused_until) if is_paused else None,
        paced_until=max((at for at in pacing.waits if at > now), default=None),
        pace=max(pacing.paces, key=lambda pace: pace.interval, default=None),
        rates=tuple(pacing.rates),
        learnt=_learnt_limit(scope),
    )


def _learnt_limit(scope: Scope) -> LearntLimit | None:
    adaptive = scope.adaptive
    if adaptive is None or adaptive.limit is None:
        return None
    held, next_level, next_try_at = adaptive.limit, None, None
    if scope.mode != "adaptive":
        reason = "it stays until it is restored"
    elif adaptive.is_trying:
        held, next_level = adaptive.worked_at or adaptive.limit, adaptive.limit
        reason = f"{next_level} is being tried"
    else:
        next_level, next_try_at = adaptive.next_level(), adaptive.next_try_at()
        reason = "nothing was refused since"
    return LearntLimit(
        held=held,
        of=scope.configured,
        refused_level=adaptive.refused_level,
        refused_at=adaptive.refused_at,
        next_level=next_level,
        next_try_at=next_try_at,
        reason=reason,
    )


def _pause_reason(scope: Scope, until: float | None) -> str | None:
    """Return why the gate that closes the scope until then does so."""
    pause = scope.gates.get(Pause)
    pauses = (closure.rule.pause for closure in scope.gates.closures if closure.probe_at == until)
    return next(pauses, None if pause is None else pause.cause)


def _paused_until(scope: Scope) -> float | None:
    ends = [
        gate.until if isinstance(gate, Pause) else gate.probe_at
        for gate in scope.gates.in_order
        if isinstance(gate, Pause) or (isinstance(gate, Closure) and not gate.is_held)
    ]
    return max((end for end in ends if end is not None), default=None) if ends else None


def _window_status(window: Window, use: Use, now: float) -> WindowStatus:
    size = window.period.size(now)
    figures: dict[str, float | None] = {
        "used_ratio": window.used_ratio if window.is_read else None,
        "estimated_ratio": window.period.share_used(use, now),
        "holds_seconds": None if size is None else size.seconds,
    }
    return WindowStatus(**{**fields_of(WindowStatus, window, window.reopening), **figures})


def _notice(scope: Scope, held: str | None, adaptive: int | None, reduced_from: int | None) -> str | None:
    if held is not None:
        return f"held: {held}"
    if (outage := scope.gates.closure(OUTAGE)) is not None and outage.is_closed:
        return "cannot be reached: one session tries it first"
    if (doubt := scope.gates.closure(LOGIN_DOUBT)) is not None and doubt.is_closed:
        return f"the login was refused and is asked again: {doubt.cause}"
    if adaptive is not None:
        return f"auto-reduced to {adaptive} from {reduced_from} after a 429: restore"
    if scope.platform is not None:
        return f"the provider's own limit is {scope.platform.limit}"
    return None

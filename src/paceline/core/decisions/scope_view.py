"""The status of a scope, made from its state in the ledger.

With it what holds its runs to a pace: rates that are set, learnt or stated, and until when the next one waits.
"""

from collections.abc import Iterator
from typing import NamedTuple

from paceline.core.gates.closures import LOGIN_DOUBT, OUTAGE, Closure, Pause
from paceline.core.gates.header_budget import HeaderBudget
from paceline.core.gates.quota_window import QuotaGate, Window
from paceline.core.gates.rates import RATE_SPAN_SECONDS, LearnedRate, LearnedRates, RateLimit
from paceline.core.gates.start_meters import SlowStart, StartSpacing
from paceline.core.state.limit_table import UNLIMITED
from paceline.core.state.scope import Scope
from paceline.core.state.usage_meter import Use
from paceline.core.values.fields import fields_of
from paceline.core.values.status import SET_REASON, LearntLimit, PaceStatus, RateStatus, ScopeStatus, WindowStatus


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

"""The status of a scope, made from its state in the ledger.

With it what holds its runs to a pace: rates that are set, learnt or stated, and until when the next one waits.
"""

from collections.abc import Iterator

from paceline.core.gates.closures import LOGIN_DOUBT, OUTAGE, Closure, Pause
from paceline.core.gates.header_budget import HeaderBudget
from paceline.core.gates.quota_gate import QuotaGate
from paceline.core.gates.quota_window import Window
from paceline.core.gates.rates import RATE_SPAN_SECONDS, Entry, LearnedRates, RateLimit
from paceline.core.gates.start_meters import SlowStart, StartSpacing
from paceline.core.state.limit_table import UNLIMITED
from paceline.core.state.scope import Scope
from paceline.core.state.usage_meter import Use
from paceline.core.values.status import SET_REASON, LearntLimit, PaceStatus, RateStatus, ScopeStatus, WindowStatus


def rate_statuses(scope: Scope, now: float) -> tuple[RateStatus, ...]:
    """Return the rates of the scope: those that were set first, then those that the provider showed."""
    return (*_set_rates(scope, now), *_stated(scope, now), *_learnt(scope, now))


def pace_status(scope: Scope, now: float) -> PaceStatus | None:
    """Return the learnt pace with the longest interval."""
    return max(_paces(scope, now), key=lambda pace: pace.interval, default=None)


def paced_until(scope: Scope, now: float) -> float | None:
    """Return until when the next run of the usual size waits for its pace; None where it does not."""
    return max((at for at in _waits(scope, now) if at > now), default=None)


def _set_rates(scope: Scope, now: float) -> Iterator[RateStatus]:
    gate = scope.gates.get(RateLimit)
    if gate is None:
        return
    recent = [entry for entry in gate.entries if entry.leaves_at > now]
    for kind, limit, used in (
        ("requests", gate.rate.rpm, sum(entry.runs for entry in recent)),
        ("tokens", gate.rate.tpm, sum(entry.tokens for entry in recent)),
    ):
        if limit is not None:
            until = recent[0].leaves_at if recent and used >= limit else None
            yield RateStatus(kind, "set", float(used), float(limit), SET_REASON, RATE_SPAN_SECONDS, None, until)


def _stated(scope: Scope, now: float) -> Iterator[RateStatus]:
    gate = scope.gates.get(HeaderBudget)
    for kind in ("requests", "tokens"):
        part = gate.current(kind, now) if gate is not None else None
        if part is not None and part.limit is not None:
            span = part.limit / part.per_second if part.per_second else None
            used = max(0.0, part.limit - part.level(now))
            reason = "stated by the provider's headers"
            yield RateStatus(kind, "headers", used, part.limit, reason, span, part.since, part.resets_at)


def _learnt(scope: Scope, now: float) -> Iterator[RateStatus]:
    gate = scope.gates.get(LearnedRates)
    for rate in gate.rates.values() if gate is not None else ():
        kind = "tokens" if rate.counts_tokens else "requests"
        share = min(1.0, RATE_SPAN_SECONDS / max(1.0, now - rate.refused_at))
        limit = rate.per_second * RATE_SPAN_SECONDS
        reason = f"learnt from refusals for {rate.cause}"
        since, until = rate.since, rate.forgotten_at()
        yield RateStatus(kind, "learnt", rate.spent * share, limit, reason, RATE_SPAN_SECONDS, since, until)


def _paces(scope: Scope, now: float) -> Iterator[PaceStatus]:
    if (learned := scope.gates.get(LearnedRates)) is not None:
        for rate in learned.rates.values():
            reason = f"learnt from refusals for {rate.cause}"
            yield PaceStatus(rate.interval(scope.tokens.mean), reason, rate.since, rate.forgotten_at())
    if (spacing := scope.gates.get(StartSpacing)) is not None:
        yield PaceStatus(spacing.interval, "starts were refused as too many at once", spacing.since, None)
    if (slow := scope.gates.get(SlowStart)) is not None and slow.last_at is not None and now < slow.next_at:
        yield PaceStatus(slow.next_at - slow.last_at, "one by one after a pause", slow.last_at, slow.next_at)


def _waits(scope: Scope, now: float) -> Iterator[float]:
    mean = scope.tokens.mean
    for gate in scope.gates.in_order:
        match gate:
            case LearnedRates():
                yield from (rate.next_at(mean) for rate in gate.rates.values())
            case StartSpacing() | SlowStart():
                yield gate.next_at
            case HeaderBudget():
                for part, need in ((gate.requests, 1.0), (gate.tokens, max(1.0, mean))):
                    if part is not None and (at := part.ready_at(need, now)) is not None:
                        yield at
            case RateLimit():
                yield from _full_until(gate, now)


def _full_until(gate: RateLimit, now: float) -> Iterator[float]:
    recent: list[Entry] = [entry for entry in gate.entries if entry.leaves_at > now]
    if not recent:
        return
    is_full = gate.rate.rpm is not None and sum(entry.runs for entry in recent) >= gate.rate.rpm
    if is_full or (gate.rate.tpm is not None and sum(entry.tokens for entry in recent) >= gate.rate.tpm):
        yield recent[0].leaves_at


def scope_status(scope: Scope, now: float) -> ScopeStatus:
    """Return the scope as a value for people, APIs and pages."""
    adaptive = scope.adaptive.limit if scope.adaptive else None
    reduced_from = scope.adaptive.reduced_from if scope.adaptive else None
    quota = scope.gates.get(QuotaGate)
    pause = scope.gates.get(Pause)
    paused_until = _paused_until(scope)
    is_paused = paused_until is not None and now < paused_until
    windows = _window_statuses(quota, scope.use(now), now) if quota is not None else ()
    held = _held_cause(scope)
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
        window=_first(windows) if windows else None,
        windows=windows,
        held=held,
        reserve=scope.reserve,
        paused_since=pause.since if is_paused and pause is not None else None,
        paused_reason=_pause_reason(scope, paused_until) if is_paused else None,
        paced_until=paced_until(scope, now),
        pace=pace_status(scope, now),
        rates=rate_statuses(scope, now),
        learnt=_learnt_limit(scope),
    )


def _held_cause(scope: Scope) -> str | None:
    return next((closure.cause for closure in scope.gates.closures if closure.is_held), None)


def _learnt_limit(scope: Scope) -> LearntLimit | None:
    """Return what refusals taught about the limit, and when more is tried."""
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
    """Return when the last of the gates that close the scope for a while lets somebody in."""
    ends = [
        gate.until if isinstance(gate, Pause) else gate.probe_at
        for gate in scope.gates.in_order
        if isinstance(gate, Pause) or (isinstance(gate, Closure) and not gate.is_held)
    ]
    return max((end for end in ends if end is not None), default=None) if ends else None


def _first(windows: tuple[WindowStatus, ...]) -> WindowStatus:
    """Return the window that matters most: one that is not open, if there is one."""
    return next((window for window in windows if window.state != "open"), windows[0])


def _window_statuses(quota: QuotaGate, use: Use, now: float) -> tuple[WindowStatus, ...]:
    return tuple(_window_status(window, use, now) for window in quota.windows.values())


def _window_status(window: Window, use: Use, now: float) -> WindowStatus:
    size = window.period.size(now)
    return WindowStatus(
        name=window.name,
        state=window.state,
        resets_at=window.resets_at,
        probe_at=window.probe_at,
        source=window.source,
        seen_at=window.seen_at,
        confidence=window.confidence,
        used_ratio=window.used_ratio if window.is_read else None,
        estimated_ratio=window.period.share_used(use, now),
        holds_seconds=None if size is None else size.seconds,
        expected_reset=window.expected_reset,
        length=window.length,
        missed_at=window.reopening.missed_at,
    )


def _notice(scope: Scope, held: str | None, adaptive: int | None, reduced_from: int | None) -> str | None:
    """Return what a person should know and can undo."""
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

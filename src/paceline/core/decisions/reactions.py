"""Reactions to a signal, one function per kind: pause, lower a limit, close a window, hold, learn.

Each function returns the scopes in which a waiter may now be able to enter.
"""

from collections.abc import Iterable
from copy import deepcopy

from paceline.core.decisions.outcomes import (
    add_tokens,
    apply_gate_events,
    is_within_limit,
    learn_from_incident,
    learn_tokens,
    note_accepted,
    on_success,
)
from paceline.core.gates.closures import ACCOUNT_HOLD, LOGIN_DOUBT, LONGEST_PAUSE_SECONDS, OUTAGE, Closure, Pause
from paceline.core.gates.header_budget import HeaderBudget
from paceline.core.gates.quota_window import (
    CONTRADICTED_CONFIDENCE,
    UNNAMED_WINDOW,
    QuotaGate,
    Window,
    is_contradicted,
    note_open,
)
from paceline.core.limits import AdaptiveLimit, PlatformCap
from paceline.core.signals import (
    AuthFailed,
    BillingStop,
    Budget,
    Overloaded,
    PlatformLimit,
    QuotaClosed,
    RateLimited,
    Signal,
    Succeeded,
    Unreachable,
    Usage,
    understood,
)
from paceline.core.state.lane import LiveSlot
from paceline.core.state.ledger import Ledger
from paceline.core.state.scope import Scope
from paceline.core.values.scopes import SESSIONS, canonical_scope, scope_reached
from paceline.core.values.validation import LARGEST_LIMIT, outside_seconds
from paceline.errors import InvalidInput


def react(ledger: Ledger, scope_name: str, signal: Signal) -> list[Scope]:
    """Carry out what the signal means for the scope it reaches."""
    signal = understood(signal)
    name = scope_reached(canonical_scope(scope_name), signal.reach)
    slot = ledger.slots.get(signal.ticket) if signal.ticket is not None else None
    match signal:
        case Succeeded():
            return _succeeded(ledger, name, signal, slot)
        case Usage():
            return _usage(ledger, ledger.scope(name), signal)
        case Budget():
            return _budget(ledger, ledger.scope(name), signal, slot)
    if slot is not None:
        slot.reported = True  # all other signals are refusals
    if isinstance(signal, Unreachable):
        scope = ledger.scope(scope_reached(name, signal.reach or "account"))  # another model is as far away
        return _back_off(ledger, scope, signal, slot)
    names = slot.lane.names if slot is not None else [name, scope_reached(name, "account")]
    return _note_answer(ledger, names) + _refused(ledger, name, signal, slot)


def _refused(ledger: Ledger, name: str, signal: Signal, slot: LiveSlot | None) -> list[Scope]:
    account = scope_reached(name, "account")
    scope = ledger.scope(account if isinstance(signal, BillingStop | AuthFailed) else name)
    match signal:
        case BillingStop():
            return hold_account(ledger, scope, signal.detail or "BillingStop")
        case AuthFailed():
            return _doubt_login(ledger, scope, signal, slot)
        case RateLimited():
            return _rate_limited(ledger, scope, signal, slot)
        case Overloaded():
            return _overloaded(ledger, scope, signal)
        case QuotaClosed():
            return _quota_closed(ledger, scope, signal, slot)
        case PlatformLimit():
            return _platform_limit(ledger, scope, signal)
    raise InvalidInput(f"{signal!r} is no signal of paceline.core.signals")


# -- refusals ----------------------------------------------------------------------------------


def _rate_limited(ledger: Ledger, scope: Scope, signal: RateLimited, slot: LiveSlot | None) -> list[Scope]:
    adaptive = scope.adaptive = scope.adaptive or AdaptiveLimit()
    incidents = adaptive.incidents
    is_paced = signal.cause in ("requests", "tokens", "starts")
    last = incidents.last_paced if is_paced else max(incidents.last, incidents.last_paced)
    is_new = _is_new_incident(last, incidents.until, slot, ledger.now)
    stated, usual = outside_seconds(signal.retry_after), ledger.settings.default_pause
    wait, is_penalty = min(stated or usual, LONGEST_PAUSE_SECONDS), False
    if is_new and not is_paced and slot is not None:
        if scope.live > 1 and _is_of_session(slot) and incidents.waited_too_little(usual, ledger.now):
            wait, is_penalty = max(wait, usual), is_within_limit(ledger, scope, adaptive, slot)
        incidents.unanswered = wait
    pause = _pause(ledger, scope, ledger.now + wait, signal.cause or "rate_limited")
    if is_new:
        ledger.seq += 1
        if is_paced:
            incidents.last_paced = ledger.seq
        else:
            incidents.last = ledger.seq
        if is_penalty:
            incidents.was_step = True  # a penalty says nothing of the limit; those who waited come back one by one
        else:
            learn_from_incident(ledger, scope, adaptive, signal.cause, slot, stated)
    incidents.until = pause.until
    ledger.refresh(scope)
    return [scope]


def _is_of_session(slot: LiveSlot) -> bool:
    """Return whether a session was refused, or a run of one. A client waits for any other call, and comes sooner."""
    return slot.lane.parent is not None or SESSIONS in slot.ticket.scopes


def _is_new_incident(last: int, until: float | None, slot: LiveSlot | None, now: float) -> bool:
    """Return whether the refusal is a new incident: its slot was granted, or had a success, after the last one."""
    if slot is not None:
        return slot.proven_seq > last
    return until is None or now >= until


def _overloaded(ledger: Ledger, scope: Scope, signal: Overloaded) -> list[Scope]:
    pause = scope.gates.ensure(Pause)
    wait = outside_seconds(signal.retry_after)
    is_paused = pause.until is not None and ledger.now < pause.until
    if not is_paused:  # many streams hit by one episode are one refusal
        backoff = pause.overload_wait()
        wait = wait or backoff
    if wait is not None:
        _pause(ledger, scope, ledger.now + min(wait, LONGEST_PAUSE_SECONDS), "overloaded")
    return [scope]


def _pause(ledger: Ledger, scope: Scope, until: float, cause: str) -> Pause:
    pause = scope.gates.ensure(Pause)
    if pause.extend(until, cause, ledger.now):
        ledger.emit("scope.paused", scope.name, until=until, cause=cause)
    ledger.refresh(scope)
    return pause


def _quota_closed(ledger: Ledger, scope: Scope, signal: QuotaClosed, slot: LiveSlot | None) -> list[Scope]:
    resets_at, now = signal.resets_at, ledger.now
    quota = scope.gates.ensure(QuotaGate)
    window = quota.window(signal.window or UNNAMED_WINDOW, scope.meter.began_at, now)
    is_canary = slot is not None and window.is_probed_by(slot.ticket, slot.admitted_at)
    if window.state == "probing" and not is_canary:
        window.believe(resets_at, signal.source, signal.confidence, now)  # the canary's own answer decides
    elif scope.live > 1 and is_contradicted(quota.open_reports, window, signal, now):
        _doubt_closing(ledger, scope, window, signal, slot)
    else:
        is_explained = window.on_spent(scope.use(now), resets_at, signal.confidence, now)
        window.close(resets_at, signal.source, signal.confidence, now, is_explained=is_explained)
        _emit_closed(ledger, scope, window)
        _undo_step(ledger, scope, window)
    ledger.refresh(scope)
    return [scope]


def _doubt_closing(ledger: Ledger, scope: Scope, window: Window, signal: QuotaClosed, slot: LiveSlot | None) -> None:
    """Look again soon, with one place less: a 429 for too many at once may be reported as a spent window."""
    is_news = window.state != "closed"
    window.close(signal.resets_at, signal.source, CONTRADICTED_CONFIDENCE, ledger.now, in_doubt=True)
    _emit_closed(ledger, scope, window)
    if is_news:
        adaptive = scope.adaptive = scope.adaptive or AdaptiveLimit()
        window.before_doubt = deepcopy(adaptive)
        ledger.seq += 1
        adaptive.incidents.last = window.before_doubt.incidents.last = ledger.seq
        learn_from_incident(ledger, scope, adaptive, "concurrency", slot)


def _undo_step(ledger: Ledger, scope: Scope, window: Window) -> None:
    """Take back the step down of a closing in doubt that is confirmed now, unless a refusal since then confirms it."""
    before, window.before_doubt = window.before_doubt, None
    if before is None or scope.adaptive is None or scope.adaptive.incidents.last != before.incidents.last:
        return
    previous = scope.effective
    before.incidents, before.bursts = scope.adaptive.incidents, scope.adaptive.bursts
    scope.adaptive = before
    scope.refresh()
    ledger.note_raised(scope, previous)


def _emit_closed(ledger: Ledger, scope: Scope, window: Window) -> None:
    fields = {"resets_at": window.resets_at, "source": window.source, "confidence": window.confidence}
    ledger.emit("window.closed", scope.name, window=window.name, probe_at=window.probe_at, **fields)


def _platform_limit(ledger: Ledger, scope: Scope, signal: PlatformLimit) -> list[Scope]:
    if (wait := outside_seconds(signal.retry_after)) is not None:
        _pause(ledger, scope, ledger.now + min(wait, LONGEST_PAUSE_SECONDS), "platform_limit")
    previous = scope.effective
    stated = _count(signal.limit)
    if stated is None:
        stated = scope.live - 1
    scope.platform = PlatformCap.learnt(stated, scope.platform, ledger.now)
    _emit_platform_limit(ledger, scope, stated, previous)
    return [scope]


def _emit_platform_limit(ledger: Ledger, scope: Scope, detected: int, previous: int | None) -> None:
    scope.refresh()
    fields = {"detected_limit": detected, "effective_cap": scope.effective, "previous_cap": previous}
    ledger.emit("scope.platform_limit", scope.name, **fields)
    ledger.schedule(scope)


# -- failed contacts: nobody answered, or the login was refused; an answer of any kind ends that ----


def _back_off(ledger: Ledger, scope: Scope, signal: Unreachable, slot: LiveSlot | None) -> list[Scope]:
    """Keep everybody out for a while: nobody answered. The limits stay as they are."""
    outage = scope.gates.closure(OUTAGE) or Closure(OUTAGE)
    outage.cause = signal.detail or outage.cause
    stated = min(outside_seconds(signal.retry_after) or 0.0, LONGEST_PAUSE_SECONDS)
    _fail_contact(ledger, scope, outage, slot, outage.cause, stated=stated)
    return [scope]


def _doubt_login(ledger: Ledger, scope: Scope, signal: AuthFailed, slot: LiveSlot | None) -> list[Scope]:
    """Let one session ask again, twice, before the account is held. A login that is missing is held at once."""
    cause = signal.detail or "AuthFailed"
    if scope.gates.closure(ACCOUNT_HOLD) is None:
        doubt = scope.gates.closure(LOGIN_DOUBT) or Closure(LOGIN_DOUBT)
        _fail_contact(ledger, scope, doubt, slot, cause, is_missing=signal.is_missing is True)
    return [scope]


def _fail_contact(
    ledger: Ledger,
    scope: Scope,
    closure: Closure,
    slot: LiveSlot | None,
    cause: str,
    *,
    stated: float = 0.0,
    is_missing: bool = False,
) -> None:
    """Close the scope, or keep it closed, after one more failure of this cause."""
    ledger.seq += 1
    ticket, proven_seq = (slot.ticket, slot.proven_seq) if slot is not None else (None, 0)
    was_held = closure.is_held
    is_news = closure.on_failure(ticket, proven_seq, ledger.seq, ledger.now, stated=stated, is_missing=is_missing)
    closure.cause = cause if is_news else closure.cause
    scope.put_gate(closure)
    if is_news and closure.is_held and not was_held:
        ledger.emit("account.held", scope.name, detail=cause, until=closure.probe_at)
    elif is_news:
        ledger.emit("scope.paused", scope.name, until=closure.probe_at, cause=closure.rule.pause)
    ledger.schedule(scope)


def hold_account(ledger: Ledger, scope: Scope, cause: str) -> list[Scope]:
    """Admit nobody to the scope until a person lifts the hold."""
    scope.drop_gate(LOGIN_DOUBT)
    if scope.gates.closure(ACCOUNT_HOLD) is None:
        scope.put_gate(Closure(ACCOUNT_HOLD, cause))
        ledger.emit("account.held", scope.name, detail=cause, until=None)
    return [scope]


def _note_answer(ledger: Ledger, names: Iterable[str]) -> list[Scope]:
    """End the outages: the provider answered, be it with a refusal. Returns the scopes that this opened."""
    opened = []
    for scope in [ledger.scopes.by_name[name] for name in dict.fromkeys(names) if name in ledger.scopes.by_name]:
        outage = scope.gates.closure(OUTAGE)
        if outage is not None and (events := outage.lift()):
            scope.refresh()
            apply_gate_events(ledger, scope, events)
            ledger.schedule(scope)
            opened.append(scope)
    return opened


# -- readings ----------------------------------------------------------------------------------


def _usage(ledger: Ledger, scope: Scope, signal: Usage) -> list[Scope]:
    caps = [cap for cap in (_count(signal.limit), _count(signal.hard_cap)) if cap is not None]
    if caps:
        stated = max(1, min(caps))
        previous = scope.effective
        is_news = scope.platform is None or scope.platform.limit != stated
        adaptive = scope.adaptive if scope.mode == "adaptive" else None
        if adaptive is not None and (is_news or not adaptive.contradicts_reading):
            adaptive.clear()  # a limit that the provider states outranks a learnt one
            scope.refresh()
        if is_news:
            scope.platform = PlatformCap(limit=stated)
            _emit_platform_limit(ledger, scope, stated, previous)
        elif scope.effective != previous:
            ledger.emit("scope.limit_raised", scope.name, limit=scope.effective, previous=previous)
    if scope.usage is not None:
        scope.usage.on_answer(_count(signal.concurrent_sessions), scope.live, ledger.now)
        free = scope.cap - scope.used - scope.usage.others
        if scope.usage_room(scope.usage, ledger.now) < min(free, scope.waiting):
            scope.usage.on_late_count(ledger.now)
        ledger.poll_usage(scope)
        ledger.schedule(scope)
    return [scope]


def _count(value: object) -> int | None:
    """Return a count from outside as a whole number, or None if it is not a valid count."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LARGEST_LIMIT:
        return None
    return int(value)


def _budget(ledger: Ledger, scope: Scope, signal: Budget, slot: LiveSlot | None) -> list[Scope]:
    if signal.requests_remaining is not None or signal.tokens_remaining is not None:
        budget = scope.gates.header_budget or scope.gates.ensure(HeaderBudget)
        is_run = slot is not None and SESSIONS not in slot.ticket.scopes
        asked_at = slot.admitted_at if slot is not None and is_run else ledger.now
        is_remembered = bool(ledger.recent) and ledger.recent[0][0] <= asked_at
        started = len(ledger.runs_since(scope, asked_at)) if is_remembered else None
        budget.on_reading(signal, asked_at, started, ledger.now)
    if signal.used_ratio is not None:
        name = signal.window or UNNAMED_WINDOW
        scope.gates.ensure(QuotaGate).on_reading(name, signal, scope, scope.meter.began_at, ledger.now)
    if signal.window is not None and (signal.used_ratio or 0.0) < 1.0:
        note_open(scope.gates.ensure(QuotaGate).open_reports, signal.window, ledger.now)
    ledger.refresh(scope)
    return [scope]


# -- success -----------------------------------------------------------------------------------


def _succeeded(ledger: Ledger, name: str, signal: Succeeded, slot: LiveSlot | None) -> list[Scope]:
    scopes = slot.lane.scopes if slot is not None else (ledger.scope(name),)
    if slot is not None:
        note_accepted(ledger, slot.lane.parent or slot)
        ledger.seq += 1
        slot.proven_seq = ledger.seq
        slot.reported = False
        if slot.lane.parent is not None:
            slot.lane.parent.proven_seq = ledger.seq
    changed: list[Scope] = []
    if signal.tokens is not None:
        add_tokens(scopes, slot, signal.tokens)
        changed = learn_tokens(ledger, scopes, slot, signal.tokens)
    return changed + on_success(ledger, scopes, slot)

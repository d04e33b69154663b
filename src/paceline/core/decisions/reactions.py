"""What a signal does to the scopes it is about: pause, step, close, hold, learn. One function per kind.

Each returns the scopes in which someone may now be able to enter.
"""

from paceline.core.decisions.refusals import learn_from_incident
from paceline.core.gates.pause import Pause
from paceline.core.gates.quota_window import Window
from paceline.core.gates.window_budget import BudgetGate
from paceline.core.limits.adaptive_limit import Headroom, PlatformCap
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
    Usage,
)
from paceline.core.state.fairness import lift_blocked
from paceline.core.state.ledger import Books
from paceline.core.state.live_slot import LiveSlot
from paceline.core.state.scope import ScopeState
from paceline.core.values.scopes import canonical_scope, scope_reached
from paceline.core.values.signal_validation import understood
from paceline.core.values.validation import LARGEST_LIMIT, outside_seconds
from paceline.errors import InvalidInput

UNNAMED_WINDOW = "quota"
NEW_SHARE = 0.05


def apply_signal(books: Books, scope_name: str, signal: Signal) -> list[ScopeState]:
    """Carry out what the signal means for the scope it reaches."""
    signal = understood(signal)
    name = scope_reached(canonical_scope(scope_name), signal.reach)
    slot = books.slots.get(signal.ticket) if signal.ticket is not None else None
    match signal:
        case Succeeded():
            return _succeeded(books, name, signal, slot)
        case Usage():
            return _usage(books, books.scope(name), signal)
        case Budget():
            return _budget(books, books.scope(name), signal)
    if slot is not None:
        slot.reported = True  # all others are refusals
    if isinstance(signal, BillingStop | AuthFailed):
        return hold(books, scope_reached(name, "account"), signal.detail or type(signal).__name__)
    scope = books.scope(name)
    match signal:
        case RateLimited():
            return _rate_limited(books, scope, signal, slot)
        case Overloaded():
            return _overloaded(books, scope, signal)
        case QuotaClosed():
            return _quota_closed(books, scope, signal, slot)
        case PlatformLimit():
            return _platform_limit(books, scope, signal)
    raise InvalidInput(f"{signal!r} is no signal of paceline.core.signals")


# -- refusals ----------------------------------------------------------------------------------


def _rate_limited(books: Books, scope: ScopeState, signal: RateLimited, slot: LiveSlot | None) -> list[ScopeState]:
    headroom = scope.headroom = scope.headroom or Headroom()
    is_paced = signal.cause in ("requests", "tokens", "starts")
    last = headroom.paced_incident if is_paced else max(headroom.incident, headroom.paced_incident)
    is_new = _is_new_incident(last, headroom.incident_until, slot, books.now)
    wait = outside_seconds(signal.retry_after) or books.settings.default_pause
    _pause(books, scope, books.now + wait, signal.cause or "rate_limited")
    if is_new:
        books.seq += 1
        if is_paced:
            headroom.paced_incident = books.seq
        else:
            headroom.incident = books.seq
        learn_from_incident(books, scope, headroom, signal.cause, slot)
    assert scope.pause is not None
    headroom.incident_until = scope.pause.until
    scope.refresh()
    books.schedule(scope)
    return [scope]


def _is_new_incident(last: int, until: float | None, slot: LiveSlot | None, now: float) -> bool:
    """One step per incident: only a slot that was granted, or did well, since the last step is news."""
    if slot is not None:
        return slot.heard > last
    return until is None or now >= until


def _overloaded(books: Books, scope: ScopeState, signal: Overloaded) -> list[ScopeState]:
    pause = scope.pause = scope.pause or Pause()
    wait = outside_seconds(signal.retry_after)
    is_paused = pause.until is not None and books.now < pause.until
    if not is_paused:  # many streams hit by one episode are one refusal
        backoff = pause.overload_wait()
        wait = wait or backoff
    if wait is not None:
        _pause(books, scope, books.now + wait, "overloaded")
    return [scope]


def _pause(books: Books, scope: ScopeState, until: float, cause: str) -> None:
    pause = scope.pause = scope.pause or Pause()
    if pause.extend(until):
        books.emit("scope.paused", scope.name, until=until, cause=cause)
    scope.refresh()
    books.schedule(scope)


def _quota_closed(books: Books, scope: ScopeState, signal: QuotaClosed, slot: LiveSlot | None) -> list[ScopeState]:
    name = signal.window or UNNAMED_WINDOW
    window = scope.window(name)
    resets_at = signal.resets_at
    if window.state == "probing" and not _is_canary(window, slot):
        window.believe(resets_at, signal.source, signal.confidence, books.now)  # the canary will tell
    else:
        window.on_spent(scope.use(books.now), resets_at, signal.confidence, books.now)
        window.close(resets_at, signal.source, signal.confidence, books.now)
        fields = {"resets_at": window.resets_at, "source": window.source, "confidence": window.confidence}
        books.emit("window.closed", scope.name, window=name, probe_at=window.probe_at, **fields)
    scope.refresh()
    books.schedule(scope)
    return [scope]


def _is_canary(window: Window, slot: LiveSlot | None) -> bool:
    return slot is not None and window.is_probed_by(slot.ticket.id, slot.ticket.parent, slot.granted_at)


def _platform_limit(books: Books, scope: ScopeState, signal: PlatformLimit) -> list[ScopeState]:
    if (wait := outside_seconds(signal.retry_after)) is not None:
        _pause(books, scope, books.now + wait, "platform_limit")
    previous = scope.effective
    stated = _count(signal.limit)
    if stated is None:
        stated = scope.live - 1
    scope.platform = PlatformCap.learnt(stated, scope.platform, books.now)
    _tell_platform_limit(books, scope, stated, previous)
    return [scope]


def _tell_platform_limit(books: Books, scope: ScopeState, detected: int, previous: int | None) -> None:
    scope.refresh()
    fields = {"detected_limit": detected, "effective_cap": scope.effective, "previous_cap": previous}
    books.emit("scope.platform_limit", scope.name, **fields)
    books.schedule(scope)


def hold(books: Books, name: str, detail: str) -> list[ScopeState]:
    """Nobody enters until a person lifts it."""
    scope = books.scope(name)
    if scope.hold is None:
        scope.hold = detail
        scope.refresh()
        books.emit("account.held", name, detail=detail)
    return [scope]


# -- readings ----------------------------------------------------------------------------------


def _usage(books: Books, scope: ScopeState, signal: Usage) -> list[ScopeState]:
    caps = [cap for cap in (_count(signal.limit), _count(signal.hard_cap)) if cap is not None]
    if caps:
        stated = max(1, min(caps))
        previous = scope.effective
        if scope.headroom is not None and scope.mode == "adaptive":
            scope.headroom.clear()  # what the provider states outranks what refusals taught
            scope.refresh()
        if scope.platform is None or scope.platform.limit != stated:
            scope.platform = PlatformCap(limit=stated)
            _tell_platform_limit(books, scope, stated, previous)
        elif scope.effective != previous:
            books.emit("scope.limit_raised", scope.name, limit=scope.effective, previous=previous)
    if scope.usage is not None:
        scope.usage.on_answer(_count(signal.concurrent_sessions), scope.live, books.now)
        books.ask_usage(scope)
        books.schedule(scope)
    return [scope]


def _count(value: object) -> int | None:
    """A count as an outsider gave it: fractions are cut, anything odd is unknown."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LARGEST_LIMIT:
        return None
    return int(value)


def _budget(books: Books, scope: ScopeState, signal: Budget) -> list[ScopeState]:
    if signal.requests_remaining is not None or signal.tokens_remaining is not None:
        scope.budget = scope.budget or BudgetGate()
        scope.budget.on_reading(signal, books.now)
    if signal.used_ratio is not None:
        scope.read_window(signal.window or UNNAMED_WINDOW, signal.used_ratio, signal.resets_at, books.now)
    scope.refresh()
    books.schedule(scope)
    return [scope]


# -- success -----------------------------------------------------------------------------------


def _succeeded(books: Books, name: str, signal: Succeeded, slot: LiveSlot | None) -> list[ScopeState]:
    scopes = slot.lane.scopes if slot is not None else (books.scope(name),)
    if slot is not None:
        books.seq += 1
        slot.heard = books.seq
        slot.reported = False
        if slot.lane.parent is not None:
            slot.lane.parent.heard = books.seq
    settled: list[ScopeState] = []
    if signal.tokens is not None:
        count_tokens(scopes, slot, signal.tokens)
        for scope in scopes:
            scope.mean_tokens += (signal.tokens - scope.mean_tokens) * (NEW_SHARE if scope.mean_tokens else 1.0)
            if scope.budget is not None:
                scope.budget.on_tokens(signal.tokens)
            if scope.learnt_rates and slot is not None:
                for rate in scope.learnt_rates.values():
                    rate.on_tokens(slot.ticket, signal.tokens, books.now)
                settled.append(scope)
            if scope.rate is not None and slot is not None:
                scope.rate.on_tokens(slot.ticket, slot.granted_at, signal.tokens)
                settled.append(scope)  # it may have used less than it was expected to
    return settled + on_success(books, scopes, slot)


def count_tokens(scopes: tuple[ScopeState, ...], slot: LiveSlot | None, tokens: int) -> None:
    """They count against the windows; those of a session whose runs have slots of their own are told by its runs."""
    if slot is None or slot.runs is None:
        for scope in scopes:
            scope.tokens_used += tokens


def on_success(books: Books, scopes: tuple[ScopeState, ...], slot: LiveSlot | None) -> list[ScopeState]:
    """A call or a whole slot went well: trouble is over, canaries are accepted, limits may climb."""
    reopened: list[ScopeState] = []
    for scope in scopes:
        if not scope.learns:
            continue
        if scope.pause is not None:
            scope.pause.overloads = 0
            if scope.pause.until is None:
                scope.pause = None  # a gate that is down costs every grant a second look
                scope.refresh()
        if scope.headroom is not None:
            scope.headroom.success_since = scope.headroom.limit is not None
            if slot is not None and slot.token > scope.headroom.incident:
                scope.headroom.unblamed = None
        if scope.platform is not None and scope.platform.probe_at is not None:
            scope.platform.success_since = True
        for window in scope.windows.values():
            if window.state == "probing" and _is_canary(window, slot):
                window.on_canary_accepted(books.now)
                window.begin_period(scope.use(books.now), books.now)
                lift_blocked(books, scope)
                books.emit("window.reopened", scope.name, window=window.name)
                reopened.append(scope)
        books.schedule(scope)
    return reopened


def on_canary_lost(books: Books, slot: LiveSlot) -> list[ScopeState]:
    """The slot ended without an answer: where it was the canary, another may go."""
    lost = []
    for scope in slot.lane.scopes:
        for window in scope.windows.values():
            if window.canary == slot.ticket.id:
                window.on_canary_lost(books.now)
                books.schedule(scope)
                lost.append(scope)
    return lost

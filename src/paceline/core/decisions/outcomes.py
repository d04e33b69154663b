"""What the outcomes of slots teach: a call that went well, tokens used, a lost canary, a refusal.

A 429 that names no cause is one of too many starts in a short time, one start too many, a limit that fell in
mid-run, or a count that lags.
"""

from collections.abc import Sequence

from paceline.core.gates.closures import Pause
from paceline.core.gates.gate import GateEvent
from paceline.core.gates.header_budget import HeaderBudget
from paceline.core.gates.rates import RATE_SPAN_SECONDS, LearnedRate, LearnedRates
from paceline.core.gates.start_meters import StartSpacing
from paceline.core.limits import BURST_SECONDS, LEAST_LEVEL, AdaptiveLimit
from paceline.core.signals import Cause
from paceline.core.state.lane import LiveSlot
from paceline.core.state.ledger import Ledger
from paceline.core.state.scope import Scope
from paceline.core.values.scopes import SESSIONS


def learn_tokens(ledger: Ledger, scopes: tuple[Scope, ...], slot: LiveSlot | None, tokens: int) -> list[Scope]:
    """Let the gates and the estimates learn what a run used. Returns the scopes in which a waiter may now enter."""
    ticket, granted_at = (slot.ticket, slot.admitted_at) if slot is not None else (None, ledger.now)
    is_run = ticket is None or SESSIONS not in ticket.scopes  # the tokens of a session are counted with its runs
    changed: list[Scope] = []
    for scope in scopes:
        lets_in = False
        for gate in scope.gates.in_order:
            lets_in = gate.on_tokens(ticket, granted_at, tokens, scope, ledger.now) or lets_in
        if is_run:
            scope.tokens.on_tokens(tokens)
        if lets_in:
            changed.append(scope)
    return changed


def add_tokens(scopes: tuple[Scope, ...], slot: LiveSlot | None, tokens: int) -> None:
    """Count tokens against the windows. If the runs of a session have slots of their own, only the runs count."""
    if slot is None or not slot.has_runs:
        for scope in scopes:
            scope.meter.tokens += tokens


def note_accepted(ledger: Ledger, slot: LiveSlot) -> None:
    """Count the first answer to a session: readings from now on include it, and its burst went well.

    Where no session runs, an answer is the end of a call.
    """
    if slot.has_succeeded or SESSIONS not in slot.ticket.scopes:
        return
    for scope in slot.lane.scopes:
        if scope.usage is not None:
            scope.usage.on_accepted(slot.ticket.id, ledger.now)
        if scope.adaptive is not None:
            scope.adaptive.bursts.on_accepted(slot.granted_at)


def on_success(ledger: Ledger, scopes: tuple[Scope, ...], slot: LiveSlot | None) -> list[Scope]:
    """Learn from a call or a whole slot that went well: trouble is over, canaries are accepted, limits may climb.

    Returns the scopes in which a waiter may now be able to enter.
    """
    reopened: list[Scope] = []
    granted_at = slot.admitted_at if slot is not None else ledger.now
    for scope in scopes:
        if not scope.learns or (scope.learner is not None and not scope.learner.heeds_success(granted_at, ledger.now)):
            continue
        if scope.adaptive is not None:
            scope.adaptive.on_success(slot.token if slot is not None else None)
        if scope.platform is not None:
            scope.platform.on_success()
        if any(event.lets_in for event in _gates_succeed(ledger, scope, slot)):
            reopened.append(scope)
        ledger.schedule(scope)
    return reopened


def _gates_succeed(ledger: Ledger, scope: Scope, slot: LiveSlot | None) -> list[GateEvent]:
    if not scope.gates.in_order:
        return []
    ticket, granted_at = (slot.ticket, slot.admitted_at) if slot is not None else (None, ledger.now)
    events: list[GateEvent] = []
    for gate in scope.gates.in_order:
        events.extend(gate.on_success(ticket, granted_at, scope, ledger.now))
    scope.gates.drop_idle(ledger.now)
    scope.refresh()
    apply_gate_events(ledger, scope, events)
    return events


def apply_gate_events(ledger: Ledger, scope: Scope, events: Sequence[GateEvent]) -> None:
    """Carry out what the hooks of the scope's gates returned."""
    for event in events:
        if event.successor is not None:
            scope.put_gate(event.successor)
        if event.lets_in:
            ledger.lift_blocked(scope)
        ledger.emit(event.name, scope.name, **event.fields)


def on_canary_lost(ledger: Ledger, slot: LiveSlot) -> list[Scope]:
    """Allow another canary where this slot was one and ended without an answer. Returns those scopes."""
    lost = []
    for scope in slot.lane.scopes:
        found = [gate.on_canary_lost(slot.ticket.id, ledger.now) for gate in scope.gates.probed]
        if any(found):
            ledger.refresh(scope)
            lost.append(scope)
    return lost


# -- refusals ----------------------------------------------------------------------------------

FRESH_SECONDS = 20.0
"""A slot refused within this time of its grant, and without a success, was refused at its start.

Long enough for a slow CLI to make its first request, short against a session.
"""
PROVEN_SECONDS = 3.0
"""A slot that has lived this long was accepted, even without a reported success: refusals come within seconds."""
FEWEST_PROVEN = 2
"""Accepted slots needed before a refused start shows where the limit is: one alone may be luck."""


def learn_from_incident(
    ledger: Ledger,
    scope: Scope,
    adaptive: AdaptiveLimit,
    cause: Cause | None,
    slot: LiveSlot | None,
    retry_after: float | None = None,
) -> None:
    """Learn from a new incident by its cause; an unknown cause is a burst of starts, else it counts as concurrency."""
    adaptive.bursts.learn(_young_sessions(ledger, scope, slot))
    if cause is None and slot is not None and _ends_burst(ledger, scope, adaptive, slot.lane.parent or slot):
        cause = "starts"
    if cause in ("requests", "tokens"):
        adaptive.incidents.was_step = True
        _learn_rate(ledger, scope, cause, retry_after)
    elif cause == "starts":
        tried_at = ledger.now if slot is None else (slot.lane.parent or slot).granted_at
        burst = adaptive.bursts.size(tried_at)
        spacing = StartSpacing.from_starts(burst, scope.gates.get(StartSpacing), ledger.now)
        spacing.next_at = max(ledger.now, adaptive.bursts.is_over_at(tried_at))
        scope.put_gate(spacing)
        ledger.emit("scope.paced", scope.name, interval=spacing.interval, cause=cause)
    else:
        _step_down(ledger, scope, adaptive, slot)
        adaptive.incidents.was_step = adaptive.limit is not None


def _learn_rate(ledger: Ledger, scope: Scope, cause: Cause, retry_after: float | None) -> None:
    learned = scope.gates.get(LearnedRates) or LearnedRates()
    rate = learned.rates.get(cause)
    if rate is not None:
        rate.on_refused(ledger.now)
    else:
        waits_here = [each.enqueued_at for each in ledger.waiters.values() if scope in each.lane.scopes]
        if not waits_here:
            return  # while nobody waits the runs show no rate: the provider could do more
        runs = ledger.runs_since(scope, max(min(waits_here), ledger.now - RATE_SPAN_SECONDS))
        if len(runs) < 2:
            return  # one start alone shows no rate
        seconds = max(1.0, ledger.now - min(runs))
        rate = LearnedRate.first(cause, len(runs), seconds, scope.tokens.mean, ledger.now)
        learned.rates[cause] = rate
        scope.put_gate(learned)
    if (pause := scope.gates.get(Pause)) is not None and pause.until is not None:
        rate.resumes_at = max(ledger.now, pause.until)
    headers = scope.gates.get(HeaderBudget)
    stated = headers.current(cause, ledger.now) if headers is not None else None
    rate.bound(retry_after, 0.0 if stated is None else stated.per_second, scope.tokens.mean)
    ledger.emit("scope.paced", scope.name, interval=rate.interval(scope.tokens.mean), cause=cause)


def _step_down(ledger: Ledger, scope: Scope, adaptive: AdaptiveLimit, slot: LiveSlot | None) -> None:
    """Lower the limit by what the refusal shows. An unlimited scope is lowered from what runs there."""
    previous = scope.effective if scope.effective is not None else scope.live
    if scope.mode == "off" or previous <= 1:
        return
    lowered = _lower(ledger, scope, adaptive, slot, previous)
    if lowered is not None and lowered < previous:
        fields = {"limit": lowered, "previous": previous, "reduced_from": adaptive.reduced_from}
        ledger.emit("scope.limit_reduced", scope.name, **fields)


def _lower(ledger: Ledger, scope: Scope, adaptive: AdaptiveLimit, slot: LiveSlot | None, effective: int) -> int | None:
    """Apply the refusal to the limit. Returns the new limit; None where it stays as it is."""
    if scope.mode != "adaptive" or slot is None:
        return adaptive.step_down(effective, scope.mode, ledger.now)
    if _is_mid_run(slot):
        adaptive.contradicts_reading = scope.platform is not None and scope.live <= scope.platform.limit
        return adaptive.shed(effective, scope.live, ledger.now)
    session = slot.lane.parent or slot
    is_start = ledger.now - session.admitted_at <= FRESH_SECONDS
    if is_start and scope.usage is not None:
        scope.usage.on_refused_start()
    others = proven(ledger, scope, session)
    if is_start and others >= _fewest_proven(adaptive, scope.live):
        return adaptive.refuse_start(scope.live, others, effective, ledger.now)
    return adaptive.step_down(effective, scope.mode, ledger.now)


def _ends_burst(ledger: Ledger, scope: Scope, adaptive: AdaptiveLimit, session: LiveSlot) -> bool:
    """Return whether a session was refused at its start as one too many in a short time, not as one too many at once.

    Then it made a larger burst than any that went well, at a level that held before or is far below the limit.
    """
    is_start = not session.has_succeeded and ledger.now - session.admitted_at <= FRESH_SECONDS
    if scope.mode != "adaptive" or not is_start or SESSIONS not in session.ticket.scopes:
        return False
    if not adaptive.bursts.is_exceeded_by(session.granted_at):
        return False
    return scope.gates.get(StartSpacing) is not None or _is_below_held(ledger, scope, adaptive, session)


def is_within_limit(ledger: Ledger, scope: Scope, adaptive: AdaptiveLimit, slot: LiveSlot) -> bool:
    """Return whether a refusal may be the rest of a penalty: in mid-run, or far below a limit that never failed."""
    is_new = adaptive.worked_at is None
    return _is_mid_run(slot) or (is_new and _is_below_held(ledger, scope, adaptive, slot.lane.parent or slot))


def _is_below_held(ledger: Ledger, scope: Scope, adaptive: AdaptiveLimit, session: LiveSlot) -> bool:
    """Return whether fewer than held before, or than a small share of the limit, went well beside a refused session."""
    return proven(ledger, scope, session) < (adaptive.worked_at or LEAST_LEVEL * scope.cap)


def _young_sessions(ledger: Ledger, scope: Scope, refused: LiveSlot | None) -> list[float]:
    """Return when the live sessions that were accepted shortly before the refusal had started."""
    sessions = [slot for slot in _accepted(ledger, scope, refused) if SESSIONS in slot.ticket.scopes]
    return sorted(slot.granted_at for slot in sessions if slot.admitted_at > ledger.now - BURST_SECONDS)


def _is_mid_run(slot: LiveSlot) -> bool:
    """Return whether the provider had accepted the slot, or its session, before."""
    return slot.has_succeeded or (slot.lane.parent or slot).has_succeeded


def _fewest_proven(adaptive: AdaptiveLimit, live: int) -> int:
    """Return how many must go well for a refused start to show the limit. Above a level of one, one is all there is."""
    if adaptive.is_trying and adaptive.worked_at == 1:
        return 1
    return max(FEWEST_PROVEN, live // 2)


def proven(ledger: Ledger, scope: Scope, refused: LiveSlot | None = None) -> int:
    """Count the places in the scope held by slots that the provider has accepted, without the refused one."""
    return sum(
        max(1, other.runs.get(scope.name, 0)) if other.runs else 1 for other in _accepted(ledger, scope, refused)
    )


def _accepted(ledger: Ledger, scope: Scope, refused: LiveSlot | None) -> list[LiveSlot]:
    """Return the slots in the scope that the provider has accepted, without the refused one and without runs."""
    old = ledger.now - PROVEN_SECONDS
    return [
        other
        for other in ledger.slots.values()
        if scope in other.lane.scopes
        and other is not refused
        and other.lane.parent is None
        and (other.has_succeeded or other.granted_at <= old)
    ]

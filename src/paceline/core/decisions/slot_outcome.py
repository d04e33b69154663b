"""What the outcome of a slot teaches: tokens used, a call that went well, a canary that ended without an answer."""

from collections.abc import Sequence

from paceline.core.gates.gate import GateEvent
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
    if slot is None or slot.runs is None:
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
            scope.refresh()
            ledger.schedule(scope)
            lost.append(scope)
    return lost

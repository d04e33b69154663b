"""What failed contacts teach: nobody answered, or the login was refused. And what an answer of any kind ends."""

from collections.abc import Iterable

from paceline.core.decisions.slot_outcome import apply_gate_events
from paceline.core.gates.closures import AccountHold, LoginDoubt, Outage
from paceline.core.signals import AuthFailed, Unreachable
from paceline.core.state.lane import LiveSlot
from paceline.core.state.ledger import Ledger
from paceline.core.state.scope import Scope
from paceline.core.values.validation import outside_seconds


def back_off(ledger: Ledger, scope: Scope, signal: Unreachable, slot: LiveSlot | None) -> list[Scope]:
    """Keep everybody out for a while: nobody answered. The limits stay as they are."""
    outage = scope.gates.get(Outage) or Outage()
    outage.cause = signal.detail or outage.cause
    ledger.seq += 1
    ticket, proven_seq = (slot.ticket, slot.proven_seq) if slot is not None else (None, 0)
    if outage.on_unreachable(ticket, proven_seq, outside_seconds(signal.retry_after), ledger.seq, ledger.now):
        ledger.emit("scope.paused", scope.name, until=outage.probe_at, cause="unreachable")
    scope.put_gate(outage)
    ledger.schedule(scope)
    return [scope]


def doubt_login(ledger: Ledger, scope: Scope, signal: AuthFailed, slot: LiveSlot | None) -> list[Scope]:
    """Let one session ask again, twice, before the account is held. A login that is missing is held at once."""
    cause = signal.detail or "AuthFailed"
    if scope.gates.get(AccountHold) is not None:
        return [scope]
    doubt = scope.gates.get(LoginDoubt) or LoginDoubt()
    ledger.seq += 1
    ticket, proven_seq = (slot.ticket, slot.proven_seq) if slot is not None else (None, 0)
    was_held = doubt.is_held
    is_missing = signal.is_missing is True
    is_news = doubt.on_refused(ticket, proven_seq, cause, ledger.seq, ledger.now, is_missing=is_missing)
    scope.put_gate(doubt)
    if is_news and doubt.is_held and not was_held:
        ledger.emit("account.held", scope.name, detail=cause, until=doubt.probe_at)
    elif is_news:
        ledger.emit("scope.paused", scope.name, until=doubt.probe_at, cause="auth")
    ledger.schedule(scope)
    return [scope]


def hold_account(ledger: Ledger, scope: Scope, cause: str) -> list[Scope]:
    """Admit nobody to the scope until a person lifts the hold."""
    scope.drop_gate(LoginDoubt)
    if scope.gates.get(AccountHold) is None:
        scope.put_gate(AccountHold(cause))
        ledger.emit("account.held", scope.name, detail=cause, until=None)
    return [scope]


def note_answer(ledger: Ledger, names: Iterable[str]) -> list[Scope]:
    """Let the gates know that the provider answered, be it with a refusal. Returns the scopes that this opened."""
    opened = []
    for scope in [ledger.scopes.by_name[name] for name in dict.fromkeys(names) if name in ledger.scopes.by_name]:
        events = [event for gate in scope.gates.in_order for event in gate.on_answer(scope, ledger.now)]
        if events:
            scope.refresh()
            apply_gate_events(ledger, scope, events)
            ledger.schedule(scope)
            opened.append(scope)
    return opened

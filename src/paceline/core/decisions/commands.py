"""What a person sets: limits, cooldowns, headroom, caps and holds. It takes effect at once.

What is set live wins over the settings until it is reset.
"""

from paceline.core.decisions.admission import admit_ready
from paceline.core.decisions.refusals import hold_account
from paceline.core.decisions.time_effects import move_to
from paceline.core.gates.closures import ACCOUNT_HOLD, LOGIN_DOUBT, OUTAGE, Pause
from paceline.core.gates.header_budget import HeaderBudget
from paceline.core.gates.rates import LearnedRates, RateLimit
from paceline.core.gates.start_meters import SlowStart, StartCap, StartSpacing
from paceline.core.state.ledger import Ledger
from paceline.core.state.scope import cooldown_seconds
from paceline.core.values.scopes import ScopePattern, canonical_scope, is_provider_scope, is_unnamed_model
from paceline.core.values.settings import Cooldown, HeadroomMode, Rate, check_cooldown, check_headroom, check_rate

LEARNT_GATES = (OUTAGE, Pause, SlowStart, StartSpacing, HeaderBudget, LearnedRates)
"""What a person undoes with `restore`, beside learnt limits: pauses and paces that the provider's answers brought."""


def set_scope_limit(ledger: Ledger, scope: str, limit: int | None, now: float) -> None:
    """Set a scope's or pattern's limit by hand, and forget what was learnt there."""
    pattern = ScopePattern(scope)
    move_to(ledger, now)
    ledger.scopes.limits.set(pattern.text, limit)
    _apply_limits(ledger, pattern)


def remove_scope_limit(ledger: Ledger, scope: str, now: float) -> None:
    """Make the scope unlimited: waiters enter, live slots stay counted, pauses stay."""
    pattern = ScopePattern(scope)
    move_to(ledger, now)
    ledger.scopes.limits.remove(pattern.text)
    _apply_limits(ledger, pattern)


def reset_scope_limit(ledger: Ledger, scope: str, now: float) -> None:
    """Forget the limit that was set live, so that the settings apply again."""
    pattern = ScopePattern(scope)
    move_to(ledger, now)
    ledger.scopes.limits.reset_live(pattern.text)
    _apply_limits(ledger, pattern)


def restore_scope_limit(ledger: Ledger, scope: str, now: float) -> None:
    """Return to the configured limit: forget what refusals taught, also rates and spacing, and end pauses."""
    pattern = ScopePattern(scope)
    move_to(ledger, now)
    for state in ledger.scopes.by_name.values():
        if pattern.matches(state.name):
            pause = state.gates.get(Pause)
            state.gates.drop(*LEARNT_GATES)
            if pause is not None and pause.until is not None:
                ledger.emit("scope.resumed", state.name)
    _apply_limits(ledger, pattern)


def _governs(pattern: ScopePattern, scope: str) -> bool:
    """Return whether the limit of the scope may come from the pattern; a model without a name has the strictest."""
    if pattern.matches(scope):
        return True
    return is_unnamed_model(scope) and pattern.matches_account_of(scope.rpartition("/")[0])


def _apply_limits(ledger: Ledger, pattern: ScopePattern) -> None:
    ledger.lanes.forget_empty()
    touched = [scope for scope in ledger.scopes.by_name.values() if _governs(pattern, scope.name)]
    if pattern.is_exact and not touched:
        touched = [ledger.scope(pattern.text)]
    for scope in touched:
        previous = scope.effective
        scope.configured = ledger.scopes.limits.configured(scope.name)
        if scope.adaptive is not None:
            scope.adaptive.clear()
        scope.platform = None
        scope.refresh()
        ledger.lift_blocked(scope)
        ledger.schedule(scope)
        if scope.effective != previous:
            ledger.emit("scope.limit_set", scope.name, limit=scope.effective, previous=previous)
    admit_ready(ledger, touched)


def set_scope_rate(ledger: Ledger, scope: str, rate: Rate | None, now: float) -> None:
    """Set the rate of a scope or pattern live; None returns to that of the settings. The last minute still counts."""
    pattern = ScopePattern(scope)
    checked = None if rate is None else check_rate(rate, "rate")
    move_to(ledger, now)
    if checked is None:
        ledger.scopes.rates.reset_live(pattern.text)
    else:
        ledger.scopes.rates.set_live(pattern.text, checked)
    ledger.lanes.forget_empty()
    touched = [state for state in ledger.scopes.by_name.values() if _governs(pattern, state.name)]
    if pattern.is_exact and not touched:
        touched = [ledger.scope(pattern.text)]
    for state in touched:
        found = ledger.scopes.rates.lookup(state.name)
        present = state.gates.get(RateLimit)
        if found is None:
            state.drop_gate(RateLimit)
        elif present is None:
            state.put_gate(RateLimit(found[1]))
        else:
            present.rate = found[1]
            state.refresh()
        ledger.lift_blocked(state)
        ledger.schedule(state)
    admit_ready(ledger, touched)


def set_scope_cooldown(ledger: Ledger, scope: str, cooldown: Cooldown, now: float) -> None:
    """Set how long a released slot still counts. Slots that already cool keep their cooldown."""
    pattern = ScopePattern(scope)
    checked = check_cooldown(cooldown, "cooldown")
    move_to(ledger, now)
    ledger.scopes.cooldowns.set_live(pattern.text, checked)
    for state in ledger.scopes.by_name.values():
        state.cooldown_setting = ledger.scopes.cooldown_of(state.name)
        state.cools_by_account = state.is_provider and "/" not in state.name
        state.refresh()


def scope_cooldown(ledger: Ledger, scope: str) -> float:
    """Return the present cooldown in seconds. For a pattern, return that of a new scope which matches it."""
    text = ScopePattern(scope).text
    known = ledger.scopes.by_name.get(text)
    if known is not None:
        return known.cooldown
    return cooldown_seconds(is_provider_scope(text), ledger.scopes.cooldown_of(text), None)


def set_headroom_mode(ledger: Ledger, scope: str, mode: HeadroomMode, now: float) -> None:
    """Set how the limit of a scope, or of all that match a pattern, reacts to refusals. "off" lifts what was learnt."""
    pattern = ScopePattern(scope)
    checked = check_headroom(mode, "headroom")
    move_to(ledger, now)
    ledger.scopes.modes.set_live(pattern.text, checked)
    for state in ledger.scopes.by_name.values():
        previous, state.mode = state.effective, ledger.scopes.mode_of(state.name)
        if state.mode == "off" and state.adaptive is not None:
            state.adaptive.clear()
        state.refresh()
        ledger.schedule(state)
        if state.effective != previous:
            ledger.lift_blocked(state)
            ledger.emit("scope.limit_raised", state.name, limit=state.effective, previous=previous)
    admit_ready(ledger, [*ledger.scopes.by_name.values()])


def set_start_cap(ledger: Ledger, scope: str, cap: StartCap | None, now: float) -> None:
    """Admit no more sessions than the cap allows, until it is set again. Running sessions are not ended."""
    move_to(ledger, now)
    state = ledger.scope(canonical_scope(scope))
    if state.gates.get(StartCap) == cap:
        return
    if cap is None:
        state.drop_gate(StartCap)
    else:
        state.put_gate(cap)
    ledger.schedule(state)
    admit_ready(ledger, [state])


def hold_scope(ledger: Ledger, scope: str, cause: str, now: float) -> None:
    """Admit nobody to the scope until a person lifts the hold."""
    move_to(ledger, now)
    admit_ready(ledger, hold_account(ledger, ledger.scope(canonical_scope(scope)), cause))


def ask_login_again(ledger: Ledger, scope: str, now: float) -> bool:
    """Let one session try the held login of the scope now. Returns whether one will."""
    move_to(ledger, now)
    state = ledger.scopes.by_name.get(canonical_scope(scope))
    doubt = None if state is None else state.gates.closure(LOGIN_DOUBT)
    if state is None or doubt is None or not doubt.ask_again(now):
        return False
    ledger.schedule(state)
    admit_ready(ledger, [state])
    return True


def lift_scope_hold(ledger: Ledger, scope: str, now: float) -> None:
    """Lift a hold, whether it was set by hand or by a signal."""
    move_to(ledger, now)
    state = ledger.scope(canonical_scope(scope))
    state.drop_gate(ACCOUNT_HOLD, LOGIN_DOUBT)
    ledger.lift_blocked(state)
    admit_ready(ledger, [state])

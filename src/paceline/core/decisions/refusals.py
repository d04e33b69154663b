"""What refusals and failed contacts teach: how many at once, how fast, how far apart, and when to ask again.

A 429 that names no cause is one of too many starts in a short time, one start too many, a limit that fell in
mid-run, or a count that lags. A failed contact is one that nobody answered, or whose login was refused; an answer of
any kind ends that.
"""

from collections.abc import Iterable

from paceline.core.decisions.slot_outcome import apply_gate_events
from paceline.core.gates.closures import ACCOUNT_HOLD, LOGIN_DOUBT, LONGEST_PAUSE_SECONDS, OUTAGE, Closure, Pause
from paceline.core.gates.header_budget import HeaderBudget
from paceline.core.gates.rates import RATE_SPAN_SECONDS, LearnedRate, LearnedRates
from paceline.core.gates.start_meters import StartSpacing
from paceline.core.limits import BURST_SECONDS, LEAST_LEVEL, AdaptiveLimit
from paceline.core.signals import AuthFailed, Cause, Unreachable
from paceline.core.state.lane import LiveSlot
from paceline.core.state.ledger import Ledger
from paceline.core.state.scope import Scope
from paceline.core.values.scopes import SESSIONS
from paceline.core.values.validation import outside_seconds


def back_off(ledger: Ledger, scope: Scope, signal: Unreachable, slot: LiveSlot | None) -> list[Scope]:
    """Keep everybody out for a while: nobody answered. The limits stay as they are."""
    outage = scope.gates.closure(OUTAGE) or Closure(OUTAGE)
    outage.cause = signal.detail or outage.cause
    stated = min(outside_seconds(signal.retry_after) or 0.0, LONGEST_PAUSE_SECONDS)
    _fail_contact(ledger, scope, outage, slot, outage.cause, stated=stated)
    return [scope]


def doubt_login(ledger: Ledger, scope: Scope, signal: AuthFailed, slot: LiveSlot | None) -> list[Scope]:
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


def note_answer(ledger: Ledger, names: Iterable[str]) -> list[Scope]:
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
        wanted_since = _wanted_since(ledger, scope)
        if wanted_since is None:
            return  # while nobody waits the runs show no rate: the provider could do more
        runs = ledger.runs_since(scope, max(wanted_since, ledger.now - RATE_SPAN_SECONDS))
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


def _wanted_since(ledger: Ledger, scope: Scope) -> float | None:
    """Return since when a ticket has waited for the scope; None where nobody waits."""
    return min((each.enqueued_at for each in ledger.waiters.values() if scope in each.lane.scopes), default=None)


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

"""What a 429 teaches: how many at once, how fast, how far apart.

One that may be about concurrency is a start too many, a fall in mid-run, or a count that lags.
"""

from paceline.core.gates.learned_rate import LearntRate
from paceline.core.gates.window_budget import RATE_SPAN_SECONDS, START_SPAN_SECONDS, Pacer
from paceline.core.limits.adaptive_limit import Headroom
from paceline.core.signals import Cause
from paceline.core.state.ledger import Books
from paceline.core.state.live_slot import LiveSlot
from paceline.core.state.scope import ScopeState
from paceline.core.values.scopes import SESSIONS

FRESH_SECONDS = 20.0
"""A slot refused within so long of its grant, and without a success, was refused at its start."""
PROVEN_SECONDS = 3.0
"""One that has lived so long was accepted, even where nobody said so."""
FEWEST_PROVEN = 2


def learn_from_incident(
    books: Books, scope: ScopeState, headroom: Headroom, cause: Cause | None, slot: LiveSlot | None
) -> None:
    """By its cause; an unknown one is taken for concurrency."""
    if cause in ("requests", "tokens"):
        headroom.was_step = True
        _learn_rate(books, scope, cause)
    elif cause == "starts":
        recent = sum(at > books.now - START_SPAN_SECONDS for at in _recent(books, scope, runs=False))
        scope.pacer = Pacer.from_starts(recent - 1, scope.pacer, books.now)
        books.emit("scope.paced", scope.name, interval=scope.pacer.interval, cause=cause)
    else:
        headroom.was_step = True
        _step_down(books, scope, headroom, slot)


def _learn_rate(books: Books, scope: ScopeState, cause: Cause) -> None:
    rate = scope.learnt_rates.get(cause)
    if rate is not None:
        rate.on_refused(books.now)
    else:
        runs = _recent(books, scope, runs=True)
        if len(runs) < 2:
            return  # a single start is no rate
        mean = scope.mean_tokens if cause == "tokens" else 0.0
        spent = len(runs) * (mean or 1.0)
        rate = LearntRate.first(cause, spent, max(1.0, books.now - min(runs)), mean, books.now)
        scope.learnt_rates[cause] = rate
    books.emit("scope.paced", scope.name, interval=(rate.mean or 1.0) / rate.rate, cause=cause)


def _recent(books: Books, scope: ScopeState, *, runs: bool) -> list[float]:
    """When runs, or what stands alone, were let in during the last minute."""
    since = books.now - RATE_SPAN_SECONDS
    recent = []
    for at, scopes in reversed(books.recent):
        if at <= since:
            break
        if scope in scopes and (runs is not any(other.name == SESSIONS for other in scopes)):
            recent.append(at)
    return recent


def _step_down(books: Books, scope: ScopeState, headroom: Headroom, slot: LiveSlot | None) -> None:
    """An unlimited scope is stepped from what runs there; one at its lowest has nothing to give."""
    previous = scope.effective if scope.effective is not None else scope.live
    if scope.mode == "off" or previous <= 1:
        return
    lowered = _lower(books, scope, headroom, slot, previous)
    if lowered is not None and lowered < previous:
        fields = {"limit": lowered, "previous": previous, "reduced_from": headroom.reduced_from}
        books.emit("scope.limit_reduced", scope.name, **fields)


def _lower(books: Books, scope: ScopeState, headroom: Headroom, slot: LiveSlot | None, effective: int) -> int | None:
    """Take from the refusal what it says about the limit; the new one, None where it stays as it is."""
    if scope.mode != "adaptive" or slot is None:
        return headroom.step_down(effective, scope.mode, books.now)
    session = slot.lane.parent or slot
    if session.has_succeeded or slot.has_succeeded:
        return headroom.shed(effective, scope.live, books.now)
    is_start = books.now - session.granted_at <= FRESH_SECONDS
    if is_start and scope.usage is not None:
        scope.usage.on_refused_start()
    others = proven(books, scope, session)
    if is_start and others >= max(FEWEST_PROVEN, scope.live // 2):
        return headroom.refuse_start(scope.live, others, effective, books.now)
    return headroom.step_down(effective, scope.mode, books.now)


def proven(books: Books, scope: ScopeState, refused: LiveSlot | None = None) -> int:
    """How many places in the scope are held by (others) that the provider has accepted."""
    old = books.now - PROVEN_SECONDS
    return sum(
        max(1, other.runs.get(scope.name, 0)) if other.runs else 1
        for other in books.slots.values()
        if scope in other.lane.scopes
        and other is not refused
        and other.lane.parent is None
        and (other.has_succeeded or other.granted_at <= old)
    )

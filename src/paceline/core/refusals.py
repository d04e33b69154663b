"""How to read a refusal that may be about concurrency: a start too many, a fall in mid-run, or a count that lags."""

from paceline.core.books import Books
from paceline.core.headroom import Headroom
from paceline.core.scope_state import ScopeState
from paceline.core.slots import LiveSlot

FRESH_SECONDS = 20.0
"""A slot refused within so long of its grant, and without a success, was refused at its start."""
PROVEN_SECONDS = 3.0
"""One that has lived so long was accepted, even where nobody said so."""
FEWEST_PROVEN = 2


def lower(books: Books, scope: ScopeState, headroom: Headroom, slot: LiveSlot | None, effective: int) -> int | None:
    """Take from the refusal what it says about the limit; the new one, None where it stays as it is."""
    if scope.mode != "adaptive" or slot is None:
        return headroom.step_down(effective, scope.mode, books.now)
    session = slot.lane.parent or slot
    if session.has_succeeded or slot.has_succeeded:
        return headroom.shed(effective, scope.live, books.now)
    is_start = books.now - session.granted_at <= FRESH_SECONDS
    proven = _proven(books, scope, session)
    if is_start and proven >= max(FEWEST_PROVEN, scope.live // 2):
        return headroom.refuse_start(scope.live, proven, effective, books.now)
    return headroom.step_down(effective, scope.mode, books.now)


def _proven(books: Books, scope: ScopeState, refused: LiveSlot) -> int:
    """How many others hold a place in the scope that the provider has accepted."""
    old = books.now - PROVEN_SECONDS
    return sum(
        scope in other.lane.scopes
        and other is not refused
        and other.lane.parent is None
        and (other.has_succeeded or other.granted_at <= old)
        for other in books.slots.values()
    )

"""What time alone does: pauses end, places cool, limits climb, leases run out, the clock is set back."""

import math
from collections import deque
from heapq import heappop

from paceline.core.decisions.admission import claim_places, settle
from paceline.core.decisions.reactions import on_canary_lost
from paceline.core.decisions.refusals import proven
from paceline.core.gates.pause import Reentry
from paceline.core.state.fairness import lift_blocked
from paceline.core.state.ledger import Books
from paceline.core.state.limit_table import smallest
from paceline.core.state.live_slot import LiveSlot
from paceline.core.state.scope import ScopeState
from paceline.core.values.verdicts import Expired

CLOCK_STEP_SECONDS = 1.0


def move_to(books: Books, now: float) -> None:
    """It is `now`: what is due happens. A small step back is a clock's wobble, a large one was set by someone."""
    if books.now <= now < books.next_due:
        books.now = now
    elif now >= books.now:
        books.now = now  # after a jump, what was due on the way happens now: that is when it is seen
        while (due := books.next_timer()) is not None and due <= now:
            settle(books, _run_due(books))
        books.next_due = math.inf if due is None else due
    elif now < books.now - CLOCK_STEP_SECONDS:
        _step_back(books, books.now - now)


def _run_due(books: Books) -> list[ScopeState]:
    """Carry out all that is due by `books.now`; the scopes in which someone may now enter."""
    now = books.now
    hot: list[ScopeState] = []
    while books.timers and books.timers[0][0] <= now:
        when, _, scope = heappop(books.timers)
        if scope.wake_at == when:
            scope.wake_at = None
            _look_at(books, scope)
            hot.append(scope)
    while books.claim_timers and books.claim_timers[0][0] <= now:
        waiter = heappop(books.claim_timers)[2]
        if not waiter.gone:
            claim_places(books, waiter)
            hot.extend(waiter.lane.scopes)
    if books.lost:
        _reclaim_lost(books, hot)
    if books.sweep_at is not None and books.sweep_at <= now:
        _sweep_leases(books)
    return hot


def _look_at(books: Books, scope: ScopeState) -> None:
    """Everything in one scope that changes by time."""
    now = books.now
    cooled = sum(at <= now for at in scope.cooling)
    if cooled:
        del scope.cooling[:cooled]
        scope.used -= cooled
    if scope.pause is not None and scope.pause.until is not None and scope.pause.until <= now:
        _end_pause(books, scope)
    if scope.budget is not None:
        scope.budget.expire(now)
    _climb(books, scope)
    books.ask_usage(scope)
    scope.refresh()
    books.schedule(scope)


def _end_pause(books: Books, scope: ScopeState) -> None:
    assert scope.pause is not None
    if scope.headroom is not None and _is_after_step(scope):
        scope.headroom.was_step = False
        scope.reentry = Reentry(books.now)
    scope.pause.until = None
    if scope.pause.overloads == 0:
        scope.pause = None
    lift_blocked(books, scope)
    books.emit("scope.resumed", scope.name)


def _is_after_step(scope: ScopeState) -> bool:
    """Whether the pause that ends came with a step of the limit, or with a rate that was learnt."""
    headroom, pause = scope.headroom, scope.pause
    if headroom is None or pause is None or (headroom.limit is None and not scope.learnt_rates):
        return False
    return headroom.was_step and headroom.incident_until == pause.until


def _climb(books: Books, scope: ScopeState) -> None:
    """A scope that is full, or waited for, is demand; with success since the last change it may grow."""
    now, previous = books.now, scope.effective
    in_demand = scope.waiting > 0 or scope.live >= scope.cap
    headroom, platform = scope.headroom, scope.platform
    if headroom is not None and scope.climb_at is not None and scope.climb_at <= now:
        headroom.success_since = False
        if headroom.is_too_early(scope.live, now) or headroom.is_unproven(proven(books, scope), scope.cap):
            headroom.look_again(now)
        elif in_demand and headroom.reduced_from is not None:
            ceiling = smallest(scope.configured, platform.limit if platform else None) or 2 * headroom.reduced_from
            headroom.climb(ceiling, now)
            scope.reentry = Reentry(now)
    if platform is not None and scope.probe_at is not None and scope.probe_at <= now:
        platform.success_since = False
        if in_demand and previous == platform.limit:
            raised = platform.probe(now)
            if scope.configured is not None and raised >= scope.configured:
                scope.platform = None
    if previous is not None and scope.effective != previous:
        lift_blocked(books, scope)
        _tell_climb(books, scope, previous)


def _tell_climb(books: Books, scope: ScopeState, previous: int) -> None:
    """A climb that ends where a place is kept free for a lag is a step back."""
    limit = scope.effective
    if scope.headroom is not None and limit is not None and limit < previous:
        fields = {"limit": limit, "previous": previous, "reduced_from": scope.headroom.reduced_from}
        books.emit("scope.limit_reduced", scope.name, **fields)
    else:
        books.emit("scope.limit_raised", scope.name, limit=limit, previous=previous)


# -- leases ------------------------------------------------------------------------------------


def _sweep_leases(books: Books) -> None:
    """A lease that was not renewed is lost; its place is given on after a grace, not at once.

    A sweep that comes late (the machine slept, the loop was stuck) grants everybody that time: nobody
    could renew in it.
    """
    now = books.now
    late = now - (books.sweep_at or now)
    if late > books.settings.watchdog_interval:
        for slot in books.slots.values():
            if slot.expires_at is not None:
                slot.expires_at += late
    for slot in books.slots.values():
        if slot.reclaim_at is None and slot.expires_at is not None and slot.expires_at <= now:
            slot.reclaim_at = now + books.settings.lost_grace
            books.lost.append(slot)
            books.effects.append(Expired(slot.ticket.id, slot.reclaim_at))
            books.emit("slot.lost", slot.lane.names[-1], ticket=slot.ticket.id, reclaimed_at=slot.reclaim_at)
    is_leased = any(slot.expires_at is not None for slot in books.slots.values())
    books.sweep_at = now + books.settings.watchdog_interval if is_leased else None


def _reclaim_lost(books: Books, hot: list[ScopeState]) -> None:
    due: list[LiveSlot] = []
    still_lost: list[LiveSlot] = []
    for slot in books.lost:
        if not slot.released:
            assert slot.reclaim_at is not None
            (due if slot.reclaim_at <= books.now else still_lost).append(slot)
    books.lost = still_lost
    for slot in due:
        books.leave(slot, hot)
        hot.extend(on_canary_lost(books, slot))
        books.emit("slot.reclaimed", slot.lane.names[-1], ticket=slot.ticket.id)


# -- clock steps -------------------------------------------------------------------------------


def _step_back(books: Books, seconds: float) -> None:
    """The wall clock was set back: what is relative keeps its remaining length, resets stay absolute."""
    for scope in books.scopes.values():
        if scope.budget is not None:
            scope.budget.expire(books.now)  # what has reset does not come back with the hour
    books.now -= seconds
    for slot in books.slots.values():
        slot.granted_at -= seconds
        if slot.expires_at is not None:
            slot.expires_at -= seconds
        if slot.reclaim_at is not None:
            slot.reclaim_at -= seconds
    for group in books.groups.values():
        group.accrued_at -= seconds
    for lane in {id(waiter.lane): waiter.lane for waiter in books.waiters.values()}.values():
        lane.shift(seconds)
    if books.sweep_at is not None:
        books.sweep_at -= seconds
    books.recent = deque(((at - seconds, scopes) for at, scopes in books.recent), books.recent.maxlen)
    books.claim_timers = [(when - seconds, seq, waiter) for when, seq, waiter in books.claim_timers]
    books.timers.clear()
    books.next_due = -math.inf  # look at everything once
    for scope in books.scopes.values():
        scope.shift(seconds)
        scope.wake_at = None
        books.schedule(scope)

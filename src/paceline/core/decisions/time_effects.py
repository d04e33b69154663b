"""Effects of time alone: pauses end, places cool, limits climb, leases run out, the clock is set back."""

import math
from collections import deque

from paceline.core.decisions.admission import admit_ready, claim_places
from paceline.core.decisions.outcomes import apply_gate_events, on_canary_lost, proven
from paceline.core.gates.start_meters import SlowStart
from paceline.core.limits import AdaptiveLimit, smallest
from paceline.core.state.lane import LiveSlot
from paceline.core.state.ledger import Ledger
from paceline.core.state.scope import Scope
from paceline.core.values.tickets import Expired

CLOCK_STEP_SECONDS = 1.0
"""A step back of up to a second is clock correction and is waited out; a larger one means that the clock was set."""


def move_to(ledger: Ledger, now: float) -> None:
    """Move the time of the ledger to `now`, and carry out what is due."""
    if ledger.now <= now < ledger.next_due:
        ledger.now = now
    elif now >= ledger.now:
        ledger.now = now  # after a jump, everything that was due meanwhile happens now, when the jump is noticed
        while (due := ledger.next_time()) is not None and due <= now:
            admit_ready(ledger, _run_due(ledger))
        ledger.next_due = math.inf if due is None else due
    elif now < ledger.now - CLOCK_STEP_SECONDS:
        _step_back(ledger, ledger.now - now)


def _run_due(ledger: Ledger) -> list[Scope]:
    """Carry out all that is due by `ledger.now`. Returns the scopes in which a waiter may now be able to enter.

    Scopes that are due together come in the order of their names, which is the same after a restart.
    """
    now = ledger.now
    hot: list[Scope] = []
    for scope in sorted(ledger.timers.due_scopes(now), key=lambda scope: scope.name):
        wake(ledger, scope)
        hot.append(scope)
    for waiter in ledger.timers.overdue_waiters(now):
        claim_places(ledger, waiter)
        hot.extend(waiter.lane.scopes)
    if ledger.lost:
        _reclaim_lost(ledger, hot)
    if ledger.sweep_at is not None and ledger.sweep_at <= now:
        _sweep_leases(ledger)
    return hot


def wake(ledger: Ledger, scope: Scope) -> None:
    """Carry out everything in one scope that changes by time."""
    apply_gate_events(ledger, scope, scope.on_time(ledger.now))
    _climb(ledger, scope)
    ledger.poll_usage(scope)
    ledger.refresh(scope)


def _climb(ledger: Ledger, scope: Scope) -> None:
    """Probe a higher limit if one is due. That needs demand (the scope is full or has waiters) and a recent success."""
    now, previous = ledger.now, scope.effective
    in_demand = scope.waiting > 0 or scope.live >= scope.cap
    if scope.adaptive is not None and scope.climb_at is not None and scope.climb_at <= now:
        _climb_adaptive(ledger, scope, scope.adaptive, in_demand=in_demand)
    if scope.platform is not None and scope.probe_at is not None and scope.probe_at <= now:
        scope.platform.success_since = False
        if in_demand and previous == scope.platform.limit:
            raised = scope.platform.probe(now)
            if scope.configured is not None and raised >= scope.configured:
                scope.platform = None
    if previous is not None:
        ledger.note_raised(scope, previous)


def _climb_adaptive(ledger: Ledger, scope: Scope, adaptive: AdaptiveLimit, *, in_demand: bool) -> None:
    now, platform = ledger.now, scope.platform
    adaptive.success_since = False
    if adaptive.is_too_early(scope.live, now) or adaptive.is_unproven(proven(ledger, scope), scope.cap):
        adaptive.postpone_climb(now)
    elif (in_demand or adaptive.ended_when_full) and adaptive.reduced_from is not None:
        ceiling = smallest(scope.configured, platform.limit if platform else None) or 2 * adaptive.reduced_from
        adaptive.climb(ceiling, now)
        scope.put_gate(SlowStart(next_at=now))


# -- leases ------------------------------------------------------------------------------------


def _sweep_leases(ledger: Ledger) -> None:
    """Mark leases that were not renewed as lost; their places are freed after a grace period.

    A sweep that comes late (the machine slept, the loop was stuck) extends every lease by the delay: nobody could
    renew in that time. A session lives as long as its runs do.
    """
    now = ledger.now
    late = now - (ledger.sweep_at or now)
    if late > ledger.settings.watchdog_interval:
        for slot in ledger.slots.values():
            if slot.expires_at is not None:
                slot.expires_at += late
    for slot in ledger.slots.values():
        if slot.lane.parent is not None and (slot.expires_at is None or slot.expires_at > now):
            ledger.renew_session(slot.lane.parent)
    for slot in ledger.slots.values():
        if slot.reclaim_at is None and slot.expires_at is not None and slot.expires_at <= now:
            slot.reclaim_at = now + ledger.settings.lost_grace
            ledger.lost.append(slot)
            ledger.effects.append(Expired(slot.ticket.id, slot.reclaim_at))
            ledger.emit("slot.lost", slot.lane.names[-1], ticket=slot.ticket.id, reclaimed_at=slot.reclaim_at)
    is_leased = any(slot.expires_at is not None for slot in ledger.slots.values())
    ledger.sweep_at = now + ledger.settings.watchdog_interval if is_leased else None


def _reclaim_lost(ledger: Ledger, hot: list[Scope]) -> None:
    due: list[LiveSlot] = []
    still_lost: list[LiveSlot] = []
    for slot in ledger.lost:
        if not slot.released:
            assert slot.reclaim_at is not None
            (due if slot.reclaim_at <= ledger.now else still_lost).append(slot)
    ledger.lost = still_lost
    for slot in due:
        ledger.leave(slot, hot)
        hot.extend(on_canary_lost(ledger, slot))
        ledger.emit("slot.reclaimed", slot.lane.names[-1], ticket=slot.ticket.id)


# -- clock steps -------------------------------------------------------------------------------


def _step_back(ledger: Ledger, seconds: float) -> None:
    """Follow a wall clock that was set back: what is relative keeps its remaining length, resets stay absolute."""
    for scope in ledger.scopes.by_name.values():
        apply_gate_events(ledger, scope, scope.on_time(ledger.now))  # an ended period does not come back
    ledger.now -= seconds
    for slot in ledger.slots.values():
        slot.granted_at -= seconds
        if slot.expires_at is not None:
            slot.expires_at -= seconds
        if slot.reclaim_at is not None:
            slot.reclaim_at -= seconds
    ledger.shares.shift(seconds)
    for lane in {id(waiter.lane): waiter.lane for waiter in ledger.waiters.values()}.values():
        lane.shift(seconds)
    if ledger.sweep_at is not None:
        ledger.sweep_at -= seconds
    ledger.recent = deque(((at - seconds, scopes) for at, scopes in ledger.recent), ledger.recent.maxlen)
    ledger.watches.shift(seconds)
    ledger.timers.shift(seconds)
    ledger.next_due = -math.inf  # wake every scope once
    for scope in ledger.scopes.by_name.values():
        scope.shift(seconds)
        scope.wake_at = None
        ledger.schedule(scope)

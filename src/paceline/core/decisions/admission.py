"""Who enters next. The one place that decides, on every arrival, departure, signal and wake-up.

Between calls one invariant holds: no waiting ticket could enter. So a newcomer can never pass a waiter that
could be granted, and there is no way around the queue.
"""

from paceline.core.state.lane import Lane, LiveSlot, Waiter, queue_key
from paceline.core.state.ledger import Ledger
from paceline.core.state.scope import Scope
from paceline.core.values.scopes import SESSIONS
from paceline.core.values.tickets import Ticket

Rank = tuple[float, int, int, float, int]


def blocker(ledger: Ledger, lane: Lane, ticket: Ticket) -> Scope | None:
    """Return the narrowest scope that keeps the ticket out now."""
    now = ledger.now
    if lane.is_plain:
        for scope in lane.checks:
            if scope.used >= scope.open_cap and scope.refuses(ticket, now) is not None:
                return scope
        return None
    if lane.parent is not None:
        return _blocker_of_run(ledger, lane, ticket, lane.parent)
    return next((scope for scope in lane.checks if scope.refuses(ticket, now) is not None), None)


def _blocker_of_run(ledger: Ledger, lane: Lane, ticket: Ticket, session: LiveSlot) -> Scope | None:
    """Return the scope that refuses a run. It shares its session's place where that is free and within the limit."""
    for scope in lane.checks:
        covered = session.covers(scope)
        if scope.refuses(ticket, ledger.now, needs_room=not covered) is not None:
            return scope
        if covered and is_excess(ledger, scope, session):
            return scope
    return None


def is_excess(ledger: Ledger, scope: Scope, session: LiveSlot) -> bool:
    """Return whether the session is among the youngest that are too many since the limit fell."""
    excess = scope.live - scope.cap
    if excess <= 0:
        return False
    younger = sum(
        slot.token > session.token and SESSIONS in slot.lane.names and scope.name in slot.lane.names
        for slot in ledger.slots.values()
    )
    return younger < excess


def enqueue(ledger: Ledger, lane: Lane, ticket: Ticket, refusing: Scope | None) -> Waiter:
    """Put the ticket in its lane. `refusing` is the scope that refused it, None behind others of its lane."""
    now = ledger.now
    ledger.seq += 1
    waiter = Waiter(queue_key(ticket.since, now, ledger.settings.ageing), ledger.seq, ticket, lane, now)
    ledger.waiters[ticket.id] = waiter
    group, weight = lane.group, lane.weight if ticket.weight is None else ticket.weight
    if weight != group.weight:
        group.reweigh(weight, now)
    if group.waiting == 0 and refusing is not None:
        ledger.shares.lift_newcomer(group, ledger.watches.rivals(refusing), now)
    group.waiting += 1
    for scope in lane.scopes:
        scope.waiting += 1
        if ticket.spread:
            add_spread_waiters(scope, 1)
        if scope.gates.in_order or scope.usage is not None:
            ledger.poll_usage(scope)
            ledger.schedule(scope)
    if lane.push(waiter):
        refusing = refusing or lane.watching
        assert refusing is not None
        _wait_for(ledger, lane, refusing)
    return waiter


def add_spread_waiters(scope: Scope, count: int) -> None:
    """Count `spread` waiters: while there are any, the plan of a window must be kept up to date."""
    scope.spread_waiters += count
    scope.refresh()


def dequeue(ledger: Ledger, waiter: Waiter) -> bool:
    """Remove the ticket from its lane. Returns whether another ticket may now be able to enter."""
    lane = waiter.lane
    del ledger.waiters[waiter.ticket.id]
    was_head = lane.remove(waiter)
    lane.group.waiting -= 1
    for scope in lane.scopes:
        scope.waiting -= 1
        if waiter.ticket.spread:
            add_spread_waiters(scope, -1)
        if was_head and (rate := scope.gates.rate_limit) is not None:
            rate.free_tokens(waiter.ticket)
    had_claim = bool(ledger.place_claims) and waiter in ledger.place_claims
    if had_claim:
        withdraw_place_claim(ledger, waiter)
    if not lane.size:
        ledger.watches.stop(lane)
    elif was_head and lane.watching is not None:
        ledger.watches.watch(lane, lane.watching)
    return had_claim or was_head


def _wait_for(ledger: Ledger, lane: Lane, scope: Scope) -> None:
    ledger.watches.watch(lane, scope)
    if (rate := scope.gates.rate_limit) is not None:
        rate.keep_tokens(lane.head.ticket, scope, ledger.now)


def admit_ready(ledger: Ledger, hot: list[Scope]) -> None:
    """Grant every ticket that can enter now that the `hot` scopes have changed, in order."""
    if ledger.place_claims:
        hot = hot + _serve_place_claims(ledger)
    run_lanes = ledger.watches.run_lanes  # each of them may enter
    ready = list(dict.fromkeys(lane for scope in hot for lane in run_lanes.get(scope, ()))) if run_lanes else []
    aside: list[tuple[Lane, Scope]] = []
    behind: list[Scope] = []
    refused_by: dict[Scope, None] = {}
    while (found := _foremost(ledger, hot, ready)) is not None:
        lane, via = found
        head = lane.head
        refusing = blocker(ledger, lane, head.ticket)
        if refusing is None:
            _admit(ledger, head)
            if via is None and not lane.size:
                ready.remove(lane)
            continue
        if refusing.gates.in_order:
            refused_by[refusing] = None
            if (rate := refusing.gates.rate_limit) is not None and rate.keeps_for_another(head.ticket):
                behind.append(refusing)
        if via is None:
            ready.remove(lane)
            _wait_for(ledger, lane, refusing)
        elif refusing is not via:
            _mark_passed_over(ledger, head, refusing)
            _wait_for(ledger, lane, refusing)
        elif via.gates.refuses_only_this(head.ticket, via, ledger.now):
            aside.append((lane, via))
            lane.watching = None
        else:
            if (rate := via.gates.rate_limit) is not None:
                rate.keep_tokens(head.ticket, via, ledger.now)
            hot = [scope for scope in hot if scope is not via]
    for lane, scope in aside:
        ledger.watches.watch(lane, scope)
    for scope in refused_by:
        ledger.schedule(scope)  # a gate may refuse because time passed, which nobody reported
    if passed := [scope for scope in behind if not scope.keeps_tokens]:
        admit_ready(ledger, passed)  # the lane in front of them now watches another scope


def admit_unblocked(ledger: Ledger) -> None:
    """Grant what can enter after a restart: a cap that is not stored, or the old settings, kept some waiters out."""
    lanes = dict.fromkeys(waiter.lane for waiter in ledger.waiters.values())
    free = [lane for lane in lanes if blocker(ledger, lane, lane.head.ticket) is None]
    if free:
        admit_ready(ledger, [*dict.fromkeys(scope for lane in free for scope in lane.scopes)])


def _foremost(ledger: Ledger, hot: list[Scope], ready: list[Lane]) -> tuple[Lane, Scope | None] | None:
    """Return the lane that is next by the order rule among those that may have become able to enter."""
    watches = ledger.watches
    best: tuple[Lane, Scope | None] | None = None
    best_rank: Rank | None = None
    for scope in hot:
        if scope.is_watched and scope.cap - scope.used > scope.claimed:  # all lanes that watch it need room here
            for lane in watches.foremost(scope):
                rank = _rank(ledger, lane)
                if best_rank is None or rank < best_rank:
                    best, best_rank = (lane, scope), rank
    for lane in ready:
        rank = _rank(ledger, lane)
        if best_rank is None or rank < best_rank:
            best, best_rank = (lane, None), rank
    return best


def _rank(ledger: Ledger, lane: Lane) -> Rank:
    head, group = lane.head, lane.group
    return group.value(ledger.shares.mean_slot, ledger.now), group.index, lane.order, head.key, head.seq


def _admit(ledger: Ledger, waiter: Waiter) -> None:
    dequeue(ledger, waiter)
    ledger.effects.append(ledger.enter(waiter.lane, waiter.ticket, ledger.now - waiter.enqueued_at))


# -- overdue tickets ---------------------------------------------------------------------------


def _mark_passed_over(ledger: Ledger, head: Waiter, refusing: Scope) -> None:
    """Start the patience of a ticket whose turn has come, but which lacks room in another scope.

    The limit of a client's key makes nobody else wait, so no place is kept for a ticket that waits for its key.
    """
    if head.passed_since is not None or refusing.is_key:
        return
    if refusing.gates.refusal(head.ticket, refusing, ledger.now) is None:
        head.passed_since = ledger.now
        due = ledger.now + ledger.settings.ageing
        ledger.next_due = min(ledger.next_due, due)
        ledger.timers.end_patience(head, due)


def claim_places(ledger: Ledger, waiter: Waiter) -> None:
    """Keep one place in each scope of an overdue waiter, as places become free."""
    if waiter.passed_since is None or waiter in ledger.place_claims:
        return
    if _is_behind_gate(waiter, ledger.now):
        waiter.passed_since = None
        return
    ledger.place_claims.append(waiter)
    for scope in waiter.lane.scopes:
        scope.claimed += 1
        scope.refresh()


def withdraw_place_claim(ledger: Ledger, waiter: Waiter) -> None:
    ledger.place_claims.remove(waiter)
    waiter.passed_since = None
    for scope in waiter.lane.scopes:
        scope.claimed -= 1
        scope.refresh()


def _serve_place_claims(ledger: Ledger) -> list[Scope]:
    """Admit the waiters whose place claims are met, oldest first.

    A place claim behind a gate is withdrawn: nothing is kept idle for it. Returns the scopes where that freed places.
    """
    freed: list[Scope] = []
    older: dict[Scope, int] = {}
    for waiter in tuple(ledger.place_claims):
        if _is_behind_gate(waiter, ledger.now):
            withdraw_place_claim(ledger, waiter)
            freed.extend(waiter.lane.scopes)
        elif all(_has_room_for_claim(ledger, scope, older.get(scope, 0), waiter) for scope in waiter.lane.scopes):
            _admit(ledger, waiter)
        else:
            for scope in waiter.lane.scopes:
                older[scope] = older.get(scope, 0) + 1
    return freed


def _has_room_for_claim(ledger: Ledger, scope: Scope, older_claims: int, waiter: Waiter) -> bool:
    session = waiter.lane.parent
    if session is not None and session.covers(scope):
        return not is_excess(ledger, scope, session)  # the ticket needs no place of its own here
    others = scope.claimed - older_claims
    return scope.refuses(waiter.ticket, ledger.now, own_claims=others) is None


def _is_behind_gate(waiter: Waiter, now: float) -> bool:
    """Return whether a gate keeps the waiter out, or the limit of its own key does."""
    scopes = waiter.lane.scopes
    if any(scope.gates.refusal(waiter.ticket, scope, now) is not None for scope in scopes):
        return True
    return any(scope.is_key and scope.used >= scope.cap for scope in scopes)

"""Who enters next. The one place that decides, on every arrival, departure, signal and wake-up.

Between calls one invariant holds: no ticket in line could enter. So a newcomer can never pass a
waiter that could be granted, and there is no way around the line.
"""

from heapq import heappush

from paceline.core.state.fairness import lift_newcomer
from paceline.core.state.ledger import Books
from paceline.core.state.live_slot import LiveSlot
from paceline.core.state.queue import Lane, Waiter, foremost_watcher, line_key, watch
from paceline.core.state.scope import ScopeState
from paceline.core.values.scopes import SESSIONS
from paceline.core.values.tickets import Ticket

Rank = tuple[float, int, float, int]


def blocker(books: Books, lane: Lane, ticket: Ticket) -> ScopeState | None:
    """The narrowest scope that keeps the ticket out now."""
    if lane.parent is not None:
        return _blocker_of_run(books, lane, ticket, lane.parent)
    for scope in lane.checks:
        if scope.used >= scope.open_cap and scope.refuses(ticket, books.now) is not None:
            return scope
    return None


def _blocker_of_run(books: Books, lane: Lane, ticket: Ticket, session: LiveSlot) -> ScopeState | None:
    """A run uses its session's own place where that is free, unless the session is over the limit."""
    for scope in lane.checks:
        covered = books.is_covered(scope, session)
        if scope.refuses(ticket, books.now, needs_room=not covered) is not None:
            return scope
        if covered and is_excess(books, scope, session):
            return scope
    return None


def is_excess(books: Books, scope: ScopeState, session: LiveSlot) -> bool:
    """Whether the session is among the youngest that are too many since the limit fell."""
    excess = scope.live - scope.cap
    if excess <= 0:
        return False
    younger = sum(
        slot.token > session.token and SESSIONS in slot.lane.names and scope.name in slot.lane.names
        for slot in books.slots.values()
    )
    return younger < excess


def enqueue(books: Books, lane: Lane, ticket: Ticket, refusing: ScopeState | None) -> Waiter:
    """Put the ticket in line; `refusing` is what kept it out, None behind others of its own line."""
    now = books.now
    books.seq += 1
    waiter = Waiter(line_key(ticket.since, now, books.settings.ageing), books.seq, ticket, lane, now)
    books.waiters[ticket.id] = waiter
    if lane.weight != lane.group.weight:
        lane.group.reweigh(lane.weight, now)
    if lane.group.waiting == 0 and refusing is not None:
        lift_newcomer(books, lane.group, refusing)
    lane.group.waiting += 1
    for scope in lane.scopes:
        scope.waiting += 1
        scope.spreading += ticket.spread
        if not scope.open_cap:
            books.ask_usage(scope)
            books.schedule(scope)
    if lane.push(waiter):
        refusing = refusing or lane.watching
        assert refusing is not None
        park(lane, refusing)
        _keep_tokens(books, lane, refusing)
    return waiter


def dequeue(books: Books, waiter: Waiter) -> bool:
    """Take the ticket out of line, for whatever reason; whether that may let another one in."""
    lane = waiter.lane
    del books.waiters[waiter.ticket.id]
    was_head = lane.remove(waiter)
    lane.group.waiting -= 1
    for scope in lane.scopes:
        scope.waiting -= 1
        scope.spreading -= waiter.ticket.spread
        if scope.rate is not None:
            scope.rate.let_go(waiter.ticket)
    had_claim = bool(books.claims) and waiter in books.claims
    if had_claim:
        withdraw_claim(books, waiter)
    if not lane.size:
        _stop_watching(lane)
    elif was_head and lane.watching is not None:
        park(lane, lane.watching)
    return had_claim or was_head


def park(lane: Lane, scope: ScopeState) -> None:
    """Have the lane looked at again when the scope changes.

    Runs that wait for a provider scope are looked at one by one: whether they need room depends on
    their session, so the foremost being refused says nothing about the next.
    """
    if lane.watching is not scope:
        _stop_watching(lane)
    if lane.parent is not None and scope.is_provider:
        lane.watching = scope
        scope.run_lanes[lane] = None
        scope.refresh()
    else:
        watch(lane, scope)


def _keep_tokens(books: Books, lane: Lane, scope: ScopeState) -> None:
    """The head of the lane waits for the scope: what it needs of a rate there, no later one takes away."""
    if scope.rate is not None:
        scope.rate.keep_for(lane.head.ticket, books.now)


def _stop_watching(lane: Lane) -> None:
    if lane.size and lane.watching is not None and lane.watching.rate is not None:
        lane.watching.rate.let_go(lane.head.ticket)
    if lane.watching is not None and lane in lane.watching.run_lanes:
        del lane.watching.run_lanes[lane]
        lane.watching.refresh()
    lane.watching = None


def settle(books: Books, hot: list[ScopeState]) -> None:
    """Let in everybody who can enter now that the `hot` scopes have changed, in order."""
    if books.claims:
        hot = hot + _serve_claims(books)
    ready: list[Lane] = []
    for scope in hot:
        ready += [lane for lane in scope.run_lanes if lane not in ready] if scope.run_lanes else ()
    aside: list[tuple[Lane, ScopeState]] = []
    behind: list[ScopeState] = []
    while (found := _foremost(books, hot, ready)) is not None:
        lane, via = found
        head = lane.head
        refusing = blocker(books, lane, head.ticket)
        if refusing is not None and _is_kept_for_another(refusing, head.ticket):
            behind.append(refusing)
        if refusing is None:
            _admit(books, head)
            if via is None and not lane.size:
                ready.remove(lane)
        elif via is None:
            ready.remove(lane)
            park(lane, refusing)
            _keep_tokens(books, lane, refusing)
        elif refusing is not via:
            _mark_passed_over(books, head, refusing)
            park(lane, refusing)
            _keep_tokens(books, lane, refusing)
        elif _is_refused_for_itself(via, head.ticket, books.now):
            aside.append((lane, via))
            lane.watching = None
        else:
            _keep_tokens(books, lane, via)
            hot = [scope for scope in hot if scope is not via]
    for lane, scope in aside:
        park(lane, scope)
    if passed := [scope for scope in behind if scope.rate is not None and scope.rate.kept_for is None]:
        settle(books, passed)  # what they were behind waits for something else now


def _foremost(books: Books, hot: list[ScopeState], ready: list[Lane]) -> tuple[Lane, ScopeState | None] | None:
    """The lane that is next by the order rule among those that may have become able to enter."""
    best: tuple[Lane, ScopeState | None] | None = None
    for scope in hot:
        if scope.watchers and scope.cap - scope.used > scope.reserved:  # if full, all who watch it need room here
            for group in tuple(scope.watchers):
                lane = foremost_watcher(scope, group)
                if lane is not None and (best is None or _rank(books, lane) < _rank(books, best[0])):
                    best = (lane, scope)
    for lane in ready:
        if best is None or _rank(books, lane) < _rank(books, best[0]):
            best = (lane, None)
    return best


def _rank(books: Books, lane: Lane) -> Rank:
    head = lane.head
    return (lane.group.value(books.mean_slot, books.now), lane.group.index, head.key, head.seq)


def _is_refused_for_itself(scope: ScopeState, ticket: Ticket, now: float) -> bool:
    """Whether a smaller ticket, or the one that tokens are kept for, might still pass where this one is refused."""
    is_too_large = scope.budget_obstacle(ticket, now) is not None or scope.is_rate_spent(ticket, now)
    return (
        is_too_large
        or _is_kept_for_another(scope, ticket)
        or (ticket.spread and scope.gate_reason(ticket, now) == "pacing")
    )


def _is_kept_for_another(scope: ScopeState, ticket: Ticket) -> bool:
    return scope.rate is not None and scope.rate.is_kept_for_another(ticket)


def _admit(books: Books, waiter: Waiter) -> None:
    dequeue(books, waiter)
    books.effects.append(books.enter(waiter.lane, waiter.ticket, books.now - waiter.enqueued_at))


# -- overdue tickets ---------------------------------------------------------------------------


def _mark_passed_over(books: Books, head: Waiter, refusing: ScopeState) -> None:
    """A place came round to it in order, and it lacked room elsewhere: from now on its patience runs."""
    if head.passed_since is None and refusing.gate_reason(head.ticket, books.now) is None:
        head.passed_since = books.now
        due = books.now + books.settings.ageing
        books.next_due = min(books.next_due, due)
        heappush(books.claim_timers, (due, head.seq, head))


def claim_places(books: Books, waiter: Waiter) -> None:
    """Overdue: one place in each of its scopes is kept for it as places free."""
    if waiter.passed_since is None or waiter in books.claims:
        return
    if _is_gated(waiter, books.now):
        waiter.passed_since = None
        return
    books.claims.append(waiter)
    for scope in waiter.lane.scopes:
        scope.reserved += 1
        scope.refresh()


def withdraw_claim(books: Books, waiter: Waiter) -> None:
    books.claims.remove(waiter)
    waiter.passed_since = None
    for scope in waiter.lane.scopes:
        scope.reserved -= 1
        scope.refresh()


def _serve_claims(books: Books) -> list[ScopeState]:
    """Oldest claim first. One behind a gate is withdrawn: nothing is kept idle for it; say where."""
    freed: list[ScopeState] = []
    older: dict[ScopeState, int] = {}
    for waiter in tuple(books.claims):
        if _is_gated(waiter, books.now):
            withdraw_claim(books, waiter)
            freed.extend(waiter.lane.scopes)
        elif all(_has_room_for_claim(books, scope, older.get(scope, 0), waiter) for scope in waiter.lane.scopes):
            _admit(books, waiter)
        else:
            for scope in waiter.lane.scopes:
                older[scope] = older.get(scope, 0) + 1
    return freed


def _has_room_for_claim(books: Books, scope: ScopeState, older_claims: int, waiter: Waiter) -> bool:
    session = waiter.lane.parent
    if session is not None and books.is_covered(scope, session):
        return not is_excess(books, scope, session)  # it needs no place of its own here
    others = scope.reserved - older_claims
    return scope.refuses(waiter.ticket, books.now, own_claims=others) is None


def _is_gated(waiter: Waiter, now: float) -> bool:
    return any(scope.gate_reason(waiter.ticket, now) is not None for scope in waiter.lane.scopes)

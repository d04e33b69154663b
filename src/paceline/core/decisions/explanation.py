"""Why a ticket waits, in words and numbers: the same for the library, CLI, API and page."""

from functools import lru_cache
from typing import assert_never

from paceline.core.decisions.admission import is_excess
from paceline.core.gates.quota_window import Line
from paceline.core.gates.window_budget import WindowHold, used_on_line
from paceline.core.state.ledger import Books
from paceline.core.state.limit_table import UNLIMITED
from paceline.core.state.queue import Lane
from paceline.core.state.scope import ScopeState
from paceline.core.values.tickets import Ticket
from paceline.core.values.verdicts import Deferred, Reason


def deferred(
    books: Books, lane: Lane, ticket: Ticket, position: int | None, refusing: ScopeState | None = None
) -> Deferred:
    """What binds the ticket now; `refusing` is the scope that does, where that was just found."""
    if refusing is not None and not refusing.is_gated and refusing.live >= refusing.cap and lane.parent is None:
        scope, reason = refusing, refusing.room_reason() or "limit"  # the everyday case, made cheap
    else:
        scope, reason = _binding(books, lane, ticket)
    detail, retry_at = _describe(books, scope, reason, ticket)
    return Deferred(ticket.id, reason, scope.name, detail, retry_at, position)


def _binding(books: Books, lane: Lane, ticket: Ticket) -> tuple[ScopeState, Reason]:
    """The narrowest scope that refuses. Order binds only where nothing else does."""
    kept = None
    for scope in lane.checks:
        reason = _reason(books, lane, ticket, scope)
        if reason == "queue_order":
            kept = kept or scope
        elif reason is not None:
            held = scope.window_hold(ticket, books.now)
            return (scope, reason) if held is None or held.reason != reason else _longest_hold(lane, ticket, books.now)
    return kept or lane.checks[0], "queue_order"


def _longest_hold(lane: Lane, ticket: Ticket, now: float) -> tuple[ScopeState, Reason]:
    """Of all windows that keep the ticket out, in whichever scope: it waits for the last of them."""
    holds = [(scope, held) for scope in lane.checks if (held := scope.window_hold(ticket, now)) is not None]
    scope, held = max(holds, key=lambda each: each[1].until)
    return scope, held.reason


def _reason(books: Books, lane: Lane, ticket: Ticket, scope: ScopeState) -> Reason | None:
    if lane.parent is None or not books.is_covered(scope, lane.parent):
        own_claims = sum(waiter.ticket is ticket for waiter in books.claims)
        return scope.refuses(ticket, books.now, own_claims=own_claims)
    if is_excess(books, scope, lane.parent):
        return "limit"  # a pause ends by itself, this does not: whoever can should end the session here
    return scope.refuses(ticket, books.now, needs_room=False)


def _describe(books: Books, scope: ScopeState, reason: Reason, ticket: Ticket) -> tuple[str, float | None]:
    """The sentence and when the answer may change."""
    now = books.now
    held = scope.window_hold(ticket, now)
    if held is not None and held.reason == reason:
        return _held_by_window(scope, held, now), held.until
    match reason:
        case "limit" | "platform_limit":
            return _full(scope.name, reason, scope.live, scope.cap), None
        case "cooldown":
            cooling = len(scope.cooling)
            numbers = f"{scope.live} live and {cooling} cooling down of {scope.cap}"
            return f"{scope.name} has {numbers}", scope.cooling[0] if cooling else None
        case "queue_order":
            return f"others are before it in line for {scope.name}", None
        case "paused":
            until = scope.pause.until if scope.pause else None
            return f"{scope.name} is paused for {_seconds(until, now)} after a refusal", until
        case "held":
            return f"{scope.name} is held: {scope.hold}; lift it when that is mended", None
        case "pacing" | "window_closed" | "reserve":
            return _paced(scope, ticket, now)
        case "usage_gate":
            return _usage(scope, now)
    assert_never(reason)


@lru_cache(maxsize=1024)
def _full(scope: str, reason: Reason, live: int, cap: int) -> str:
    numbers = f"({live}/{cap})"
    parts = scope.split("/")
    what = "platform limit" if reason == "platform_limit" else "cap" if len(parts) == 3 else "limit"
    if len(parts) == 3:
        return f"{parts[2]} at its {what} {numbers} on {parts[1]}"
    return f"{scope} at its {what} {numbers}"


def _held_by_window(scope: ScopeState, held: WindowHold, now: float) -> str:
    window = held.window
    what = f"the {window.name} window of {scope.name}"
    if held.line is not None:
        return _held_by_use(what, held.reason, held.line, scope.reserve, now)
    if window.state == "wave":
        return f"{what} reopens in a wave"
    if window.state == "probing":
        return f"{what} is being probed by {window.canary}"
    if window.resets_at is None:
        belief = "its reset is unknown"
    else:
        belief = f"resets in {_seconds(window.resets_at, now)} ({window.source or 'unnamed source'})"
    return f"{what} is spent: {belief}, next probe in {_seconds(window.probe_at, now)}"


def _held_by_use(what: str, reason: Reason, line: Line, reserve: float, now: float) -> str:
    used = f"{line.used:.0%} of {what} is used"
    if line.is_estimate:
        used = f"about {used}, going by what it has held before"
    if reason == "reserve":
        return f"{used}; {reserve:.0%} is kept in reserve"
    return f"{used}; spread to the reset it would be {used_on_line(line, now, reserve=reserve):.0%} by now"


def _paced(scope: ScopeState, ticket: Ticket, now: float) -> tuple[str, float | None]:
    if scope.pace is not None and scope.live >= scope.pace.limit:
        return scope.pace.detail, scope.pace.until
    if scope.reentry is not None and now < scope.reentry.next_at:
        return f"{scope.name} fills up again one by one after a refusal", scope.reentry.next_at
    pacer = scope.pacer
    if pacer is not None and now < pacer.next_at and ticket.parent is None:
        return f"starts in {scope.name} are {pacer.interval:.3g} s apart", pacer.next_at
    for rate in scope.learnt_rates.values():
        if (ready_at := rate.ready_at(ticket, now)) is not None:
            return f"{scope.name} is held to the rate of {rate.cause} that its refusals taught", ready_at
    held_by_rate = scope.rate.obstacle(ticket, now) if scope.rate is not None else None
    if scope.rate is not None and held_by_rate is not None:
        what, at = held_by_rate
        return f"{scope.name} {scope.rate.described(what)}; the next may start in {_seconds(at, now)}", at
    spent = scope.budget_obstacle(ticket, now)
    what, resets_at = spent or ("budget", None)
    return f"no {what} left in {scope.name} for {_seconds(resets_at, now)}", resets_at


def _usage(scope: ScopeState, now: float) -> tuple[str, float | None]:
    assert scope.usage is not None
    count = "unknown" if scope.usage.count is None else str(scope.usage.count)
    cap = "no limit" if scope.cap == UNLIMITED else str(scope.cap)
    retry_at = scope.usage.next_ask_at if scope.usage.next_ask_at is not None else now + scope.usage.interval
    return f"{scope.name}'s own count is {count} of {cap}; it is asked again", retry_at


def _seconds(until: float | None, now: float) -> str:
    """A wait as a person would say it."""
    if until is None:
        return "an unknown time"
    left = max(0.0, until - now)
    if left < 120:
        return f"{left:.3g} s"
    minutes = round(left / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"

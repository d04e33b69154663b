"""The ledger of the checkers: held and waiting tickets, from verdicts and effects alone.

Everything is counted in the simplest way, again after each change, so that no optimisation of the Governor is repeated
here. Times are *elapsed* time, which does not go back when the wall clock is set back.
"""

import math
from bisect import insort
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from paceline.core import Granted, Ticket
from paceline.core.values.scopes import is_provider_scope

LaneKey = tuple[tuple[str, ...], str, str | None, bool]


@dataclass(slots=True)
class Held:
    """A granted ticket. `lost_at` is when its lease expired, `failed` whether a report blamed it.

    `slept` is the time since the grant in which the machine was suspended: nobody can renew a lease then.
    """

    ticket: Ticket
    granted: Granted
    since: float
    renewed_at: float
    lost_at: float | None = None
    failed: bool = False
    slept: float = 0.0
    run_lost_at: float = -math.inf
    """When the lease of one of its runs was found to be lost: until then the run may have renewed it."""


@dataclass(slots=True, order=True)
class Waiting:
    """A waiting ticket. The order of its lane is by key, then by arrival."""

    key: float
    arrival: int
    ticket: Ticket = field(compare=False)
    enqueued_at: float = field(compare=False)
    passed_at: float | None = field(compare=False, default=None)


class ExpectedLedger:
    """Everything that a caller can know about slots and waiters."""

    def __init__(self, limits: dict[str, int | None]) -> None:
        self.held: dict[str, Held] = {}
        self.waiting: dict[str, Waiting] = {}
        self.lanes: dict[LaneKey, list[Waiting]] = {}
        self.limits = dict(limits)
        self._from_settings = frozenset(limits)
        self._looked_up: dict[str, int | None] = {}
        self.cooling: list[tuple[float, str]] = []
        self.priorities: dict[str, int] = {}
        self.last_token = 0
        self.released_count = 0
        self.released_seconds = 0.0
        self._arrivals = 0
        self._occupied: Counter[str] | None = None
        self._runs_of: dict[tuple[str, str], int] = {}

    # -- waiting --------------------------------------------------------------------------------

    def enqueue(self, ticket: Ticket, now: float, since: float, ageing: float) -> None:
        self._arrivals += 1
        key = min(max(since, now - ageing), now)
        waiting = Waiting(key, self._arrivals, ticket, now)
        self.waiting[ticket.id] = waiting
        self.priorities[group_of(ticket)] = ticket.priority
        insort(self.lanes.setdefault(lane_of(ticket), []), waiting)

    def dequeue(self, ticket_id: str) -> Waiting:
        waiting = self.waiting.pop(ticket_id)
        key = lane_of(waiting.ticket)
        self.lanes[key].remove(waiting)
        if not self.lanes[key]:
            del self.lanes[key]
        return waiting

    def heads(self) -> list[Waiting]:
        return [lane[0] for lane in self.lanes.values()]

    # -- holding --------------------------------------------------------------------------------

    def hold(self, ticket: Ticket, granted: Granted, now: float) -> None:
        self.held[ticket.id] = Held(ticket, granted, now, now)
        self.last_token = granted.token
        self._occupied = None

    def let_go(self, ticket_id: str, now: float) -> Held:
        held = self.held.pop(ticket_id)
        self.released_count += 1
        self.released_seconds += now - held.since
        self._occupied = None
        return held

    def occupied(self) -> Counter[str]:
        """Return the places taken in each scope. A session and its runs take `max(1, live runs)` in a provider's."""
        if self._occupied is None:
            self._occupied = self._recount()
        return self._occupied

    def _recount(self) -> Counter[str]:
        occupied: Counter[str] = Counter()
        runs_of: dict[tuple[str, str], int] = defaultdict(int)
        for held in self.held.values():
            for scope in held.ticket.scopes:
                if self._shares_place(held.ticket, scope):
                    runs_of[held.ticket.parent or "", scope] += 1
                else:
                    occupied[scope] += 1
        for (_, scope), runs in runs_of.items():
            occupied[scope] += runs - 1
        self._runs_of = runs_of
        return occupied

    def _shares_place(self, ticket: Ticket, scope: str) -> bool:
        """Return whether the ticket is a run that can use the place of its session in this scope."""
        session = self.held.get(ticket.parent) if ticket.parent is not None else None
        return session is not None and is_provider_scope(scope) and scope in session.ticket.scopes

    def places_needed(self, ticket: Ticket, scope: str) -> int:
        """Return how many more places the ticket would take: none if the place of its session is still unused."""
        self.occupied()
        needs_none = self._shares_place(ticket, scope) and not self._runs_of.get((ticket.parent or "", scope))
        return 0 if needs_none else 1

    def is_excess(self, session: str | None, scope: str, limit: int) -> bool:
        """Return whether the session is one of the youngest that put the scope over its limit."""
        too_many = self.occupied()[scope] - limit
        if too_many <= 0 or session is None:
            return False
        mine = self.held[session].granted.token
        others = [held for held in self.held.values() if {"sessions", scope} <= set(held.ticket.scopes)]
        return sum(held.granted.token > mine for held in others) < too_many

    # -- limits and cooldowns ---------------------------------------------------------------------

    def configured(self, scope: str) -> int | None:
        """Return the limit set for a scope: its own, else that of the most specific pattern."""
        if scope not in self._looked_up:
            self._looked_up[scope] = self._look_up(scope)
        return self._looked_up[scope]

    def _look_up(self, scope: str) -> int | None:
        if scope in self.limits:
            return self.limits[scope]
        matching = [pattern for pattern in self.limits if _matches(pattern, scope)]
        if not matching:
            return None
        return self.limits[max(matching, key=lambda p: (-p.count("*") - p.count("?"), len(p)))]

    def set_limit(self, scope: str, limit: int | None) -> None:
        self.limits[scope] = limit
        self._looked_up.clear()

    def remove_limit(self, scope: str) -> None:
        """Remove a limit. If a pattern would apply instead, the scope is recorded as unlimited."""
        self.limits.pop(scope, None)
        self._looked_up.clear()
        if scope in self._from_settings or any(_matches(pattern, scope) for pattern in self.limits):
            self.limits[scope] = None

    def cool(self, scope: str, until: float) -> None:
        self.cooling.append((until, scope))

    def cooling_in(self, scope: str, now: float) -> int:
        return sum(1 for until, name in self.cooling if name == scope and until > now)

    def forget_cooled(self, now: float) -> None:
        self.cooling = [entry for entry in self.cooling if entry[0] > now]

    def mean_seconds(self) -> float:
        """Return the mean duration of all slots released so far."""
        return self.released_seconds / self.released_count if self.released_count else 1.0


def lane_of(ticket: Ticket) -> LaneKey:
    """Return the key of the lane: tickets in a lane are alike in everything that decides whether they may enter."""
    return ticket.scopes, group_of(ticket), ticket.parent, ticket.spread


def group_of(ticket: Ticket) -> str:
    """Return the group of a ticket. Tickets without a group form one group per priority."""
    return ticket.group or f"priority {ticket.priority}"


def _matches(pattern: str, scope: str) -> bool:
    parts, names = pattern.split("/"), scope.split("/")
    return len(parts) == len(names) and all(fnmatchcase(n, p) for p, n in zip(parts, names, strict=True))

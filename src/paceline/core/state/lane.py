"""A lane: tickets that wait alike, and the live slots that were granted through it; and which scope each lane watches.

A lane is the queue of waiting tickets that have the same scopes, group, priority, parent session and pacing
strategy. Inside it the key `clamp(since, enqueued_at - ageing, enqueued_at)` decides, then arrival. A lane that cannot
enter watches the one scope that refused its head, and costs nothing until that scope changes. Lanes of one group watch
together, and the foremost of them is found.

Here: the order inside one lane, and the table of watchers. Never here: who enters (`decisions/admission.py`).
"""

import math
from collections import deque
from collections.abc import Iterable
from heapq import heapify, heappop, heappush, heapreplace

import msgspec

from paceline.core.state.fairness import Group
from paceline.core.state.scope import Scope
from paceline.core.values.tickets import Ticket

SPARE_ENTRIES = 32
"""Entries of removed tickets that a lane may keep, in addition to twice its size: removing them costs a pass."""


class LiveSlot(msgspec.Struct, eq=False, gc=False):
    """A granted ticket while it lives.

    `proven_seq` is the sequence number of its grant or last success: what came after an incident is news.
    `runs` counts, for a session, its live runs by provider scope.
    """

    ticket: Ticket
    lane: "Lane"
    granted_at: float
    token: int
    expires_at: float | None
    proven_seq: int
    reported: bool = False
    reclaim_at: float | None = None
    released: bool = False
    runs: dict[str, int] | None = None
    is_adopted: bool = False
    """Whether its holder had it before this Governor began: nobody knows what it has met since it was let in."""

    @property
    def has_runs(self) -> bool:
        """Whether runs of this session have, or had, slots of their own: then only they count its tokens."""
        return self.runs is not None

    @property
    def admitted_at(self) -> float:
        """When the gates admitted it. An adopted one came before everything that they know."""
        return -math.inf if self.is_adopted else self.granted_at

    @property
    def has_succeeded(self) -> bool:
        """Whether something went well since its grant."""
        return self.proven_seq > self.token

    def covers(self, scope: Scope) -> bool:
        """Return whether a run of this session needs no place of its own in the scope: the session's is free."""
        if not scope.is_provider or self.released or scope.name not in self.lane.names:
            return False
        return not (self.runs and self.runs.get(scope.name))

    def on_run_started(self, scope: str) -> None:
        if self.runs is None:
            self.runs = {}
        self.runs[scope] = self.runs.get(scope, 0) + 1

    def on_run_ended(self, scope: str) -> int:
        """Return how many of its runs are left in the scope."""
        assert self.runs is not None
        self.runs[scope] -= 1
        return self.runs[scope]


class Waiter(msgspec.Struct, order=True):
    """A ticket in a lane; `key`, then `seq`, is its position. `passed_since`: first passed over for lack of room."""

    key: float
    seq: int
    ticket: Ticket
    lane: "Lane"
    enqueued_at: float
    passed_since: float | None = None
    gone: bool = False

    @property
    def watching(self) -> str | None:
        """The scope that its lane watches; None behind others."""
        watched = self.lane.watching
        return watched.name if watched is not None and self.lane.head is self else None


class Lane:
    """One lane. `watching` is the scope that refused its head; `parent` the session whose runs wait here.

    Most tickets arrive in the order of their keys and stand in a plain queue; those that come with a head start
    (an older `since`) stand in a heap beside it.
    """

    head: Waiter
    """The first waiter. Valid only while `size` is above 0."""

    def __init__(
        self, scopes: tuple[Scope, ...], group: Group, weight: float, parent: LiveSlot | None, *, is_spread: bool
    ) -> None:
        self.scopes = scopes
        self.checks = scopes[::-1]  # narrowest first: a full model should not make its lane watch the whole pool
        self.names = tuple(scope.name for scope in scopes)
        self.account = next((scope for scope in scopes if scope.is_provider and scope.name.count("/") == 1), None)
        self.group = group
        self.weight = weight  # of its tickets; the weight of the group is that of its latest waiter
        self.order = 0
        """Smaller ones of a group go first, whatever their keys. It is set for tickets of a client's key."""
        self.parent = parent
        self.is_spread = is_spread
        self.is_plain = parent is None and not is_spread  # its tickets may skip gates that are not active
        self.size = 0
        self.watching: Scope | None = None
        self._queue: deque[Waiter] = deque()
        self._early: list[Waiter] = []

    def leave_session(self) -> None:
        self.parent = None
        self.is_plain = not self.is_spread

    def push(self, waiter: Waiter) -> bool:
        """Add the waiter. Returns True if it is now the head."""
        self.size += 1
        if self._queue and waiter.key < self._queue[-1].key:
            heappush(self._early, waiter)
        else:
            self._queue.append(waiter)
        if self.size == 1 or waiter < self.head:
            self.head = waiter
            return True
        return False

    def remove(self, waiter: Waiter) -> bool:
        """Take the waiter out. Returns True if it was the head; entries of others are dropped later."""
        waiter.gone = True
        self.size -= 1
        was_head = waiter is self.head
        if self.size == 0:
            self._queue.clear()
            self._early.clear()
        elif was_head:
            self.head = self._foremost()
        elif len(self._queue) + len(self._early) > SPARE_ENTRIES + 2 * self.size:
            self._queue = deque(other for other in self._queue if not other.gone)
            self._early = [other for other in self._early if not other.gone]
            heapify(self._early)
        return was_head

    def _foremost(self) -> Waiter:
        queue, early = self._queue, self._early
        while queue and queue[0].gone:
            queue.popleft()
        while early and early[0].gone:
            heappop(early)
        if not early or (queue and queue[0] < early[0]):
            return queue[0]
        return early[0]

    def waiters(self) -> list[Waiter]:
        """Return all waiters in order. For snapshots and queries; decisions need only the head."""
        return sorted(waiter for waiter in (*self._queue, *self._early) if not waiter.gone)

    def shift(self, seconds: float) -> None:
        for waiter in (*self._queue, *self._early):
            waiter.key -= seconds
            waiter.enqueued_at -= seconds
            if waiter.passed_since is not None:
                waiter.passed_since -= seconds


WatchEntry = tuple[int, float, int, Lane]
"""The order of the lane, then the key and the number of its head. Numbers differ, so lanes are never compared."""


class WatchTable:
    """Watching lanes by scope, and by group within it. Entries that no longer hold are dropped when they come up.

    Runs that wait for a provider scope stand apart in `run_lanes` and are checked one by one: whether they need
    room depends on their session, so a refusal of the foremost proves nothing about the next.
    """

    def __init__(self) -> None:
        self._heaps: dict[Scope, dict[Group, list[WatchEntry]]] = {}
        self.run_lanes: dict[Scope, dict[Lane, None]] = {}

    def watch(self, lane: Lane, scope: Scope) -> None:
        """Let the lane be checked when the scope changes."""
        if lane.watching is not scope:
            self.stop(lane)
            lane.watching = scope
        if lane.parent is not None and scope.is_provider:
            self.run_lanes.setdefault(scope, {})[lane] = None
            self._refresh(scope)
            return
        head = lane.head
        groups = self._heaps.get(scope)
        if groups is None:
            groups = self._heaps[scope] = {}
        heap = groups.get(lane.group)
        if heap is None:
            groups[lane.group] = [(lane.order, head.key, head.seq, lane)]
            self._refresh(scope)
        elif heap[0][3] is lane:  # its last head has just entered
            heapreplace(heap, (lane.order, head.key, head.seq, lane))
        else:
            heappush(heap, (lane.order, head.key, head.seq, lane))

    def stop(self, lane: Lane) -> None:
        scope = lane.watching
        if scope is not None:
            if lane.size and (rate := scope.gates.rate_limit) is not None:
                rate.free_tokens(lane.head.ticket)
            self._drop_run_lane(lane, scope)
        lane.watching = None

    def leave_session(self, lane: Lane) -> None:
        lane.leave_session()
        scope = lane.watching
        if scope is not None and self._drop_run_lane(lane, scope):
            self.watch(lane, scope)

    def _drop_run_lane(self, lane: Lane, scope: Scope) -> bool:
        lanes = self.run_lanes.get(scope)
        if lanes is None or lane not in lanes:
            return False
        del lanes[lane]
        if not lanes:
            del self.run_lanes[scope]
        self._refresh(scope)
        return True

    def foremost(self, scope: Scope) -> list[Lane]:
        """Return the foremost lane of each group that watches the scope."""
        groups = self._heaps.get(scope)
        if groups is None:
            return []
        found = []
        for group, heap in tuple(groups.items()):
            while heap:
                _, _, seq, lane = heap[0]
                if lane.watching is scope and lane.size and lane.head.seq == seq:
                    found.append(lane)
                    break
                heappop(heap)
            else:
                del groups[group]
        if not groups:
            del self._heaps[scope]
            self._refresh(scope)
        return found

    def rivals(self, scope: Scope) -> set[Group]:
        return {lane.group for lane in (*self.run_lanes.get(scope, ()), *self.foremost(scope))}

    def keep_only(self, scopes: Iterable[Scope]) -> None:
        """Forget the outdated entries of scopes that were dropped."""
        self._heaps = {scope: self._heaps[scope] for scope in scopes if scope in self._heaps}

    def shift(self, seconds: float) -> None:
        for groups in self._heaps.values():
            for heap in groups.values():
                heap[:] = [(order, key - seconds, seq, lane) for order, key, seq, lane in heap]

    def _refresh(self, scope: Scope) -> None:
        scope.is_watched = scope in self._heaps or scope in self.run_lanes
        scope.refresh()


def queue_key(since: float | None, enqueued_at: float, ageing: float) -> float:
    """Return a ticket's key. An old prompt has a head start of at most `ageing`; a `since` in the future has none."""
    if since is None or not since <= enqueued_at:  # also for NaN
        return enqueued_at
    return max(enqueued_at - ageing, since)

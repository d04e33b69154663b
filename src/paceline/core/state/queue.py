"""The order of those who wait: lines inside groups, and groups against each other.

A *lane* is the line of tickets with the same scopes, group, parent and pace: inside it the key
`clamp(since, enqueued_at - ageing, enqueued_at)` decides, then arrival. A *group* competes with
others by the slot-seconds it has had for its weight. A lane that cannot enter watches the one
scope that refused it and costs nothing until that scope changes.
"""

from collections import deque
from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING

import msgspec

from paceline.core.values.tickets import Ticket

if TYPE_CHECKING:
    from paceline.core.state.live_slot import LiveSlot
    from paceline.core.state.scope import ScopeState

LARGEST_EXPONENT = 32


class Group:
    """Who shares capacity by weight. `accrued` are slot-seconds up to `accrued_at`."""

    __slots__ = ("accrued", "accrued_at", "index", "live", "name", "waiting", "weight")

    def __init__(self, name: str | int, index: int, weight: float, now: float) -> None:
        self.name = name
        self.index = index
        self.weight = weight
        self.accrued = 0.0
        self.accrued_at = now
        self.live = 0
        self.waiting = 0

    def value(self, mean_slot: float, now: float) -> float:
        """What it has had, and is about to have, for its weight: the smallest goes next."""
        return (self.accrued + self.live * (now - self.accrued_at + mean_slot)) / self.weight

    def accrue(self, now: float) -> None:
        """Count what its slots have used up to now."""
        self.accrued += self.live * (now - self.accrued_at)
        self.accrued_at = now

    def reweigh(self, weight: float, now: float) -> None:
        """A new priority holds from now on: what was had under the old one becomes neither a debt nor a credit."""
        self.accrue(now)
        self.accrued *= weight / self.weight
        self.weight = weight


def weight_of(priority: int) -> float:
    """One level up is twice the share."""
    return float(2.0 ** max(-LARGEST_EXPONENT, min(priority, LARGEST_EXPONENT)))


class Waiter(msgspec.Struct, order=True):
    """A ticket in line; `key`, then `seq`, is its place. `passed_since`: first passed over for lack of room."""

    key: float
    seq: int
    ticket: Ticket
    lane: "Lane"
    enqueued_at: float
    passed_since: float | None = None
    gone: bool = False


class Lane:
    """One line. `watching` is the scope that refused its head.

    Most tickets arrive in the order of their keys and stand in a plain queue; those that come with a head start
    (an older `since`) stand in a heap beside it.
    """

    __slots__ = (
        "_early",
        "_queue",
        "checks",
        "group",
        "head",
        "names",
        "parent",
        "scopes",
        "size",
        "watching",
        "weight",
    )

    head: Waiter
    """The foremost; only while `size` is above 0."""

    def __init__(
        self, scopes: "tuple[ScopeState, ...]", group: Group, weight: float, parent: "LiveSlot | None"
    ) -> None:
        self.scopes = scopes
        self.checks = scopes[::-1]  # narrowest first: a full model should not make its lane watch the whole pool
        self.names = tuple(scope.name for scope in scopes)
        self.group = group
        self.weight = weight  # of its tickets; the group has that of the latest who came to wait
        self.parent = parent
        self.size = 0
        self.watching: ScopeState | None = None
        self._queue: deque[Waiter] = deque()
        self._early: list[Waiter] = []

    def push(self, waiter: Waiter) -> bool:
        """True if the waiter is now the head."""
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
        """Take it out, and say whether it was the head; others are dropped when they come up, or with the majority."""
        waiter.gone = True
        self.size -= 1
        was_head = waiter is self.head
        if self.size == 0:
            self._queue.clear()
            self._early.clear()
        elif was_head:
            self.head = self._foremost()
        elif len(self._queue) + len(self._early) > 32 + 2 * self.size:
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
        """In order; for snapshots and questions, not for decisions."""
        return sorted(waiter for waiter in (*self._queue, *self._early) if not waiter.gone)

    def shift(self, seconds: float) -> None:
        """The clock was set back: all keep their places."""
        for waiter in (*self._queue, *self._early):
            waiter.key -= seconds
            waiter.enqueued_at -= seconds
            if waiter.passed_since is not None:
                waiter.passed_since -= seconds


WatchEntry = tuple[float, int, Lane]
Watchers = dict[Group, list[WatchEntry]]


def watch(lane: Lane, scope: "ScopeState") -> None:
    """Let the lane's head be found when the scope changes."""
    head = lane.head
    lane.watching = scope
    heap = scope.watchers.get(lane.group)
    if heap is None:
        scope.watchers[lane.group] = [(head.key, head.seq, lane)]
        scope.refresh()
    elif heap[0][2] is lane:  # its last head has just gone in
        heapreplace(heap, (head.key, head.seq, lane))
    else:
        heappush(heap, (head.key, head.seq, lane))


def foremost_watcher(scope: "ScopeState", group: Group) -> Lane | None:
    """The group's foremost lane that watches the scope; entries that no longer hold are dropped."""
    heap = scope.watchers[group]
    while heap:
        _, seq, lane = heap[0]
        if lane.watching is scope and lane.size and lane.head.seq == seq:
            return lane
        heappop(heap)
    del scope.watchers[group]
    scope.refresh()
    return None


def line_key(since: float | None, enqueued_at: float, ageing: float) -> float:
    """An old prompt has a head start of at most `ageing`; a `since` ahead of now (or in ms) has none."""
    if since is None or not since <= enqueued_at:  # NaN is no time either
        return enqueued_at
    return max(enqueued_at - ageing, since)

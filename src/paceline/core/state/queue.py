"""Who waits for which scope. A lane that cannot enter watches the one scope that refused its head.

It costs nothing until that scope changes. Lanes of one group watch together, and the foremost of them is found.
Here: the table of watchers, and a ticket's key in its lane. Never here: who enters (`decisions/admission.py`).
"""

from collections.abc import Iterable
from heapq import heappop, heappush, heapreplace

from paceline.core.state.fairness import Group
from paceline.core.state.lane import Lane
from paceline.core.state.scope import Scope

WatchEntry = tuple[int, float, int, Lane]
"""The order of the lane, then the key and the number of its head. Numbers differ, so lanes are never compared."""


class WatchTable:
    """Watching lanes by scope, and by group within it. Entries that no longer hold are dropped when they come up.

    Runs that wait for a provider scope stand apart in `run_lanes` and are checked one by one: whether they need
    room depends on their session, so a refusal of the foremost proves nothing about the next.
    """

    __slots__ = ("_heaps", "run_lanes")

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
        """Let the lane watch no scope."""
        scope = lane.watching
        if scope is not None:
            if lane.size and scope.gates.in_order:
                scope.gates.free_tokens(lane.head.ticket)
            self._drop_run_lane(lane, scope)
        lane.watching = None

    def leave_session(self, lane: Lane) -> None:
        """Treat the lane like any other: its session has ended."""
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

    def groups(self, scope: Scope) -> tuple[Group, ...]:
        """Return the groups that may have lanes watching the scope."""
        found = self._heaps.get(scope)
        return tuple(found) if found is not None else ()

    def foremost(self, scope: Scope, group: Group) -> Lane | None:
        """Return the group's foremost lane that watches the scope."""
        groups = self._heaps[scope]
        heap = groups[group]
        while heap:
            _, _, seq, lane = heap[0]
            if lane.watching is scope and lane.size and lane.head.seq == seq:
                return lane
            heappop(heap)
        del groups[group]
        if not groups:
            del self._heaps[scope]
        self._refresh(scope)
        return None

    def rivals(self, scope: Scope) -> set[Group]:
        """Return all groups that have a lane watching the scope."""
        watching = [group for group in self.groups(scope) if self.foremost(scope, group) is not None]
        return {lane.group for lane in self.run_lanes.get(scope, ())}.union(watching)

    def keep_only(self, scopes: Iterable[Scope]) -> None:
        """Forget the outdated entries of scopes that were dropped."""
        self._heaps = {scope: self._heaps[scope] for scope in scopes if scope in self._heaps}

    def shift(self, seconds: float) -> None:
        """Keep the order when the clock is set back."""
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

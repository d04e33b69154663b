"""The checkers of reasons and of the order rule, which they compute again in the simplest way.

Within a lane the rule is exact: smallest key first, then arrival. Between lanes and groups it is checked only where
the answer is certain: in calm worlds, with the Governor's own count of what each group has used, and while no ticket
has waited for `ageing` or longer. (Overdue tickets may have place claims, and the ledger cannot know from which moment
a ticket counts as passed over.) Place claims are checked with the Governor's own list of them.
"""

import math
from typing import TYPE_CHECKING, get_args

from paceline.core import Deferred, Snapshot, Ticket
from paceline.core.values.verdicts import Reason
from paceline.testing.world.gates import SLACK
from paceline.testing.world.ledger_check import Waiting, group_of, lane_of

if TYPE_CHECKING:
    from paceline.testing.world.checked_governor import CheckedGovernor

REASONS = frozenset(get_args(Reason))
HELPED_BY_TIME = frozenset({"paused", "cooldown", "usage_gate", "window_closed", "pacing", "reserve", "unreachable"})


def check_reason(checked: "CheckedGovernor", waiting: Waiting, why: Deferred) -> None:
    """Check that a reason is one of the contract, names a scope of the ticket, and agrees with the ledger."""
    ticket = waiting.ticket
    if why.ticket_id != ticket.id or why.reason not in REASONS or not why.detail:
        checked.fail(f"{ticket.id} waits because of {why!r}, which is no answer")
    if why.scope not in ticket.scopes:
        checked.fail(f"{ticket.id} is said to wait for {why.scope}, which is not among its scopes")
    if why.position is None or why.position < 1:
        checked.fail(f"{ticket.id} waits at position {why.position}")
    if why.reason in HELPED_BY_TIME and not _has_prospect(checked, why):
        checked.fail(f"{ticket.id} waits for time to pass ({why.reason}) and nothing will wake it: {why!r}")
    if not _is_backed(checked, waiting, why):
        checked.fail(f"{ticket.id} waits because of {why.reason} in {why.scope} ({why.detail}), which is not so")


def _has_prospect(checked: "CheckedGovernor", why: Deferred) -> bool:
    """Return whether the Governor will decide again, not later than it said. A usage reading may come at any time."""
    wakeup = checked.governor.next_wakeup()
    if wakeup is None or why.retry_at is None or why.reason == "usage_gate":
        return wakeup is not None
    return math.isfinite(why.retry_at) and wakeup <= why.retry_at + SLACK


def _is_backed(checked: "CheckedGovernor", waiting: Waiting, why: Deferred) -> bool:
    status = checked.governor.status(why.scope, now=checked.wall)
    match why.reason:
        case "limit" | "platform_limit":
            return lacks_room(checked, waiting, why.scope) or may_be_kept(checked, waiting)
        case "cooldown":
            return status is not None and status.cooling > 0
        case "paused" | "unreachable":
            return status is not None and status.paused
        case "window_closed":
            return status is not None and status.window is not None
        case "usage_gate":
            return why.scope in checked.gates.usage
        case "held":
            return why.scope in checked.gates.held
        case "queue_order":
            has_room = not any(lacks_room(checked, waiting, scope) for scope in waiting.ticket.scopes)
            return has_room and may_be_kept(checked, waiting)
        case _:
            return True


def lacks_room(checked: "CheckedGovernor", waiting: Waiting, scope: str) -> bool:
    """Return whether the scope is full for this ticket. A run in its session waits only if that is excess."""
    limit = checked.limit_of(scope)
    if limit is None:
        return False
    if not checked.expected.places_needed(waiting.ticket, scope):
        return checked.expected.is_excess(waiting.ticket.parent, scope, limit)
    occupied = checked.expected.occupied()[scope]
    return occupied >= limit or occupied + checked.cooling_in(scope) >= limit


def may_be_kept(checked: "CheckedGovernor", waiting: Waiting) -> bool:
    """Return whether a place may be kept for another ticket that shares a scope and has waited for `ageing`."""
    overdue_since = checked.elapsed - checked.settings.ageing + SLACK
    return any(
        other.enqueued_at <= overdue_since
        and other is not waiting
        and set(other.ticket.scopes) & set(waiting.ticket.scopes)
        for other in checked.expected.waiting.values()
    )


# -- the order ----------------------------------------------------------------------------------------

if TYPE_CHECKING:
    from paceline.testing.world.checked_governor import CheckedGovernor

RELATIVE_SLACK = 1e-6
RECORD_EVERY = 4
"""Releases per snapshot: a snapshot costs more than the release itself."""
GroupUse = tuple[float, int]
"""Accrued slot-seconds and live slots of one group."""


class OrderCheck:
    """The order of grants.

    `use` is that of each group, and `place_claims` are the tickets for which places are kept, both as in the
    Governor's snapshot before a release. `use` is None if no snapshot was taken.
    """

    def __init__(self, checked: "CheckedGovernor") -> None:
        self._checked = checked
        self._releases = 0
        self.use: dict[str, GroupUse] | None = None
        self.place_claims: tuple[str, ...] = ()

    def record_before_release(self, released: Ticket) -> None:
        """Record the use of the groups as the release will leave it. Not always: a snapshot is expensive."""
        self._releases += 1
        if not self._checked.is_calm or self._releases % RECORD_EVERY:
            return
        snapshot = self._checked.governor.snapshot()
        self.use = use_by_group(snapshot)
        self.place_claims = snapshot.claims
        accrued, live = self.use[group_of(released)]
        self.use[group_of(released)] = accrued, live - 1

    def forget(self) -> None:
        """Forget the use: it is valid for one call only."""
        self.use = None

    def check_newcomer(self, ticket: Ticket) -> None:
        """Check that a new ticket enters at once only if no ticket of its lane waits."""
        ahead = self._checked.expected.lanes.get(lane_of(ticket))
        if ahead:
            self._checked.fail(f"{ticket.id} entered past {ahead[0].ticket.id}, which waits in the same lane")

    def check_from_queue(self, chosen: Waiting) -> None:
        lane = self._checked.expected.lanes[lane_of(chosen.ticket)]
        if lane[0] is not chosen and not self._is_overdue(chosen):
            self._checked.fail(f"{chosen.ticket.id} entered before {lane[0].ticket.id}, which is ahead in its lane")
        if not self._checked.is_calm:
            return
        if self.use is not None:
            self._check_place_claims(chosen)
        if not any(self._is_overdue(waiting) for waiting in self._checked.expected.waiting.values()):
            self._check_between_lanes(chosen)

    def _is_overdue(self, waiting: Waiting) -> bool:
        """Return whether places may be kept for the ticket: it has waited for at least `ageing`."""
        return waiting.enqueued_at <= self._checked.elapsed - self._checked.settings.ageing + SLACK

    def _check_between_lanes(self, chosen: Waiting) -> None:
        rivals = [head for head in self._checked.expected.heads() if head is not chosen and self.could_enter(head)]
        group = group_of(chosen.ticket)
        for rival in rivals:
            if group_of(rival.ticket) == group and (rival.key, rival.arrival) < (chosen.key - SLACK, chosen.arrival):
                self._checked.fail(f"{chosen.ticket.id} entered before {rival.ticket.id}, older in the same group")
        self._check_between_groups(group, {group_of(rival.ticket) for rival in rivals})

    def _check_between_groups(self, chosen: str, rivals: set[str]) -> None:
        if self.use is None:
            return
        mine = self._value(chosen)
        for rival in rivals - {chosen}:
            theirs = self._value(rival)
            if theirs < mine - RELATIVE_SLACK * max(1.0, abs(mine)):
                self._checked.fail(f"group {chosen} ({mine}) went before group {rival} ({theirs}), which has had less")
        accrued, live = self.use[chosen]
        self.use[chosen] = accrued, live + 1

    def _value(self, group: str) -> float:
        assert self.use is not None
        accrued, live = self.use[group]
        weight = 2.0 ** self._checked.expected.priorities[group]
        return (accrued + live * self._checked.expected.mean_seconds()) / weight

    def could_enter(self, waiting: Waiting) -> bool:
        """Return whether every scope of the ticket has room (calm worlds have no other gates)."""
        return not any(lacks_room(self._checked, waiting, scope) for scope in waiting.ticket.scopes)

    def check_nobody_is_kept_waiting(self) -> None:
        """Check that no ticket waits while there is room for it."""
        for head in self._checked.expected.heads():
            if self.could_enter(head) and not may_be_kept(self._checked, head):
                self._checked.fail(f"{head.ticket.id} waits though there is room in all of its scopes")

    def _check_place_claims(self, chosen: Waiting) -> None:
        """Check that places are kept only for overdue tickets, and that others leave one for each of them."""
        for ticket_id in self.place_claims:
            claimant = self._checked.expected.waiting.get(ticket_id)
            if claimant is not None and not self._is_overdue(claimant):
                self._checked.fail(f"a place is kept for {ticket_id}, which has not waited for long")
        if chosen.ticket.id not in self.place_claims:
            for scope in chosen.ticket.scopes:
                self._check_places_are_left(chosen, scope)

    def _check_places_are_left(self, chosen: Waiting, scope: str) -> None:
        limit = self._checked.limit_of(scope)
        if limit is None or not self._checked.expected.places_needed(chosen.ticket, scope):
            return
        waiting = self._checked.expected.waiting
        kept = sum(
            1 for claimant in self.place_claims if claimant in waiting and scope in waiting[claimant].ticket.scopes
        )
        if limit - self._checked.expected.occupied()[scope] - 1 < kept:
            self._checked.fail(
                f"{chosen.ticket.id} took a place in {scope} that was kept for one of {self.place_claims}"
            )


def use_by_group(snapshot: Snapshot) -> dict[str, GroupUse]:
    """Return the use of each group in the snapshot, by the group names of the ledger."""
    return {
        group.name if isinstance(group.name, str) else f"priority {group.name}": (
            group.accrued + group.live * (snapshot.at - group.accrued_at),
            group.live,
        )
        for group in snapshot.groups
    }

"""Whose turn was it? The order rule, recomputed the naive way.

Inside a line the rule is checked to the letter: smallest key first, then arrival. Between lines and
groups it is checked where the answer is certain: in calm worlds, on the governor's own accounts of
the groups as they stood before the call, and while nobody has waited for `ageing` or longer (places
may then be kept for overdue tickets, and the books cannot know from which moment a ticket counts as
passed over). That kept places are left alone is checked on the governor's own list of claims.
"""

from typing import TYPE_CHECKING

from paceline.core import Snapshot, Ticket
from paceline.testing.world.gates import SLACK
from paceline.testing.world.ledger_check import Waiting, group_of, line_of
from paceline.testing.world.reason_check import lacks_room, may_be_kept

if TYPE_CHECKING:
    from paceline.testing.world.checked_governor import CheckedGovernor

RELATIVE_SLACK = 1e-6
LOOK_EVERY = 4
Account = tuple[float, int]


class OrderCheck:
    """`accounts` is each group's (accrued slot-seconds, live slots) and `claims` the tickets that places are
    kept for, as the governor's snapshot had them before a release; None where it was not looked at."""

    def __init__(self, watched: "CheckedGovernor") -> None:
        self._watched = watched
        self._releases = 0
        self.accounts: dict[str, Account] | None = None
        self.claims: tuple[str, ...] = ()

    def look_before_release(self, released: Ticket) -> None:
        """Note the accounts of the groups as the release will leave them; looking costs, so not always."""
        self._releases += 1
        if not self._watched.is_calm or self._releases % LOOK_EVERY:
            return
        snapshot = self._watched.governor.snapshot()
        self.accounts = accounts_of(snapshot)
        self.claims = snapshot.claims
        accrued, live = self.accounts[group_of(released)]
        self.accounts[group_of(released)] = accrued, live - 1

    def forget(self) -> None:
        """Accounts hold for one call only."""
        self.accounts = None

    def check_newcomer(self, ticket: Ticket) -> None:
        """A newcomer enters at once only where nobody of its own line waits."""
        ahead = self._watched.books.lines.get(line_of(ticket))
        if ahead:
            self._watched.fail(f"{ticket.id} entered past {ahead[0].ticket.id}, which waits in the same line")

    def check_from_queue(self, chosen: Waiting) -> None:
        line = self._watched.books.lines[line_of(chosen.ticket)]
        if line[0] is not chosen and not self._is_overdue(chosen):
            self._watched.fail(f"{chosen.ticket.id} entered before {line[0].ticket.id}, which is ahead in its line")
        if not self._watched.is_calm:
            return
        if self.accounts is not None:
            self._check_claims(chosen)
        if not any(self._is_overdue(waiting) for waiting in self._watched.books.waiting.values()):
            self._check_between_lines(chosen)

    def _is_overdue(self, waiting: Waiting) -> bool:
        """Whether places may be kept for the ticket: it has waited for `ageing` at least."""
        return waiting.enqueued_at <= self._watched.elapsed - self._watched.settings.ageing + SLACK

    def _check_between_lines(self, chosen: Waiting) -> None:
        rivals = [head for head in self._watched.books.heads() if head is not chosen and self.could_enter(head)]
        group = group_of(chosen.ticket)
        for rival in rivals:
            if group_of(rival.ticket) == group and (rival.key, rival.arrival) < (chosen.key - SLACK, chosen.arrival):
                self._watched.fail(f"{chosen.ticket.id} entered before {rival.ticket.id}, older in the same group")
        self._check_between_groups(group, {group_of(rival.ticket) for rival in rivals})

    def _check_between_groups(self, chosen: str, rivals: set[str]) -> None:
        if self.accounts is None:
            return
        mine = self._value(chosen)
        for rival in rivals - {chosen}:
            theirs = self._value(rival)
            if theirs < mine - RELATIVE_SLACK * max(1.0, abs(mine)):
                self._watched.fail(f"group {chosen} ({mine}) went before group {rival} ({theirs}), which has had less")
        accrued, live = self.accounts[chosen]
        self.accounts[chosen] = accrued, live + 1

    def _value(self, group: str) -> float:
        assert self.accounts is not None
        accrued, live = self.accounts[group]
        weight = 2.0 ** self._watched.books.priorities[group]
        return (accrued + live * self._watched.books.mean_seconds()) / weight

    def could_enter(self, waiting: Waiting) -> bool:
        """Whether every scope of the ticket has room (calm worlds have no other gates)."""
        return not any(lacks_room(self._watched, waiting, scope) for scope in waiting.ticket.scopes)

    def check_nobody_is_kept_waiting(self) -> None:
        """Never idle while there is room."""
        for head in self._watched.books.heads():
            if self.could_enter(head) and not may_be_kept(self._watched, head):
                self._watched.fail(f"{head.ticket.id} waits though there is room in all of its scopes")

    def _check_claims(self, chosen: Waiting) -> None:
        """Places are kept only for the overdue, and who is not among them leaves one place for each."""
        for ticket_id in self.claims:
            claimant = self._watched.books.waiting.get(ticket_id)
            if claimant is not None and not self._is_overdue(claimant):
                self._watched.fail(f"a place is kept for {ticket_id}, which has not waited for long")
        if chosen.ticket.id not in self.claims:
            for scope in chosen.ticket.scopes:
                self._check_places_are_left(chosen, scope)

    def _check_places_are_left(self, chosen: Waiting, scope: str) -> None:
        limit = self._watched.limit_of(scope)
        if limit is None or not self._watched.books.places_needed(chosen.ticket, scope):
            return
        waiting = self._watched.books.waiting
        kept = sum(1 for claim in self.claims if claim in waiting and scope in waiting[claim].ticket.scopes)
        if limit - self._watched.books.occupied()[scope] - 1 < kept:
            self._watched.fail(f"{chosen.ticket.id} took a place in {scope} that was kept for one of {self.claims}")


def accounts_of(snapshot: Snapshot) -> dict[str, Account]:
    """Each group's account at the time of the snapshot, by the names the books use."""
    return {
        group.name if isinstance(group.name, str) else f"priority {group.name}": (
            group.accrued + group.live * (snapshot.at - group.accrued_at),
            group.live,
        )
        for group in snapshot.groups
    }

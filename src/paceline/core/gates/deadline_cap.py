"""A deadline cap: a campaign with a deadline starts no more sessions at once than meet it."""

from paceline.core.gates.gate import Explanation, Gate, ScopeView, earliest
from paceline.core.values.tickets import Ticket
from paceline.core.values.verdicts import Reason


class DeadlineCap(Gate):
    """At most `limit` at once, for the reason in `detail`, until that may change.

    It follows from the campaign and is set again after a restart, so it is not stored.
    """

    TAG = "deadline_cap"
    IS_STORED = False

    limit: int
    detail: str
    until: float

    def refuses(self, ticket: Ticket, scope: ScopeView, now: float) -> Reason | None:
        return "pacing" if scope.live >= self.limit else None

    def explain(self, ticket: Ticket, scope: ScopeView, now: float) -> Explanation:
        return Explanation(self.detail, self.until)

    def next_wake(self, scope: ScopeView, now: float, *, has_waiters: bool) -> float | None:
        return earliest(now, self.until) if has_waiters else None

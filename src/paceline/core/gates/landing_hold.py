"""A landing hold: few sessions or none start in a scope whose window the live ones will use up."""

from collections.abc import Sequence

from paceline.core.gates.gate import Explanation, Gate, GateEvent, ScopeView, earliest
from paceline.core.values.scopes import SESSIONS
from paceline.core.values.tickets import Ticket
from paceline.core.values.verdicts import Reason


class LandingHold(Gate):
    """At most `starts` more sessions, for the reason in `detail`, until it is set again. Calls and runs pass.

    It follows from what sessions use and is set again after a restart, so it is not stored.
    """

    TAG = "landing_hold"
    IS_STORED = False

    starts: int
    detail: str
    until: float

    def refuses(self, ticket: Ticket, scope: ScopeView, now: float) -> Reason | None:
        return "pacing" if self.starts <= 0 and _is_session(ticket) else None

    def refuses_only_this(self, ticket: Ticket, scope: ScopeView, now: float) -> bool:
        return True

    def explain(self, ticket: Ticket, scope: ScopeView, now: float) -> Explanation:
        return Explanation(self.detail, self.until)

    def on_grant(self, ticket: Ticket, scope: ScopeView, now: float, *, takes_place: bool) -> Sequence[GateEvent]:
        if _is_session(ticket):
            self.starts -= 1
        return ()

    def next_wake(self, scope: ScopeView, now: float, *, has_waiters: bool) -> float | None:
        return earliest(now, self.until) if has_waiters else None


def _is_session(ticket: Ticket) -> bool:
    return SESSIONS in ticket.scopes

"""A hold: nobody enters until a person lifts it. Made by a billing stop, a failed login, or by hand."""

from paceline.core.gates.gate import Explanation, Gate, ScopeView
from paceline.core.values.tickets import Ticket
from paceline.core.values.verdicts import Reason


class AccountHold(Gate):
    """A closed account. `cause` is what a person has to fix."""

    TAG = "account_hold"

    cause: str

    def refuses(self, ticket: Ticket, scope: ScopeView, now: float) -> Reason | None:
        return "held"

    def explain(self, ticket: Ticket, scope: ScopeView, now: float) -> Explanation:
        return Explanation(f"{scope.name} is held: {self.cause}; lift the hold when that is fixed")

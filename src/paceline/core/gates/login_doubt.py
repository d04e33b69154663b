"""Doubt about a login: it was refused once, which may pass. Parallel CLIs that refresh one token meet such refusals.

One canary asks again after a minute, another after five. A success of any session of the account ends the doubt; a
third refusal in a row makes it an `AccountHold`.
"""

from typing import ClassVar

from paceline.core.gates.canary_gate import CanaryGate
from paceline.core.gates.gate import Explanation, ScopeView
from paceline.core.values.tickets import Ticket
from paceline.core.values.verdicts import Reason

ASK_AGAIN_SECONDS = (60.0, 300.0)
"""Waits after the first and the second refusal: a token is refreshed within seconds, and an incident at the provider
seldom outlasts five minutes. A revoked login costs two starts more."""


class LoginDoubt(CanaryGate):
    """An account whose login was refused, and may be accepted again. `cause` is what the provider said."""

    TAG = "login_doubt"
    REASON: ClassVar[Reason] = "paused"

    cause: str = ""

    def on_refused(self, ticket: Ticket | None, proven_seq: int, cause: str, seq: int, now: float) -> bool:
        """Take in a refusal. Returns whether it is certain by now that a person is needed."""
        if not self.is_news(ticket, proven_seq, now):
            return False
        if self.failures >= len(ASK_AGAIN_SECONDS):
            return True
        self.cause = cause
        self.close_until(now + ASK_AGAIN_SECONDS[self.failures], seq)
        return False

    def explain(self, ticket: Ticket, scope: ScopeView, now: float) -> Explanation:
        refused = f"the login of {scope.name} was refused ({self.cause})"
        if self.canary is None:
            return Explanation(f"{refused}; one session will ask again before it is held", self.probe_at)
        return Explanation(f"{refused}; {self.canary} is asking again", self.probe_at)

"""Doubt about a login: it was refused once, which may pass. Parallel CLIs that refresh one token meet such refusals.

One canary asks again after a minute, another after five. The third refusal in a row holds the account, and so does the
first one if there is no login at all. A held login is asked again once an hour, and as soon as `ask_again` is called.
A success of any session of the account ends the doubt and the hold.
"""

from typing import ClassVar

from paceline.core.gates.canary_gate import CanaryGate
from paceline.core.gates.gate import Explanation, ScopeView
from paceline.core.values.tickets import Ticket
from paceline.core.values.verdicts import Reason

ASK_AGAIN_SECONDS = (60.0, 300.0)
"""Waits after the first and the second refusal: a token is refreshed within seconds, and an incident at the provider
seldom outlasts five minutes. A revoked login costs two starts more."""
HELD_SECONDS = 3600.0
"""The wait while it is held: one that works again costs an hour of a night at most, a revoked one 24 starts a day."""


class LoginDoubt(CanaryGate):
    """An account whose login was refused, and may be accepted again. `cause` is what the provider said.

    `is_missing`: the CLI found no login, so a person must log in.
    """

    TAG = "login_doubt"
    REASON: ClassVar[Reason] = "paused"

    cause: str = ""
    is_missing: bool = False

    @property
    def is_held(self) -> bool:
        """Whether it was refused so often that a person is asked."""
        return self.is_closed and self.failures > len(ASK_AGAIN_SECONDS)

    def on_refused(
        self, ticket: Ticket | None, proven_seq: int, cause: str, seq: int, now: float, *, is_missing: bool
    ) -> bool:
        """Take in a refusal. Returns whether it was news."""
        is_first_missing = is_missing and not self.is_held
        if not (is_first_missing or self.is_news(ticket, proven_seq, now)):
            return False
        self.cause, self.is_missing = cause, is_missing
        if is_missing:
            self.failures = max(self.failures, len(ASK_AGAIN_SECONDS))
        waits = (*ASK_AGAIN_SECONDS, HELD_SECONDS)
        self.close_until(now + waits[min(self.failures, len(ASK_AGAIN_SECONDS))], seq)
        return True

    def ask_again(self, now: float) -> bool:
        """Let a canary go now. Returns False if the login is not held, or one is asking already."""
        if not self.is_held or self.canary is not None:
            return False
        self.probe_at = now
        return True

    def refuses(self, ticket: Ticket, scope: ScopeView, now: float) -> Reason | None:
        reason = super().refuses(ticket, scope, now)
        return "held" if reason is not None and self.is_held else reason

    def explain(self, ticket: Ticket, scope: ScopeView, now: float) -> Explanation:
        if self.is_held:
            return self._explain_hold(scope)
        refused = f"the login of {scope.name} was refused ({self.cause})"
        if self.canary is None:
            return Explanation(f"{refused}; one session will ask again before it is held", self.probe_at)
        return Explanation(f"{refused}; {self.canary} is asking again", self.probe_at)

    def _explain_hold(self, scope: ScopeView) -> Explanation:
        held = f"{scope.name} is held: {self.cause}"
        if self.canary is not None:
            return Explanation(f"{held}; {self.canary} is asking again", self.probe_at)
        if self.is_missing:  # waiting alone helps nobody, so no time is promised
            return Explanation(f"{held}; log in, then it is asked again by itself", None)
        return Explanation(f"{held}; one session asks again once an hour, and when its login changes", self.probe_at)

"""An outage: nobody answers, because the network, the provider's address or the agent's program is away.

The limits are not to blame, so none falls. Any answer, a refusal too, ends the outage.
"""

from collections.abc import Sequence
from typing import ClassVar

from paceline.core.gates.canary_gate import CanaryGate
from paceline.core.gates.gate import Explanation, GateEvent, ScopeView
from paceline.core.values.tickets import Ticket
from paceline.core.values.verdicts import Reason

FIRST_WAIT_SECONDS = 5.0
"""The wait after the first failure: most outages are a dropped connection that is back within seconds."""
LONGEST_WAIT_SECONDS = 300.0
"""The longest wait: one start in five minutes costs nothing, and after a night offline work continues soon enough."""
MOST_DOUBLINGS = 16
"""Where the doubling stops: the wait has reached its longest long before."""


class Outage(CanaryGate):
    """A scope that cannot be reached. The wait before each canary doubles from 5 s to 5 min."""

    TAG = "outage"
    REASON: ClassVar[Reason] = "unreachable"

    cause: str = ""
    """What was tried last, and how it failed; empty if that is not known."""

    def on_unreachable(
        self, ticket: Ticket | None, proven_seq: int, retry_after: float | None, seq: int, now: float
    ) -> bool:
        """Take in that nobody answered. Returns whether that is news; else only a longer stated wait counts."""
        stated = retry_after or 0.0
        if not self.is_news(ticket, proven_seq, now):
            if self.probe_at is not None and self.canary is None:
                self.probe_at = max(self.probe_at, now + stated)
            return False
        backoff = min(FIRST_WAIT_SECONDS * 2 ** min(self.failures, MOST_DOUBLINGS), LONGEST_WAIT_SECONDS)
        self.close_until(now + max(backoff, stated), seq)
        return True

    def explain(self, ticket: Ticket, scope: ScopeView, now: float) -> Explanation:
        cause = f" ({self.cause})" if self.cause else ""
        if self.canary is None:
            return Explanation(f"{scope.name} cannot be reached{cause}; one session will try it first", self.probe_at)
        return Explanation(f"{scope.name} could not be reached{cause}; {self.canary} is trying it now", self.probe_at)

    def on_answer(self, scope: ScopeView, now: float) -> Sequence[GateEvent]:
        return self.lift()

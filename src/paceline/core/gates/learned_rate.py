"""A request or token rate learnt from refusals, mirrored so that runs wait instead of being refused.

At a refusal the provider's bucket is empty. So what went through between two refusals, over the time between
them, is its rate: two of them tell it, and it is tried a little faster from then on until the next. Sessions
are not counted: it is their runs that use a rate.
"""

from typing import ClassVar

from paceline.core.gates.window_budget import LARGE_RUN
from paceline.core.values.relative_time import Timed
from paceline.core.values.scopes import SESSIONS
from paceline.core.values.tickets import Ticket

SHORTEST_MEASURE_SECONDS = 60.0
LONGEST_MEASURE_SECONDS = 600.0
"""Of a guess that was far too fast; in a longer time there may have been little to run."""
SLOWER = 0.98
MOST_SLOWER = 0.5
FASTER_PER_SECOND = 0.01 / 60.0
GUESS_FASTER_PER_SECOND = 0.25 / 60.0
MOST_FASTER = 4.0
DEPTH_SECONDS = 30.0
LEAST_RATE = 1.0 / 60.0


class LearntRate(Timed):
    """`level` is what may be used at `seen_at`; `spent` is what was used since the last refusal."""

    relative_times: ClassVar[tuple[str, ...]] = ("seen_at", "refused_at")

    cause: str
    rate: float
    seen_at: float
    refused_at: float
    level: float = 0.0
    spent: float = 0.0
    mean: float = 0.0
    """Tokens of a run; 0 where runs are counted, because none has said what it used."""
    is_measured: bool = False

    @classmethod
    def first(cls, cause: str, spent: float, seconds: float, mean: float, now: float) -> "LearntRate":
        """From one refusal only what was used before it is known; the next one corrects it."""
        return cls(cause=cause, rate=max(LEAST_RATE, spent / seconds), seen_at=now, refused_at=now, mean=mean)

    def on_refused(self, now: float) -> None:
        """The bucket is empty: what was used since it last was, is what flowed in."""
        seconds = now - self.refused_at
        measured = self.spent / seconds if seconds > 0 else 0.0
        slowest = self._rate * MOST_SLOWER
        longest = 0.0 if self.is_measured else LONGEST_MEASURE_SECONDS
        self.is_measured = seconds >= SHORTEST_MEASURE_SECONDS and (measured >= slowest or seconds <= longest)
        if not self.is_measured:  # so short a time says little, and far less than may go is what nobody wanted to use
            measured = min(max(measured, slowest), self._rate * SLOWER)
        self.rate = max(LEAST_RATE, measured)
        self.level, self.spent, self.seen_at, self.refused_at = 0.0, 0.0, now, now

    def ready_at(self, ticket: Ticket, now: float) -> float | None:
        """When the ticket may go; None: now. All wait for the same: what a large run would use."""
        if SESSIONS in ticket.scopes or now >= self.next_at:
            return None
        return self.next_at

    @property
    def next_at(self) -> float:
        """When the next may go. Looking changes nothing: only use and refusals do."""
        rate = self._rate
        need = self.mean * LARGE_RUN if self.mean else 1.0
        return self.seen_at + max(0.0, min(need, rate * DEPTH_SECONDS) - self.level) / rate

    def on_grant(self, ticket: Ticket, now: float) -> None:
        if SESSIONS not in ticket.scopes:
            self._use(self._need(ticket), now)

    def on_tokens(self, ticket: Ticket, tokens: int, now: float) -> None:
        """What a run has used takes the place of what it was expected to use."""
        if self.mean and SESSIONS not in ticket.scopes:
            self._use(tokens - self._need(ticket), now)
            self.mean += 0.05 * (tokens - self.mean)

    def _use(self, amount: float, now: float) -> None:
        """What is owed is forgotten beyond the depth, so that nobody waits for longer than a minute."""
        rate, depth = self._rate, self._rate * DEPTH_SECONDS
        filled = min(depth, self.level + max(0.0, now - self.seen_at) * rate)
        self.level, self.seen_at = max(-depth, filled - amount), max(now, self.seen_at)
        self.spent += amount

    def _need(self, ticket: Ticket) -> float:
        if not self.mean:
            return 1.0
        return self.mean if ticket.tokens is None else float(ticket.tokens)

    @property
    def _rate(self) -> float:
        """A little faster the longer nothing was refused; much faster while it is a guess."""
        faster = FASTER_PER_SECOND if self.is_measured else GUESS_FASTER_PER_SECOND
        return self.rate * (1.0 + min(MOST_FASTER, faster * max(0.0, self.seen_at - self.refused_at)))

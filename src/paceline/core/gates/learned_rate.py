"""Request and token rates learnt from refusals, mirrored so that runs wait instead of being refused.

At a refusal the provider's bucket is empty. So what went through between two refusals, over the time between
them, is its rate: two of them show it, and a little more is tried from then on until the next refusal. Sessions
are not counted: it is their runs that use a rate.
"""

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from paceline.core.gates.gate import Explanation, Gate, GateEvent, ScopeView, earliest
from paceline.core.gates.header_budget import LARGE_RUN
from paceline.core.values.relative_time import RelativeTimes
from paceline.core.values.scopes import SESSIONS
from paceline.core.values.tickets import Ticket
from paceline.core.values.verdicts import Reason

SHORTEST_MEASURE_SECONDS = 60.0
"""Over less than a minute a burst would pass for a rate."""
LONGEST_MEASURE_SECONDS = 600.0
"""How long a guess that was far too fast may be corrected; in a longer time there may have been little to run."""
SLOWER = 0.98
"""Where the time was too short to measure, the rate falls a little: the refusal shows that it was too high."""
MOST_SLOWER = 0.5
"""One measurement lowers the rate to no less than half: a lower one means that little wanted to run."""
FASTER_PER_SECOND = 0.01 / 60.0
"""A measured rate is tried one per cent faster each minute: a refusal or so an hour finds a rate that has grown."""
GUESS_FASTER_PER_SECOND = 0.25 / 60.0
"""A guess is tried a quarter faster each minute, because it is off by a factor rather than by per cents."""
MOST_FASTER = 4.0
"""How far above its rate a scope is tried without a refusal: five times, then the next measurement decides."""
DEPTH_SECONDS = 30.0
"""The bucket holds so many seconds of the rate: it allows bursts, and a debt is paid within half a minute."""
LEAST_RATE = 1.0 / 60.0
"""One a minute: a lower rate would stop the scope for longer than a pause does."""
NEW_SHARE = 0.05


class LearnedRate(RelativeTimes):
    """One rate. `level` is what may be used at `seen_at`; `spent` is what was used since the last refusal."""

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
    def first(cls, cause: str, spent: float, seconds: float, mean: float, now: float) -> "LearnedRate":
        """Guess from one refusal what was used before it; the next refusal corrects the guess."""
        return cls(cause=cause, rate=max(LEAST_RATE, spent / seconds), seen_at=now, refused_at=now, mean=mean)

    def on_refused(self, now: float) -> None:
        """Measure the rate: the bucket is empty, so what was used since it last was, is what flowed in."""
        seconds = now - self.refused_at
        measured = self.spent / seconds if seconds > 0 else 0.0
        slowest = self._rate * MOST_SLOWER
        longest = 0.0 if self.is_measured else LONGEST_MEASURE_SECONDS
        self.is_measured = seconds >= SHORTEST_MEASURE_SECONDS and (measured >= slowest or seconds <= longest)
        if not self.is_measured:  # so short a time says little, and far less than may go is what nobody wanted to use
            measured = min(max(measured, slowest), self._rate * SLOWER)
        self.rate = max(LEAST_RATE, measured)
        self.level, self.spent, self.seen_at, self.refused_at = 0.0, 0.0, now, now

    @property
    def interval(self) -> float:
        """Seconds between two runs of the mean size."""
        return (self.mean or 1.0) / self.rate

    @property
    def next_at(self) -> float:
        """When the next run may go. All wait for the same: what a large run would use."""
        rate = self._rate
        need = self.mean * LARGE_RUN if self.mean else 1.0
        return self.seen_at + max(0.0, min(need, rate * DEPTH_SECONDS) - self.level) / rate

    def on_grant(self, ticket: Ticket, now: float) -> None:
        self._use(self._need(ticket), now)

    def on_tokens(self, ticket: Ticket, tokens: int, now: float) -> None:
        """Replace what the run was expected to use by what it used."""
        if self.mean:
            self._use(tokens - self._need(ticket), now)
            self.mean += NEW_SHARE * (tokens - self.mean)

    def _use(self, amount: float, now: float) -> None:
        """Take the amount out. A debt beyond the depth is forgotten, so that nobody waits for longer than a minute."""
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


class LearnedRates(Gate):
    """The rates of one scope by the cause of the refusals that taught them: `requests` or `tokens`."""

    TAG = "learned_rate"

    rates: dict[str, LearnedRate] = msgspec.field(default_factory=dict)

    def refuses(self, ticket: Ticket, scope: ScopeView, now: float) -> Reason | None:
        return None if self._binding(ticket, now) is None else "pacing"

    def explain(self, ticket: Ticket, scope: ScopeView, now: float) -> Explanation:
        rate = self._binding(ticket, now)
        assert rate is not None
        return Explanation(f"{scope.name} is held to the rate of {rate.cause} that its refusals taught", rate.next_at)

    def refuses_only_this(self, ticket: Ticket, scope: ScopeView, now: float) -> bool:
        return self._binding(ticket, now) is not None

    def on_grant(self, ticket: Ticket, scope: ScopeView, now: float, *, takes_place: bool) -> Sequence[GateEvent]:
        if SESSIONS not in ticket.scopes:
            for rate in self.rates.values():
                rate.on_grant(ticket, now)
        return ()

    def on_tokens(self, ticket: Ticket | None, granted_at: float, tokens: int, scope: ScopeView, now: float) -> bool:
        if ticket is None:
            return False
        if SESSIONS not in ticket.scopes:
            for rate in self.rates.values():
                rate.on_tokens(ticket, tokens, now)
        return True

    def next_wake(self, scope: ScopeView, now: float, *, has_waiters: bool) -> float | None:
        return earliest(now, *(rate.next_at for rate in self.rates.values())) if has_waiters else None

    def shift(self, seconds: float) -> None:
        for rate in self.rates.values():
            rate.shift(seconds)

    def _binding(self, ticket: Ticket, now: float) -> LearnedRate | None:
        """Return the rate that holds the ticket back."""
        if SESSIONS in ticket.scopes:
            return None
        return next((rate for rate in self.rates.values() if now < rate.next_at), None)

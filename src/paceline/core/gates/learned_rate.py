"""Request and token rates learnt from refusals, mirrored so that runs wait instead of being refused.

At a refusal the provider's bucket is empty. So what went through between two refusals, over the time between
them, is its rate: two of them show it, and a little more is tried from then on until the next refusal. Sessions
are not counted: their runs use the rate.
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


class LearnedRate(RelativeTimes):
    """One rate, in tokens or in runs a second.

    `level` is what may be used at `seen_at`; `spent` is what was used since the last refusal. `mean_tokens` is the
    scope's estimate; a rate counts runs where no run had reported its tokens at the first refusal.
    """

    relative_times: ClassVar[tuple[str, ...]] = ("seen_at", "refused_at")

    cause: str
    rate: float
    seen_at: float
    refused_at: float
    level: float = 0.0
    spent: float = 0.0
    counts_tokens: bool = False
    is_measured: bool = False

    @classmethod
    def first(cls, cause: str, runs: int, seconds: float, mean_tokens: float, now: float) -> "LearnedRate":
        """Guess from one refusal what was used before it; the next refusal corrects the guess."""
        counts_tokens = cause == "tokens" and mean_tokens > 0
        spent = runs * mean_tokens if counts_tokens else float(runs)
        rate = max(LEAST_RATE, spent / seconds)
        return cls(cause=cause, rate=rate, seen_at=now, refused_at=now, counts_tokens=counts_tokens)

    def on_refused(self, now: float) -> None:
        """Measure the rate: the bucket is empty now, so what was used since it was last empty is what flowed in."""
        seconds = now - self.refused_at
        measured = self.spent / seconds if seconds > 0 else 0.0
        slowest = self._rate * MOST_SLOWER
        longest = 0.0 if self.is_measured else LONGEST_MEASURE_SECONDS
        self.is_measured = seconds >= SHORTEST_MEASURE_SECONDS and (measured >= slowest or seconds <= longest)
        if not self.is_measured:  # the time was too short, or there was little demand
            measured = min(max(measured, slowest), self._rate * SLOWER)
        self.rate = max(LEAST_RATE, measured)
        self.level, self.spent, self.seen_at, self.refused_at = 0.0, 0.0, now, now

    def interval(self, mean_tokens: float) -> float:
        """Return the seconds between two runs of the mean size."""
        return self._run(mean_tokens) / self.rate

    def next_at(self, mean_tokens: float) -> float:
        """Return when the next run may go. All runs wait for the amount that a large run would use."""
        rate = self._rate
        need = self._run(mean_tokens) * (LARGE_RUN if self.counts_tokens else 1.0)
        return self.seen_at + max(0.0, min(need, rate * DEPTH_SECONDS) - self.level) / rate

    def on_grant(self, ticket: Ticket, mean_tokens: float, now: float) -> None:
        """Take out what the run is expected to use."""
        self._use(self._need(ticket, mean_tokens), now)

    def on_tokens(self, ticket: Ticket, tokens: int, mean_tokens: float, now: float) -> None:
        """Replace what the run was expected to use by what it used."""
        if self.counts_tokens:
            self._use(tokens - self._need(ticket, mean_tokens), now)

    def _use(self, amount: float, now: float) -> None:
        """Take the amount out. A debt beyond the depth is forgotten, so that no run waits for longer than a minute."""
        rate, depth = self._rate, self._rate * DEPTH_SECONDS
        filled = min(depth, self.level + max(0.0, now - self.seen_at) * rate)
        self.level, self.seen_at = max(-depth, filled - amount), max(now, self.seen_at)
        self.spent += amount

    def _need(self, ticket: Ticket, mean_tokens: float) -> float:
        known = self.counts_tokens and ticket.tokens is not None
        return float(ticket.tokens or 0) if known else self._run(mean_tokens)

    def _run(self, mean_tokens: float) -> float:
        """Return what a run uses on average, in the rate's own unit."""
        return mean_tokens if self.counts_tokens else 1.0

    @property
    def _rate(self) -> float:
        """Return the rate to try: a little faster the longer nothing was refused, much faster while it is a guess."""
        faster = FASTER_PER_SECOND if self.is_measured else GUESS_FASTER_PER_SECOND
        return self.rate * (1.0 + min(MOST_FASTER, faster * max(0.0, self.seen_at - self.refused_at)))


class LearnedRates(Gate):
    """The rates of one scope by the cause of the refusals that taught them: `requests` or `tokens`."""

    TAG = "learned_rate"

    rates: dict[str, LearnedRate] = msgspec.field(default_factory=dict)

    def refuses(self, ticket: Ticket, scope: ScopeView, now: float) -> Reason | None:
        return None if self._binding(ticket, scope, now) is None else "pacing"

    def explain(self, ticket: Ticket, scope: ScopeView, now: float) -> Explanation:
        rate = self._binding(ticket, scope, now)
        assert rate is not None
        detail = f"{scope.name} keeps to the rate of {rate.cause} learnt from its refusals"
        return Explanation(detail, rate.next_at(scope.tokens.mean))

    def refuses_only_this(self, ticket: Ticket, scope: ScopeView, now: float) -> bool:
        return self._binding(ticket, scope, now) is not None

    def on_grant(self, ticket: Ticket, scope: ScopeView, now: float, *, takes_place: bool) -> Sequence[GateEvent]:
        if SESSIONS not in ticket.scopes:
            for rate in self.rates.values():
                rate.on_grant(ticket, scope.tokens.mean, now)
        return ()

    def on_tokens(self, ticket: Ticket | None, granted_at: float, tokens: int, scope: ScopeView, now: float) -> bool:
        if ticket is None:
            return False
        if SESSIONS not in ticket.scopes:
            for rate in self.rates.values():
                rate.on_tokens(ticket, tokens, scope.tokens.mean, now)
        return True

    def next_wake(self, scope: ScopeView, now: float, *, has_waiters: bool) -> float | None:
        mean = scope.tokens.mean
        return earliest(now, *(rate.next_at(mean) for rate in self.rates.values())) if has_waiters else None

    def shift(self, seconds: float) -> None:
        for rate in self.rates.values():
            rate.shift(seconds)

    def _binding(self, ticket: Ticket, scope: ScopeView, now: float) -> LearnedRate | None:
        """Return the rate that holds the ticket back."""
        if SESSIONS in ticket.scopes:
            return None
        mean = scope.tokens.mean
        return next((rate for rate in self.rates.values() if now < rate.next_at(mean)), None)

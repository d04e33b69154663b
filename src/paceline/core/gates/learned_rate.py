"""Request and token rates learnt from refusals, mirrored so that runs wait instead of being refused.

At a refusal the provider's bucket is empty. So what went through between two refusals, over the time between
them, is its rate: two of them show it, and a little more is tried from then on until the next refusal. Only time in
which runs waited for the rate counts: idle time shows nothing of it. Sessions are not counted: their runs use the rate.
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
MOST_FASTER = 4.0
"""How far above its rate a scope is tried without a refusal: five times, then the next measurement decides."""
GUESS_DOUBLES_SECONDS = 30.0
"""A guess is tried twice as fast after each half minute without a refusal: it is off by a factor, not by per cents."""
GUESS_LASTS_SECONDS = 120.0
"""A guess is forgotten after two minutes without a refusal. It is tried sixteen times as fast by then."""
RATE_LASTS_SECONDS = 600.0
"""A measured rate under which nothing ran for ten minutes is forgotten: one refused burst brings it back."""
MOST_IDLE = 0.1
"""The share of idle time between two refusals up to which what passed between them is the rate."""
BY_RETRY_AFTER = 0.5
"""A wait that the provider asks for lets at least one run pass; the one after it may have to wait as long again."""
DEPTH_SECONDS = 30.0
"""The bucket holds so many seconds of the rate: it allows bursts, and a debt is paid within half a minute."""
LEAST_RATE = 1.0 / 60.0
"""One a minute: a lower rate would stop the scope for longer than a pause does."""


class LearnedRate(RelativeTimes):
    """One rate, in tokens or in runs a second.

    `level` is what may be used at `seen_at`; `spent` is what was used since the last refusal. For `waited` seconds of
    the time since then somebody waited for the scope, up to `wanted_at`. `floor` is what the provider's headers and
    waits show that it allows at least. `mean_tokens` is the scope's estimate; a rate counts runs where no run had
    reported its tokens at the first refusal.
    """

    relative_times: ClassVar[tuple[str, ...]] = ("seen_at", "refused_at", "wanted_at", "since")

    cause: str
    rate: float
    seen_at: float
    refused_at: float
    level: float = 0.0
    spent: float = 0.0
    counts_tokens: bool = False
    is_measured: bool = False
    waited: float = 0.0
    wanted_at: float | None = None
    is_wanted: bool = True
    """Whether somebody waited for the scope when a run last entered."""
    since: float | None = None
    floor: float = 0.0

    @classmethod
    def first(cls, cause: str, runs: int, seconds: float, mean_tokens: float, now: float) -> "LearnedRate":
        """Guess from one refusal what was used before it; the next refusal corrects the guess."""
        counts_tokens = cause == "tokens" and mean_tokens > 0
        spent = runs * mean_tokens if counts_tokens else float(runs)
        rate = max(LEAST_RATE, spent / seconds)
        return cls(cause=cause, rate=rate, seen_at=now, refused_at=now, counts_tokens=counts_tokens, since=now)

    def bound(self, retry_after: float | None, stated_per_second: float, mean_tokens: float) -> None:
        """Never be slower than the provider's headers state, nor, for a guess, than its stated waits allow."""
        if stated_per_second and self.cause == "tokens" and not self.counts_tokens:
            stated_per_second = stated_per_second / mean_tokens if mean_tokens else 0.0
        by_wait = BY_RETRY_AFTER * self._run(mean_tokens) / retry_after if retry_after else 0.0
        self.floor = max(stated_per_second, 0.0 if self.is_measured else by_wait)
        self.rate = max(self.rate, self.floor)

    def on_refused(self, now: float) -> None:
        """Measure the rate: the bucket is empty now, so what was used since it was last empty is what flowed in."""
        seconds, tried = now - self.refused_at, self.per_second
        self._count_wait(now)
        was_idle = seconds - self.waited > seconds * MOST_IDLE  # the bucket filled up, and that passed as well
        measured = tried * SLOWER if was_idle else self._measured(seconds, tried)
        self.rate = max(LEAST_RATE, measured)
        self.level, self.spent, self.seen_at, self.refused_at = 0.0, 0.0, now, now
        self.waited, self.wanted_at, self.is_wanted = 0.0, None, True

    def _count_wait(self, now: float) -> None:
        """Count the time since the last run as waited for. In a longer time the scope was closed or paused."""
        before = self.refused_at if self.wanted_at is None else self.wanted_at
        if self.is_wanted:
            self.waited += min(max(0.0, now - before), DEPTH_SECONDS)
        self.wanted_at = max(now, before)

    def _measured(self, seconds: float, tried: float) -> float:
        """Return the rate by what passed between two refusals."""
        measured = self.spent / seconds if seconds > 0 else 0.0
        slowest = tried * MOST_SLOWER
        longest = 0.0 if self.is_measured else LONGEST_MEASURE_SECONDS
        self.is_measured = seconds >= SHORTEST_MEASURE_SECONDS and (measured >= slowest or seconds <= longest)
        if self.is_measured:
            return measured
        return min(max(measured, slowest), tried * SLOWER)  # the time was too short, or there was little demand

    def interval(self, mean_tokens: float) -> float:
        """Return the seconds between two runs of the mean size."""
        return self._run(mean_tokens) / self.per_second

    def forgotten_at(self) -> float:
        """Return when the rate is forgotten: without a refusal, and for a measured one without a run."""
        if self.is_measured:
            return self.seen_at + RATE_LASTS_SECONDS
        return self.refused_at + GUESS_LASTS_SECONDS

    def next_at(self, mean_tokens: float) -> float:
        """Return when the next run may go. All runs wait for the amount that a large run would use."""
        rate = self.per_second
        need = self._run(mean_tokens) * (LARGE_RUN if self.counts_tokens else 1.0)
        return self.seen_at + max(0.0, min(need, rate * DEPTH_SECONDS) - self.level) / rate

    def on_grant(self, ticket: Ticket, mean_tokens: float, now: float, *, is_wanted: bool = True) -> None:
        """Take out what the run is expected to use. `is_wanted` is whether others wait for the scope."""
        self._count_wait(now)
        self.is_wanted = is_wanted
        self._use(self._need(ticket, mean_tokens), now)

    def on_tokens(self, ticket: Ticket, tokens: int, mean_tokens: float, now: float) -> None:
        """Replace what the run was expected to use by what it used."""
        if self.counts_tokens:
            self._use(tokens - self._need(ticket, mean_tokens), now)

    def _use(self, amount: float, now: float) -> None:
        """Take the amount out. A debt beyond the depth is forgotten, so that no run waits for longer than a minute."""
        rate, depth = self.per_second, self.per_second * DEPTH_SECONDS
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
    def per_second(self) -> float:
        """Return the rate to try: a little faster the longer nothing was refused, much faster while it is a guess."""
        seconds = max(0.0, self.seen_at - self.refused_at)
        if self.is_measured:
            return self.rate * (1.0 + min(MOST_FASTER, FASTER_PER_SECOND * seconds))
        return float(self.rate * 2.0 ** (min(seconds, GUESS_LASTS_SECONDS) / GUESS_DOUBLES_SECONDS))


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
        self._forget(now)
        if SESSIONS not in ticket.scopes:
            for rate in self.rates.values():
                rate.on_grant(ticket, scope.tokens.mean, now, is_wanted=scope.waiting > 0)
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
        times = [rate.forgotten_at() for rate in self.rates.values()]
        return earliest(now, *times, *(rate.next_at(mean) for rate in self.rates.values() if has_waiters))

    def on_time(self, scope: ScopeView, now: float) -> Sequence[GateEvent]:
        self._forget(now)
        return ()

    @property
    def is_idle(self) -> bool:
        return not self.rates

    def _forget(self, now: float) -> None:
        for cause in [cause for cause, rate in self.rates.items() if now >= rate.forgotten_at()]:
            del self.rates[cause]

    def shift(self, seconds: float) -> None:
        for rate in self.rates.values():
            rate.shift(seconds)

    def _binding(self, ticket: Ticket, scope: ScopeView, now: float) -> LearnedRate | None:
        """Return the rate that holds the ticket back."""
        if SESSIONS in ticket.scopes:
            return None
        mean = scope.tokens.mean
        return next((rate for rate in self.rates.values() if now < rate.next_at(mean)), None)

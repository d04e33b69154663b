"""Rates per minute, mirrored so that runs wait instead of being refused: set by a person, or learnt from refusals.

Sessions are not counted: they last for hours, and their runs use the rate.
"""

from collections.abc import Collection, Sequence
from typing import ClassVar

import msgspec

from paceline.core.gates.gate import Explanation, Gate, GateEvent, ScopeView, earliest
from paceline.core.values.fields import RelativeTimes
from paceline.core.values.scopes import SESSIONS
from paceline.core.values.settings import Rate
from paceline.core.values.tickets import LaneKey, Reason, Ticket, lane_key

RATE_SPAN_SECONDS = 60.0
"""Rates are per minute, as providers state them. Over less than a minute a burst would pass for a rate."""
ENTRY_SECONDS = 1.0
"""What started within a second is counted as one: a minute takes at most sixty entries, however busy it was."""
FIRST_GUESS_TOKENS = 1
"""The charge of a run without a stated size before any run has reported its tokens: the least there is."""


class Entry(msgspec.Struct):
    """What started between two moments less than a second apart."""

    first_at: float
    last_at: float
    guess: int
    """The charge of each run that stated no size."""
    runs: int = 0
    tokens: int = 0

    @property
    def leaves_at(self) -> float:
        return self.last_at + RATE_SPAN_SECONDS


class RateLimit(Gate):
    """The last minute of a scope that has a rate."""

    TAG = "rate_limit"

    rate: Rate
    entries: list[Entry] = msgspec.field(default_factory=list)
    kept_for: LaneKey | None = None
    """The lane whose head was the first to be refused for its tokens.

    No smaller run of another lane may pass it, or a large run would wait forever.
    """
    kept_tokens: int = 0
    runs: int = 0
    """The runs of all entries: each call asks for the sum."""
    tokens: int = 0

    def continued(self, rate: Rate, lanes: Collection[LaneKey]) -> "RateLimit":
        """Return the gate that continues the same minute under the present configured rate, after a restart."""
        kept_for = self.kept_for if self.kept_for in lanes else None
        kept_tokens = self.kept_tokens if kept_for is not None else 0
        return msgspec.structs.replace(self, rate=rate, kept_for=kept_for, kept_tokens=kept_tokens)

    def refuses(self, ticket: Ticket, scope: ScopeView, now: float) -> Reason | None:
        return None if self._obstacle(ticket, scope, now) is None else "pacing"

    def explain(self, ticket: Ticket, scope: ScopeView, now: float) -> Explanation:
        what, at = self._obstacle(ticket, scope, now) or ("runs", now)
        return Explanation(f"{scope.name} {self._describe(what)}", at)

    def refuses_only_this(self, ticket: Ticket, scope: ScopeView, now: float) -> bool:
        """Return whether tokens are kept for another lane, whose head may still enter."""
        return self.keeps_for_another(ticket)

    def is_idle(self, now: float) -> bool:
        self._expire(now)
        return not self.entries

    def on_grant(self, ticket: Ticket, scope: ScopeView, now: float, *, takes_place: bool) -> Sequence[GateEvent]:
        if SESSIONS in ticket.scopes:
            return ()
        entry = self._open_entry(now)
        if entry is None:
            entry = Entry(first_at=now, last_at=now, guess=self._guess(scope.tokens.mean, now))
            self.entries.append(entry)
        entry.last_at = max(entry.last_at, now)
        _count(self, entry, 1, entry.guess if ticket.tokens is None else ticket.tokens)
        return ()

    def on_tokens(self, ticket: Ticket | None, granted_at: float, tokens: int, scope: ScopeView, now: float) -> bool:
        """Replace the expected use of the run by its real use. If it used less, a waiter may now be able to enter."""
        if ticket is None:
            return False
        if SESSIONS not in ticket.scopes:
            self._correct(ticket, granted_at, tokens)
        return True

    def _correct(self, ticket: Ticket, granted_at: float, tokens: int) -> None:
        for entry in reversed(self.entries):  # most runs end soon after they start
            if entry.first_at <= granted_at <= entry.last_at:
                charged = entry.guess if ticket.tokens is None else ticket.tokens
                _count(self, entry, 0, max(-entry.tokens, tokens - charged))
                return

    def next_wake(self, scope: ScopeView, now: float, *, has_waiters: bool) -> float | None:
        if not has_waiters:
            return None
        self._expire(now)
        return self.entries[0].leaves_at if self.entries else None

    def shift(self, seconds: float) -> None:
        for entry in self.entries:
            entry.first_at -= seconds
            entry.last_at -= seconds

    # -- tokens kept for the first in a lane -------------------------------------------------

    def keep_tokens(self, ticket: Ticket, scope: ScopeView, now: float) -> None:
        """Keep tokens for the ticket if it is the first that waits for them."""
        held = self._obstacle(ticket, scope, now) if self.kept_for is None else None
        if held is not None and held[0] == "tokens" and self.rate.tpm is not None:
            self.kept_tokens = self._needed(ticket, self.rate.tpm, scope, now)
            self.kept_for = lane_key(ticket)

    def free_tokens(self, ticket: Ticket) -> None:
        """Stop keeping tokens for the ticket: it has entered, has left, or waits for another scope."""
        if self.kept_for == lane_key(ticket):
            self.kept_for, self.kept_tokens = None, 0

    def keeps_for_another(self, ticket: Ticket) -> bool:
        """Return whether tokens are kept for another lane than the ticket's."""
        return self.kept_for is not None and self.kept_for != lane_key(ticket)

    # -- the window ----------------------------------------------------------------------------

    def _obstacle(self, ticket: Ticket, scope: ScopeView, now: float) -> tuple[str, float] | None:
        """Return what the ticket has to wait for, `runs` or `tokens`, and until when at least."""
        if SESSIONS in ticket.scopes:
            return None
        self._expire(now)
        rpm, tpm = self.rate.rpm, self.rate.tpm
        waits = []
        if rpm is not None and (over := self.runs + 1 - rpm) > 0:
            waits.append((_time_until_gone(self.entries, "runs", over, now), "runs"))
        if tpm is not None and (over := self.tokens + self._needed(ticket, tpm, scope, now) - tpm) > 0:
            waits.append((_time_until_gone(self.entries, "tokens", over, now), "tokens"))
        if not waits:
            return None
        at, what = max(waits)
        return what, at

    def _describe(self, what: str) -> str:
        if what == "runs":
            return f"has started {self.runs:,} runs in the last minute (rpm {self.rate.rpm:,})"
        return f"has used {self.tokens:,} tokens in the last minute (tpm {self.rate.tpm:,})"

    def _needed(self, ticket: Ticket, tpm: int, scope: ScopeView, now: float) -> int:
        """Return what the ticket needs. A run that is larger than a whole minute goes when the window is empty.

        What is kept for another lane counts while that lane could enter. In a full scope it cannot, and the runs of
        the sessions that fill it must pass, or nobody ever would.
        """
        own = min(tpm, self._guess(scope.tokens.mean, now) if ticket.tokens is None else ticket.tokens)
        return own + self.kept_tokens if self.keeps_for_another(ticket) and not scope.is_full else own

    def _guess(self, mean_tokens: float, now: float) -> int:
        """Return the charge of a run without a stated size.

        It is fixed within an entry, so that what was charged is known when the run reports what it used.
        """
        entry = self._open_entry(now)
        return entry.guess if entry is not None else max(FIRST_GUESS_TOKENS, round(mean_tokens))

    def _open_entry(self, now: float) -> Entry | None:
        last = self.entries[-1] if self.entries else None
        return last if last is not None and now - last.first_at < ENTRY_SECONDS else None

    def _expire(self, now: float) -> None:
        while self.entries and self.entries[0].leaves_at <= now:
            gone = self.entries.pop(0)
            self.runs -= gone.runs
            self.tokens -= gone.tokens


def _count(gate: RateLimit, entry: Entry, runs: int, tokens: int) -> None:
    """Add to an entry of the gate, and to the sums of all of them."""
    entry.runs += runs
    entry.tokens += tokens
    gate.runs += runs
    gate.tokens += tokens


def _time_until_gone(entries: list[Entry], field: str, over: int, now: float) -> float:
    """Return when this amount has left the window, at the latest when the last entry has."""
    at = now
    for entry in entries:
        at = entry.leaves_at
        over -= getattr(entry, field)
        if over <= 0:
            break
    return at


LARGE_RUN = 6.0
"""A large run in means: sizes have a heavy tail, and one that does not fit the budget is refused at a cost."""
LONGEST_MEASURE_SECONDS = 600.0
"""How long a guess that was far too fast may be corrected; in a longer time there may have been little to run."""
SLOWER = 0.98
"""Where nothing can be measured, the rate falls a little: the refusal shows that it was too high."""
MOST_SLOWER = 0.5
"""One measurement lowers the rate to no less than half: a lower one means that little wanted to run."""
FALLEN = 0.6
"""Where less than this share of a measured rate went through, the provider's rate has fallen.

More may be chance: a budget per minute refuses a large run in a busy minute, however little went before.
"""
FASTER = 0.005 / RATE_SPAN_SECONDS**2
"""A measured rate is tried faster by this, times the square of the time without a refusal.

That is 2 % after two minutes and half as much again after ten: it stays at the edge, and a slow one does not last.
"""
MOST_FASTER = 4.0
"""How far above its rate a scope is tried without a refusal: five times, then the next measurement decides."""
GUESS_DOUBLES_SECONDS = 30.0
"""A guess is tried twice as fast after each half minute in which none of the runs that may go is refused.

It is off by a factor, not by per cents.
"""
GUESS_LASTS_SECONDS = 120.0
"""A guess is forgotten after two minutes without a refusal. It is tried sixteen times as fast by then."""
RATE_LASTS_SECONDS = 600.0
"""A measured rate under which nothing ran for ten minutes is forgotten: one refused burst brings it back."""
MOST_IDLE = 0.1
"""Between two refusals, the use measures the rate only if the scope was idle for at most this share of the time."""
BY_RETRY_AFTER = 0.5
"""A wait that the provider asks for lets at least one run pass; the one after it may have to wait as long again."""
HELD_SECONDS = 1.0
"""A run that enters within a second of when the rate allowed it was held back by it. Else something else did."""
DEPTH_SECONDS = 30.0
"""The bucket holds so many seconds of the rate: it allows bursts, and a debt is paid within half a minute."""
LEAST_RATE = 1.0 / RATE_SPAN_SECONDS
"""One a minute: a lower rate would stop the scope for longer than a pause does."""


class LearnedRate(RelativeTimes):
    """One rate, in tokens or in runs a second.

    `level` is what may be used at `seen_at`; `spent` is what was used since `empty_at`, the refusal from which the rate
    is measured. For `waited` seconds of the time since then somebody waited for the scope, up to `wanted_at`. Nothing
    could run before `resumes_at`, the end of the pause after the last refusal. `floor` is what the provider's headers
    and waits show that it allows at least. `mean_tokens` is the scope's estimate; a rate counts runs where no run had
    reported its tokens at the first refusal.
    """

    relative_times: ClassVar[tuple[str, ...]] = (
        "seen_at",
        "empty_at",
        "refused_at",
        "resumes_at",
        "wanted_at",
        "since",
    )

    cause: str
    rate: float
    seen_at: float
    refused_at: float
    empty_at: float
    resumes_at: float
    level: float = 0.0
    spent: float = 0.0
    counts_tokens: bool = False
    is_measured: bool = False
    waited: float = 0.0
    wanted_at: float | None = None
    is_wanted: bool = True
    """Whether somebody waited for the scope when a run last entered."""
    tried_for: float = 0.0
    """The seconds since the last pause in which this rate held runs back."""
    since: float | None = None
    floor: float = 0.0

    @classmethod
    def first(cls, cause: str, runs: int, seconds: float, mean_tokens: float, now: float) -> "LearnedRate":
        """Guess from one refusal what was used before it; the next refusals correct the guess."""
        counts_tokens = cause == "tokens" and mean_tokens > 0
        spent = runs * mean_tokens if counts_tokens else float(runs)
        rate = max(LEAST_RATE, spent / seconds)
        return cls(cause, rate, now, now, now, now, counts_tokens=counts_tokens, since=now)

    def bound(self, retry_after: float | None, stated_per_second: float, mean_tokens: float) -> None:
        """Never be slower than the provider's headers state, nor, for a guess, than its stated waits allow."""
        if stated_per_second and self.cause == "tokens" and not self.counts_tokens:
            stated_per_second = stated_per_second / mean_tokens if mean_tokens else 0.0
        by_wait = BY_RETRY_AFTER * self._run(mean_tokens) / retry_after if retry_after else 0.0
        self.floor = max(stated_per_second, 0.0 if self.is_measured else by_wait)
        self.rate = max(self.rate, self.floor)

    def on_refused(self, now: float) -> None:
        """Measure the rate: the bucket is empty now, so what was used since it was last empty is what flowed in."""
        seconds, tried = now - self.empty_at, self.per_second
        self._count_wait(now)
        was_idle = seconds - self.waited > seconds * MOST_IDLE  # the bucket filled up, and that passed as well
        if was_idle:
            measured = tried * SLOWER
        elif seconds >= RATE_SPAN_SECONDS:
            measured = self._measured(seconds, tried)
        else:
            measured = self._corrected(seconds, tried)
        self.rate = max(LEAST_RATE, measured)
        self.level, self.seen_at, self.refused_at, self.resumes_at = 0.0, now, now, now
        self.wanted_at, self.is_wanted, self.tried_for = now, True, 0.0
        if was_idle or seconds >= RATE_SPAN_SECONDS:
            self.spent, self.waited, self.empty_at = 0.0, 0.0, now

    def _count_wait(self, now: float) -> None:
        """Count the time since the last run as waited for, up to a minute: for longer, the scope was closed."""
        before = self.refused_at if self.wanted_at is None else self.wanted_at
        if self.is_wanted:
            self.waited += min(max(0.0, now - before), RATE_SPAN_SECONDS)
        self.wanted_at = max(now, before)

    def _measured(self, seconds: float, tried: float) -> float:
        """Return the rate by what passed between two refusals."""
        measured = self.spent / seconds
        if self.is_measured and measured >= tried * FALLEN:
            return tried * SLOWER
        longest = 0.0 if self.is_measured else LONGEST_MEASURE_SECONDS
        slowest = tried * MOST_SLOWER
        self.is_measured = measured >= slowest or seconds <= longest
        return measured if self.is_measured else slowest  # there was little demand

    def _corrected(self, seconds: float, tried: float) -> float:
        """Return the rate after a refusal that came too soon to measure it: a guess may be off by a factor."""
        if self.is_measured:
            return tried * SLOWER
        measured = self.spent / seconds if seconds > 0 else 0.0
        return min(max(measured, tried * MOST_SLOWER), tried * SLOWER)

    def interval(self, mean_tokens: float) -> float:
        """Return the seconds between two runs of the mean size."""
        return self._run(mean_tokens) / self.per_second

    def forgotten_at(self) -> float:
        """Return when the rate is forgotten: without a refusal, and for a measured one without a run."""
        if self.is_measured:
            return self.seen_at + RATE_LASTS_SECONDS
        return self.resumes_at + GUESS_LASTS_SECONDS

    def next_at(self, mean_tokens: float) -> float:
        """Return when the next run may go. All runs wait for the amount that a large run would use."""
        rate = self.per_second
        need = self._run(mean_tokens) * (LARGE_RUN if self.counts_tokens else 1.0)
        return self.seen_at + max(0.0, min(need, rate * DEPTH_SECONDS) - self.level) / rate

    def on_grant(self, ticket: Ticket, mean_tokens: float, now: float, *, is_wanted: bool = True) -> None:
        """Take out what the run is expected to use. `is_wanted` is whether others wait for the scope."""
        self._count_wait(now)
        self.is_wanted = is_wanted
        if now < self.next_at(mean_tokens) + HELD_SECONDS:
            self.tried_for += max(0.0, now - max(self.seen_at, self.resumes_at))
        self._use(self._need(ticket, mean_tokens), now)

    def on_tokens(self, ticket: Ticket, tokens: int, mean_tokens: float, now: float) -> None:
        """Measure what the run used instead of what it was expected to use.

        The level stays: the provider counted the run when it began. A correction now would be a minute late, and turn
        an even pace into bursts and breaks.
        """
        if self.counts_tokens:
            self.spent += tokens - self._need(ticket, mean_tokens)

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
        if self.is_measured:
            return self.rate * (1.0 + min(MOST_FASTER, FASTER * self.tried_for**2))
        seconds = max(0.0, self.seen_at - self.resumes_at)
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

    def is_idle(self, now: float) -> bool:
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

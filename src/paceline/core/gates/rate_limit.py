"""A configured rate: so many runs and so many tokens in any minute, counted over a sliding window.

A burst may use a minute's worth at once; then each start waits until as much has left the window. What started
within a second is one entry that leaves with the last of it, so the count is never too low and no more than a
minute of seconds has to be remembered.

Sessions are not counted: they last for hours, and their runs use the rate.
"""

from collections.abc import Collection, Sequence

import msgspec

from paceline.core.gates.gate import Explanation, Gate, GateEvent, ScopeView
from paceline.core.values.rates import Rate
from paceline.core.values.scopes import SESSIONS
from paceline.core.values.tickets import LaneKey, Ticket, lane_key
from paceline.core.values.verdicts import Reason

RATE_SPAN_SECONDS = 60.0
"""Rates are per minute, as providers state them."""
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

    def restored(self, configured: Gate | None, lanes: Collection[LaneKey]) -> Gate | None:
        """Continue the same minute under the present configured rate. Without a rate, drop the gate."""
        if not isinstance(configured, RateLimit):
            return None
        kept_for = self.kept_for if self.kept_for in lanes else None
        kept_tokens = self.kept_tokens if kept_for is not None else 0
        return msgspec.structs.replace(
            self,
            rate=configured.rate,
            kept_for=kept_for,
            kept_tokens=kept_tokens,
            runs=sum(entry.runs for entry in self.entries),  # a snapshot of an earlier version has no sums
            tokens=sum(entry.tokens for entry in self.entries),
        )

    def refuses(self, ticket: Ticket, scope: ScopeView, now: float) -> Reason | None:
        return None if self._obstacle(ticket, scope, now) is None else "pacing"

    def explain(self, ticket: Ticket, scope: ScopeView, now: float) -> Explanation:
        what, at = self._obstacle(ticket, scope, now) or ("runs", now)
        return Explanation(f"{scope.name} {self._describe(what)}", at)

    def refuses_only_this(self, ticket: Ticket, scope: ScopeView, now: float) -> bool:
        """Return whether tokens are kept for another lane, whose head may still enter."""
        return self._keeps_for_another(ticket)

    def is_blank(self, now: float) -> bool:
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
        if self.kept_for == lane_key(ticket):
            self.kept_for, self.kept_tokens = None, 0

    @property
    def kept_lane(self) -> LaneKey | None:
        return self.kept_for

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

    def _keeps_for_another(self, ticket: Ticket) -> bool:
        return self.kept_for is not None and self.kept_for != lane_key(ticket)

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
        return own + self.kept_tokens if self._keeps_for_another(ticket) and not scope.is_full else own

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

"""Rates of one's own: so many runs and so many tokens in any minute, counted over a sliding window.

A burst may use a minute's worth at once; then each start waits until as much has left the window. What started
within a second is kept as one entry that leaves with the last of it, so the count is never too low and no more than a
minute of seconds has to be remembered.

Sessions are not counted: they last for hours, and it is their runs that use a rate.
"""

import msgspec

from paceline.core.gates.window_budget import RATE_SPAN_SECONDS
from paceline.core.values.scopes import SESSIONS
from paceline.core.values.tickets import Ticket
from paceline.core.values.validation import check_limit
from paceline.errors import InvalidLimit

ENTRY_SECONDS = 1.0
FIRST_GUESS_TOKENS = 1
"""What a run is taken to use before any has said what it used."""
NEW_SHARE = 0.1
LineKey = tuple[tuple[str, ...], str, int, str | None]


class Rate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How many runs and how many tokens may start in a minute; None: any number."""

    rpm: int | None = None
    tpm: int | None = None


def check_rate(value: object, name: str) -> Rate:
    """A `Rate`, or a dict with its fields."""
    if isinstance(value, Rate):
        fields = msgspec.structs.asdict(value)
    elif isinstance(value, dict) and value.keys() <= set(Rate.__struct_fields__):
        fields = value
    else:
        raise InvalidLimit(f"{name} must be a Rate, or a dict with rpm, tpm or both; got {value!r:.80}")
    return Rate(**{key: check_limit(number, f"{name}.{key}") for key, number in fields.items()})


class Entry(msgspec.Struct):
    """What started between two moments less than a second apart."""

    first_at: float
    last_at: float
    guess: int
    """What each run was charged that did not say what it would use."""
    runs: int = 0
    tokens: int = 0

    @property
    def leaves_at(self) -> float:
        return self.last_at + RATE_SPAN_SECONDS


class RateWindow(msgspec.Struct):
    """The last minute of a scope that has a rate."""

    rate: Rate
    entries: list[Entry] = []
    mean_tokens: float = 0.0
    kept_for: LineKey | None = None
    """The line whose head was the first to be refused for its tokens.

    Nobody passes it with a smaller run, or a large one would wait for ever.
    """
    kept_tokens: int = 0

    def under(self, rate: Rate, lines: set[LineKey]) -> "RateWindow":
        """The same minute after a restart, with the rate and the lines that there are now."""
        kept_for = self.kept_for if self.kept_for in lines else None
        kept_tokens = self.kept_tokens if kept_for is not None else 0
        return msgspec.structs.replace(self, rate=rate, kept_for=kept_for, kept_tokens=kept_tokens)

    def obstacle(self, ticket: Ticket, now: float) -> tuple[str, float] | None:
        """What the ticket has to wait for, `runs` or `tokens`, and until when at least."""
        if SESSIONS in ticket.scopes:
            return None
        self.expire(now)
        rpm, tpm = self.rate.rpm, self.rate.tpm
        waits = []
        if rpm is not None and (over := self.runs + 1 - rpm) > 0:
            waits.append((self._time_until_gone("runs", over, now), "runs"))
        if tpm is not None and (over := self.tokens + self._needed(ticket, tpm, now) - tpm) > 0:
            waits.append((self._time_until_gone("tokens", over, now), "tokens"))
        if not waits:
            return None
        at, what = max(waits)
        return what, at

    @property
    def runs(self) -> int:
        return sum(entry.runs for entry in self.entries)

    @property
    def tokens(self) -> int:
        return sum(entry.tokens for entry in self.entries)

    def described(self, what: str) -> str:
        """How full it is, in words."""
        if what == "runs":
            return f"has started {self.runs:,} runs in the last minute (rpm {self.rate.rpm:,})"
        return f"has used {self.tokens:,} tokens in the last minute (tpm {self.rate.tpm:,})"

    def keep_for(self, ticket: Ticket, now: float) -> None:
        """The ticket waits in line: if it is for tokens, and the first to do so, they are kept for it."""
        held = self.obstacle(ticket, now) if self.kept_for is None else None
        if held is not None and held[0] == "tokens" and self.rate.tpm is not None:
            self.kept_tokens = self._needed(ticket, self.rate.tpm, now)
            self.kept_for = line_of(ticket)

    def is_kept_for_another(self, ticket: Ticket) -> bool:
        """Whether tokens are kept for another line than the ticket's."""
        return self.kept_for is not None and self.kept_for != line_of(ticket)

    def let_go(self, ticket: Ticket) -> None:
        """The ticket has entered, has left its line, or waits for something else."""
        if self.kept_for == line_of(ticket):
            self.kept_for, self.kept_tokens = None, 0

    def on_grant(self, ticket: Ticket, now: float) -> None:
        if SESSIONS in ticket.scopes:
            return
        entry = self._open_entry(now)
        if entry is None:
            entry = Entry(first_at=now, last_at=now, guess=self._guess(now))
            self.entries.append(entry)
        entry.last_at = max(entry.last_at, now)
        entry.runs += 1
        entry.tokens += entry.guess if ticket.tokens is None else ticket.tokens

    def on_tokens(self, ticket: Ticket, granted_at: float, tokens: int) -> None:
        """What a run has used takes the place of what it was expected to use."""
        if SESSIONS in ticket.scopes:
            return
        self.mean_tokens = self.mean_tokens + NEW_SHARE * (tokens - self.mean_tokens) if self.mean_tokens else tokens
        for entry in self.entries:
            if entry.first_at <= granted_at <= entry.last_at:
                charged = entry.guess if ticket.tokens is None else ticket.tokens
                entry.tokens = max(0, entry.tokens + tokens - charged)
                return

    def expire(self, now: float) -> None:
        while self.entries and self.entries[0].leaves_at <= now:
            del self.entries[0]

    def next_change(self, now: float) -> float | None:
        """When some of it is to be had again."""
        self.expire(now)
        return self.entries[0].leaves_at if self.entries else None

    def shift(self, seconds: float) -> None:
        """The clock was set back: what started so long ago still did."""
        for entry in self.entries:
            entry.first_at -= seconds
            entry.last_at -= seconds

    def _needed(self, ticket: Ticket, tpm: int, now: float) -> int:
        """A run that is larger than a whole minute goes when the window is empty."""
        own = min(tpm, self._guess(now) if ticket.tokens is None else ticket.tokens)
        return own + self.kept_tokens if self.is_kept_for_another(ticket) else own

    def _guess(self, now: float) -> int:
        """Fixed within an entry, so that what was charged is known when the run says what it used."""
        entry = self._open_entry(now)
        return entry.guess if entry is not None else max(FIRST_GUESS_TOKENS, round(self.mean_tokens))

    def _open_entry(self, now: float) -> Entry | None:
        last = self.entries[-1] if self.entries else None
        return last if last is not None and now - last.first_at < ENTRY_SECONDS else None

    def _time_until_gone(self, field: str, over: int, now: float) -> float:
        """When so much has left the window; what is kept for another leaves when that one has had its turn."""
        at = now
        for entry in self.entries:
            at = entry.leaves_at
            over -= getattr(entry, field)
            if over <= 0:
                break
        return at


def line_of(ticket: Ticket) -> LineKey:
    """Tickets that are alike in this wait in one line, where only the first is looked at."""
    return ticket.scopes, ticket.group, ticket.priority, ticket.parent

"""How fast: the spacing of starts, budgets from headers, the reserve of a window and the line of a `spread` campaign.

Each answers one question, "when may the next one start?", from numbers alone.
"""

from typing import ClassVar, Literal

import msgspec

from paceline.core.gates.quota_window import Line, Window
from paceline.core.signals import Budget
from paceline.core.values.relative_time import Timed
from paceline.core.values.tickets import Ticket

RATE_SPAN_SECONDS = 60.0
LARGE_RUN = 6.0
LARGER_STILL = 1.2
UNTIL_READ = 2.5
"""What runs that do not say are counted for, in means, until the next reading: a few large ones may go at once."""
LARGE_FADES = 0.9997
LONGEST_BUDGET_SECONDS = 32 * 86400.0
SLOWER_AGAIN = 1.5
SHORTEST_INTERVAL = 0.05
FIRST_START_INTERVAL = 1.0
LONGEST_INTERVAL = 30.0
EASE_SECONDS = 3600.0
START_SPAN_SECONDS = 10.0
PACE_STEP_SECONDS = 1.0
"""The use of a window grows while the line catches up with it: nobody looks more often than this."""
EASE_FACTOR = 0.97


class Pacer(Timed):
    """Starts at least `interval` apart, learnt from refusals and eased while there are none."""

    relative_times: ClassVar[tuple[str, ...]] = ("next_at", "ease_at")

    interval: float
    next_at: float
    ease_at: float

    @classmethod
    def from_starts(cls, recent: int, before: "Pacer | None", now: float) -> "Pacer":
        """Too many started at once: as many in the span as went well in it, and further apart each time."""
        interval = START_SPAN_SECONDS / recent if recent > 1 else FIRST_START_INTERVAL
        if before is not None:
            interval = max(interval, before.interval * SLOWER_AGAIN)
        return cls(interval=min(interval, LONGEST_INTERVAL), next_at=now, ease_at=now + EASE_SECONDS)

    def on_grant(self, now: float) -> None:
        self.next_at = max(self.next_at, now) + self.interval

    def ease(self, now: float) -> bool:
        """A clean spell: a little faster. False once there is nothing left to hold back."""
        self.interval *= EASE_FACTOR
        self.ease_at = now + EASE_SECONDS
        return self.interval >= SHORTEST_INTERVAL


class Remaining(msgspec.Struct):
    """What a header said is left until a reset, counted down by what was started since."""

    left: float
    resets_at: float

    def obstacle(self, need: float, now: float) -> float | None:
        return self.resets_at if now < self.resets_at and self.left < need else None


class BudgetGate(msgspec.Struct):
    """The provider's request and token budgets, mirrored here so that calls wait instead of being refused."""

    requests: Remaining | None = None
    tokens: Remaining | None = None
    mean_tokens: float = 0.0
    large_tokens: float = 0.0
    """What the largest run used; one that was long ago counts for less."""
    largest_left: float = 0.0

    def on_reading(self, budget: Budget, now: float) -> None:
        self.requests = _remaining(budget.requests_remaining, budget.requests_reset_at, now) or self.requests
        self.tokens = _remaining(budget.tokens_remaining, budget.tokens_reset_at, now) or self.tokens
        self.largest_left = max(self.largest_left, self.tokens.left if self.tokens is not None else 0.0)

    def on_tokens(self, tokens: int) -> None:
        self.mean_tokens = tokens if self.mean_tokens == 0 else 0.9 * self.mean_tokens + 0.1 * tokens
        self.large_tokens = max(float(tokens), self.large_tokens * LARGE_FADES)

    def obstacle(self, tokens: int | None, now: float) -> tuple[str, float] | None:
        """What is used up, and until when."""
        if self.requests is not None and (at := self.requests.obstacle(1, now)) is not None:
            return "requests", at
        if self.tokens is not None and (at := self.tokens.obstacle(self._most(tokens), now)) is not None:
            return "tokens", at
        return None

    def on_grant(self, tokens: int | None) -> None:
        if self.requests is not None:
            self.requests.left -= 1
        if self.tokens is not None:
            self.tokens.left -= self._need(tokens) * (1.0 if tokens is not None else UNTIL_READ)

    def expire(self, now: float) -> None:
        """Drop what has reset."""
        if self.requests is not None and now >= self.requests.resets_at:
            self.requests = None
        if self.tokens is not None and now >= self.tokens.resets_at:
            self.tokens = None

    def resets(self) -> list[float | None]:
        """When more is to be had."""
        return [part.resets_at for part in (self.requests, self.tokens) if part is not None]

    def _need(self, tokens: int | None) -> float:
        return float(tokens) if tokens is not None else max(1.0, self.mean_tokens)

    def _most(self, tokens: int | None) -> float:
        """A run that does not say what it will use may use as much as the largest did; half the budget must do."""
        mean = self._need(tokens)
        large = max(mean * LARGE_RUN, self.large_tokens * LARGER_STILL)
        return mean if tokens is not None else max(mean, min(large, self.largest_left / 2))


class Pace(msgspec.Struct, frozen=True):
    """At most `limit` at once for now, as told in `detail`: fewer than fit are enough. `until` when that may change."""

    limit: int
    detail: str
    until: float


class WindowHold(msgspec.Struct, frozen=True):
    """A window that keeps a ticket out, and until when. `line` where it is open and its use is what counts."""

    window: Window
    reason: Literal["window_closed", "reserve", "pacing"]
    until: float
    line: Line | None = None


def window_hold(window: Window, ticket: Ticket, line: Line | None, now: float, *, reserve: float) -> WindowHold | None:
    """What the window has against the ticket, on the `line` of its use where that matters."""
    if window.blocks(ticket, now) and window.opens_at is not None:
        return WindowHold(window, "pacing" if window.state == "wave" else "window_closed", window.opens_at)
    held = paced_until(line, now, reserve=reserve, spread=ticket.spread) if line is not None else None
    return None if held is None else WindowHold(window, held[0], held[1], line)


def paced_until(
    line: Line, now: float, *, reserve: float, spread: bool
) -> tuple[Literal["reserve", "pacing"], float] | None:
    """Whether a start is held back, why, and when that may change.

    The share `reserve` of the window is left to the person; with `spread` the rest is used up along the line.
    """
    usable = 1.0 - reserve
    if reserve > 0 and line.used >= usable:
        return "reserve", line.resets_at
    if spread and now < line.ends_at and line.used > used_on_line(line, now, reserve=reserve):
        return "pacing", min(max(_time_on_line(line, usable), now + PACE_STEP_SECONDS), line.ends_at)
    return None


def used_on_line(line: Line, now: float, *, reserve: float) -> float:
    """How much may be used by now: at the end of the line all but the reserve."""
    usable = 1.0 - reserve
    begins_at, begins_used = line.begins
    if now >= line.ends_at or begins_at >= line.ends_at or begins_used >= usable:
        return usable
    passed = max(0.0, now - begins_at) / (line.ends_at - begins_at)
    return begins_used + passed * (usable - begins_used)


def _time_on_line(line: Line, usable: float) -> float:
    """When the line reaches what is used."""
    begins_at, begins_used = line.begins
    if usable <= begins_used:
        return line.ends_at
    return begins_at + (line.used - begins_used) / (usable - begins_used) * (line.ends_at - begins_at)


def _remaining(left: int | None, resets_at: float | None, now: float) -> Remaining | None:
    if left is None or resets_at is None or not now < resets_at <= now + LONGEST_BUDGET_SECONDS:
        return None  # a reset in the year 57000 was meant in milliseconds
    return Remaining(left=float(left), resets_at=resets_at)

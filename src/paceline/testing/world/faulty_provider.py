"""A simulated provider whose announcements cannot be trusted: resets that move, strangers, a wrong Retry-After.

It answers the calls of held tickets with the signals that detection would make of its responses. Never here: what the
Governor believes. All times are elapsed time; only announced resets are wall time.
"""

import random
from collections.abc import Iterable

import msgspec

from paceline.core.signals import AnySignal, QuotaClosed, RateLimited, Succeeded

WINDOW_SECONDS = 5 * 3600.0
WRONG_ADVICE = (None, 0.0, 0.01, 3600.0, 86400.0, 1e18, -5.0)
"""What a wrong Retry-After says: nothing, far too little, far too much, and what cannot be meant."""


class StrangerVisit(msgspec.Struct, frozen=True):
    """Places of the account that somebody else takes for a while."""

    begins: float
    ends: float
    places: int


class WindowState(msgspec.Struct):
    """One closed window: when it really reopens, what it announces, and by how much that moves once it is reached."""

    reopens: float
    announced: float | None
    moves_by: float | None = None


class FaultyProvider:
    """One account. It has a cap that strangers share, and windows that close after some calls.

    `moved` counts refusals at or after an announced reset, `crowded` refusals because of strangers, and `misled`
    refusals with a wrong Retry-After.
    """

    def __init__(self, rng: random.Random, start: float) -> None:
        self._random = rng
        self._cap = rng.randint(1, 5)
        self._visits = _draw_visits(rng, start, self._cap)
        self._lies = rng.random() < 0.7
        self._calls_left = rng.randint(5, 40)
        self._window: WindowState | None = None
        self.moved = self.crowded = self.misled = 0

    def answer(self, ticket: str, live: int, elapsed: float, wall: float) -> AnySignal:
        """Return the signal of one call, made while `live` tickets hold a place on the account."""
        if self._window is not None and elapsed >= self._window.reopens:
            self._window, self._calls_left = None, self._random.randint(5, 40)
        if self._window is None and self._calls_left <= 0:
            self._window = _draw_window(self._random, elapsed)
        if self._window is not None:
            return self._closed(self._window, ticket, elapsed, wall)
        strangers = strangers_at(self._visits, elapsed)
        if live + strangers > self._cap:
            self.crowded += live <= self._cap
            return RateLimited(retry_after=self._advice(), cause="concurrency", ticket=ticket)
        self._calls_left -= 1
        return Succeeded(ticket=ticket, tokens=self._random.randrange(5000))

    def _closed(self, window: WindowState, ticket: str, elapsed: float, wall: float) -> AnySignal:
        announced = window.announced
        if announced is not None and elapsed >= announced:
            self.moved += 1
            announced = None if window.moves_by is None else announced + window.moves_by
        resets_at = None if announced is None else wall + announced - elapsed
        return QuotaClosed(resets_at=resets_at, window="5h", ticket=ticket, source="field")

    def _advice(self) -> float | None:
        if not self._lies:
            return 5.0
        self.misled += 1
        return self._random.choice(WRONG_ADVICE)


def strangers_at(visits: Iterable[StrangerVisit], now: float) -> int:
    """Return how many places strangers take."""
    return sum(visit.places for visit in visits if visit.begins <= now < visit.ends)


def _draw_visits(rng: random.Random, start: float, cap: int) -> tuple[StrangerVisit, ...]:
    """Draw visits of strangers. One of them may take all places."""
    visits, at = [], start
    for _ in range(rng.randint(0, 6)):
        at += rng.expovariate(1 / 200.0)
        visits.append(StrangerVisit(at, at + rng.uniform(5.0, 600.0), rng.randint(1, cap)))
        at = visits[-1].ends
    return tuple(visits)


def _draw_window(rng: random.Random, now: float) -> WindowState:
    """Draw a closed window that reopens as announced, earlier, minutes late, or without an announcement.

    A late one announces one whole window later once its time is reached, or says nothing more.
    """
    announced = now + rng.choice((60.0, 900.0, 3600.0, WINDOW_SECONDS))
    match rng.randrange(5):
        case 0:
            return WindowState(announced, announced)
        case 1:
            return WindowState(now + (announced - now) * rng.random(), announced)
        case 2:
            return WindowState(announced + rng.uniform(30.0, 1800.0), announced, WINDOW_SECONDS)
        case 3:
            return WindowState(announced + rng.uniform(30.0, 1800.0), announced)
        case _:
            return WindowState(announced, None)

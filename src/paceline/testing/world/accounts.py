"""Simulated accounts of a provider that has moods: what becomes of a session that is started on one.

The moods are drawn when the account is made, so that the same seed is the same night whoever looks. Never here:
anything that Paceline believes of the account.
"""

import random
from bisect import bisect_right
from collections.abc import Sequence

import msgspec

from paceline.simulation import agent_transcripts as transcripts
from paceline.simulation.executor import Run

HOUR = 3600.0
LONGEST_SESSION = 2 * HOUR
NOTICE_SECONDS = 30.0
"""How long a session that was told of its limit goes on before it ends by itself."""


class Spell(msgspec.Struct, frozen=True, kw_only=True):
    """From `begins` to `ends`; `told` is the end that the provider announces, if it does."""

    begins: float
    ends: float
    told: float | None = None


class Moods(msgspec.Struct, frozen=True, kw_only=True):
    """All that the provider will do to an account, whatever anybody asks of it."""

    caps: tuple[tuple[float, int], ...]
    closed: tuple[Spell, ...] = ()
    overloads: tuple[Spell, ...] = ()
    foreign: tuple[Spell, ...] = ()
    lag: float = 0.0
    penalty: float = 0.0
    burst: int | None = None


def calm_moods(start: float, cap: int) -> Moods:
    return Moods(caps=((start, cap),))


def draw_moods(dice: random.Random, start: float, hours: float) -> Moods:
    """A night of trouble; after it the account is well."""
    end = start + hours * HOUR
    cap = dice.randint(2, 6)
    drifts = sorted(dice.uniform(start, end) for _ in range(dice.randint(0, 4)))
    return Moods(
        caps=((start, cap), *((at, max(1, cap + dice.randint(-2, 2))) for at in drifts), (end, cap)),
        closed=_draw_closed(dice, start, end),
        overloads=_draw_spells(dice, start, end, most=2, longest=900.0),
        foreign=_draw_spells(dice, start, end, most=3, longest=2 * HOUR),
        lag=dice.choice((0.0, 0.0, 2.0, 10.0)),
        penalty=dice.choice((0.0, 5.0, 60.0)),
        burst=dice.choice((None, None, 2, 3)),
    )


def _draw_spells(dice: random.Random, start: float, end: float, *, most: int, longest: float) -> tuple[Spell, ...]:
    begins = [dice.uniform(start, end) for _ in range(dice.randint(0, most))]
    return tuple(Spell(begins=at, ends=min(end, at + dice.uniform(30.0, longest))) for at in begins)


def _draw_closed(dice: random.Random, start: float, end: float) -> tuple[Spell, ...]:
    """Windows reopen when they said, early, late, or without having said."""
    spells: list[Spell] = []
    at = start
    while (at := at + dice.uniform(0.1, 2.0) * HOUR) < end:
        ends = min(end, at + dice.choice((600.0, HOUR, 3 * HOUR)))
        told = dice.choice((ends, ends, ends - 300.0, ends + 900.0, at + 60.0, None))
        spells.append(Spell(begins=at, ends=ends, told=told))
        at = ends
    return tuple(spells)


class SimulatedAccount:
    """Says what each session meets. `refused` counts those that were turned away at the door."""

    def __init__(self, moods: Moods) -> None:
        self._moods = moods
        self._starts: list[float] = []
        self._ends: list[float] = []
        self._penalty_until = 0.0
        self.refused = 0

    def run(self, session: str, seconds: float, live: int, now: float) -> Run:
        """A session that would take so long on an account where `live` others run."""
        window = _spell_at(self._moods.closed, now)
        if window is not None:
            self.refused += 1
            return _ended_by_window(session, window, after=0.0, says=transcripts.init(session))
        if (trouble := self._trouble(session, live, now)) is not None:
            self.refused += 1
            return trouble
        self._starts.append(now)
        begun = transcripts.init(session) + transcripts.answer(session)
        closing = next((spell for spell in self._moods.closed if now < spell.begins < now + seconds), None)
        if closing is not None:
            return _ended_by_window(session, closing, after=closing.begins - now, says=begun)
        self._ends.append(now + seconds)
        return Run(stdout=begun, later=((seconds, transcripts.done(session)),), seconds=seconds)

    def _trouble(self, session: str, live: int, now: float) -> Run | None:
        moods = self._moods
        if _spell_at(moods.overloads, now) is not None:
            says = transcripts.init(session) + transcripts.retry(5.0, nth=10, status=529, session=session)
            return Run(stdout=says, exit_code=1, seconds=1.0)
        lagging = sum(end <= now < end + moods.lag for end in self._ends)
        foreign = sum(spell.begins <= now < spell.ends for spell in moods.foreign)
        recent = sum(now - 1.0 < start for start in self._starts)
        is_full = live + lagging + foreign >= moods.caps[bisect_right(moods.caps, (now, 1 << 30)) - 1][1]
        is_burst = moods.burst is not None and recent >= moods.burst
        if not (is_full or is_burst or now < self._penalty_until):
            return None
        self._penalty_until = max(self._penalty_until, now + moods.penalty)
        says = transcripts.init(session) + transcripts.retry(2.0, nth=10, session=session)
        return Run(stdout=says, exit_code=1, seconds=1.0)


def _spell_at(spells: Sequence[Spell], now: float) -> Spell | None:
    return next((spell for spell in spells if spell.begins <= now < spell.ends), None)


def _ended_by_window(session: str, window: Spell, *, after: float, says: str) -> Run:
    told = transcripts.limit_without_a_time() if window.told is None else transcripts.rejected(window.told, session)
    return Run(stdout=says, later=((after, told),), exit_code=1, seconds=after + NOTICE_SECONDS)

"""Simulated accounts of an unreliable provider: what happens to a session that starts on one.

The troubles are drawn when the account is created, so the same seed gives the same night. Never here: what Paceline
believes about the account.
"""

import random
from bisect import bisect_right
from collections.abc import Sequence

import msgspec

from paceline.simulation import agent_transcripts as transcripts
from paceline.simulation.executor import Run
from paceline.testing.world.faulty_provider import StrangerVisit, strangers_at

HOUR = 3600.0
LONGEST_SESSION = 2 * HOUR
ODD_WAITS = (0.0, 0.05, 2.0, 600.0, 86400.0, 1e15, -3.0)
"""What a wrong Retry-After announces: far too little, far too much, and what cannot be meant."""
NOTICE_SECONDS = 30.0
"""How long a session continues after it has met its limit, before it ends by itself."""


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """A period of trouble. `announced` is the end that the provider announces, if it does."""

    begins: float
    ends: float
    announced: float | None = None
    moves_by: float = 0.0
    """By how much the announced end moves once it is reached and the trouble has not ended."""

    def announced_at(self, now: float) -> float | None:
        return self.announced if self.announced is None or now < self.announced else self.announced + self.moves_by


class AccountTroubles(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the provider will do to an account, whatever is requested."""

    caps: tuple[tuple[float, int], ...]
    closed: tuple[Trouble, ...] = ()
    overloads: tuple[Trouble, ...] = ()
    foreign: tuple[Trouble, ...] = ()
    lag: float = 0.0
    penalty: float = 0.0
    burst: int | None = None
    outages: tuple[Trouble, ...] = ()
    visits: tuple[StrangerVisit, ...] = ()
    retry_after: tuple[float, ...] = (2.0,)
    """What refusals announce, one after the other."""
    contradicts: bool = False
    """Whether a refusal for too many at once is reported as a spent window, which is reported open."""


def calm_account(start: float, cap: int) -> AccountTroubles:
    return AccountTroubles(caps=((start, cap),))


def draw_troubles(rng: random.Random, start: float, hours: float) -> AccountTroubles:
    """Draw a night of trouble, after which the account is healthy."""
    end = start + hours * HOUR
    cap = rng.randint(2, 6)
    drifts = sorted(rng.uniform(start, end) for _ in range(rng.randint(0, 4)))
    return AccountTroubles(
        caps=((start, cap), *((at, max(1, cap + rng.randint(-2, 2))) for at in drifts), (end, cap)),
        closed=_draw_closed(rng, start, end),
        overloads=_draw_troubles(rng, start, end, most=2, longest=900.0),
        foreign=_draw_troubles(rng, start, end, most=3, longest=2 * HOUR),
        lag=rng.choice((0.0, 0.0, 2.0, 10.0)),
        penalty=rng.choice((0.0, 5.0, 60.0)),
        burst=rng.choice((None, None, 2, 3)),
        outages=_draw_troubles(rng, start, end, most=2, longest=HOUR),
        contradicts=rng.random() < 0.3,
    )


def draw_faults(rng: random.Random, start: float, hours: float) -> AccountTroubles:
    """Draw a night of trouble with announcements that are wrong: moving resets, crowds of strangers, odd waits."""
    end = start + hours * HOUR
    troubles = draw_troubles(rng, start, hours)
    visits, at = [], start
    while (at := at + rng.uniform(600.0, 2 * HOUR)) < end:
        visits.append(StrangerVisit(at, min(end, at + rng.uniform(300.0, 2 * HOUR)), rng.randint(1, 6)))
    return msgspec.structs.replace(
        troubles,
        closed=_draw_moving(rng, start, end),
        visits=tuple(visits),
        retry_after=tuple(rng.choice(ODD_WAITS) for _ in range(7)),
        contradicts=False,
    )


def _draw_moving(rng: random.Random, start: float, end: float) -> tuple[Trouble, ...]:
    """Draw closed windows that reopen early, or minutes late and then announce one whole window later."""
    troubles: list[Trouble] = []
    at = start
    while (at := at + rng.uniform(0.1, 1.0) * HOUR) < end:
        announced = at + rng.choice((600.0, HOUR, 3 * HOUR))
        ends = announced + rng.uniform(30.0, 1800.0) if rng.random() < 0.7 else at + rng.random() * (announced - at)
        troubles.append(Trouble(begins=at, ends=min(end, ends), announced=announced, moves_by=5 * HOUR))
        at = ends
    return tuple(troubles)


def _draw_troubles(rng: random.Random, start: float, end: float, *, most: int, longest: float) -> tuple[Trouble, ...]:
    begins = [rng.uniform(start, end) for _ in range(rng.randint(0, most))]
    return tuple(Trouble(begins=at, ends=min(end, at + rng.uniform(30.0, longest))) for at in begins)


def _draw_closed(rng: random.Random, start: float, end: float) -> tuple[Trouble, ...]:
    """Draw closed windows that reopen as announced, early, late, or unannounced."""
    troubles: list[Trouble] = []
    at = start
    while (at := at + rng.uniform(0.1, 2.0) * HOUR) < end:
        ends = min(end, at + rng.choice((600.0, HOUR, 3 * HOUR)))
        announced = rng.choice((ends, ends, ends - 300.0, ends + 900.0, at + 60.0, None))
        troubles.append(Trouble(begins=at, ends=ends, announced=announced))
        at = ends
    return tuple(troubles)


class SimulatedAccount:
    """An account that decides what each session meets. `refused` counts sessions that were refused at their start."""

    def __init__(self, troubles: AccountTroubles) -> None:
        self._troubles = troubles
        self._starts: list[float] = []
        self._ends: list[float] = []
        self._penalty_until = 0.0
        self.refused = 0
        self.unreached = 0

    def run(self, session: str, seconds: float, live: int, now: float) -> Run:
        """Return what a session does that would take `seconds`, while `live` others run on the account."""
        if _trouble_at(self._troubles.outages, now) is not None:
            self.unreached += 1
            return _ended_by_outage(session, after=0.0, printed=transcripts.init(session))
        window = _trouble_at(self._troubles.closed, now)
        if window is not None:
            self.refused += 1
            return _ended_by_window(session, window.announced_at(now), after=0.0, printed=transcripts.init(session))
        if (trouble := self._trouble(session, live, now)) is not None:
            self.refused += 1
            return trouble
        self._starts.append(now)
        begun = transcripts.init(session) + transcripts.answer(session)
        closing = next((trouble for trouble in self._troubles.closed if now < trouble.begins < now + seconds), None)
        outage = next((trouble for trouble in self._troubles.outages if now < trouble.begins < now + seconds), None)
        if outage is not None and (closing is None or outage.begins < closing.begins):
            self.unreached += 1
            return _ended_by_outage(session, after=outage.begins - now, printed=begun)
        if closing is not None:
            return _ended_by_window(session, closing.announced, after=closing.begins - now, printed=begun)
        self._ends.append(now + seconds)
        return Run(stdout=begun, later=((seconds, transcripts.done(session)),), seconds=seconds)

    def _trouble(self, session: str, live: int, now: float) -> Run | None:
        troubles = self._troubles
        if _trouble_at(troubles.overloads, now) is not None:
            printed = transcripts.init(session) + transcripts.retry(5.0, nth=10, status=529, session=session)
            return Run(stdout=printed, exit_code=1, seconds=1.0)
        lagging = sum(end <= now < end + troubles.lag for end in self._ends)
        foreign = sum(trouble.begins <= now < trouble.ends for trouble in troubles.foreign)
        foreign += strangers_at(troubles.visits, now)
        recent = sum(now - 1.0 < start for start in self._starts)
        is_full = live + lagging + foreign >= troubles.caps[bisect_right(troubles.caps, (now, 1 << 30)) - 1][1]
        is_burst = troubles.burst is not None and recent >= troubles.burst
        if not (is_full or is_burst or now < self._penalty_until):
            return None
        self._penalty_until = max(self._penalty_until, now + troubles.penalty)
        if troubles.contradicts:
            refusal = transcripts.contradicting(now + 5 * HOUR, session)
        else:
            seconds = troubles.retry_after[self.refused % len(troubles.retry_after)]
            refusal = transcripts.retry(seconds, nth=10, session=session)
        return Run(stdout=transcripts.init(session) + refusal, exit_code=1, seconds=1.0)


def _trouble_at(troubles: Sequence[Trouble], now: float) -> Trouble | None:
    return next((trouble for trouble in troubles if trouble.begins <= now < trouble.ends), None)


def _ended_by_window(session: str, end: float | None, *, after: float, printed: str) -> Run:
    notice = transcripts.limit_without_a_time() if end is None else transcripts.rejected(end, session)
    return Run(stdout=printed, later=((after, notice),), exit_code=1, seconds=after + NOTICE_SECONDS)


def _ended_by_outage(session: str, *, after: float, printed: str) -> Run:
    """Return a session that nobody answers: the CLI tries for a while, and gives up."""
    seconds = after + NOTICE_SECONDS
    return Run(stdout=printed, later=((seconds, transcripts.offline(session)),), exit_code=1, seconds=seconds)

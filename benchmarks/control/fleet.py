"""The agents and the clock: campaigns of units, run as sessions made of turns, under one policy.

Virtual time, seeded, no I/O. The same seed gives every policy the same units and the same provider.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from typing import Final, Literal, Protocol

from benchmarks.control.allowances import log_normal
from benchmarks.control.answers import Refusal, Size
from benchmarks.control.provider import Provider

POOL = 8192
FULL = 0.9
"""Share of the capacity. Lag alone keeps a slot or two free most of the time."""
END: Final = "end"
WAIT: Final = "wait"
Mark = tuple[float, str, str]
"""A time, a kind (rise, drop or reopen) and a model."""
Answer = float | Literal["end", "wait"]
"""The time to start, or END (end the session at this turn boundary), or WAIT (the policy calls `turn` later)."""


@dataclass(slots=True, eq=False)
class Session:
    """One agent on one unit. A unit that was cut short returns as a new session with the remaining work."""

    id: str
    campaign: "Campaign"
    model: str
    left: float
    number: int
    enqueued_at: float
    turns: int = 0
    started_at: float = 0.0
    seconds: float = 0.0
    tokens: float = 0.0
    retries: int = 0
    is_live: bool = False
    is_accepted: bool = False


@dataclass(slots=True, eq=False)
class Campaign:
    name: str
    priority: int
    model: str
    slot_seconds: float = 0.0
    waits: list[float] = field(default_factory=list)
    units: int = 0
    waiting: int = 0
    unfinished: deque[tuple[int, int, float]] = field(default_factory=deque)


class Policy(Protocol):
    """A policy. Except for the oracle, it knows only what these calls pass to it."""

    def enqueue(self, session: Session, now: float) -> None: ...
    def poll(self, now: float) -> Iterable[tuple[Literal["start", "turn"], Session]]: ...
    def wake(self) -> float | None: ...
    def accepted(self, session: Session, now: float) -> None: ...
    def start_refused(self, session: Session, refusal: Refusal, now: float) -> None: ...
    def ask_turn(self, session: Session, now: float) -> Answer: ...
    def turn_refused(self, session: Session, refusal: Refusal, now: float) -> Answer: ...
    def turn_done(self, session: Session, seconds: float, now: float) -> None: ...
    def ended(self, session: Session, now: float) -> None: ...


@dataclass(slots=True)
class Load:
    """The load of the agents. Durations are log-normal: a third of the work is in runs over five minutes."""

    campaigns: list[tuple[str, int, str]]
    session_mean: float = 150.0
    session_sigma: float = 1.2
    turn_mean: float = 25.0
    turn_sigma: float = 0.8
    tokens_per_second: float = 400.0
    latency: float = 0.0
    depth: int = 4


@dataclass(slots=True)
class Tally:
    """The counters of a day."""

    work: float = 0.0
    runs: int = 0
    refused: int = 0
    refused_by_kind: dict[str, int] = field(default_factory=dict)
    overloaded: int = 0
    occupied: float = 0.0
    full_again: list[tuple[str, float]] = field(default_factory=list)


class Fleet:
    """One day of one policy. `marks` are (time, kind, model): capacity rises and reopenings to recover from."""

    def __init__(self, provider: Provider, load: Load, seed: int, marks: list[Mark]) -> None:
        rng = Random(f"{seed}-load")
        self.provider = provider
        self.load = load
        self.campaigns = [Campaign(name, priority, model) for name, priority, model in load.campaigns]
        self.tally = Tally()
        self.now = 0.0
        self._units = [log_normal(rng, load.session_mean, load.session_sigma) for _ in range(POOL)]
        self._turns = [log_normal(rng, load.turn_mean, load.turn_sigma) for _ in range(POOL)]
        self._tokens = [load.tokens_per_second * log_normal(rng, 1.0, 0.5) for _ in range(POOL)]
        self._events: list[tuple[float, int, Callable[[Session], None], Session]] = []
        self._count = 0
        self._sessions = 0
        self._marks = deque(sorted(marks))
        self._open_marks: list[Mark] = []

    def run(self, policy: Policy, until: float) -> Tally:
        self.policy = policy
        for campaign in self.campaigns:
            self._top_up(campaign)
        self._drain()
        while True:
            at = self._events[0][0] if self._events else math.inf
            wake = policy.wake()
            if wake is not None and wake < at:
                at = max(wake, self.now)
                if at >= until:
                    break
                self._pass_marks(at)
                self.now = at
            else:
                if at >= until:
                    break
                self._pass_marks(at)
                self.now, _, act, session = heappop(self._events)
                act(session)
            self._drain()
        self._close(until)
        return self.tally

    # -- starting and ending -------------------------------------------------------------------

    def _drain(self) -> None:
        busy = True
        while busy:
            busy = False
            for what, session in self.policy.poll(self.now):
                busy = True
                if what == "turn":
                    if session.is_live:
                        self._call(session)
                    continue
                session.campaign.waiting -= 1
                if self.load.latency:
                    self._later(self.now + self.load.latency, self._arrive, session)
                else:
                    self._arrive(session)
                self._top_up(session.campaign)

    def _top_up(self, campaign: Campaign) -> None:
        """Keep every campaign saturated: a few of its sessions always wait."""
        while campaign.waiting < self.load.depth:
            if campaign.unfinished:
                number, turns, left = campaign.unfinished.popleft()
            else:
                campaign.units += 1
                number, turns = campaign.units, 0
                left = self._units[(number * 13 + len(campaign.name)) % POOL]
            self._sessions += 1
            session = Session(
                f"{campaign.name}-{self._sessions}", campaign, campaign.model, left, number, self.now, turns
            )
            campaign.waiting += 1
            self.policy.enqueue(session, self.now)

    def _arrive(self, session: Session) -> None:
        refusal = self.provider.start(session.id, session.model, self.now)
        if refusal is not None:
            self._count_refusal(refusal, "start")
            session.campaign.unfinished.appendleft((session.number, session.turns, session.left))
            self.policy.start_refused(session, refusal, self.now)
            return
        session.is_live = True
        session.started_at = self.now
        if self.provider.checks_starts:
            self._accept(session)
        self._next_turn(session)

    def _accept(self, session: Session) -> None:
        """Note the first answer that is no refusal: of the start, or of the first turn where starts are not checked."""
        session.is_accepted = True
        self.tally.runs += 1
        session.campaign.waits.append(self.now - session.enqueued_at)
        self._note_full(session.model)
        self.policy.accepted(session, self.now)

    def _end(self, session: Session) -> None:
        session.is_live = False
        held = self.now - session.started_at
        session.campaign.slot_seconds += held
        self.tally.occupied += held
        self.provider.release(session.id, session.model, self.now)
        if session.left > 0:
            session.campaign.unfinished.append((session.number, session.turns, session.left))
        self.policy.ended(session, self.now)

    # -- turns ---------------------------------------------------------------------------------

    def _next_turn(self, session: Session) -> None:
        """Draw the next turn and ask whether it may go."""
        index = (session.number * 31 + session.turns * 7 + len(session.campaign.name)) % POOL
        session.seconds = min(self._turns[index], session.left)
        session.tokens = session.seconds * self._tokens[index]
        self._obey(session, self.policy.ask_turn(session, self.now))

    def _obey(self, session: Session, answer: Answer) -> None:
        if answer == END:
            self._end(session)
        elif answer != WAIT:
            if answer <= self.now:
                self._call(session)
            else:
                self._later(answer, self._ask_again, session)

    def _ask_again(self, session: Session) -> None:
        self._obey(session, self.policy.ask_turn(session, self.now))

    def _call(self, session: Session) -> None:
        size = Size(session.tokens, session.seconds)
        refusal = self.provider.turn(session.id, session.model, size, self.now)
        if refusal is not None:
            self._count_refusal(refusal, "turn")
            session.retries += 1
            self._obey(session, self.policy.turn_refused(session, refusal, self.now))
            return
        session.retries = 0
        if not session.is_accepted:
            self._accept(session)
        speed = self.provider.speed(session.model, self.now)
        self._later(self.now + session.seconds / speed, self._turn_over, session)

    def _turn_over(self, session: Session) -> None:
        self.tally.work += session.seconds
        session.left -= session.seconds
        session.turns += 1
        self.provider.turn_over(session.id, session.model, self.now)
        self.policy.turn_done(session, session.seconds, self.now)
        if session.left <= 1e-9:
            session.left = 0.0
            self._end(session)
        else:
            self._next_turn(session)

    # -- counting ------------------------------------------------------------------------------

    def _later(self, at: float, act: Callable[[Session], None], session: Session) -> None:
        self._count += 1
        heappush(self._events, (at, self._count, act, session))

    def _count_refusal(self, refusal: Refusal, where: str) -> None:
        if refusal.kind == "overload":
            self.tally.overloaded += 1
        else:
            self.tally.refused += 1
            kind = f"{refusal.kind} at {where}"
            self.tally.refused_by_kind[kind] = self.tally.refused_by_kind.get(kind, 0) + 1

    def _pass_marks(self, now: float) -> None:
        while self._marks and self._marks[0][0] <= now:
            mark = self._marks.popleft()
            missed = [m for m in self._open_marks if m[2] == mark[2]]
            self.tally.full_again += [(kind, mark[0] - at) for at, kind, _ in missed]
            self._open_marks = [m for m in self._open_marks if m[2] != mark[2]]
            if mark[1] != "drop":
                self._open_marks.append(mark)

    def _note_full(self, model: str) -> None:
        if not self._open_marks:
            return
        if self.provider.is_full(model, FULL, self.now):
            done = [mark for mark in self._open_marks if mark[2] == model]
            self.tally.full_again += [(kind, self.now - at) for at, kind, _ in done]
            self._open_marks = [mark for mark in self._open_marks if mark[2] != model]

    def _close(self, until: float) -> None:
        for at, kind, _ in self._open_marks:
            self.tally.full_again.append((kind, until - at))
        live = {session.id: session for *_, session in self._events if session.is_live}
        for session in live.values():
            session.campaign.slot_seconds += until - session.started_at
            self.tally.occupied += until - session.started_at

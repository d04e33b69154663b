"""The oracle: it sees the provider's state at all times and so never meets a refusal that could be foreseen."""

from collections import deque
from collections.abc import Iterator
from typing import Literal

from benchmarks.control.answers import Refusal, Size
from benchmarks.control.fleet import END, WAIT, Answer, Session
from benchmarks.control.provider import Provider

SLOW_CHECK_SECONDS = 5.0


class Oracle:
    """A policy that starts whenever a start is accepted, ends excess sessions, and delays turns until they fit."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        models = provider.rules.models
        self.queue: dict[str, deque[Session]] = {model: deque() for model in models}
        self.delayed: dict[str, deque[Session]] = {model: deque() for model in models}
        self._under_way: dict[str, int] = dict.fromkeys(models, 0)
        self._wake = 0.0

    def enqueue(self, session: Session, now: float) -> None:
        self.queue[session.model].append(session)

    def poll(self, now: float) -> Iterator[tuple[Literal["start", "turn"], Session]]:
        for model, queue in self.queue.items():
            delayed = self.delayed[model]
            while delayed and self._may_turn(delayed[0], now):
                yield "turn", delayed.popleft()
            while queue and not delayed and self._has_room(model, now):
                self._under_way[model] += 1
                yield "start", queue.popleft()
        self._wake = min(self.provider.next_change(now) + 1e-6, now + SLOW_CHECK_SECONDS)

    def _may_turn(self, session: Session, now: float) -> bool:
        provider = self.provider
        if provider.is_closed(session.model, now):
            return False
        ready_at = provider.turn_ready_at(Size(session.tokens, session.seconds), now)
        return ready_at <= now and provider.can_turn(session.id, session.model, now)

    def _has_room(self, model: str, now: float) -> bool:
        if self.provider.rules.burst is not None and any(self._under_way.values()):
            return False
        return self.provider.can_start(model, self._under_way[model], now)

    def wake(self) -> float | None:
        return self._wake

    def accepted(self, session: Session, now: float) -> None:
        self._under_way[session.model] -= 1

    def start_refused(self, session: Session, refusal: Refusal, now: float) -> None:
        self._under_way[session.model] -= 1

    def ask_turn(self, session: Session, now: float) -> Answer:
        provider = self.provider
        if provider.is_closed(session.model, now):
            return self._give_up(session)
        if provider.checks_starts and provider.rules.count.excess(session.model, now) > 0:
            return self._give_up(session)
        ready_at = provider.turn_ready_at(Size(session.tokens, session.seconds), now)
        if ready_at > now or provider.can_turn(session.id, session.model, now):
            return ready_at
        self.delayed[session.model].append(session)
        return WAIT

    def _give_up(self, session: Session) -> Answer:
        if not session.is_accepted:
            self._under_way[session.model] -= 1
        return END

    def turn_refused(self, session: Session, refusal: Refusal, now: float) -> Answer:
        return now + 1.0

    def turn_done(self, session: Session, seconds: float, now: float) -> None:
        pass

    def ended(self, session: Session, now: float) -> None:
        pass

"""The oracle: it sees the provider's state at all times and so never meets a refusal that could be foreseen."""

from collections import deque
from collections.abc import Iterator
from typing import Literal

from benchmarks.control.fleet import END, Answer, Session
from benchmarks.control.provider import Provider, Refusal

CHECK_SECONDS = 0.25
SLOW_CHECK_SECONDS = 5.0


class Oracle:
    """A policy that starts whenever a start is accepted, ends excess sessions, and delays turns until they fit."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.queue: dict[str, deque[Session]] = {model: deque() for model in provider.rules.caps}
        self._under_way: dict[str, int] = dict.fromkeys(provider.rules.caps, 0)
        self._turn_at = 0.0
        self._seen = 0.0

    def enqueue(self, session: Session, now: float) -> None:
        self.queue[session.model].append(session)

    def poll(self, now: float) -> Iterator[tuple[Literal["start", "turn"], Session]]:
        self._seen = now
        for model, queue in self.queue.items():
            while queue and self._has_room(model, now):
                self._under_way[model] += 1
                yield "start", queue.popleft()

    def _has_room(self, model: str, now: float) -> bool:
        provider = self.provider
        if any(start <= now < end for start, end in provider.rules.overloads):
            return False
        if provider.start_obstacle(model, now) is not None:
            return False
        if provider.rules.burst is not None and any(self._under_way.values()):
            return False
        return provider.occupancy(model, now) + self._under_way[model] < provider.rules.caps[model].at(now)

    def wake(self) -> float | None:
        return self._seen + CHECK_SECONDS

    def accepted(self, session: Session, now: float) -> None:
        self._under_way[session.model] -= 1

    def start_refused(self, session: Session, refusal: Refusal, now: float) -> None:
        self._under_way[session.model] -= 1

    def ask_turn(self, session: Session, now: float) -> Answer:
        provider = self.provider
        if provider.closed_until(session.model, now) is not None or provider.excess(session.model, now) > 0:
            return END
        overload = [end for start, end in provider.rules.overloads if start <= now < end]
        return overload[0] if overload else provider.turn_ready_at(session.tokens, now)

    def turn_refused(self, session: Session, refusal: Refusal, now: float) -> Answer:
        return now + 1.0

    def turn_done(self, session: Session, seconds: float, now: float) -> None:
        pass

    def ended(self, session: Session, now: float) -> None:
        pass

"""Short calls, thousands a second, whose every answer states a budget: nobody may wait without a next check.

The shape of the statement is drawn: true, nearly full at each answer, used up, by a clock that is ahead or behind, in
whole seconds, without some of its parts. Never here: what the Governor makes of it.
"""

import random
from heapq import heappop, heappush
from typing import Any

import msgspec

from paceline.core import Governor, GovernorSettings, Ticket
from paceline.core.signals import Budget
from paceline.testing.world.checked_governor import CheckedGovernor

SCOPE = "openai/main-key/gpt-5"
CALLERS = 32
CALL_SECONDS = 0.0005
LONGEST_STREAM_SECONDS = 0.02
"""The end of an answer comes up to so long after its head."""
LONGEST_WITHOUT_A_START = 1_000.0
"""After a quarter of an hour one run looks, whatever was stated."""


class BudgetShape(msgspec.Struct, frozen=True):
    """How one provider states its budgets. Without a list of what is `left`, it states what is true of its bucket."""

    names: tuple[str, ...]
    limit: int
    left: tuple[int, ...]
    reset_seconds: float
    is_whole: bool
    clock_ahead: float
    missing: str | None

    def reading(self, level: float, rng: random.Random, now: float) -> Budget:
        """Return the headers of an answer, after which `level` is left in the bucket."""
        left = rng.choice(self.left) if self.left else int(level)
        seconds = self.reset_seconds if self.left else self.reset_seconds * (1.0 - level / self.limit)
        reset_at = now + self.clock_ahead + seconds
        parts: dict[str, Any] = {"limit": self.limit, "remaining": left, "reset_at": reset_at}
        if self.is_whole:
            parts["reset_at"] = float(round(reset_at))
        stated = {name: value for name, value in parts.items() if name != self.missing}
        return Budget(**{f"{what}_{name}": value for what in self.names for name, value in stated.items()})


def draw_shape(rng: random.Random) -> BudgetShape:
    limit = rng.choice((4, 60, 10_000))
    return BudgetShape(
        names=rng.choice((("requests",), ("requests",), ("tokens",), ("requests", "tokens"))),
        limit=limit,
        left=rng.choice(((), (), (limit - 1,), (0,), (0, 1, limit // 2, limit))),
        reset_seconds=rng.choice((0.001, 0.006, 0.02, 1.0, 60.0)),
        is_whole=rng.random() < 0.2,
        clock_ahead=rng.choice((0.0, 0.0, 0.0, 5.0, -5.0)),
        missing=rng.choice((None, None, None, "limit", "remaining", "reset_at")),
    )


class FastCallers:
    """Callers that soon ask again when they were served. The head of an answer comes before its end."""

    def __init__(self, rng: random.Random, start: float) -> None:
        self._random = rng
        self._shape = draw_shape(rng)
        self._level, self._level_at = float(self._shape.limit), start
        limits: dict[str, int | None] = {SCOPE: rng.choice((8, None, None))}
        settings = GovernorSettings(limits=limits, first_ramp=0.0, slot_timeout=86_400.0)
        self.checked = CheckedGovernor(Governor(settings, now=start), settings, start)
        self._running: set[str] = set()
        self._next: list[tuple[float, str, str]] = []
        self._started_at = start
        self.asked = self.released = 0

    def run(self, calls: int) -> None:
        """Let the callers make so many calls, and wait for the last of them."""
        for _ in range(CALLERS):
            self._plan(1.0, "ask", "")
        while self.released < calls:
            self._move_on(calls)

    def _plan(self, seconds: float, what: str, ticket_id: str) -> None:
        heappush(self._next, (self.checked.wall + seconds * self._random.uniform(0.0, 1.2), what, ticket_id))

    def _move_on(self, calls: int) -> None:
        """Carry out what comes first: a wake-up, or something planned."""
        checked, wakeup = self.checked, self.checked.governor.next_wakeup()
        planned_at = self._next[0][0] if self._next else None
        if wakeup is None and planned_at is None:
            checked.fail(f"{len(checked.expected.waiting)} wait, nobody has a slot, and there is no next check")
        if planned_at is None or (wakeup is not None and wakeup < planned_at):
            checked.move_clock(max(wakeup or 0.0, checked.wall))
        else:
            _, what, ticket_id = heappop(self._next)
            checked.move_clock(max(planned_at, checked.wall))
            match what:
                case "ask" if self.asked < calls:
                    self.asked += 1
                    checked.request(Ticket(f"t{self.asked}", ("runs", "openai", "openai/main-key", SCOPE)))
                case "head":
                    self._read_head(ticket_id)
                case "end":
                    self._running.discard(ticket_id)
                    self.released += 1
                    checked.release(ticket_id)
                    self._plan(CALL_SECONDS, "ask", "")
        self._note_started()
        is_idle = not self._running and checked.expected.waiting
        if is_idle and checked.wall > self._started_at + LONGEST_WITHOUT_A_START:
            checked.fail(f"nobody has entered since {self._started_at}, although nobody has a slot")

    def _note_started(self) -> None:
        for ticket_id in sorted(self.checked.expected.held.keys() - self._running):
            self._running.add(ticket_id)
            self._started_at = self.checked.wall
            self._plan(CALL_SECONDS, "head", ticket_id)

    def _read_head(self, ticket_id: str) -> None:
        now, shape = self.checked.wall, self._shape
        refilled = (now - self._level_at) * shape.limit / shape.reset_seconds
        self._level, self._level_at = max(0.0, min(shape.limit, self._level + refilled) - 1.0), now
        reading = shape.reading(self._level, self._random, now)
        self.checked.report(SCOPE, msgspec.structs.replace(reading, ticket=ticket_id))
        self._plan(min(shape.reset_seconds, LONGEST_STREAM_SECONDS), "end", ticket_id)

"""The checker of shares: with full queues, slot-seconds must follow `2 ** priority`."""

import heapq
import random
from collections import defaultdict

import msgspec

from paceline.core import Governor, GovernorSettings, Granted, Ticket
from paceline.testing.world.scenario import WorldScenario

QUEUE_LENGTH = 3
SLOT_SECONDS = (3.0, 10.0, 30.0)
FAIREST = 0.98


class Shares(msgspec.Struct, frozen=True):
    """The slot-seconds of each group, and how fair they are for its weight (Jain's index; 1 is perfect)."""

    asked: int
    granted: int
    released: int
    seconds: float
    jain: float
    slot_seconds: dict[str, float]


def run_saturated(rng: random.Random, scenario: WorldScenario) -> Shares:
    """Run a world in which every group always has waiting tickets, each with its usual duration."""
    bench = _Bench(rng, scenario)
    shares = bench.run(scenario.steps)
    assert shares.jain >= FAIREST, f"shares {shares.slot_seconds} have a fairness of only {shares.jain:.4f}"
    return shares


class _Bench:
    def __init__(self, rng: random.Random, scenario: WorldScenario) -> None:
        self._random = rng
        self.now = 0.0
        places = rng.randint(1, 12)
        settings = GovernorSettings(limits={"runs": places}, slot_timeout=1e6)
        self.governor = Governor(settings, now=self.now)
        names = [f"campaign-{n}" for n in range(max(2, scenario.groups))]
        self._priority = {name: rng.randrange(scenario.priorities) for name in names}
        self._mean_seconds = {name: rng.choice(SLOT_SECONDS) for name in names}
        self._tickets: dict[str, str] = {}
        self._ending: list[tuple[float, str, float]] = []
        self._used: defaultdict[str, float] = defaultdict(float)
        self._asked = self._granted = self._released = 0

    def run(self, steps: int) -> Shares:
        for name in self._priority:
            for _ in range(QUEUE_LENGTH):
                self._ask(name)
        for _ in range(steps):
            self._end_next()
        self._charge_those_still_running()
        return Shares(
            asked=self._asked,
            granted=self._granted,
            released=self._released,
            seconds=self.now,
            jain=self._jain(),
            slot_seconds=dict(self._used),
        )

    def _ask(self, name: str) -> None:
        self._asked += 1
        ticket = Ticket(f"t{self._asked}", ("runs",), name, self._priority[name])
        self._tickets[ticket.id] = name
        verdict = self.governor.request(ticket, now=self.now)
        if isinstance(verdict, Granted):
            self._start(verdict)

    def _start(self, granted: Granted) -> None:
        self._granted += 1
        name = self._tickets[granted.ticket_id]
        seconds = self._random.uniform(0.5, 1.5) * self._mean_seconds[name]
        heapq.heappush(self._ending, (self.now + seconds, granted.ticket_id, self.now))
        self._ask(name)  # refill the queue at once, so that the group stays saturated

    def _end_next(self) -> None:
        self.now, ticket_id, started = heapq.heappop(self._ending)
        self._used[self._tickets[ticket_id]] += self.now - started
        self._released += 1
        self.governor.release(ticket_id, now=self.now)
        for effect in self.governor.advance(now=self.now):
            if isinstance(effect, Granted):
                self._start(effect)

    def _charge_those_still_running(self) -> None:
        for _, ticket_id, started in self._ending:
            self._used[self._tickets[ticket_id]] += self.now - started

    def _jain(self) -> float:
        shares = [self._used[name] / 2.0**priority for name, priority in self._priority.items()]
        return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))

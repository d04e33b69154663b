"""A count of requests in flight on a pool of replicas behind a router. It is one more way next to `counts.py`."""

import math

from benchmarks.control.levels import Steps, still


class Replicas:
    """Requests in flight on replicas of `places` places each. The router sends a request to the one with the most room.

    A replica without room refuses. After `most_refusals` of them within a minute the router leaves that replica out
    for `rest_seconds`; its calls run on. The only replica of a pool is never left out. When the cap falls, the last
    replicas take no more calls. Sessions do not count: only turns are refused.
    """

    checks_starts = False

    def __init__(
        self,
        caps: dict[str, Steps],
        places: int,
        most_refusals: int,
        rest_seconds: float,
        strangers: Steps | None = None,
    ) -> None:
        self.caps = caps
        self.places = places
        self.most_refusals, self.rest_seconds = most_refusals, rest_seconds
        self.strangers = strangers or still(0)
        self.calls: dict[str, dict[str, int]] = {model: {} for model in caps}
        """The replica of each call, by session."""
        self._refusals: dict[str, dict[int, list[float]]] = {model: {} for model in caps}
        self._rests_until: dict[str, dict[int, float]] = {model: {} for model in caps}

    def _free(self, model: str, now: float) -> dict[int, int]:
        """Return the free places of each replica that the router uses. Strangers are spread over the whole pool."""
        cap, strangers, rests_until = self.caps[model].at(now), self.strangers.at(now), self._rests_until[model]
        size = math.ceil(cap / self.places)
        free = [min(self.places, cap - index * self.places) for index in range(size)]
        for index in self.calls[model].values():
            if index < size:
                free[index] -= 1
        for number in range(strangers):
            free[number % size] -= 1
        return {index: room for index, room in enumerate(free) if rests_until.get(index, 0.0) <= now}

    def _room(self, model: str, now: float) -> int:
        return sum(room for room in self._free(model, now).values() if room > 0)

    def start(self, session: str, model: str, now: float) -> bool:
        return True

    def turn(self, session: str, model: str, now: float) -> bool:
        free = self._free(model, now)
        if not free:
            return False
        chosen = max(free, key=free.__getitem__)
        if free[chosen] <= 0:
            self._note_refusal(model, chosen, now)
            return False
        self.calls[model][session] = chosen
        return True

    def _note_refusal(self, model: str, replica: int, now: float) -> None:
        if self.caps[model].at(now) <= self.places:
            return
        refusals = [at for at in self._refusals[model].get(replica, ()) if at > now - 60.0] + [now]
        if len(refusals) >= self.most_refusals:
            self._rests_until[model][replica] = now + self.rest_seconds
            refusals = []
        self._refusals[model][replica] = refusals

    def turn_over(self, session: str, model: str, now: float) -> None:
        del self.calls[model][session]

    def release(self, session: str, model: str, now: float) -> None:
        pass

    def count(self, model: str, now: float) -> int:
        """Return the places that take no call now. A replica that is left out counts as full."""
        return self.caps[model].at(now) - self._room(model, now)

    def limit(self, model: str, now: float) -> int:
        return self.caps[model].at(now)

    def own(self, model: str) -> int:
        return len(self.calls[model])

    def excess(self, model: str, now: float) -> int:
        return -self._room(model, now)

    def speed(self, model: str, now: float) -> float:
        return 1.0

    def can_start(self, model: str, under_way: int, now: float) -> bool:
        return under_way < self._room(model, now)

    def can_turn(self, session: str, model: str, now: float) -> bool:
        return self._room(model, now) > 0

    def next_change(self, model: str, now: float) -> float:
        rests = (until for until in self._rests_until[model].values() if until > now)
        return min(min(rests, default=math.inf), self.caps[model].next_change(now), self.strangers.next_change(now))

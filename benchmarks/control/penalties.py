"""Consequences of a 429, and what the provider advises in Retry-After."""

from random import Random
from typing import Protocol


class Penalty(Protocol):
    """The consequences of a 429. `shut_until` is the end of a lock-out: of starts, or of turns."""

    def refused(self, model: str, now: float, *, is_shut: bool) -> None: ...
    def speed(self, now: float) -> float: ...
    def shut_until(self, model: str, *, is_start: bool) -> float: ...


class NoPenalty:
    def refused(self, model: str, now: float, *, is_shut: bool) -> None:
        pass

    def speed(self, now: float) -> float:
        return 1.0

    def shut_until(self, model: str, *, is_start: bool) -> float:
        return 0.0


class Slowdown:
    """All calls are slower for a while. Starts may be refused for some seconds, and each refusal renews that."""

    def __init__(self, seconds: float, speed: float, shut_seconds: float) -> None:
        self.seconds, self.slow_speed, self.shut_seconds = seconds, speed, shut_seconds
        self._slow_until = 0.0
        self._shut_until: dict[str, float] = {}

    def refused(self, model: str, now: float, *, is_shut: bool) -> None:
        self._slow_until = now + self.seconds
        self._shut_until[model] = now + self.shut_seconds

    def speed(self, now: float) -> float:
        return self.slow_speed if now < self._slow_until else 1.0

    def shut_until(self, model: str, *, is_start: bool) -> float:
        return self._shut_until.get(model, 0.0) if is_start else 0.0


class Lockout:
    """The model is locked for some seconds. `turns_too` locks turns as well; `renews` prolongs it with every try."""

    def __init__(self, seconds: float, *, turns_too: bool, renews: bool) -> None:
        self.seconds, self.turns_too, self.renews = seconds, turns_too, renews
        self._shut_until: dict[str, float] = {}

    def refused(self, model: str, now: float, *, is_shut: bool) -> None:
        if self.renews or not is_shut:
            self._shut_until[model] = now + self.seconds

    def speed(self, now: float) -> float:
        return 1.0

    def shut_until(self, model: str, *, is_start: bool) -> float:
        return self._shut_until.get(model, 0.0) if is_start or self.turns_too else 0.0


class Strikes:
    """The model is locked for some seconds, turns included, but only after `most` refusals within a minute."""

    def __init__(self, most: int, seconds: float) -> None:
        self.most, self.seconds = most, seconds
        self._strikes: dict[str, list[float]] = {}
        self._shut_until: dict[str, float] = {}

    def refused(self, model: str, now: float, *, is_shut: bool) -> None:
        if is_shut:
            return
        self._strikes[model] = [at for at in self._strikes.get(model, ()) if at > now - 60.0] + [now]
        if len(self._strikes[model]) >= self.most:
            self._shut_until[model] = now + self.seconds
            self._strikes[model] = []

    def speed(self, now: float) -> float:
        return 1.0

    def shut_until(self, model: str, *, is_start: bool) -> float:
        return self._shut_until.get(model, 0.0)


class Advice(Protocol):
    """What a refusal says in Retry-After, given the true wait where the provider knows it."""

    def seconds(self, wait: float | None) -> float | None: ...


class FixedAdvice:
    """The same number for every refusal for the cap, and the true wait for a rate. None says nothing."""

    def __init__(self, number: float | None) -> None:
        self.number = number

    def seconds(self, wait: float | None) -> float | None:
        if self.number is None or wait is None:
            return self.number
        return max(1.0, wait)


class HonestAdvice:
    """The true wait, rounded up to seconds. Where the provider does not know it, it says nothing."""

    def seconds(self, wait: float | None) -> float | None:
        return None if wait is None else float(int(wait) + 1)


class NoAdvice:
    def seconds(self, wait: float | None) -> float | None:
        return None


class JitteredAdvice:
    """The true wait, or a fixed number where the provider does not know it, made up to half longer by chance."""

    def __init__(self, rng: Random, number: float) -> None:
        self._rng = rng
        self.number = number

    def seconds(self, wait: float | None) -> float | None:
        return (self.number if wait is None else wait) * self._rng.uniform(1.0, 1.5)


class EstimatedAdvice:
    """An estimate of the wait in full seconds, too short as often as too long. `number` is the usual wait."""

    def __init__(self, rng: Random, number: float, sigma: float) -> None:
        self._rng = rng
        self.number, self.sigma = number, sigma

    def seconds(self, wait: float | None) -> float | None:
        estimate = (self.number if wait is None else wait) * self._rng.lognormvariate(0.0, self.sigma)
        return float(max(1, round(estimate)))


class WrongAdvice:
    """A number that has nothing to do with the wait: far too short, too long, or absent, drawn for each refusal."""

    def __init__(self, rng: Random, numbers: tuple[float | None, ...]) -> None:
        self._rng = rng
        self.numbers = numbers

    def seconds(self, wait: float | None) -> float | None:
        return self._rng.choice(self.numbers)

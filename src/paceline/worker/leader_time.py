"""The leader's clock as a host knows it: the host adds the difference to every time that it sends."""

from collections import deque

from paceline.clock import Clock

KEPT_ANSWERS = 8
"""Answers that the difference is learnt of. A few outlast one slow answer, and a clock that was set is noticed soon."""


class LeaderTime:
    """The difference between the two clocks, learnt from the answers.

    An answer was stamped before it arrived, so each one gives a difference that is too small by its way. The largest of
    the last ones is the nearest to the truth.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._learnt: deque[float] = deque(maxlen=KEPT_ANSWERS)

    def learn(self, leader_now: float) -> None:
        """Take in the time of an answer that has just arrived."""
        self._learnt.append(leader_now - self._clock.now())

    @property
    def ahead(self) -> float:
        """Seconds by which the leader's clock is ahead of this one."""
        return max(self._learnt, default=0.0)

    def now(self) -> float:
        """Return the leader's time."""
        return self._clock.now() + self.ahead

    def of(self, own: float | None) -> float | None:
        """Return a time of this host in the leader's time."""
        return None if own is None else own + self.ahead

    def here(self, leaders: float) -> float:
        """Return a time of the leader in the time of this host."""
        return leaders - self.ahead

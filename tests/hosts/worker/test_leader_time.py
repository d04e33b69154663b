"""The leader's clock as a host knows it."""

from paceline.hosts.worker.sessions import KEPT_ANSWERS, LeaderTime
from paceline.testing import VirtualClock


def test_before_any_answer_both_clocks_are_the_same() -> None:
    assert LeaderTime(VirtualClock(100.0)).now() == 100.0


def test_a_slow_answer_does_not_move_the_leaders_time_back() -> None:
    clock = VirtualClock(100.0)
    time = LeaderTime(clock)
    time.learn(1100.0)
    clock.step(5.0)
    time.learn(1101.0)  # it was four seconds on its way

    assert (time.now(), time.of(100.0), time.of(None), time.ahead) == (1105.0, 1100.0, None, 1000.0)


async def test_a_clock_that_was_set_is_forgotten_after_a_few_answers() -> None:
    clock = VirtualClock(100.0)
    time = LeaderTime(clock)
    time.learn(1100.0)
    clock.step(3600.0)
    for _ in range(KEPT_ANSWERS):
        time.learn(1100.0)

    assert time.now() == 1100.0

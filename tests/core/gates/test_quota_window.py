"""The windows of a scope as one gate: work that stopped at the reserve starts again at the reset by itself."""

import pytest

from paceline.core import Governor, GovernorSettings, Granted, Ticket
from paceline.core.signals import QuotaClosed, Succeeded

ACCOUNT = "anthropic/max-1"
LENGTH = 5 * 3600.0
TURN = 360.0


def session(number: int) -> Ticket:
    return Ticket(f"s{number}", ("sessions", ACCOUNT), leased=False)


def finish(governor: Governor, number: int, now: float) -> None:
    governor.report(ACCOUNT, Succeeded(ticket=f"s{number}"), now=now)
    governor.release(f"s{number}", now=now)


def spent_once() -> Governor:
    """A window that has been seen from its opening to its closing: it holds ten turns."""
    governor = Governor(GovernorSettings(limits={"sessions": 1}, reserves={ACCOUNT: 0.25}), now=0.0)
    for number in range(10):
        assert isinstance(governor.request(session(number), now=number * TURN), Granted)
        if number < 9:
            finish(governor, number, (number + 1) * TURN)
    closed = QuotaClosed(ticket="s9", window="5h", resets_at=LENGTH)
    governor.report(ACCOUNT, closed, now=10 * TURN)
    governor.release("s9", now=10 * TURN)
    return governor


@pytest.mark.parametrize("is_given_up", [False, True], ids=["finished", "given up"])
def test_a_ticket_that_waits_at_the_reserve_is_woken_at_the_reset(is_given_up: bool) -> None:
    """The last turn is longer than one is on average, so its grant does not show that it will reach the reserve."""
    governor = spent_once()
    assert isinstance(governor.request(session(10), now=LENGTH), Granted)
    for number in range(11, 20):
        governor.request(session(number), now=LENGTH)
    now = LENGTH
    for number in range(10, 18):
        now += TURN if number < 17 else 3 * TURN
        if number == 17 and is_given_up:
            governor.abandon("s17", now=now)
        else:
            finish(governor, number, now)
        granted = [effect.ticket_id for effect in governor.advance(now=now) if isinstance(effect, Granted)]
        assert granted == ([f"s{number + 1}"] if number < 17 else [])
    held = governor.why("s18", now=now)
    assert held is not None
    reset = LENGTH + TURN + LENGTH  # the period began when its canary was accepted
    assert (held.reason, held.retry_at, governor.next_wakeup()) == ("reserve", reset, reset)
    assert [effect.ticket_id for effect in governor.advance(now=reset) if isinstance(effect, Granted)] == ["s18"]

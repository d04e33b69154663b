"""A slow start: those who waited come back one by one, as fast as their calls are short."""

import pytest

from paceline.core import Governor, GovernorSettings, Granted, Ticket
from paceline.core.signals import RateLimited

SCOPE = "openai/work/gpt-5"


def run(name: str) -> Ticket:
    return Ticket(name, ("runs", SCOPE), leased=False)


def served_after_a_refusal(call_seconds: float, seconds: float, places: int = 3) -> int:
    """Return how many calls are served in the seconds after the pause, with always one more in line."""
    governor = Governor(GovernorSettings(limits={SCOPE: places}), now=0.0)
    now, number, served, ends = 0.0, 0, 0, list[tuple[float, str]]()
    governor.request_all([run(f"r{each}") for each in range(2 * places)], now=now)
    number, refused_at, pause_ends = 2 * places, 40 * call_seconds, 40 * call_seconds + 1.0
    is_refused = False
    while now < pause_ends + seconds:
        for effect in governor.advance(now=now):
            if isinstance(effect, Granted):
                ends.append((now + call_seconds, effect.ticket_id))
        wakes = [at for at, _ in ends[:1]] + [at for at in [governor.next_wakeup()] if at is not None]
        now = max(now, min(wakes))
        while ends and ends[0][0] <= now:
            _, name = ends.pop(0)
            if now >= refused_at and not is_refused:
                is_refused = True
                governor.report(SCOPE, RateLimited(retry_after=1.0, ticket=name), now=now)
            served += now > pause_ends
            governor.release(name, now=now)
            number += 1
            governor.request(run(f"r{number}"), now=now)
    return served


@pytest.mark.parametrize("call_seconds", [0.002, 0.02, 0.2])
def test_after_a_refusal_short_calls_are_soon_served_as_before(call_seconds: float) -> None:
    two_places = 2 * 4.0 / call_seconds
    assert served_after_a_refusal(call_seconds, 4.0) >= 0.6 * two_places


def test_long_calls_still_come_back_seconds_apart() -> None:
    governor = Governor(GovernorSettings(limits={SCOPE: 8}), now=0.0)
    for number in range(8):
        assert isinstance(governor.request(run(f"r{number}"), now=0.0), Granted)
    governor.report(SCOPE, RateLimited(retry_after=1.0, ticket="r7"), now=100.0)
    for number in range(8):
        governor.release(f"r{number}", now=100.0)
        governor.request(run(f"n{number}"), now=100.0)
    at_once = [effect for effect in governor.advance(now=101.5) if isinstance(effect, Granted)]
    later = [effect for effect in governor.advance(now=103.5) if isinstance(effect, Granted)]
    assert (len(at_once), len(later)) == (1, 1)


def test_the_length_of_calls_survives_a_restart() -> None:
    governor = Governor(GovernorSettings(limits={SCOPE: 3}), now=0.0)
    governor.report(SCOPE, RateLimited(retry_after=1.0), now=0.0)
    for number in range(20):
        now = 10.0 + number
        assert isinstance(governor.request(run(f"r{number}"), now=now), Granted)
        governor.release(f"r{number}", now=now + 0.1)
    again = Governor.restore(governor.snapshot(), now=40.0)
    assert again.ledger.scope(SCOPE).calls.median == pytest.approx(0.1)

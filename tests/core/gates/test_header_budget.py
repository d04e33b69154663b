"""Budgets told by headers: runs keep to the refill, and nothing waits for a full bucket."""

import msgspec
import pytest

from paceline.core import Deferred, Governor, GovernorSettings, Granted, Ticket
from paceline.core.signals import Budget, Succeeded

SCOPE = "openai/work/gpt-5"
START = 1_700_000_000.25
"""A time with a fraction of a second, so that resets are not taken for rounded ones."""


def run(name: str) -> Ticket:
    return Ticket(name, ("runs", SCOPE), leased=False)


class Bucket:
    """A provider that refills evenly and tells when it is full."""

    def __init__(self, size: int, per_second: float) -> None:
        self.size, self.per_second = size, per_second
        self.level, self.at = float(size), START

    def take(self, now: float) -> bool:
        self.level = min(self.size, self.level + (now - self.at) * self.per_second)
        self.at = now
        if self.level < 1:
            return False
        self.level -= 1
        return True

    def reading(self, now: float) -> Budget:
        full_at = now + (self.size - self.level) / self.per_second
        return Budget(requests_remaining=int(self.level), requests_limit=self.size, requests_reset_at=full_at)


class Period:
    """A provider that gives everything back at the end of a fixed period."""

    def __init__(self, size: int, seconds: float) -> None:
        self.size, self.seconds = size, seconds
        self.left, self.ends_at = size, START + seconds

    def take(self, now: float) -> bool:
        if now >= self.ends_at:
            self.left, self.ends_at = self.size, self.ends_at + self.seconds
        self.left -= self.left > 0
        return self.left > 0

    def reading(self, now: float) -> Budget:
        return Budget(requests_remaining=self.left, requests_limit=self.size, requests_reset_at=self.ends_at)


class Sum:
    """A provider that counts the last minute, and tells when nothing of it is left."""

    def __init__(self, size: int, seconds: float) -> None:
        self.size, self.seconds = size, seconds
        self.uses: list[float] = []

    def take(self, now: float) -> bool:
        self.uses = [at for at in self.uses if at > now - self.seconds]
        if len(self.uses) == self.size:
            return False
        self.uses.append(now)
        return True

    def reading(self, now: float) -> Budget:
        used = sum(at > now - self.seconds for at in self.uses)
        full_at = self.uses[-1] + self.seconds
        return Budget(requests_remaining=self.size - used, requests_limit=self.size, requests_reset_at=full_at)


class NearlyFull:
    """A provider that serves every call, and says each time that only one is used."""

    def take(self, now: float) -> bool:
        return True

    def reading(self, now: float) -> Budget:
        return Budget(requests_remaining=9_999, requests_limit=10_000, requests_reset_at=now + 0.006)


def serve(
    provider: Bucket | Period | Sum | NearlyFull,
    calls: int,
    *,
    places: int = 4,
    seconds: float = 0.1,
    reads_on_arrival: bool = False,
) -> tuple[float, int]:
    """Let the calls wait for the Governor, and end after some time. Returns how long all took, and the refusals.

    With `reads_on_arrival` an answer states what was left when its call came, so without those that came after it.
    """
    governor = Governor(GovernorSettings(limits={SCOPE: places}), now=START)
    governor.request_all([run(f"r{number}") for number in range(calls)], now=START)
    now, refused, ends, entered = START, 0, list[tuple[float, str]](), 0
    arrived: dict[str, Budget] = {}
    while entered < calls or ends:
        for effect in governor.advance(now=now):
            if isinstance(effect, Granted):
                entered += 1
                refused += not provider.take(now)
                arrived[effect.ticket_id] = msgspec.structs.replace(provider.reading(now), ticket=effect.ticket_id)
                ends.append((now + seconds, effect.ticket_id))
        wakes = [at for at, _ in ends[:1]] + [at for at in [governor.next_wakeup()] if at is not None]
        if not wakes:
            break
        now = max(now, min(wakes))
        while ends and ends[0][0] <= now:
            _, name = ends.pop(0)
            governor.report(SCOPE, arrived[name] if reads_on_arrival else provider.reading(now), now=now)
            governor.release(name, now=now)
    return now - START, refused


def test_calls_beyond_a_bucket_go_at_its_refill_instead_of_waiting_until_it_is_full() -> None:
    seconds, refused = serve(Bucket(60, 1.0), 70)
    assert refused == 0
    assert 8.0 <= seconds <= 12.0


@pytest.mark.parametrize("places", [1, 4, 8, 30])
def test_calls_in_flight_at_the_first_reading_count_against_it(places: int) -> None:
    seconds, refused = serve(Bucket(60, 1.0), 70, places=places, reads_on_arrival=True)
    assert refused == 0
    assert 8.0 <= seconds <= 12.0


def test_calls_that_a_provider_plainly_serves_do_not_wait_for_a_budget() -> None:
    seconds, _ = serve(NearlyFull(), 16_000, places=32, seconds=0.001)
    assert seconds == pytest.approx(0.5, rel=0.01)


def test_where_a_period_gives_everything_back_at_its_end_calls_wait_for_that_without_refusals() -> None:
    seconds, refused = serve(Period(60, 60.0), 150)
    assert refused <= 3  # the last of each period
    assert 120.0 <= seconds <= 125.0


def test_where_each_use_comes_back_a_minute_later_calls_wait_for_that_and_not_for_all_of_them() -> None:
    seconds, refused = serve(Sum(60, 60.0), 240, seconds=2.0)
    assert refused <= 2  # until the readings have shown that it is no bucket
    assert 210.0 <= seconds <= 245.0  # 212 s is the least; to wait for all of them each time takes 294 s


def test_the_kind_of_a_budget_is_explained() -> None:
    governor = Governor(GovernorSettings(), now=START)
    for used in (20, 40, 60):
        reading = Budget(requests_remaining=60 - used, requests_limit=60, requests_reset_at=START + 60.0)
        governor.report(SCOPE, reading, now=START + used / 3)

    verdict = governor.try_request(run("r"), now=START + 30.0)

    assert isinstance(verdict, Deferred)
    assert verdict.detail == (
        "too few requests left in openai/work/gpt-5 by its response headers; all comes back at the reset"
    )


def token_readings(governor: Governor, sizes: tuple[int, ...]) -> None:
    """Let runs of these sizes end, under a token budget of a full minute."""
    for number, size in enumerate(sizes):
        name, now = f"r{number}", START + number / 10
        assert isinstance(governor.request(run(name), now=now), Granted)
        governor.report(SCOPE, Succeeded(ticket=name, tokens=size), now=now)
        governor.release(name, now=now)
        left = 1_000_000 - 1_000 * number
        reading = Budget(tokens_remaining=left, tokens_limit=1_000_000, tokens_reset_at=START + 60.0)
        governor.report(SCOPE, reading, now=now)


def most_left_that_refuses(governor: Governor) -> int:
    """Return how much must be left, to a thousand tokens, until a run without a size enters."""
    for left in range(0, 100_000, 1_000):
        reading = Budget(tokens_remaining=left, tokens_limit=1_000_000, tokens_reset_at=START + 60.0)
        governor.report(SCOPE, reading, now=START + 50.0)
        if isinstance(governor.try_request(run("next"), now=START + 50.0), Granted):
            return left
    raise AssertionError("nothing is enough")


def test_the_rest_of_a_period_is_used_by_runs_of_a_known_size() -> None:
    governor = Governor(GovernorSettings(), now=START)
    token_readings(governor, (1_000,) * 300)
    assert most_left_that_refuses(governor) <= 2_000


def test_where_runs_differ_much_a_large_one_must_fit_but_not_the_largest_ever() -> None:
    governor = Governor(GovernorSettings(), now=START)
    token_readings(governor, (50_000, *(500, 1_000, 4_000) * 100))
    assert 5_000 <= most_left_that_refuses(governor) <= 20_000


def test_a_slow_answer_does_not_hide_what_was_sent_after_it() -> None:
    """A reading lacks the calls that are under way. With many of them it would let in too many."""
    seconds, refused = serve(Bucket(60, 2.0), 120, places=20, seconds=1.5)
    assert refused == 0
    assert 29.0 <= seconds <= 40.0


def test_a_budget_without_a_limit_is_waited_for_until_its_reset() -> None:
    governor = Governor(GovernorSettings(), now=START)
    governor.report(SCOPE, Budget(requests_remaining=0, requests_reset_at=START + 10), now=START)
    verdict = governor.try_request(run("r"), now=START + 1)
    assert isinstance(verdict, Deferred)
    assert (verdict.reason, verdict.retry_at) == ("pacing", START + 10)
    assert isinstance(governor.try_request(run("r"), now=START + 10), Granted)


def test_a_daily_bucket_goes_at_its_own_slow_pace() -> None:
    """Some tell 1,000 requests a day that come back one by one."""
    governor = Governor(GovernorSettings(), now=START)
    reading = Budget(requests_remaining=0, requests_limit=1000, requests_reset_at=START + 86400)
    governor.report(SCOPE, reading, now=START)
    verdict = governor.try_request(run("r"), now=START + 1)
    assert isinstance(verdict, Deferred)
    assert verdict.retry_at is not None
    assert 86.0 <= verdict.retry_at - START <= 90.0


def test_what_was_learnt_of_a_budget_survives_a_restart() -> None:
    governor = Governor(GovernorSettings(), now=START)
    for used in (30, 60):
        at = START + used / 10
        governor.report(
            SCOPE, Budget(requests_remaining=60 - used, requests_limit=60, requests_reset_at=at + used), now=at
        )
    again = Governor.restore(governor.snapshot(), now=START + 6.1)
    assert again.try_request(run("r"), now=START + 6.1) == governor.try_request(run("r"), now=START + 6.1)


def test_the_known_sizes_of_runs_survive_a_restart() -> None:
    # given runs that use the same, and one that is under way
    governor = Governor(GovernorSettings(), now=START)
    token_readings(governor, (1_000,) * 300)
    governor.request(run("last"), now=START + 40.0)
    # when it ends after a restart
    again = Governor.restore(governor.snapshot(), now=START + 40.0)
    for each in (governor, again):
        each.report(SCOPE, Succeeded(ticket="last", tokens=1_000), now=START + 41.0)
        each.release("last", now=START + 41.0)
    # then the rest of the period is used as before
    assert [most_left_that_refuses(each) for each in (governor, again)] == [2_000, 2_000]


def test_a_budget_that_only_a_refusal_told_is_over_once_calls_go_well_without_one() -> None:
    governor = Governor(GovernorSettings(), now=START)
    refusal = Budget(tokens_remaining=0, tokens_limit=50, tokens_reset_at=START + 1)
    governor.report(SCOPE, refusal, now=START)
    assert isinstance(governor.try_request(run("r0"), now=START + 1.1), Granted)
    governor.report(SCOPE, Succeeded(ticket="r0", tokens=40), now=START + 1.3)
    governor.release("r0", now=START + 1.3)
    entered = [isinstance(governor.try_request(run(f"n{number}"), now=START + 1.4), Granted) for number in range(12)]
    assert entered == [True] * 12


def test_a_reset_that_lies_days_ahead_is_looked_at_after_a_quarter_of_an_hour() -> None:
    for limit in (None, 100):
        governor = Governor(GovernorSettings(), now=START)
        reading = Budget(requests_remaining=0, requests_limit=limit, requests_reset_at=START + 30 * 86400.0)
        governor.report(SCOPE, reading, now=START)

        waits = governor.request(run("a"), now=START)

        assert isinstance(waits, Deferred)
        assert waits.retry_at == START + 900.0


def test_a_limit_of_zero_is_no_statement() -> None:
    governor = Governor(GovernorSettings(), now=START)
    reading = Budget(requests_remaining=0, requests_limit=0, requests_reset_at=START + 86400.0)
    governor.report(SCOPE, reading, now=START)

    assert isinstance(governor.request(run("a"), now=START), Granted)


def test_a_run_that_lacks_less_than_the_clock_can_show_has_a_next_check() -> None:
    # given a run that waits for more than is usual, in a budget that is full again in 6 ms
    governor = Governor(GovernorSettings(), now=START)
    governor.report(SCOPE, Budget(tokens_remaining=0, tokens_limit=2, tokens_reset_at=START + 0.006), now=START)
    governor.request(Ticket("large", ("runs", SCOPE), tokens=50, leased=False), now=START)

    # when the time comes at which a usual run may enter
    now = governor.next_wakeup()
    assert now is not None
    effects = governor.advance(now=now)

    # then it still waits, and there is a next check
    due = governor.next_wakeup()
    assert (effects, due is not None and due > now) == ([], True)

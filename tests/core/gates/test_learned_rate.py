"""Rates learnt from refusals and mirrored from headers: runs wait instead of being refused."""

from paceline.core import Governor, GovernorSettings, Granted, Ticket
from paceline.core.gates.rates import LearnedRate
from paceline.core.signals import RateLimited, Succeeded

SCOPE = "umans"


def run(name: str) -> Ticket:
    return Ticket(name, ("runs", SCOPE), leased=False)


def test_what_went_through_between_two_refusals_is_the_rate() -> None:
    rate = LearnedRate.first("requests", 30, 1.0, 0.0, now=0.0)
    for second in range(120):
        rate.on_grant(run(f"r{second}"), 0.0, float(second))
    rate.on_refused(120.0)
    assert (rate.rate, rate.is_measured) == (1.0, True)


def test_a_guess_that_is_far_too_fast_is_halved_at_once_and_one_that_is_too_slow_soon_grows() -> None:
    """A burst passes whatever the rate is, so the first refusal says little of it."""
    rate = LearnedRate.first("requests", 30, 1.0, 0.0, now=0.0)
    rate.on_refused(2.0)
    rate.on_refused(4.0)
    assert (rate.rate, rate.is_measured) == (7.5, False)

    rate.on_grant(run("later"), 0.0, 4.0 + 240.0)
    waits = rate.next_at(0.0) - rate.seen_at
    assert waits <= 1.0 / 14.9


def test_a_night_in_which_nobody_ran_is_no_measure_of_the_rate() -> None:
    rate = LearnedRate.first("requests", 120, 60.0, 0.0, now=0.0)
    for second in range(120):
        rate.on_grant(run(f"r{second}"), 0.0, second / 2)
    rate.on_refused(60.0)
    rate.on_grant(run("morning"), 0.0, 30_000.0)
    rate.on_refused(30_000.0)

    assert rate.rate >= 1.0
    rate.on_grant(run("later"), 0.0, 30_000.0 + 240.0)
    assert rate.next_at(0.0) - rate.seen_at <= 0.5


def test_after_a_refusal_for_its_rate_those_who_waited_come_back_one_by_one() -> None:
    governor = Governor(GovernorSettings(limits={SCOPE: 50}), now=0.0)
    for number in range(10):
        assert isinstance(governor.request(run(f"r{number}"), now=number / 10), Granted)
    governor.report(SCOPE, RateLimited(retry_after=1.0, cause="requests", ticket="r9"), now=1.0)
    for number in range(10, 20):
        governor.request(run(f"r{number}"), now=1.0)

    at_once = [effect for effect in governor.advance(now=2.0) if isinstance(effect, Granted)]
    assert [effect.ticket_id for effect in at_once] == ["r10"]


def test_one_refusal_after_idle_time_does_not_slow_the_next_burst() -> None:
    """Nobody waited, so what went through before it shows nothing of the provider's rate."""
    governor = Governor(GovernorSettings(limits={SCOPE: 4}), now=0.0)

    def call(name: str, at: float) -> None:
        assert isinstance(governor.request(run(name), now=at), Granted)
        governor.report(SCOPE, Succeeded(ticket=name, tokens=30), now=at + 0.2)
        governor.release(name, now=at + 0.2)

    for number in range(4):
        call(f"idle{number}", 4.0 * number)
    assert isinstance(governor.request(run("refused"), now=16.0), Granted)
    governor.report(SCOPE, RateLimited(retry_after=1.0, cause="tokens", ticket="refused"), now=16.1)
    governor.release("refused", now=16.1)
    call("again", 17.1)

    now, ends = 20.0, list[tuple[float, str]]()
    governor.collect()
    governor.request_all([run(f"burst{number}") for number in range(12)], now=now)
    while True:
        ends += [(now + 0.2, each.ticket_id) for each in governor.advance(now=now) if isinstance(each, Granted)]
        if not ends:
            break
        wake = governor.next_wakeup()
        now = max(now, min(ends[0][0], wake or ends[0][0]))
        while ends and ends[0][0] <= now:
            governor.release(ends.pop(0)[1], now=now)
    assert governor.waiting(now=now) == {}
    assert now - 20.0 <= 0.6 + 1.5


def test_a_guess_is_forgotten_after_two_minutes_without_a_refusal() -> None:
    rate = LearnedRate.first("tokens", 10, 60.0, 0.0, now=0.0)
    assert rate.forgotten_at() == 120.0
    rate.on_grant(run("r"), 0.0, 60.0)
    assert rate.interval(0.0) <= 6.0 / 4


def test_idle_time_never_halves_a_rate() -> None:
    rate = LearnedRate.first("requests", 60, 60.0, 0.0, now=0.0)
    for incident in range(1, 6):
        now = 90.0 * incident
        rate.on_grant(run(f"r{incident}"), 0.0, now, is_wanted=False)
        before = rate.interval(0.0)
        rate.on_refused(now + 0.1)
        assert rate.interval(0.0) <= before / 0.98 + 1e-9


def test_a_guess_is_no_slower_than_headers_and_waits_of_the_provider_allow() -> None:
    by_headers = LearnedRate.first("requests", 2, 60.0, 0.0, now=0.0)
    by_headers.bound(None, 5.0, 0.0)
    by_wait = LearnedRate.first("requests", 2, 60.0, 0.0, now=0.0)
    by_wait.bound(1.0, 0.0, 0.0)
    assert (by_headers.rate, by_wait.rate) == (5.0, 0.5)


def test_a_pause_after_a_refusal_does_not_count_as_time_without_one() -> None:
    """A guess would be forgotten in a pause of two minutes, and the next burst refused again."""
    governor = Governor(GovernorSettings(limits={SCOPE: 3}), now=0.0)
    for name in ("r0", "r1", "r2", "waits"):
        governor.request(run(name), now=0.0)
    governor.report(SCOPE, RateLimited(retry_after=300.0, cause="requests", ticket="r2"), now=20.0)

    status = governor.status(SCOPE, now=319.0)

    assert status is not None
    assert [(rate.source, rate.until) for rate in status.rates] == [("learnt", 320.0 + 120.0)]


def test_refusals_soon_after_one_another_measure_the_rate_together() -> None:
    rate = LearnedRate.first("requests", 30, 10.0, 0.0, now=0.0)
    for second in range(90):
        rate.on_grant(run(f"r{second}"), 0.0, float(second))
        if second in (30, 50):
            rate.on_refused(float(second))
    rate.on_refused(90.0)
    assert (rate.rate, rate.is_measured) == (1.0, True)


def go_at_the_rate(rate: LearnedRate, since: float, until: float) -> None:
    now = since
    while (now := max(now, rate.next_at(0.0))) < until:
        rate.on_grant(run("r"), 0.0, now)


def test_a_measured_rate_falls_by_little_and_grows_the_faster_the_longer_nothing_is_refused() -> None:
    rate = LearnedRate("requests", 1.0, seen_at=0.0, refused_at=0.0, empty_at=0.0, resumes_at=0.0, is_measured=True)
    go_at_the_rate(rate, 0.0, 61.0)
    rate.on_refused(61.0)
    assert 0.97 <= rate.rate <= 0.99
    go_at_the_rate(rate, 61.0, 61.0 + 120.0)
    assert 1.01 <= rate.per_second / rate.rate <= 1.03
    go_at_the_rate(rate, 61.0 + 120.0, 61.0 + 600.0)
    assert 1.45 <= rate.per_second / rate.rate <= 1.55


def test_a_rate_that_holds_nobody_back_does_not_grow() -> None:
    rate = LearnedRate("requests", 1.0, seen_at=0.0, refused_at=0.0, empty_at=0.0, resumes_at=0.0, is_measured=True)
    for number in range(60):
        rate.on_grant(run(f"r{number}"), 0.0, 10.0 * (number + 1))
    assert rate.per_second == 1.0

"""The causes of a refused start: a failed try, a lagging count, a capacity that fell."""

from itertools import count

import pytest

from paceline.core import Deferred, Governor, GovernorSettings, Granted, Ticket
from paceline.core.limits import AdaptiveLimit, ReleaseLag
from paceline.core.signals import QuotaClosed, RateLimited, Succeeded, Usage
from paceline.events import Event

SCOPE = "umans"


def session(name: str) -> Ticket:
    return Ticket(name, ("sessions", SCOPE), leased=False)


def run_of(name: str, number: int = 0) -> Ticket:
    return Ticket(f"{name}:run-{number}", ("runs", SCOPE), parent=name, leased=False)


class Fleet:
    """A provider that takes `cap` sessions, each of which is replaced when it ends."""

    def __init__(self, cap: int, configured: int) -> None:
        self.governor = Governor(GovernorSettings(limits={SCOPE: configured}, first_ramp=0.0), now=0.0)
        self.live: list[str] = []
        self.count = 0
        self.refused = 0
        self.cap = cap
        self.now = 0.0
        while self.start():
            pass

    def start(self, *, unnoticed: int = 0) -> bool:
        """Start one if the Governor lets it; `unnoticed` are ended sessions that the provider still counts."""
        self.count += 1
        name = f"s{self.count}"
        if isinstance(self.governor.try_request(session(name), now=self.now), Deferred):
            return False
        if len(self.live) + unnoticed >= self.cap:
            self.refused += 1
            self.governor.report(SCOPE, RateLimited(retry_after=1.0, ticket=name), now=self.now)
            self.governor.release(name, now=self.now)
            return False
        self.governor.report(SCOPE, Succeeded(ticket=name), now=self.now)
        self.live.append(name)
        return True

    def end(self, count: int = 1) -> None:
        for name in self.live[:count]:
            self.governor.release(name, now=self.now)
        del self.live[:count]

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.governor.advance(now=self.now)

    @property
    def limit(self) -> int | None:
        status = self.governor.status(SCOPE, now=self.now)
        assert status is not None
        return status.limit


def test_a_start_at_the_very_moment_of_a_release_teaches_a_lag_too() -> None:
    """Where nothing is between the two, the age of the release is zero, and twice zero is zero."""
    fleet = Fleet(cap=8, configured=16)
    fleet.wait(100.0)
    for _ in range(12):
        fleet.end()
        fleet.start(unnoticed=1)
        fleet.wait(1.0)
        for _ in range(3):
            fleet.wait(10.0)
            fleet.start()
    assert fleet.limit == 8
    assert fleet.refused == 2  # the first at the cap, and the one that taught the lag


def test_the_first_lessons_of_a_lag_are_large_and_later_ones_small() -> None:
    lag = ReleaseLag(releases=[0.0])
    learnt = []
    for _ in range(7):
        lag.blame(0.0, 1000, 600.0)
        learnt.append(round(lag.seconds, 1))
    assert learnt == [2.5, 4.4, 6.6, 9.0, 11.7, 14.7, 18.3]


def test_a_lag_settles_where_three_in_two_thousand_starts_are_refused() -> None:
    lag = ReleaseLag(seconds=10.0, lessons=6)
    for number in range(2000):
        lag.on_release(float(number))
    for _ in range(3):
        lag.blame(0.0, 1000, 2000.0)
    assert 9.9 < lag.seconds < 10.1


def test_a_lag_learnt_from_short_calls_leaves_most_places_usable() -> None:
    """Four releases a second: of 24 places, at most six may cool down."""
    headroom = AdaptiveLimit(limit=24, worked_at=24, failed_at=25, reduced_from=48)
    for number in range(400):
        now = number / 4
        headroom.on_release(now, was_full=True)
        if number % 20 == 19:
            assert headroom.refuse_start(24, 23, 24, now) is None
            headroom.lag.unblamed_seconds = None  # as the next success does

    assert headroom.limit == 24
    assert 1.2 < headroom.lag.seconds < 1.5


def test_a_second_refusal_in_a_row_takes_back_what_the_first_taught_of_the_lag() -> None:
    fleet = Fleet(cap=8, configured=16)
    fleet.wait(100.0)
    fleet.cap = 6
    fleet.end()
    fleet.start()
    fleet.wait(5.0)
    fleet.end()
    fleet.start()
    fleet.wait(5.0)
    headroom = fleet.governor.ledger.scopes.by_name[SCOPE].adaptive
    assert headroom is not None
    assert (fleet.limit, headroom.lag.seconds) == (6, 0.0)


def test_a_run_of_an_excess_session_waits_for_the_limit_also_while_its_scope_is_paused() -> None:
    """A pause ends by itself, an excess does not: a caller that sees the limit ends the session at its turn."""
    governor = Governor(GovernorSettings(limits={SCOPE: 10}), now=0.0)
    for number in range(10):
        governor.request(session(f"s{number}"), now=0.0)
        governor.report(SCOPE, Succeeded(ticket=f"s{number}"), now=1.0)
    assert isinstance(governor.request(run_of("s3"), now=50.0), Granted)
    governor.report(SCOPE, RateLimited(retry_after=30.0, ticket="s3:run-0"), now=50.0)

    oldest, youngest = (governor.request(run_of(name), now=51.0) for name in ("s0", "s9"))

    assert isinstance(oldest, Deferred)
    assert isinstance(youngest, Deferred)
    assert (oldest.reason, youngest.reason) == ("paused", "limit")


def test_a_start_refused_for_its_burst_is_no_news_of_the_limit_for_those_that_were_under_way() -> None:
    governor = Governor(GovernorSettings(limits={SCOPE: 10}), now=0.0)
    for number in range(5):
        governor.request(session(f"s{number}"), now=0.0)
    for number in range(3):
        governor.report(SCOPE, Succeeded(ticket=f"s{number}"), now=1.0)
    governor.report(SCOPE, RateLimited(cause="starts", ticket="s3"), now=1.0)
    governor.report(SCOPE, RateLimited(ticket="s4"), now=1.1)

    status = governor.status(SCOPE, now=1.1)
    assert status is not None
    assert status.limit == 10


def test_a_window_with_an_implausible_reset_is_probed_when_its_period_ends() -> None:
    governor = Governor(GovernorSettings(limits={SCOPE: 4}), now=0.0)
    closed = QuotaClosed(resets_at=3600.0, window="5h", source="field")
    governor.report(SCOPE, closed, now=0.0)
    sent: list[float] = []
    for number, opens in enumerate((3600.0, None)):
        while True:
            name = f"canary-{number}-{len(sent)}"
            governor.request(session(name), now=governor.ledger.now)
            while not governor.is_held(name):
                governor.advance(now=governor.next_wakeup() or governor.ledger.now)
            now = governor.ledger.now
            sent.append(now)
            if now >= (opens or 21_600.0):
                governor.report(SCOPE, Succeeded(ticket=name), now=now)
                governor.release(name, now=now)
                break
            governor.report(SCOPE, QuotaClosed(resets_at=opens, window="5h", source="field", ticket=name), now=now)
            governor.release(name, now=now)
        if opens is not None:
            governor.report(SCOPE, QuotaClosed(resets_at=3700.0, window="5h", source="field"), now=15_000.0)
    assert sent[-1] == 21_600.0


def limit_events(governor: Governor, now: float) -> list[tuple[str, int | None, int | None]]:
    return [
        (effect.name, effect.fields["limit"], effect.fields["previous"])  # type: ignore[misc]
        for effect in governor.advance(now=now)
        if isinstance(effect, Event) and effect.name in ("scope.limit_raised", "scope.limit_reduced")
    ]


def test_a_refusal_that_is_put_down_to_a_lag_is_not_reported_as_a_lower_limit() -> None:
    fleet = Fleet(cap=8, configured=16)
    fleet.wait(100.0)
    fleet.governor.collect()
    fleet.end()
    fleet.start(unnoticed=1)
    assert fleet.refused == 2
    assert limit_events(fleet.governor, fleet.now) == []


def test_a_reading_that_undoes_a_reduction_is_reported() -> None:
    fleet = Fleet(cap=4, configured=8)
    reading = Usage(concurrent_sessions=4, limit=6)
    fleet.governor.report(SCOPE, reading, now=0.0)
    fleet.wait(10.0)
    fleet.start()
    assert fleet.limit == 4
    fleet.governor.collect()
    fleet.governor.report(SCOPE, reading, now=fleet.now)
    assert limit_events(fleet.governor, fleet.now) == [("scope.limit_raised", 6, 4)]


def refuse_turn_of(fleet: Fleet, name: str) -> None:
    """Have the provider refuse a turn of a session that it had accepted."""
    fleet.governor.request(run_of(name), now=fleet.now)
    fleet.governor.report(SCOPE, RateLimited(retry_after=1.0, ticket=f"{name}:run-0"), now=fleet.now)
    fleet.governor.release(f"{name}:run-0", now=fleet.now)


def test_a_reading_that_turns_were_refused_against_does_not_undo_the_reduction() -> None:
    """A provider may count more than it reports, such as requests that have just ended."""
    fleet = Fleet(cap=10, configured=20)
    reading = Usage(concurrent_sessions=10, limit=10)
    fleet.governor.report(SCOPE, reading, now=0.0)
    fleet.wait(100.0)
    refuse_turn_of(fleet, "s1")
    assert fleet.limit == 9

    fleet.governor.report(SCOPE, reading, now=fleet.now)
    assert fleet.limit == 9

    fleet.governor.report(SCOPE, Usage(concurrent_sessions=10, limit=12), now=fleet.now)
    assert fleet.limit == 12


def test_a_reading_undoes_what_was_learnt_while_more_ran_than_it_allows() -> None:
    fleet = Fleet(cap=10, configured=20)
    reading = Usage(concurrent_sessions=10, limit=8)
    fleet.governor.report(SCOPE, reading, now=0.0)
    fleet.wait(100.0)
    refuse_turn_of(fleet, "s1")
    assert fleet.limit == 7

    fleet.governor.report(SCOPE, reading, now=fleet.now)

    assert fleet.limit == 8


class Calls:
    """A provider that takes `cap` calls at once, for which more always wait; successes are reported at the end."""

    def __init__(self, cap: int, configured: int, seconds: float) -> None:
        self.governor = Governor(GovernorSettings(limits={SCOPE: configured}), now=0.0)
        self.seconds = seconds
        self.cap = cap
        self.ends: dict[str, float] = {}
        self.names = (f"call-{number}" for number in count())

    def go_on(self, since: float, until: float) -> int | None:
        """The limit after all that time."""
        now = since
        while now < until:
            for name in [name for name, ends_at in self.ends.items() if ends_at <= now]:
                del self.ends[name]
                self.governor.release(name, now=now)
            while self._start(now):
                pass
            now += 1.0
        status = self.governor.status(SCOPE, now=now)
        assert status is not None
        return status.limit

    def _start(self, now: float) -> bool:
        name = next(self.names)
        if isinstance(self.governor.try_request(Ticket(name, ("runs", SCOPE), leased=False), now=now), Deferred):
            return False
        if len(self.ends) >= self.cap:
            self.governor.report(SCOPE, RateLimited(retry_after=1.0, ticket=name), now=now)
            self.governor.release(name, now=now)
            return False
        self.ends[name] = now + self.seconds
        return True


@pytest.mark.parametrize("seconds", [1.0, 5.0])
def test_a_limit_climbs_where_calls_are_so_short_that_some_are_always_new(seconds: float) -> None:
    calls = Calls(cap=6, configured=16, seconds=seconds)
    assert calls.go_on(0.0, 3600.0) == 6
    calls.cap = 12
    assert calls.go_on(3600.0, 3.5 * 3600.0) == 12


def test_a_limit_climbs_where_sessions_have_several_runs_at_once() -> None:
    governor = Governor(GovernorSettings(limits={SCOPE: 16}), now=0.0)
    for name in ("s0", "s1", "s2"):
        governor.request(session(name), now=0.0)
        for number in range(3):
            assert isinstance(governor.request(run_of(name, number), now=1.0), Granted)
            governor.report(SCOPE, Succeeded(ticket=f"{name}:run-{number}"), now=2.0)
    assert isinstance(governor.request(session("s3"), now=100.0), Granted)
    governor.report(SCOPE, RateLimited(retry_after=1.0, ticket="s3"), now=100.0)
    governor.release("s3", now=100.0)
    status = governor.status(SCOPE, now=100.0)
    assert status is not None
    assert (status.limit, status.in_flight) == (9, 9)

    for now, number in ((2000.0, 3), (2030.0, 4)):
        governor.report(SCOPE, Succeeded(ticket="s0"), now=now)
        assert isinstance(governor.try_request(run_of("s0", number), now=now), Granted)

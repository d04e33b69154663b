"""What refusals teach the Governor: how many at once, how fast, how far apart, and how long a count lags."""

from heapq import heappop, heappush
from itertools import pairwise

import pytest

from paceline.core import Deferred, Governor, GovernorSettings, Granted, Ticket
from paceline.core.signals import RateLimited, Succeeded, Usage

SCOPE = "umans"


def session(name: str) -> Ticket:
    return Ticket(name, ("sessions", SCOPE), leased=False)


def turn_of(name: str, number: int = 0) -> Ticket:
    return Ticket(f"{name}:{number}", ("runs", SCOPE), parent=name, leased=False)


def running(count: int, limit: int) -> Governor:
    """So many sessions that went well, of a limit that is higher."""
    governor = Governor(GovernorSettings(limits={SCOPE: limit}, first_ramp=0.0), now=0.0)
    for number in range(count):
        assert isinstance(governor.request(session(f"s{number}"), now=0.0), Granted)
        governor.report(SCOPE, Succeeded(ticket=f"s{number}"), now=1.0)
    return governor


def refuse(governor: Governor, name: str, now: float, **fields: object) -> None:
    """A start that is let in here and refused there."""
    assert isinstance(governor.try_request(session(name), now=now), Granted)
    governor.report(SCOPE, RateLimited(retry_after=5.0, ticket=name, **fields), now=now)  # type: ignore[arg-type]
    governor.release(name, now=now)


def limit(governor: Governor, now: float) -> int | None:
    status = governor.status(SCOPE, now=now)
    assert status is not None
    return status.limit


def let_in(governor: Governor, now: float) -> list[str]:
    return [effect.ticket_id for effect in governor.advance(now=now) if isinstance(effect, Granted)]


def settled_at_four() -> Governor:
    """A configured limit of eight, a fifth start refused, four that went on."""
    governor = running(4, 8)
    refuse(governor, "fifth", 100.0)
    return governor


def test_a_refused_start_lowers_the_limit_to_what_goes_well() -> None:
    assert limit(settled_at_four(), 100.0) == 4


def test_one_who_is_refused_alone_says_little_and_lowers_by_one() -> None:
    governor = Governor(GovernorSettings(limits={SCOPE: 8}), now=0.0)
    refuse(governor, "only", 1.0)
    assert limit(governor, 1.0) == 7


def test_a_start_refused_right_after_a_release_teaches_the_lag_and_leaves_the_limit() -> None:
    governor = settled_at_four()
    governor.release("s0", now=200.0)
    refuse(governor, "too soon", 202.0)
    assert limit(governor, 202.0) == 4

    assert isinstance(governor.request(session("later"), now=300.0), Granted)
    governor.report(SCOPE, Succeeded(ticket="later"), now=301.0)
    governor.release("s1", now=310.0)
    waits = governor.request(session("next"), now=310.0)

    assert isinstance(waits, Deferred)
    assert waits.reason == "cooldown"
    assert waits.retry_at == pytest.approx(310.0 + 2.0 * 1.4, rel=0.01)


def test_refused_twice_in_a_row_after_a_release_is_a_lower_cap() -> None:
    governor = settled_at_four()
    governor.release("s0", now=200.0)
    refuse(governor, "too soon", 202.0)
    refuse(governor, "again", 210.0)
    assert limit(governor, 210.0) == 3


def test_a_session_refused_in_mid_run_sheds_a_part_of_what_runs() -> None:
    governor = running(20, 30)
    assert isinstance(governor.request(turn_of("s3"), now=50.0), Granted)
    governor.report(SCOPE, RateLimited(retry_after=5.0, ticket="s3:0"), now=50.0)
    assert limit(governor, 50.0) == 17


def refused_turn(governor: Governor, name: str, now: float, retry_after: float) -> None:
    """A turn of a session that went well before, let in here and refused there."""
    governor.advance(now=now)
    assert isinstance(governor.try_request(turn_of(name), now=now), Granted)
    governor.report(SCOPE, RateLimited(retry_after=retry_after, ticket=f"{name}:0"), now=now)
    governor.release(f"{name}:0", now=now)


def paused_until(governor: Governor, now: float) -> float | None:
    status = governor.status(SCOPE, now=now)
    assert status is not None
    return status.paused_until


def test_a_turn_refused_right_after_a_short_retry_after_waits_the_usual_pause_and_leaves_the_limit() -> None:
    """A lock-out that outlasts what the provider stated, and that each try renews, is no lower cap."""
    governor = running(20, 30)
    refused_turn(governor, "s3", 50.0, retry_after=1.0)
    assert (limit(governor, 50.0), paused_until(governor, 50.0)) == (17, 51.0)

    refused_turn(governor, "s4", 51.0, retry_after=2.0)
    assert (limit(governor, 51.0), paused_until(governor, 51.0)) == (17, 81.0)


def test_a_turn_refused_again_after_the_usual_pause_sheds_more() -> None:
    governor = running(20, 30)
    refused_turn(governor, "s3", 50.0, retry_after=1.0)
    refused_turn(governor, "s4", 51.0, retry_after=2.0)
    refused_turn(governor, "s5", 81.0, retry_after=2.0)
    assert (limit(governor, 81.0), paused_until(governor, 81.0)) == (15, 83.0)


def test_a_turn_refused_long_after_a_short_retry_after_obeys_what_is_stated() -> None:
    governor = running(20, 30)
    refused_turn(governor, "s3", 50.0, retry_after=1.0)
    refused_turn(governor, "s4", 90.0, retry_after=2.0)
    assert (limit(governor, 90.0), paused_until(governor, 90.0)) == (15, 92.0)


def tries(governor: Governor, hours: float) -> list[float]:
    """When one more than four was tried, all such being refused while the four go on."""
    tried, now, count = [], 110.0, 0
    while now < hours * 3600.0:
        now += 5.0
        governor.report(SCOPE, Succeeded(ticket="s0"), now=now)
        count += 1
        if isinstance(governor.try_request(session(f"probe-{count}"), now=now), Granted):
            tried.append(now)
            governor.report(SCOPE, RateLimited(retry_after=5.0, ticket=f"probe-{count}"), now=now)
            governor.release(f"probe-{count}", now=now)
    return tried


def test_each_failed_try_above_what_works_is_waited_for_twice_as_long() -> None:
    tried = tries(settled_at_four(), 24.0)
    waits = [later - earlier for earlier, later in pairwise(tried)]
    assert len(tried) >= 4
    assert all(later > 1.8 * earlier for earlier, later in pairwise(waits)), waits


def test_after_a_step_those_who_waited_come_back_one_by_one() -> None:
    governor = running(8, 8)
    governor.report(SCOPE, RateLimited(retry_after=5.0), now=100.0)
    for number in range(6):
        governor.release(f"s{number}", now=101.0)
        governor.request(session(f"w{number}"), now=101.0)
    entered = [(now / 10, name) for now in range(1010, 1300) for name in let_in(governor, now / 10)]
    assert [name for _, name in entered] == ["w0", "w1", "w2", "w3", "w4"]
    times = [at for at, _ in entered]
    assert times[0] == 105.0
    assert times[1] >= 107.0
    assert len(set(times)) == len(times)


def test_a_limit_that_the_provider_states_outranks_what_refusals_taught() -> None:
    governor = settled_at_four()
    governor.report(SCOPE, Usage(concurrent_sessions=4, limit=6), now=101.0)
    assert limit(governor, 101.0) == 6


def test_the_rate_between_two_refusals_is_kept_by_runs_and_sessions_do_not_count() -> None:
    governor = running(8, 8)
    governor.request(session("waits"), now=9.0)
    now, number = 10.0, 0
    for second in range(240):  # two a second are accepted, and each hundred seconds are one too many
        now = 10.0 + second
        for _ in range(2):
            number += 1
            ticket = turn_of("s0", number)
            if isinstance(governor.try_request(ticket, now=now), Granted):
                if number % 200 == 0:
                    governor.report(SCOPE, RateLimited(retry_after=1.0, cause="requests", ticket=ticket.id), now=now)
                governor.release(ticket.id, now=now)
    assert limit(governor, now) == 8

    entered = 0
    for tick in range(1, 601):
        number += 1
        ticket = turn_of("s0", number)
        if isinstance(governor.try_request(ticket, now=now + 2.0 + tick / 10), Granted):
            entered += 1
            governor.release(ticket.id, now=now + 2.0 + tick / 10)
    assert 100 <= entered <= 150, "about two a second"
    governor.cancel("waits", now=now + 63.0)
    governor.release("s7", now=now + 63.0)
    assert isinstance(governor.try_request(session("another"), now=now + 63.0), Granted)


def test_too_many_starts_at_once_space_the_starts_and_not_the_turns_of_sessions() -> None:
    governor = running(3, 8)
    refuse(governor, "too fast", 50.0, cause="starts")
    assert isinstance(governor.request(session("first"), now=55.0), Granted)
    assert isinstance(governor.request(session("second"), now=55.0), Deferred)
    assert isinstance(governor.request(turn_of("s0"), now=55.0), Granted)
    assert limit(governor, 55.0) == 8


def test_a_limit_that_only_a_person_restores_can_be_stored_after_any_number_of_refusals() -> None:
    """A step that doubles forever soon becomes too large to be stored."""
    governor = Governor(GovernorSettings(limits={SCOPE: 100}, headroom="one-way"), now=0.0)
    for number in range(80):
        governor.report(SCOPE, RateLimited(retry_after=1.0), now=number * 10.0)
    again = Governor.restore(governor.snapshot(), now=800.0)
    assert limit(again, 800.0) == 20


def refusals_by_day(cap: int, days: int) -> list[int]:
    """A provider that lets `cap` run at once, refuses all others, and a fleet that always wants eight."""
    governor = Governor(GovernorSettings(limits={SCOPE: 8}), now=0.0)
    agenda: list[tuple[float, int, str, str]] = []
    accepted: set[str] = set()
    refused, asked, now = [0] * days, 0, 0.0
    while now < days * 86400.0:
        while len(governor.ledger.waiters) < 8:
            asked += 1
            if isinstance(governor.request(session(f"s{asked}"), now=now), Granted):
                heappush(agenda, (now + 1.0, asked, "answer", f"s{asked}"))
        wake = governor.next_wakeup()
        now = min(at for at in (wake, agenda[0][0] if agenda else None) if at is not None)
        for name in let_in(governor, now):
            heappush(agenda, (now + 1.0, asked, "answer", name))
        while agenda and agenda[0][0] <= now:
            _, _, what, name = heappop(agenda)
            if what == "answer" and len(accepted) < cap:
                accepted.add(name)
                governor.report(SCOPE, Succeeded(ticket=name), now=now)
                heappush(agenda, (now + 600.0, asked, "end", name))
                continue
            if what == "answer":
                refused[min(int(now // 86400.0), days - 1)] += 1
                governor.report(SCOPE, RateLimited(ticket=name, cause="concurrency"), now=now)
            accepted.discard(name)
            governor.release(name, now=now)
            for other in let_in(governor, now):
                heappush(agenda, (now + 1.0, asked, "answer", other))
    return refused


def test_a_true_cap_of_one_is_probed_no_more_often_than_a_cap_of_two() -> None:
    one, two = refusals_by_day(1, 3), refusals_by_day(2, 3)
    assert one[1:] <= [2, 2], (one, two)
    assert sum(one[1:]) <= sum(two[1:]), (one, two)


def test_a_limit_does_not_climb_while_more_run_than_it_allows() -> None:
    governor = running(20, 30)
    refused_turn(governor, "s3", 50.0, retry_after=1.0)
    assert limit(governor, 50.0) == 17
    for now in range(60, 600, 5):
        governor.report(SCOPE, Succeeded(ticket="s5"), now=float(now))
        governor.advance(now=float(now))
    assert limit(governor, 600.0) == 17

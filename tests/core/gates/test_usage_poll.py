"""Who enters by the provider's own count: what it cannot include yet, and what others use."""

from paceline.core import Governor, GovernorSettings, Granted, PollUsage, Ticket
from paceline.core.gates.usage_poll import DEFAULT_LAG_SECONDS, LONGEST_LAG_SECONDS, OTHERS_SECONDS, UsagePoll
from paceline.core.signals import Succeeded, Usage

SCOPE = "umans"
CAP = 4


def poll_read(count: int, local: int, now: float) -> UsagePoll:
    """Return the state after one reading, asked for and answered at `now`."""
    poll = UsagePoll(interval=1.0, timeout=5.0)
    read(poll, count, local, now)
    return poll


def read(poll: UsagePoll, count: int, local: int, now: float) -> None:
    poll.on_asked(now)
    poll.on_answer(count, local, now)


def room(poll: UsagePoll, local: int, now: float) -> int:
    return poll.room(CAP, local, max(poll.start_lag, DEFAULT_LAG_SECONDS), now)


def test_a_start_without_an_answer_is_taken_from_the_room_that_a_reading_leaves() -> None:
    poll = poll_read(count=2, local=2, now=100.0)
    poll.on_grant("a", 100.0)
    assert room(poll, local=3, now=100.0) == 1


def test_an_answered_start_is_in_every_later_reading() -> None:
    poll = poll_read(count=2, local=2, now=100.0)
    poll.on_grant("a", 100.0)
    poll.on_accepted("a", 101.5)
    read(poll, 3, 3, 102.0)
    assert room(poll, local=3, now=102.0) == 1


def test_a_count_that_lacks_our_latest_starts_admits_no_more_than_the_limit() -> None:
    """The provider counts every ten seconds, so its number stands still while ours grows."""
    poll = poll_read(count=2, local=2, now=100.0)
    for name in ("a", "b"):
        poll.on_grant(name, 100.0)
        poll.on_accepted(name, 100.0)
    read(poll, 2, 4, 105.0)
    assert room(poll, local=4, now=105.0) == 0


def test_how_late_an_answer_comes_says_nothing_of_the_count() -> None:
    """The engine hears of a start when its first turn ends; the provider has counted it long before."""
    poll = poll_read(count=0, local=0, now=100.0)
    poll.on_grant("a", 100.0)
    poll.on_accepted("a", 400.0)
    poll.on_grant("b", 410.0)
    read(poll, 2, 2, 411.0)
    assert room(poll, local=2, now=411.0) == 2


def test_a_refused_start_that_a_reading_left_room_for_shows_how_long_starts_are_awaited() -> None:
    poll = poll_read(count=2, local=2, now=100.0)
    lags = []
    for _ in range(4):
        poll.on_refused_start()
        lags.append(poll.start_lag)
    poll.on_grant("a", 100.0)
    read(poll, 2, 2, 105.0)
    assert (lags, room(poll, local=3, now=105.0)) == ([2.0, 4.0, 8.0, LONGEST_LAG_SECONDS], 1)


def test_a_place_is_asked_for_when_it_may_be_free_again_and_not_a_second_later() -> None:
    """Releases that come while others still cool keep their own time, and a reading that lags is followed soon."""
    poll = poll_read(count=4, local=4, now=100.0)
    poll.on_release(100.35, now=100.0)
    poll.on_release(100.5, now=100.15)
    due = [poll.next_ask_at]
    poll.on_asked(100.35)
    poll.on_answer(3, 2, 100.4)
    due.append(poll.next_ask_at)
    poll.on_asked(100.5)
    poll.on_answer(3, 2, 100.6)
    poll.on_late_count(100.6)
    due.append(poll.next_ask_at)
    assert due == [100.35, 100.5, 100.6 + DEFAULT_LAG_SECONDS]


def test_a_start_that_was_refused_is_not_awaited() -> None:
    poll = poll_read(count=3, local=3, now=100.0)
    poll.on_grant("a", 100.0)
    poll.on_ended("a", was_refused=True)
    assert room(poll, local=3, now=100.1) == 1


def test_a_start_that_has_ended_since_the_reading_may_still_count_at_the_provider() -> None:
    poll = poll_read(count=3, local=3, now=100.0)
    poll.on_grant("a", 100.0)
    poll.on_ended("a", was_refused=False)
    assert room(poll, local=3, now=100.1) == 0


def test_nobody_enters_by_a_reading_while_a_newer_one_is_on_its_way() -> None:
    poll = poll_read(count=2, local=2, now=100.0)
    poll.on_asked(100.5)
    assert room(poll, local=2, now=100.5) == 0


def test_what_others_use_is_the_smallest_difference_of_the_last_minute() -> None:
    """They hold one place. One of ours is released now and then, and is counted for a while longer."""
    poll = poll_read(count=3, local=2, now=0.0)
    for now, local in ((OTHERS_SECONDS, 1), (OTHERS_SECONDS + 10.0, 2), (2 * OTHERS_SECONDS, 1)):
        read(poll, 3, local, now)
    assert (poll.others, room(poll, local=3, now=2 * OTHERS_SECONDS)) == (1, 0)


def test_others_who_have_left_are_forgotten_with_the_first_reading_that_shows_it() -> None:
    poll = poll_read(count=3, local=1, now=0.0)
    for now in (OTHERS_SECONDS, 2 * OTHERS_SECONDS):
        read(poll, 3, 1, now)
    before = poll.others
    read(poll, 1, 1, 2 * OTHERS_SECONDS + 1.0)
    assert (before, poll.others) == (2, 0)


def test_a_released_place_is_given_only_after_the_poll_that_the_release_brought() -> None:
    governor = Governor(GovernorSettings(limits={SCOPE: 1}, usage_scopes=(SCOPE,)), now=0.0)
    governor.request(Ticket("a", ("sessions", SCOPE)), now=0.0)
    governor.report(SCOPE, Succeeded(ticket="a"), now=0.0)
    governor.request(Ticket("b", ("sessions", SCOPE)), now=1.0)
    governor.advance(now=1.0)
    governor.report(SCOPE, Usage(concurrent_sessions=0), now=1.0)

    governor.release("a", now=1.2)
    asked = governor.advance(now=1.2)
    governor.report(SCOPE, Usage(concurrent_sessions=0), now=1.3)
    entered = [effect.ticket_id for effect in governor.advance(now=1.3) if isinstance(effect, Granted)]

    assert (asked, entered) == ([PollUsage(SCOPE)], ["b"])


def test_the_answer_to_a_session_confirms_its_start_and_that_to_a_call_does_not() -> None:
    governor = Governor(GovernorSettings(limits={SCOPE: CAP}, usage_scopes=(SCOPE,)), now=0.0)
    for name, scopes in (("session", ("sessions", SCOPE)), ("call", ("runs", SCOPE))):
        governor.request(Ticket(name, scopes), now=0.0)
    for name in ("session", "call"):
        governor.report(SCOPE, Succeeded(ticket=name), now=2.0)
    usage = governor.ledger.scope(SCOPE).usage
    assert usage is not None
    assert (usage.grants, usage.starting) == ([2.0], {"call": 0.0})


def test_while_the_count_is_unknown_one_enters_per_interval_even_if_the_last_one_has_ended() -> None:
    poll = poll_read(count=0, local=0, now=100.0)
    poll.on_answer(None, 0, 100.0)
    poll.on_grant("a", 100.1)
    poll.on_ended("a", was_refused=False)

    poll.on_answer(None, 0, 100.5)
    too_soon = room(poll, local=0, now=100.6)
    poll.on_answer(None, 0, 101.05)
    assert (too_soon, room(poll, local=0, now=101.1)) == (0, 1)

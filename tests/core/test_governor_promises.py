"""Promises that a random life seldom comes across, one by one."""

import math

import msgspec
import pytest

from paceline.core import Deferred, Governor, GovernorSettings, Granted, Ticket
from paceline.core.gates.reopening import first_look
from paceline.core.signals import (
    AuthFailed,
    Budget,
    Overloaded,
    PlatformLimit,
    QuotaClosed,
    RateLimited,
    Succeeded,
    Usage,
)


def run(ticket_id: str, since: float | None = None) -> Ticket:
    return Ticket(ticket_id, ("runs", "umans"), since=since)


def governor_with(limit: int) -> Governor:
    return Governor(GovernorSettings(limits={"umans": limit}), now=0.0)


def let_in(governor: Governor, now: float) -> list[str]:
    return [effect.ticket_id for effect in governor.advance(now=now) if isinstance(effect, Granted)]


def window_state(governor: Governor, now: float) -> str | None:
    status = governor.status("umans", now=now)
    assert status is not None
    return None if status.window is None else status.window.state


def test_only_the_canary_reopens_a_window() -> None:
    governor = governor_with(8)
    governor.request(run("old stream"), now=0.0)
    governor.report("umans", QuotaClosed(resets_at=100.0, window="5h", source="field"), now=1.0)
    governor.request(run("canary"), now=2.0)
    governor.request(run("next"), now=2.0)
    assert let_in(governor, 103.0) == ["canary"]

    governor.report("umans", Succeeded(ticket="old stream"), now=104.0)
    governor.report("umans", Succeeded(), now=104.0)
    governor.release("old stream", now=104.0)
    governor.report("umans", Budget(used_ratio=0.0, window="5h"), now=104.0)
    assert window_state(governor, 104.0) == "probing"
    assert let_in(governor, 105.0) == []

    governor.report("umans", Succeeded(ticket="canary"), now=106.0)
    assert window_state(governor, 106.0) == "wave"
    assert let_in(governor, 106.0) == ["next"]


def test_a_canary_that_is_refused_again_backs_off() -> None:
    governor = governor_with(8)
    governor.report("umans", QuotaClosed(window="5h", source="field"), now=0.0)
    now, probes = 0.0, []
    for number in range(5):
        governor.request(run(f"canary-{number}"), now=now)
        while not (entered := let_in(governor, now)):
            wakeup = governor.next_wakeup()
            assert wakeup is not None
            now = wakeup
        assert entered == [f"canary-{number}"]
        probes.append(now)
        governor.report("umans", QuotaClosed(window="5h", source="field", ticket=f"canary-{number}"), now=now)
        governor.release(f"canary-{number}", now=now)
    waits = [later - earlier for earlier, later in zip([0.0, *probes], probes, strict=False)]
    assert waits == [300.0, 900.0, 1800.0, 3600.0, 3600.0]


def test_a_pause_keeps_its_length_when_the_clock_is_set_back() -> None:
    governor = governor_with(4)
    governor.report("umans", RateLimited(retry_after=60.0), now=1000.0)
    governor.request(run("a"), now=1010.0)
    governor.advance(now=510.0)
    assert let_in(governor, 559.0) == []
    assert let_in(governor, 560.0) == ["a"]


def test_a_cooldown_and_a_lease_keep_their_length_when_the_clock_is_set_back() -> None:
    settings = GovernorSettings(limits={"umans": 2}, cooldown=10.0, slot_timeout=100.0, watchdog_interval=1.0)
    governor = Governor(settings, now=1000.0)
    for name in ("kept", "ended", "waits"):
        governor.request(run(name), now=1000.0)
    governor.release("ended", now=1001.0)
    governor.advance(now=501.0)
    assert let_in(governor, 510.0) == []
    assert let_in(governor, 511.0) == ["waits"]
    for now in range(512, 595):
        assert governor.renew("waits", now=float(now))
    assert governor.renew("kept", now=595.0), "its 100 s are not over before 600"


def test_a_reset_stays_where_it_is_on_the_calendar_when_the_clock_is_set_back() -> None:
    governor = governor_with(4)
    governor.report("umans", QuotaClosed(resets_at=1600.0, source="field"), now=1000.0)
    governor.request(run("canary"), now=1000.0)
    governor.advance(now=900.0)
    assert let_in(governor, 1601.0) == []
    assert let_in(governor, 1603.0) == ["canary"]


def test_a_clock_that_was_days_ahead_keeps_nobody_out_for_days_once_it_is_set_back() -> None:
    # given a window that closes while the clock is ten days ahead
    governor, days, hours = governor_with(4), 10 * 86400.0, 6 * 3600.0
    governor.report("umans", QuotaClosed(resets_at=days + 1600.0, source="field"), now=days + 1000.0)
    governor.request(run("canary"), now=days + 1000.0)
    # when the clock is set right
    governor.advance(now=1000.0)
    # then somebody looks some hours after the reset at the latest
    look_at = first_look(days + 1600.0) - days + hours
    assert governor.next_wakeup() == look_at
    assert let_in(governor, look_at) == ["canary"]


@pytest.mark.parametrize("seconds", [0.001, 0.5])
def test_a_clock_that_trembles_changes_nothing(seconds: float) -> None:
    governor = governor_with(1)
    governor.request(run("a"), now=100.0)
    governor.request(run("b"), now=100.0)
    governor.advance(now=100.0 - seconds)
    governor.release("a", now=100.0 - seconds)
    assert let_in(governor, 100.0) == ["b"]


@pytest.mark.parametrize("limit", [0, -5, 1])
def test_a_platform_limit_never_shuts_a_scope(limit: int) -> None:
    governor = governor_with(4)
    governor.report("umans", PlatformLimit(limit=limit, in_use=3), now=0.0)
    assert isinstance(governor.request(run("a"), now=0.0), Granted)


@pytest.mark.parametrize("since", [math.nan, math.inf, -math.inf, 1e300])
def test_a_senseless_since_neither_favours_nor_starves(since: float) -> None:
    governor = governor_with(1)
    governor.request(run("holder"), now=100.0)
    for name, odd in (("before", 100.0), ("odd", since), ("after", 100.0)):
        governor.request(run(name, since=odd), now=100.0)
    entered: list[str] = []
    for previous in ("holder", "before", "odd", "after"):
        for name in (previous, *entered):
            governor.release(name, now=101.0)
        entered += let_in(governor, 101.0)
    assert sorted(entered) == ["after", "before", "odd"]
    if since != -math.inf:
        assert entered == ["before", "odd", "after"]


def test_runs_of_the_youngest_session_wait_while_a_scope_is_over_its_limit() -> None:
    governor = governor_with(3)
    for name in ("s1", "s2", "s3"):
        governor.request(Ticket(name, ("sessions", "umans")), now=0.0)
    governor.set_limit("umans", 2, now=1.0)

    verdicts = {
        name: governor.try_request(Ticket(f"run of {name}", ("runs", "umans"), parent=name), now=2.0)
        for name in ("s1", "s2", "s3")
    }

    assert [type(verdict) for verdict in verdicts.values()] == [Granted, Granted, Deferred]
    status = governor.status("umans", now=2.0)
    assert status is not None
    assert status.in_flight == 3, "a session's first run uses the session's own place"


def test_while_usage_is_unknown_the_next_enters_an_interval_after_the_last() -> None:
    """Not only at the next poll: there is a wake-up for it."""
    governor = Governor(GovernorSettings(limits={"umans": 3}, usage_scopes=("umans",)), now=0.0)
    for name in ("a", "b", "c", "x", "y"):
        governor.request(run(name), now=10.0)
    governor.advance(now=10.0)
    governor.report("umans", Usage(), now=10.7)
    governor.release("a", now=10.8)
    governor.release("b", now=10.8)
    governor.advance(now=10.8)
    governor.report("umans", Usage(), now=10.9)
    assert let_in(governor, 10.9) == []
    assert governor.next_wakeup() == 11.0
    assert let_in(governor, 11.0) == ["x"]


def test_a_budget_that_has_reset_does_not_come_back_with_the_clock() -> None:
    governor = governor_with(4)
    governor.report("umans", Budget(requests_remaining=0, requests_reset_at=110.0), now=100.0)
    governor.advance(now=120.0)
    governor.advance(now=105.0)
    assert isinstance(governor.request(run("a"), now=105.0), Granted)


def test_an_overload_that_is_over_leaves_nothing_behind() -> None:
    governor, untouched = governor_with(8), governor_with(8)
    governor.report("umans", Overloaded(), now=0.0)
    for each in (governor, untouched):
        each.request(run("a"), now=5.0)
        each.release("a", now=6.0)

    assert governor.snapshot().scopes == untouched.snapshot().scopes


def reopened_at(now: float) -> Governor:
    """One whose 5h window has closed, been probed and reopened."""
    governor = Governor(GovernorSettings(reserves={"umans": 0.2}), now=0.0)
    governor.report("umans", QuotaClosed(resets_at=100.0, window="5h", source="field"), now=0.0)
    governor.request(run("canary"), now=0.0)
    assert let_in(governor, now) == ["canary"]
    governor.report("umans", Succeeded(ticket="canary"), now=now)
    assert window_state(governor, now) == "wave"
    return governor


def test_the_reserve_holds_from_the_first_reading_after_a_reset_on() -> None:
    governor = reopened_at(103.0)
    governor.report("umans", Budget(used_ratio=0.85, window="5h", resets_at=18_000.0), now=110.0)

    verdict = governor.request(run("next"), now=110.0)

    assert isinstance(verdict, Deferred)
    assert verdict.reason == "reserve"


def test_a_wave_is_over_when_nobody_is_left_to_follow() -> None:
    governor = reopened_at(103.0)
    assert isinstance(governor.request(run("much later"), now=1_000.0), Granted)
    assert window_state(governor, 1_000.0) == "open"


def minutes_to_probe(governor: Governor, now: float) -> int:
    """How long until one more than the platform limit may enter, while all goes well and somebody waits."""
    for minute in range(600):
        status = governor.status("umans", now=now + 60.0 * minute)
        assert status is not None
        if status.platform != 4:
            return minute
        governor.report("umans", Succeeded(), now=now + 60.0 * minute)
    raise AssertionError("a platform limit was never probed")


def test_many_who_meet_the_same_platform_limit_are_one_refusal() -> None:
    governor = Governor(GovernorSettings(limits={"umans": 8}, slot_timeout=1e6), now=0.0)
    for number in range(9):
        governor.request(run(f"run-{number}"), now=0.0)
    for number in range(4, 8):
        governor.report("umans", PlatformLimit(limit=4, in_use=4, ticket=f"run-{number}"), now=1.0)
        governor.release(f"run-{number}", now=1.0)

    assert minutes_to_probe(governor, 1.0) <= 16


def test_a_platform_limit_that_holds_is_probed_every_half_hour() -> None:
    governor = Governor(GovernorSettings(limits={"umans": 8}, slot_timeout=1e6), now=0.0)
    for number in range(9):
        governor.request(run(f"run-{number}"), now=0.0)
    for hour in range(6):
        governor.report("umans", PlatformLimit(limit=4, in_use=4), now=3600.0 * hour)
        assert minutes_to_probe(governor, 3600.0 * hour) <= 30


def test_a_refused_login_is_no_success() -> None:
    governor = governor_with(8)
    governor.report("umans", QuotaClosed(resets_at=100.0, window="5h", source="field"), now=0.0)
    governor.request(run("canary"), now=0.0)
    assert let_in(governor, 103.0) == ["canary"]

    governor.report("umans", AuthFailed(detail="logged out", ticket="canary"), now=104.0)
    governor.release("canary", now=104.0)

    assert window_state(governor, 104.0) == "closed"


def test_a_canary_that_says_nothing_is_joined_by_another_and_either_reopens_the_window() -> None:
    governor = Governor(GovernorSettings(limits={"umans": 4}), now=0.0)
    governor.report("umans", QuotaClosed(resets_at=100.0, window="5h"), now=0.0)
    for name in ("first", "second", "third"):
        governor.request(Ticket(name, ("umans",)), now=0.0)

    granted = {
        at: [effect.ticket_id for effect in governor.advance(now=at) if isinstance(effect, Granted)]
        for at in (103.0, 1002.0, 1003.0)
    }
    why = governor.why("third", now=1003.0)
    governor.report("umans", Succeeded(ticket="first"), now=1010.0)

    assert granted == {103.0: ["first"], 1002.0: [], 1003.0: ["second"]}
    assert why is not None
    assert (why.reason, why.retry_at) == ("window_closed", 1903.0)
    assert [effect.ticket_id for effect in governor.advance(now=1010.0) if isinstance(effect, Granted)] == ["third"]


def test_a_canary_that_went_a_moment_too_early_at_the_reset_is_sent_again_in_seconds() -> None:
    """However often the window was probed before: some resets are stated in whole minutes."""
    governor = Governor(GovernorSettings(limits={"umans": 4}), now=0.0)
    spent = QuotaClosed(resets_at=18_000.0, window="5h", source="field")
    governor.report("umans", spent, now=0.0)
    sent = []
    for number in range(6):
        ticket = Ticket(f"canary-{number}", ("umans",))
        governor.request(ticket, now=governor.ledger.now)
        while not governor.is_held(ticket.id):
            governor.advance(now=governor.next_wakeup() or math.inf)
        sent.append(governor.ledger.now)
        governor.report("umans", msgspec.structs.replace(spent, ticket=ticket.id), now=sent[-1])
        governor.release(ticket.id, now=sent[-1])

    reset = first_look(18_000.0)
    assert sent == [2700.0, 8100.0, reset, reset + 5.0, reset + 20.0, reset + 80.0]

"""What a person sets: several tickets at once, slots found again, headroom and cooldown by path and by pattern."""

import pytest

from paceline.core import Deferred, Governor, GovernorSettings, Granted, Ticket
from paceline.core.signals import Budget, Cause, RateLimited, Succeeded, Usage
from paceline.core.values.settings import HeadroomMode
from paceline.errors import InvalidDuration, InvalidInput, TicketConflict


def let_in(governor: Governor, now: float) -> list[str]:
    return [effect.ticket_id for effect in governor.advance(now=now) if isinstance(effect, Granted)]


def test_tickets_that_ask_together_enter_by_weight_not_by_the_order_of_asking() -> None:
    governor = Governor(GovernorSettings(limits={"sessions": 3}), now=0.0)
    low = [Ticket(f"low-{n}", ("sessions",), group="low", priority=0) for n in range(4)]
    high = [Ticket(f"high-{n}", ("sessions",), group="high", priority=1) for n in range(4)]

    governor.request_all([*low, *high], now=0.0)

    assert sorted(let_in(governor, 0.0)) == ["high-0", "high-1", "low-0"]


def test_one_known_ticket_among_several_is_a_conflict() -> None:
    governor = Governor(now=0.0)
    governor.request(Ticket("a", ("runs",)), now=0.0)

    with pytest.raises(TicketConflict, match="'a'"):
        governor.request_all([Ticket("a", ("runs",))], now=0.0)


def test_a_slot_found_after_a_restart_counts_even_over_the_limit() -> None:
    governor = Governor(GovernorSettings(limits={"sessions": 1}), now=0.0)

    for name in ("a", "b"):
        governor.adopt(Ticket(name, ("sessions",)), now=0.0)

    status = governor.status("sessions", now=0.0)
    assert status is not None
    assert (status.in_flight, status.limit) == (2, 1)
    governor.request(Ticket("c", ("sessions",)), now=0.0)
    governor.release("a", now=1.0)
    assert let_in(governor, 1.0) == []
    governor.release("b", now=2.0)
    assert let_in(governor, 2.0) == ["c"]


@pytest.mark.parametrize(
    ("headrooms", "limit_after"),
    [({}, 3), ({"umans": "off"}, 4), ({"um*": "off"}, 4), ({"other": "off"}, 3)],
)
def test_headroom_is_set_by_scope_and_pattern(headrooms: dict[str, str], limit_after: int) -> None:
    settings = GovernorSettings(limits={"umans/key": 4}, headrooms=headrooms)  # type: ignore[arg-type]
    governor = Governor(settings, now=0.0)

    governor.report("umans/key", RateLimited(retry_after=1.0), now=0.0)

    status = governor.status("umans/key", now=0.0)
    assert status is not None
    assert status.limit == limit_after


def test_headroom_set_live_wins_and_survives_a_restart() -> None:
    governor = Governor(GovernorSettings(limits={"umans": 4}), now=0.0)
    governor.set_headroom("umans", "off", now=0.0)
    governor = Governor.restore(governor.snapshot(), now=1.0)

    governor.report("umans", RateLimited(retry_after=1.0), now=1.0)

    status = governor.status("umans", now=1.0)
    assert status is not None
    assert status.limit == 4


@pytest.mark.parametrize(("before", "after", "limit"), [("adaptive", "one-way", 3), ("one-way", "adaptive", 4)])
def test_the_mode_that_holds_now_says_whether_a_limit_climbs(
    before: HeadroomMode, after: HeadroomMode, limit: int
) -> None:
    governor = Governor(GovernorSettings(limits={"umans": 4}, headroom=before, slot_timeout=1e6), now=0.0)
    for number in range(5):
        governor.request(Ticket(f"run-{number}", ("umans",)), now=0.0)
    governor.report("umans", RateLimited(retry_after=1.0), now=0.0)
    governor.set_headroom("umans", after, now=1.0)

    governor.report("umans", Succeeded(ticket="run-0"), now=2.0)
    governor.advance(now=7200.0)

    status = governor.status("umans", now=7200.0)
    assert status is not None
    assert status.limit == limit


def test_a_limit_that_may_climb_from_now_on_wakes_by_itself() -> None:
    governor = Governor(GovernorSettings(limits={"umans": 4}, headroom="one-way"), now=0.0)
    governor.request(Ticket("run", ("umans",), leased=False), now=0.0)
    governor.report("umans", RateLimited(retry_after=1.0), now=0.0)
    governor.advance(now=1.0)
    governor.report("umans", Succeeded(ticket="run"), now=2.0)
    assert governor.next_wakeup() is None

    governor.set_headroom("umans", "adaptive", now=3.0)

    assert governor.next_wakeup() == 1800.0


def test_an_automatic_cooldown_is_learnt_from_how_far_readings_trail_behind() -> None:
    settings = GovernorSettings(limits={"umans": 1, "runs": 1}, cooldowns={"umans": "auto"}, usage_scopes=("umans",))
    governor = Governor(settings, now=0.0)
    assert governor.get_cooldown("umans") == 0.35
    governor.request(Ticket("a", ("umans",)), now=0.0)
    governor.request(Ticket("elsewhere", ("runs",)), now=0.0)
    governor.request(Ticket("b", ("runs", "umans")), now=0.0)
    governor.release("a", now=10.0)

    governor.report("umans", Usage(concurrent_sessions=1), now=10.9)  # though nothing lives here any more

    assert governor.get_cooldown("umans") == pytest.approx(0.9)


def test_values_that_cannot_be_are_named_and_change_nothing() -> None:
    governor = Governor(GovernorSettings(cooldowns={"umans": 0.5}), now=0.0)

    with pytest.raises(InvalidDuration, match="cooldown must be a number of seconds; got 'soon'"):
        governor.set_cooldown("umans", "soon", now=0.0)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="headroom must be one of adaptive, one-way, off; got 'on'"):
        governor.set_headroom("umans", "on", now=0.0)  # type: ignore[arg-type]

    assert governor.get_cooldown("umans") == 0.5


def used_by(governor: Governor, ratio: float, now: float) -> None:
    governor.report("umans", Budget(used_ratio=ratio, window="5h", resets_at=18_000.0), now=now)


def test_a_ticket_that_is_spread_keeps_to_the_line_and_blocks_no_other() -> None:
    governor = Governor(now=0.0)
    used_by(governor, 0.0, now=0.0)
    used_by(governor, 0.5, now=3_600.0)  # after a fifth of the window, half of it is used

    spread = governor.request(Ticket("gentle", ("umans",), spread=True), now=3_600.0)
    rushing = governor.request(Ticket("rushing", ("umans",)), now=3_600.0)

    assert isinstance(spread, Deferred)
    assert (spread.reason, spread.retry_at) == ("pacing", 9_000.0)
    assert isinstance(rushing, Granted)
    assert governor.next_wakeup() is not None
    assert let_in(governor, 8_999.0) == []
    assert let_in(governor, 9_000.0) == ["gentle"]


def test_the_reserve_is_left_to_the_person() -> None:
    governor = Governor(GovernorSettings(reserves={"umans": 0.2}), now=0.0)
    used_by(governor, 0.81, now=10.0)

    verdict = governor.request(Ticket("a", ("umans",)), now=10.0)

    assert isinstance(verdict, Deferred)
    assert (verdict.reason, verdict.retry_at) == ("reserve", 18_000.0)
    assert verdict.detail == "81% of the 5h window of umans is used; 20% is kept in reserve"


def test_the_reserve_of_an_account_holds_for_the_windows_of_its_models() -> None:
    governor = Governor(GovernorSettings(reserves={"anthropic/max-1": 0.2}), now=0.0)
    opus, sonnet = "anthropic/max-1/opus-4-6", "anthropic/max-1/sonnet-4-5"
    spent = Budget(used_ratio=0.9, window="weekly", resets_at=18_000.0, reach="model")
    governor.report(opus, spent, now=0.0)

    verdict = governor.request(Ticket("a", ("runs", opus)), now=0.0)

    assert isinstance(verdict, Deferred)
    assert (verdict.reason, verdict.scope) == ("reserve", opus)
    assert isinstance(governor.request(Ticket("b", ("runs", sonnet)), now=0.0), Granted)


@pytest.mark.parametrize("share", [-0.1, 1, 1.5, True, "0.2", float("nan")])
def test_a_reserve_is_a_share(share: object) -> None:
    with pytest.raises(InvalidInput, match="share"):
        GovernorSettings(reserves={"umans": share})  # type: ignore[dict-item]


def test_asking_for_a_cooldown_makes_no_scope_and_takes_what_setting_one_takes() -> None:
    governor = Governor(GovernorSettings(cooldown=0.35, cooldowns={"slow": "auto"}), now=0.0)
    governor.set_cooldown("anthropic/*/opus-*", 2.0, now=0.0)
    before = governor.snapshot()

    asked = {
        scope: governor.get_cooldown(scope)
        for scope in ("umans", "slow/max-1", "anthropic/*/opus-*", "anthropic/max-1/opus-4-6", "openai/*", "sessions")
    }

    assert asked == {
        "umans": 0.35,
        "slow/max-1": 0.35,  # nothing is learnt yet
        "anthropic/*/opus-*": 2.0,
        "anthropic/max-1/opus-4-6": 2.0,
        "openai/*": 0.35,
        "sessions": 0.0,
    }
    assert governor.snapshot() == before


@pytest.mark.parametrize("cause", ["requests", "starts"])
def test_restoring_a_limit_forgets_the_pace_that_refusals_taught(cause: Cause) -> None:
    governor = Governor(GovernorSettings(limits={"umans": 50}), now=0.0)
    for number in range(10):
        assert isinstance(governor.request(Ticket(f"r{number}", ("runs", "umans")), now=number * 5.0), Granted)
    governor.report("umans", RateLimited(retry_after=1.0, cause=cause, ticket="r9"), now=45.0)
    governor.advance(now=46.0)  # the pause is over

    governor.restore_limit("umans", now=200.0)

    asked = [Ticket(f"s{number}", ("runs", "umans")) for number in range(40)]
    at_once = [ticket for ticket in asked if isinstance(governor.try_request(ticket, now=200.0), Granted)]
    assert at_once == asked


def reduced() -> Governor:
    """A limit of eight that one refusal has lowered to seven."""
    governor = Governor(GovernorSettings(limits={"umans": 8}), now=0.0)
    governor.request(Ticket("a", ("runs", "umans")), now=0.0)
    governor.report("umans", RateLimited(retry_after=1.0, ticket="a"), now=1.0)
    assert limit_of(governor) == 7
    return governor


def limit_of(governor: Governor) -> int | None:
    status = governor.status("umans", now=10.0)
    assert status is not None
    return status.limit


def test_switching_headroom_off_lifts_what_was_learnt_and_lets_waiters_in() -> None:
    governor = reduced()
    for number in range(9):
        governor.request(Ticket(f"r{number}", ("runs", "umans")), now=100.0 + number)
    assert isinstance(governor.request(Ticket("waits", ("runs", "umans")), now=150.0), Deferred)
    before = governor.status("umans", now=150.0)
    assert before is not None
    governor.set_headroom("umans", "off", now=200.0)
    after = governor.status("umans", now=200.0)
    assert after is not None
    assert (before.limit, after.limit, after.in_flight) == (7, 8, 8)


def test_headroom_that_is_off_in_the_file_lifts_what_was_learnt_at_a_restart() -> None:
    stored = reduced().snapshot()
    settings = GovernorSettings(limits={"umans": 8}, headroom="off")
    assert limit_of(Governor.restore(stored, now=5.0, settings=settings)) == 8
    assert limit_of(Governor.restore(stored, now=5.0)) == 7

"""The pace of a window: the line to its reset, the reserve, and what it holds where the provider does not tell."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core import Deferred, Governor, GovernorSettings, Granted, Snapshot, Ticket, WindowStatus
from paceline.core.gates.reopening import first_look
from paceline.core.gates.start_meters import StartCap
from paceline.core.gates.window_usage import UsagePlan, budget_hold, planned_use
from paceline.core.signals import Budget, QuotaClosed, Succeeded

LENGTH = 18_000.0  # of a 5h window
DAY = 86_400.0

# -- the line -----------------------------------------------------------------------------------------

shares = st.floats(0.0, 1.5)
reserves = st.one_of(st.just(0.0), st.floats(0.01, 0.9))
times = st.floats(0.0, 2 * LENGTH)


@st.composite
def lines(draw: st.DrawFn) -> UsagePlan:
    begins_at, length = draw(times), draw(st.one_of(st.just(0.0), st.floats(60.0, LENGTH)))
    ends_at = begins_at + length * draw(st.floats(0.1, 1.0))
    return UsagePlan(draw(shares), (begins_at, draw(shares)), ends_at, begins_at + length)


@given(lines(), times, times, reserves)
def test_the_line_only_rises_and_ends_where_the_reserve_begins(
    line: UsagePlan, first: float, second: float, reserve: float
) -> None:
    early, late = sorted((first, second))

    assert planned_use(line, early, reserve=reserve) <= planned_use(line, late, reserve=reserve)
    assert planned_use(line, late, reserve=reserve) <= 1.0 - reserve
    assert planned_use(line, max(late, line.resets_at), reserve=reserve) == 1.0 - reserve


@given(lines(), times, reserves)
def test_nobody_is_held_who_is_on_the_line_and_nobody_beyond_its_end(
    line: UsagePlan, now: float, reserve: float
) -> None:
    held = budget_hold(line, now, reserve=reserve, spread=True)

    is_in_reserve = reserve > 0 and line.used >= 1.0 - reserve
    is_ahead = now < line.ends_at and line.used > planned_use(line, now, reserve=reserve)
    assert (held is not None) == (is_in_reserve or is_ahead)
    if held is not None:
        reason, until = held
        assert reason == ("reserve" if is_in_reserve else "pacing")
        assert until == line.resets_at if is_in_reserve else now < until <= line.ends_at


@given(lines(), times, reserves)
def test_a_held_ticket_is_on_the_line_at_its_retry_time(line: UsagePlan, now: float, reserve: float) -> None:
    held = budget_hold(line, now, reserve=reserve, spread=True)

    if held is not None and held[0] == "pacing":
        assert line.used <= planned_use(line, held[1], reserve=reserve) + 1e-9 or held[1] == line.ends_at


@given(lines(), times, reserves)
def test_only_the_reserve_holds_those_who_rush(line: UsagePlan, now: float, reserve: float) -> None:
    held = budget_hold(line, now, reserve=reserve, spread=False)

    assert held == (("reserve", line.resets_at) if reserve > 0 and line.used >= 1.0 - reserve else None)


# -- what a period holds --------------------------------------------------------------------------------


def spend(governor: Governor, start: float, *, seconds: float = 100.0, tokens: int | None = None) -> float:
    """Ten slots use a period up from `start` on; a canary opens the next one at the reset, which is returned."""
    end, resets_at = start + seconds, start + LENGTH
    names = [f"{start:.0f}-{n}" for n in range(10)]
    for name in names:
        assert isinstance(governor.request(Ticket(name, ("umans",)), now=start), Granted)
        governor.report("umans", Succeeded(ticket=name, tokens=tokens), now=start)
    governor.report("umans", QuotaClosed(window="5h", resets_at=resets_at, source="field"), now=end)
    for name in names:
        governor.abandon(name, now=end)
    open_again(governor, resets_at)
    return resets_at


def open_again(governor: Governor, now: float) -> None:
    canary = f"canary-{now:.0f}"
    assert isinstance(governor.request(Ticket(canary, ("umans",)), now=now), Granted)
    governor.report("umans", Succeeded(ticket=canary), now=now)
    governor.release(canary, now=now)


def window(governor: Governor, now: float) -> WindowStatus:
    status = governor.status("umans", now=now)
    assert status is not None
    assert status.window is not None
    return status.window


def spread(name: str) -> Ticket:
    return Ticket(name, ("umans",), spread=True)


def governor_with(**settings: object) -> Governor:
    return Governor(GovernorSettings(**settings), now=0.0)  # type: ignore[arg-type]


def test_what_was_used_from_the_opening_to_the_closing_is_what_the_next_period_is_spread_over() -> None:
    governor = governor_with()
    opened = spend(governor, 0.0)
    now = opened + 120.0

    first = governor.request(spread("a"), now=now)
    second = governor.request(spread("b"), now=now)
    rushing = governor.request(Ticket("c", ("umans",)), now=now)

    assert isinstance(first, Granted)
    assert isinstance(second, Deferred)
    words = "about 10% of the 5h window of umans is used, going by what it has held before"
    assert (second.reason, second.detail) == ("pacing", f"{words}; spread to the reset it would be 1% by now")
    assert second.retry_at == pytest.approx(opened + 0.1 * 0.9 * LENGTH)  # a slot is a tenth of what was held
    assert isinstance(rushing, Granted)


def test_what_runs_counts_by_the_second_and_what_it_is_still_expected_to_use() -> None:
    governor = governor_with()
    opened = spend(governor, 0.0)
    governor.request(Ticket("a", ("umans",)), now=opened + 100.0)

    held = governor.request(spread("b"), now=opened + 200.0)

    assert isinstance(held, Deferred)
    assert held.detail.startswith("about 20% of the 5h window")
    assert window(governor, opened + 200.0).estimated_ratio == pytest.approx(0.1)


def test_the_line_lets_go_before_the_reset_so_that_a_window_that_holds_more_shows_it() -> None:
    governor = governor_with()
    opened = spend(governor, 0.0)
    governor.request(Ticket("long", ("umans",)), now=opened + 100.0)

    held = governor.request(spread("b"), now=opened + 5_000.0)
    reported = window(governor, opened + 5_000.0)
    governor.advance(now=opened + 0.9 * LENGTH - 1.0)
    is_held = governor.why("b", now=opened + 0.9 * LENGTH - 1.0) is not None
    granted = [each for each in governor.advance(now=opened + 0.9 * LENGTH) if isinstance(each, Granted)]

    assert isinstance(held, Deferred)
    assert held.retry_at == opened + 0.9 * LENGTH
    assert reported.estimated_ratio == pytest.approx(4.9)
    assert is_held
    assert [each.ticket_id for each in granted] == ["b"]


def test_a_period_that_went_by_with_more_used_than_was_thought_to_fit_teaches_that() -> None:
    governor = governor_with()
    opened = spend(governor, 0.0)
    governor.request(Ticket("long", ("umans",)), now=opened + 100.0)
    governor.release("long", now=opened + 3_100.0)

    governor.request(Ticket("next", ("umans",)), now=opened + LENGTH)

    reported = window(governor, opened + LENGTH)
    assert (reported.holds_seconds, reported.estimated_ratio) == (3_000.0, 0.0)


def test_the_reserve_is_kept_of_what_the_window_has_held() -> None:
    governor = governor_with(reserves={"umans": 0.25})
    opened = spend(governor, 0.0)
    for n in range(7):
        assert isinstance(governor.request(Ticket(f"a{n}", ("umans",)), now=opened + 70.0 + n), Granted)

    eighth = governor.request(Ticket("a7", ("umans",)), now=opened + 90.0)

    assert isinstance(eighth, Deferred)
    words = "about 82% of the 5h window of umans is used, going by what it has held before; 25% is kept in reserve"
    assert (eighth.reason, eighth.detail, eighth.retry_at) == ("reserve", words, opened + LENGTH)


def test_slots_that_end_early_leave_room_before_the_reserve() -> None:
    governor = governor_with(reserves={"umans": 0.25})
    opened = spend(governor, 0.0)
    for n in range(8):
        governor.request(Ticket(f"a{n}", ("umans",)), now=opened + 100.0)
    governor.request(Ticket("a8", ("umans",)), now=opened + 100.0)

    for name in ("a0", "a1"):
        governor.release(name, now=opened + 110.0)

    assert [e.ticket_id for e in governor.advance(now=opened + 110.0) if isinstance(e, Granted)] == ["a8"]


def test_where_tokens_are_reported_they_count_and_not_the_time() -> None:
    governor = governor_with()
    opened = spend(governor, 0.0, tokens=500)
    governor.request(Ticket("a", ("umans",)), now=opened + 100.0)
    governor.count_tokens("a", 2_500, now=opened + 101.0)
    governor.count_tokens("unknown", 2_500, now=opened + 101.0)

    assert window(governor, opened + 5_000.0).estimated_ratio == 0.5


def test_tokens_of_a_session_are_reported_by_its_runs_where_they_have_slots_of_their_own() -> None:
    governor = governor_with()
    opened = spend(governor, 0.0, tokens=500)
    governor.request(Ticket("session", ("sessions", "umans")), now=opened + 100.0)
    governor.request(Ticket("run", ("runs", "umans"), parent="session"), now=opened + 100.0)

    governor.report("umans", Succeeded(ticket="run", tokens=1_000), now=opened + 101.0)
    governor.count_tokens("session", 1_000, now=opened + 101.0)

    assert window(governor, opened + 102.0).estimated_ratio == 0.2


def test_one_odd_period_does_not_rule() -> None:
    governor = governor_with()
    opened = 0.0
    learnt = []
    for seconds in (100.0, 5.0, 90.0, 100.0):
        opened = spend(governor, opened + 100.0, seconds=seconds)
        learnt.append(window(governor, opened).holds_seconds)

    assert learnt == [1_000.0, 1_000.0, 900.0, 900.0]


def test_a_window_that_was_joined_half_way_teaches_nothing() -> None:
    governor = governor_with()
    governor.request(Ticket("a", ("umans",)), now=0.0)
    governor.report("umans", QuotaClosed(window="5h", resets_at=LENGTH / 2, source="field"), now=100.0)

    assert window(governor, 100.0).holds_seconds is None


def test_nor_does_one_that_may_have_been_open_for_longer_than_was_seen() -> None:
    governor = governor_with()
    governor.request(Ticket("a", ("umans",)), now=0.0)
    governor.report("umans", QuotaClosed(resets_at=LENGTH, source="field"), now=100.0)
    nameless = window(governor, 100.0).holds_seconds
    governor.release("a", now=100.0)
    open_again(governor, LENGTH)
    governor.request(Ticket("b", ("umans",)), now=LENGTH + 100.0)
    governor.report("umans", QuotaClosed(resets_at=2 * LENGTH, source="field"), now=LENGTH + 300.0)

    second = window(governor, LENGTH + 300.0)
    assert nameless is None
    assert (second.holds_seconds, second.length) == (200.0, LENGTH)


@pytest.mark.parametrize("resets_at", [400 * DAY, 50.0])
def test_a_senseless_reset_teaches_no_length_and_holds_nobody(resets_at: float) -> None:
    governor = governor_with(reserves={"umans": 0.25})
    governor.report("umans", QuotaClosed(resets_at=1_000.0, source="field"), now=0.0)
    open_again(governor, 1_003.0)
    governor.request(Ticket("a", ("umans",)), now=1_100.0)
    governor.report("umans", QuotaClosed(resets_at=resets_at, source="field"), now=1_200.0)
    governor.abandon("a", now=1_200.0)
    open_again(governor, 1_500.0 + 300.0)
    governor.report("umans", Budget(used_ratio=0.9, window="5h", resets_at=resets_at), now=1_900.0)

    reported = governor.status("umans", now=2_000.0)
    assert reported is not None
    assert [each.length for each in reported.windows] == [None, LENGTH]
    assert isinstance(governor.request(Ticket("b", ("umans",)), now=2_000.0), Granted)


def test_readings_without_grants_notice_a_new_period_too() -> None:
    governor = governor_with()
    governor.request(Ticket("long", ("umans",)), now=0.0)
    governor.report("umans", Budget(used_ratio=0.9, window="5h", resets_at=1_000.0), now=500.0)
    governor.report("umans", Budget(used_ratio=0.0, window="5h", resets_at=1_000.0 + LENGTH), now=1_000.0)

    governor.report("umans", QuotaClosed(window="5h", resets_at=1_000.0 + LENGTH, source="field"), now=1_600.0)

    assert window(governor, 1_600.0).holds_seconds == 600.0


@pytest.mark.parametrize(
    ("spent", "kept_until"),
    [((100.0,), 4 * LENGTH), ((100.0, 50.0), 5 * LENGTH), ((100.0, 90.0), 28 * DAY)],
    ids=["once", "not-the-same", "confirmed"],
)
def test_what_no_closing_has_confirmed_for_long_is_learnt_anew(spent: tuple[float, ...], kept_until: float) -> None:
    governor = governor_with()
    opened = 0.0
    for seconds in spent:
        opened = spend(governor, opened + 60.0, seconds=seconds)

    known = [window(governor, kept_until + 600.0 * n).holds_seconds is not None for n in (-1, 1)]

    assert known == [True, False]


def test_it_is_remembered_over_a_restart_with_what_was_used_since() -> None:
    governor = governor_with()
    opened = spend(governor, 0.0)
    governor.request(Ticket("a", ("umans",)), now=opened + 100.0)
    now = opened + 200.0
    before = window(governor, now)

    stored = msgspec.json.decode(msgspec.json.encode(governor.snapshot()), type=Snapshot)
    restored = Governor.restore(stored, now=now)

    assert window(restored, now) == before
    assert window(restored, now + 100.0) == window(governor, now + 100.0)
    assert before.estimated_ratio == pytest.approx(0.1)


def test_a_clock_that_is_set_back_changes_nothing_of_it() -> None:
    governor = governor_with()
    opened = spend(governor, 0.0)
    governor.request(Ticket("a", ("umans",)), now=opened + 1_000.0)
    before = window(governor, opened + 1_100.0)

    after = window(governor, opened + 500.0)

    assert after.estimated_ratio == pytest.approx(before.estimated_ratio)
    assert after.expected_reset == opened + LENGTH - 600.0


def test_limits_set_and_restored_by_hand_leave_it_alone() -> None:
    governor = governor_with()
    opened = spend(governor, 0.0)

    governor.set_limit("umans", 3, now=opened)
    governor.restore_limit("umans", now=opened)
    governor.remove_limit("umans", now=opened)

    assert window(governor, opened).holds_seconds == 1_000.0


def test_what_the_provider_tells_outranks_it_until_the_period_is_over() -> None:
    governor = governor_with(reserves={"umans": 0.25})
    opened = spend(governor, 0.0)
    governor.request(Ticket("long", ("umans",)), now=opened + 100.0)
    estimated = governor.try_request(Ticket("a", ("umans",)), now=opened + 1_000.0)

    governor.report("umans", Budget(used_ratio=0.3, window="5h", resets_at=opened + LENGTH), now=opened + 1_000.0)
    read = governor.try_request(Ticket("b", ("umans",)), now=opened + 1_000.0)
    governor.report("umans", Budget(used_ratio=0.9, window="5h"), now=opened + 1_100.0)
    spent = governor.try_request(Ticket("c", ("umans",)), now=opened + 1_100.0)
    later = governor.try_request(Ticket("d", ("umans",)), now=opened + LENGTH)

    assert isinstance(estimated, Deferred)
    assert isinstance(read, Granted)
    assert isinstance(spent, Deferred)
    assert spent.detail.endswith("of the 5h window of umans is used; 25% is kept in reserve")
    assert isinstance(later, Granted)
    assert window(governor, opened + LENGTH).used_ratio is None


# -- several windows, and readings that wobble -------------------------------------------------------------


def test_of_several_windows_the_one_that_holds_for_longest_is_reported() -> None:
    account, model = "anthropic/max-1", "anthropic/max-1/opus-4-6"
    governor = governor_with(reserves={account: 0.2})
    reported = [("5h", account, 0.9, 4_000.0), ("weekly", account, 0.85, 400_000.0), ("5h", model, 0.95, 9_000.0)]
    for name, scope, ratio, resets_at in reported:
        governor.report(scope, Budget(used_ratio=ratio, window=name, resets_at=resets_at), now=0.0)
    ticket = Ticket("a", ("runs", "anthropic", account, model))

    first = governor.request(ticket, now=0.0)
    governor.report(account, Budget(used_ratio=0.1, window="weekly", resets_at=400_000.0), now=1.0)
    second = governor.why("a", now=1.0)

    weekly = f"85% of the weekly window of {account} is used; 20% is kept in reserve"
    assert first == Deferred("a", "reserve", account, weekly, 400_000.0, 1)
    of_model = f"95% of the 5h window of {model} is used; 20% is kept in reserve"
    assert second == Deferred("a", "reserve", model, of_model, 9_000.0, 1)
    granted = [
        (now, each.ticket_id)
        for now in (4_000.0, 8_999.0, 9_000.0)
        for each in governor.advance(now=now)
        if isinstance(each, Granted)
    ]
    assert granted == [(9_000.0, "a")]


def test_the_tightest_of_several_windows_sets_the_pace() -> None:
    governor = governor_with()
    for name, resets_at in (("5h", LENGTH), ("weekly", 33 * LENGTH)):
        governor.report("umans", Budget(used_ratio=0.0, window=name, resets_at=resets_at), now=0.0)
    governor.report("umans", Budget(used_ratio=0.2, window="5h", resets_at=LENGTH), now=1_800.0)
    governor.report("umans", Budget(used_ratio=0.01, window="weekly", resets_at=33 * LENGTH), now=1_800.0)

    held = governor.request(spread("a"), now=1_800.0)

    assert isinstance(held, Deferred)
    words = "1% of the weekly window of umans is used; spread to the reset it would be 0% by now"
    assert (held.reason, held.detail) == ("pacing", words)
    assert held.retry_at == pytest.approx(0.33 * LENGTH)


def test_a_closed_window_of_the_model_is_not_reported_while_the_account_waits_for_longer() -> None:
    account, model = "anthropic/max-1", "anthropic/max-1/opus-4-6"
    governor = governor_with()
    governor.report(model, QuotaClosed(window="5h", resets_at=1_000.0, source="field"), now=0.0)
    governor.report(account, QuotaClosed(window="weekly", resets_at=1_500.0, source="field"), now=0.0)

    held = governor.request(Ticket("a", ("runs", "anthropic", account, model)), now=0.0)

    assert isinstance(held, Deferred)
    assert (held.reason, held.scope, held.retry_at) == ("window_closed", account, first_look(1_500.0))


def test_resets_that_wobble_by_seconds_do_not_begin_the_line_anew() -> None:
    governor = governor_with()
    for now in range(0, 3_601, 60):
        wobble = now % 7
        reading = Budget(used_ratio=0.5 * now / 3_600.0, window="5h", resets_at=LENGTH + wobble)
        governor.report("umans", reading, now=float(now))

    held = governor.request(spread("a"), now=3_600.0)

    assert isinstance(held, Deferred)
    assert held.retry_at == pytest.approx(LENGTH / 2, abs=10.0)


# -- a pace that is set ---------------------------------------------------------------------------------


def test_a_pace_admits_so_many_at_once_and_says_why() -> None:
    governor = governor_with()
    governor.cap_starts("campaign:nightly", StartCap("one at a time is enough", 600.0, live=1), now=0.0)
    scopes = ("sessions", "campaign:nightly")
    governor.request(Ticket("a", scopes), now=0.0)

    held = governor.request(Ticket("b", scopes), now=0.0)
    wakeup = governor.next_wakeup()
    governor.cap_starts("campaign:nightly", None, now=10.0)

    assert held == Deferred("b", "pacing", "campaign:nightly", "one at a time is enough", 600.0, 1)
    assert wakeup is not None
    assert [e.ticket_id for e in governor.advance(now=10.0) if isinstance(e, Granted)] == ["b"]


def test_who_waits_for_a_pace_claims_no_place_elsewhere() -> None:
    governor = governor_with(limits={"sessions": 2})
    governor.cap_starts("campaign:nightly", StartCap("one at a time is enough", 6_000.0, live=1), now=0.0)
    governor.request(Ticket("a", ("sessions", "campaign:nightly"), group="nightly"), now=0.0)
    governor.request(Ticket("b", ("sessions", "campaign:nightly"), group="nightly"), now=0.0)
    governor.advance(now=300.0)

    assert isinstance(governor.request(Ticket("c", ("sessions",), group="other"), now=300.0), Granted)

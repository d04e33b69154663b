"""Rates of one's own: never more than rpm runs or tpm tokens in any minute, nobody starved, nothing lost."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.core import Deferred, Governor, GovernorSettings, Granted, Snapshot, Ticket
from paceline.core.signals import RateLimited, Succeeded
from paceline.core.values.settings import Rate, check_rate
from paceline.errors import InvalidLimit

KEY = "anthropic/work-key"
SCOPES = ("runs", "anthropic", KEY)


def governor(**rates: object) -> Governor:
    return Governor(GovernorSettings(rates={KEY: check_rate(rates, "rate")}), now=0.0)


def run(name: str, tokens: int | None = None, parent: str | None = None, priority: int = 0) -> Ticket:
    return Ticket(name, SCOPES, tokens=tokens, parent=parent, priority=priority, leased=False)


def drain(governor: Governor, until: float) -> list[tuple[float, str]]:
    """Let time pass with every wake-up of the Governor. Return which ticket entered when."""
    entered = []
    while (at := governor.next_wakeup()) is not None and at <= until:
        entered += [(at, effect.ticket_id) for effect in governor.advance(now=at) if isinstance(effect, Granted)]
    return entered


def test_a_burst_takes_a_minutes_worth_and_the_next_waits_until_it_has_left_the_window() -> None:
    limited = governor(rpm=2)
    first = [limited.request(run(name), now=10.0) for name in "ab"]

    held = limited.request(run("c"), now=12.0)

    assert [type(verdict) for verdict in first] == [Granted, Granted]
    assert held == Deferred(
        "c",
        "pacing",
        KEY,
        "anthropic/work-key has started 2 runs in the last minute (rpm 2)",
        70.0,
        1,
    )
    assert drain(limited, 100.0) == [(70.0, "c")]


def test_tokens_are_held_to_the_minute_by_what_each_run_expects_to_use() -> None:
    limited = governor(tpm=1000)
    limited.request(run("a", 600), now=0.0)
    limited.request(run("b", 300), now=5.0)

    held = limited.request(run("c", 200), now=6.0)

    assert held == Deferred(
        "c",
        "pacing",
        KEY,
        "anthropic/work-key has used 900 tokens in the last minute (tpm 1,000)",
        60.0,
        1,
    )
    assert drain(limited, 100.0) == [(60.0, "c")]


def test_what_a_run_really_used_takes_the_place_of_what_it_expected() -> None:
    limited = governor(tpm=1000)
    limited.request(run("a", 900), now=0.0)
    limited.request(run("b", 500), now=1.0)

    limited.report(KEY, Succeeded(ticket="a", tokens=400), now=2.0)

    assert [effect.ticket_id for effect in limited.advance(now=2.0) if isinstance(effect, Granted)] == ["b"]
    assert isinstance(limited.try_request(run("c", 101), now=3.0), Deferred)
    assert isinstance(limited.try_request(run("d", 100), now=3.0), Granted)


def test_runs_that_expect_nothing_are_charged_what_runs_use_on_average() -> None:
    limited = governor(tpm=1000)
    for name in "abc":
        limited.request(run(name), now=0.0)
    for name in "abc":
        limited.report(KEY, Succeeded(ticket=name, tokens=300), now=5.0)

    assert isinstance(limited.try_request(run("d"), now=6.0), Deferred)
    assert isinstance(limited.try_request(run("e", 100), now=6.0), Granted)


def test_a_run_larger_than_a_whole_minute_goes_when_the_window_is_empty() -> None:
    limited = governor(tpm=1000)
    limited.request(run("small", 1), now=0.0)
    limited.request(run("huge", 50_000), now=1.0)
    limited.request(run("next", 1), now=2.0)

    assert drain(limited, 200.0) == [(60.0, "huge"), (120.0, "next")]


@pytest.mark.parametrize("own_lines", [False, True])
def test_small_runs_do_not_starve_a_large_one(own_lines: bool) -> None:
    limited = governor(tpm=100)
    entered: list[tuple[float, str]] = []
    for second in range(200):
        now = float(second)
        if second == 70:
            limited.request(run("large", 80), now=now)
        limited.request(run(f"s{second}", 1, priority=second % 3 if own_lines else 0), now=now)
        entered += [(now, effect.ticket_id) for effect in limited.advance(now=now) if isinstance(effect, Granted)]

    assert [at for at, name in entered if name == "large"] == [pytest.approx(111, abs=2)]


def test_a_large_one_that_leaves_or_is_held_up_elsewhere_lets_the_small_ones_pass() -> None:
    for leaves in (True, False):
        limited = governor(tpm=100)
        limited.request(run("a", 50), now=0.0)
        opus = Ticket("large", (*SCOPES, f"{KEY}/opus-4-6"), tokens=90, leased=False)
        limited.request(opus, now=1.0)
        assert isinstance(limited.request(run("b", 10), now=2.0), Deferred)
        if leaves:
            limited.cancel("large", now=3.0)
            assert [effect.ticket_id for effect in limited.advance(now=3.0) if isinstance(effect, Granted)] == ["b"]
        else:
            limited.report(f"{KEY}/opus-4-6", RateLimited(retry_after=500.0), now=3.0)
            assert (60.0, "b") in drain(limited, 100.0)


def test_a_later_ticket_of_the_same_line_that_goes_first_is_not_blocked_by_what_is_kept() -> None:
    limited = governor(tpm=100)
    limited.request(run("a", 50), now=0.0)
    limited.request(Ticket("young", SCOPES, tokens=90, since=10.0, leased=False), now=10.0)

    limited.request(Ticket("old", SCOPES, tokens=20, since=-100.0, leased=False), now=10.5)

    assert drain(limited, 200.0) == [(60.0, "old"), (120.0, "young")]


def test_sessions_are_not_counted_but_their_runs_are() -> None:
    limited = governor(rpm=1)
    for name in "ab":
        session = Ticket(name, ("sessions", "anthropic", KEY), leased=False)
        assert isinstance(limited.request(session, now=0.0), Granted)

    assert isinstance(limited.request(run("r1", parent="a"), now=1.0), Granted)
    assert isinstance(limited.request(run("r2", parent="b"), now=1.0), Deferred)
    limited.report(KEY, Succeeded(ticket="a", tokens=10**9), now=2.0)
    assert drain(limited, 100.0) == [(61.0, "r2")]


def test_every_scope_that_matches_a_pattern_has_the_rate_for_itself_and_so_has_a_model_without_a_name() -> None:
    limited = Governor(GovernorSettings(rates={"anthropic/*/opus-*": Rate(rpm=1)}), now=0.0)

    def ask(account: str, model: str, name: str) -> type:
        path = f"anthropic/{account}"
        return type(limited.request(Ticket(name, ("runs", "anthropic", path, f"{path}/{model}")), now=0.0))

    asked = [("a", "opus-4-6", "1"), ("a", "opus-4-6", "2"), ("b", "opus-4-6", "3"), ("a", "haiku", "4")]
    assert [ask(*one) for one in asked] == [Granted, Deferred, Granted, Granted]
    unnamed = [limited.request(Ticket(name, ("runs", "anthropic", "anthropic/a")), now=0.0) for name in "56"]
    assert [type(verdict) for verdict in unnamed] == [Granted, Deferred]


def test_a_restart_keeps_the_last_minute_and_takes_the_new_rate() -> None:
    limited = governor(rpm=2)
    for name in "ab":
        limited.request(run(name), now=0.0)
    limited.request(run("c"), now=1.0)
    stored = msgspec.json.decode(msgspec.json.encode(limited.snapshot()), type=Snapshot)

    same = Governor.restore(stored, now=30.0)
    wider = Governor.restore(limited.snapshot(), now=30.0, settings=GovernorSettings(rates={KEY: Rate(rpm=3)}))
    without = Governor.restore(limited.snapshot(), now=30.0, settings=GovernorSettings())

    assert stored == limited.snapshot()
    assert same.snapshot() == Governor.restore(same.snapshot(), now=30.0).snapshot()
    assert drain(same, 100.0) == [(60.0, "c")]
    for changed in (wider, without):  # the rate that kept it out is gone
        assert [effect.ticket_id for effect in changed.collect() if isinstance(effect, Granted)] == ["c"]
    assert isinstance(without.try_request(run("d", priority=1), now=31.0), Granted)


def test_a_clock_that_is_set_back_does_not_make_the_minute_longer_or_shorter() -> None:
    limited = governor(rpm=1)
    limited.request(run("a"), now=10_000.0)
    limited.request(run("b"), now=10_010.0)

    limited.advance(now=5_000.0)  # fifty seconds are left

    assert drain(limited, 6_000.0) == [(5_050.0, "b")]


def test_what_is_kept_for_a_large_one_outlives_a_restart_with_it_and_not_without() -> None:
    limited = governor(tpm=100)
    limited.request(run("a", 50), now=0.0)
    limited.request(run("large", 90), now=1.0)
    stored = msgspec.json.decode(msgspec.json.encode(limited.snapshot()), type=Snapshot)

    with_it = Governor.restore(stored, now=2.0)
    without_it = Governor.restore(msgspec.structs.replace(stored, waiters=()), now=2.0)

    assert isinstance(with_it.try_request(run("b", 10, priority=1), now=2.0), Deferred)
    assert isinstance(without_it.try_request(run("b", 10, priority=1), now=2.0), Granted)


@pytest.mark.parametrize("value", [0, -1, 1.5, "10", True, [], 10**12])
@pytest.mark.parametrize("field", ["rpm", "tpm"])
def test_a_rate_that_is_none_is_refused_at_once(field: str, value: object) -> None:
    with pytest.raises(InvalidLimit, match=field):
        check_rate({field: value}, "rate")
    with pytest.raises(InvalidLimit, match=field):
        GovernorSettings(rates={KEY: Rate(**{field: value})})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [5, "5", None, {"rps": 1}, [("rpm", 1)]])
def test_what_is_no_rate_at_all_is_refused_at_once(value: object) -> None:
    with pytest.raises(InvalidLimit, match="rpm, tpm or both"):
        check_rate(value, "rates['umans']")


ARRIVALS = st.lists(
    st.tuples(st.floats(0, 5), st.none() | st.integers(0, 150), st.integers(0, 2), st.none() | st.integers(0, 200)),
    max_size=60,
)


@settings(max_examples=150)
@given(st.integers(1, 8), st.integers(20, 120), ARRIVALS, st.data())
def test_never_more_than_the_rate_in_any_minute_and_everybody_enters(
    rpm: int, tpm: int, arrivals: list[tuple[float, int | None, int, int | None]], data: st.DataObject
) -> None:
    limited = governor(rpm=rpm, tpm=tpm)
    now = 0.0
    starts: list[tuple[float, str]] = []
    expected: dict[str, int | None] = {}
    for number, (gap, tokens, priority, used) in enumerate(arrivals):
        starts += drain(limited, now + gap)
        now += gap
        name = f"t{number}"
        expected[name] = tokens
        if isinstance(limited.request(run(name, tokens, priority=priority), now=now), Granted):
            starts.append((now, name))
        if used is not None and starts:
            limited.report(KEY, Succeeded(ticket=starts[-1][1], tokens=used), now=now)
            starts += [(now, e.ticket_id) for e in limited.advance(now=now) if isinstance(e, Granted)]
            expected[starts[-1][1]] = None  # no longer what it was charged
        if data.draw(st.booleans()):
            limited = Governor.restore(limited.snapshot(), now=now)
    starts += drain(limited, now + 60.0 * (len(arrivals) + 1))

    assert sorted(name for _, name in starts) == sorted(expected)  # nobody twice, nobody lost
    for at, _ in starts:
        minute = [name for other, name in starts if at <= other < at + 60.0]
        assert len(minute) <= rpm
        known = [tokens for name in minute if (tokens := expected[name]) is not None]
        if all(used is None for *_, used in arrivals) and len(minute) > 1:
            assert sum(min(tokens, tpm) for tokens in known) <= tpm


@pytest.mark.parametrize("by_session", [False, True])
def test_when_the_large_one_turns_out_to_wait_elsewhere_those_behind_it_go_at_once(by_session: bool) -> None:
    limited = governor(tpm=100)
    session = Ticket("s", ("sessions", "anthropic", KEY), leased=False)
    limited.request(session, now=0.0)
    limited.request(run("a", 50), now=0.0)
    limited.request(Ticket("large", (*SCOPES, f"{KEY}/opus-4-6"), tokens=90, leased=False), now=1.0)
    limited.report(f"{KEY}/opus-4-6", RateLimited(retry_after=500.0), now=2.0)

    behind = run("behind", 20, priority=3, parent="s" if by_session else None)  # it is checked first
    assert isinstance(limited.request(behind, now=3.0), Deferred)

    assert drain(limited, 100.0) == [(60.0, "behind")]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.sampled_from(["opus-4-6", "haiku-4"]), st.integers(0, 150), st.integers(0, 3)),
        st.tuples(st.just("pause"), st.sampled_from(["opus-4-6", "haiku-4"]), st.integers(1, 200), st.just(0)),
        st.tuples(st.just("leave"), st.just(""), st.integers(0, 40), st.just(0)),
        st.tuples(st.just("end"), st.just(""), st.integers(0, 40), st.integers(0, 300)),
        st.tuples(st.just("wait"), st.just(""), st.integers(1, 40), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=200)
@given(STEPS)
def test_nobody_is_left_in_line_by_pauses_sessions_and_those_who_leave(steps: list[tuple[str, str, int, int]]) -> None:
    limited = Governor(GovernorSettings(limits={KEY: 6}, rates={KEY: Rate(rpm=6, tpm=100)}), now=0.0)
    for name in ("s0", "s1"):
        limited.request(Ticket(name, ("sessions", "anthropic", KEY), leased=False), now=0.0)
    now, asked = 0.0, 0
    for kind, model, number, choice in steps:
        if kind == "ask":
            parent = f"s{choice}" if choice < 2 else None
            scopes = (*SCOPES, f"{KEY}/{model}")
            ticket = Ticket(f"t{asked}", scopes, tokens=number, parent=parent, priority=choice, leased=False)
            limited.request(ticket, now=now)
            asked += 1
        elif kind == "pause":
            limited.report(f"{KEY}/{model}", RateLimited(retry_after=float(number), cause="requests"), now=now)
        elif kind == "leave":
            limited.cancel(f"t{number}", now=now)
        elif kind == "end":
            limited.report(KEY, Succeeded(ticket=f"t{number}", tokens=choice), now=now)
            limited.release(f"t{number}", now=now)
        else:
            now += number
            limited.advance(now=now)
    for ticket_id in list(limited.ledger.slots):
        if ticket_id.startswith("t"):
            limited.release(ticket_id, now=now)
    for _ in range(4 * asked + 20):
        if (at := limited.next_wakeup()) is None:
            break
        now = max(now, at)
        for effect in limited.advance(now=now):
            if isinstance(effect, Granted):
                limited.release(effect.ticket_id, now=now)

    assert set(limited.ledger.waiters) == set()


def test_tokens_kept_for_a_call_that_lacks_room_do_not_stop_the_session_that_fills_the_scope() -> None:
    """One place, 100 tokens a minute: a bare call waits for tokens, then a session takes the place."""
    limited = Governor(GovernorSettings(limits={KEY: 1}, rates={KEY: Rate(tpm=100)}), now=0.0)
    limited.request(Ticket("first", ("runs", KEY), tokens=100, leased=False), now=0.0)
    limited.release("first", now=1.0)
    bare = limited.request(Ticket("bare", ("runs", KEY), tokens=100, leased=False), now=1.0)
    session = limited.request(Ticket("s", ("sessions", KEY), leased=False), now=2.0)
    call = limited.request(Ticket("call", ("runs", KEY), parent="s", tokens=50, leased=False), now=3.0)
    assert [type(verdict) for verdict in (bare, session, call)] == [Deferred, Granted, Deferred]
    assert drain(limited, 60.0) == [(60.0, "call")]
    limited.release("call", now=61.0)
    limited.release("s", now=62.0)
    assert drain(limited, 300.0) == [(120.0, "bare")]


def test_a_session_that_fills_the_scope_frees_the_calls_of_others_from_kept_tokens() -> None:
    """Two places: a session runs, its call waits behind kept tokens; a second session takes the last place."""
    limited = Governor(GovernorSettings(limits={KEY: 2}, rates={KEY: Rate(tpm=100)}), now=0.0)
    limited.request(Ticket("s", ("sessions", KEY), leased=False), now=0.0)
    limited.request(Ticket("half", ("runs", KEY), parent="s", tokens=50, leased=False), now=0.0)
    limited.release("half", now=1.0)
    limited.request(Ticket("bare", ("runs", KEY), tokens=100, leased=False), now=1.0)
    call = limited.request(Ticket("call", ("runs", KEY), parent="s", tokens=50, leased=False), now=2.0)
    assert isinstance(call, Deferred)
    assert isinstance(limited.request(Ticket("t", ("sessions", KEY), leased=False), now=3.0), Granted)
    assert [effect.ticket_id for effect in limited.advance(now=3.0) if isinstance(effect, Granted)] == ["call"]


def test_cancelling_one_that_waits_behind_the_first_leaves_the_kept_tokens() -> None:
    limited = governor(tpm=100)
    limited.request(run("first", tokens=60), now=0.0)
    limited.request(run("large", tokens=100), now=1.0)
    limited.request(run("behind", tokens=100), now=1.0)
    limited.cancel("behind", now=2.0)
    small = limited.request(run("small", tokens=40, priority=3), now=3.0)
    assert isinstance(small, Deferred)
    assert drain(limited, 60.0) == [(60.0, "large")]

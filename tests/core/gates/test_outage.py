"""Nobody answers: the scope backs off behind one canary, no limit falls, and any answer ends it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core import Deferred, Governor, GovernorSettings, Granted, Snapshot, Ticket
from paceline.core.signals import Overloaded, QuotaClosed, RateLimited, Signal, Succeeded, Unreachable
from paceline.events import Event

SCOPE = "anthropic/max-1"


def session(name: str) -> Ticket:
    return Ticket(name, ("sessions", SCOPE), leased=False)


def governor_with(*sessions: str) -> Governor:
    governor = Governor(GovernorSettings(limits={SCOPE: 8}), now=0.0)
    for name in sessions:
        assert isinstance(governor.request(session(name), now=0.0), Granted)
    return governor


def fail(governor: Governor, name: str, now: float, retry_after: float | None = None) -> None:
    governor.report(SCOPE, Unreachable(ticket=name, retry_after=retry_after), now=now)
    governor.release(name, now=now)


def let_in(governor: Governor, now: float) -> list[str]:
    return [effect.ticket_id for effect in governor.advance(now=now) if isinstance(effect, Granted)]


def pauses(governor: Governor, now: float) -> list[tuple[str, dict[str, object]]]:
    events = [effect for effect in governor.advance(now=now) if isinstance(effect, Event)]
    return [(event.name, event.fields) for event in events if event.name.startswith("scope.")]


def test_after_no_answer_one_canary_goes_and_its_answer_lets_all_others_in() -> None:
    governor = governor_with("a")
    fail(governor, "a", 10.0)
    assert governor.request(session("b"), now=11.0) == Deferred(
        "b", "unreachable", SCOPE, f"{SCOPE} cannot be reached; one session will try it first", 15.0, 1
    )
    governor.request(session("c"), now=11.0)
    assert let_in(governor, 14.9) == []
    assert let_in(governor, 15.0) == ["b"]
    assert governor.is_canary("b")
    assert governor.why("c", now=16.0) == Deferred(
        "c", "unreachable", SCOPE, f"{SCOPE} could not be reached; b is trying it now", 315.0, 1
    )
    governor.report(SCOPE, Succeeded(ticket="b"), now=20.0)
    assert let_in(governor, 20.0) == ["c"]


def test_the_wait_doubles_from_five_seconds_to_five_minutes() -> None:
    governor, now, waits = governor_with("s0"), 0.0, []
    for number in range(9):
        fail(governor, f"s{number}", now)
        governor.request(session(f"s{number + 1}"), now=now)
        woken = governor.next_wakeup()
        assert woken is not None
        waits.append(woken - now)
        now = woken
        assert let_in(governor, now) == [f"s{number + 1}"]
    assert waits == [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0, 300.0]


@pytest.mark.parametrize(("retry_after", "until"), [(60.0, 60.0), (2.0, 5.0), (float("nan"), 5.0)])
def test_a_longer_stated_wait_counts(retry_after: float, until: float) -> None:
    governor = governor_with("a")
    fail(governor, "a", 0.0, retry_after)
    verdict = governor.request(session("b"), now=0.0)
    assert isinstance(verdict, Deferred)
    assert verdict.retry_at == until


def test_sessions_that_fail_together_are_one_incident() -> None:
    governor = governor_with(*"abcdef")
    for offset, name in enumerate("abcdef"):
        fail(governor, name, 10.0 + offset * 0.5)
    assert pauses(governor, 13.0) == [("scope.paused", {"until": 15.0, "cause": "unreachable"})]
    governor.request(session("next"), now=13.0)
    assert let_in(governor, 15.0) == ["next"]


def test_a_session_from_before_that_fails_while_the_canary_is_out_says_nothing_new() -> None:
    governor = governor_with("a", "old", "older")
    fail(governor, "a", 0.0)
    governor.request(session("canary"), now=0.0)
    assert let_in(governor, 5.0) == ["canary"]
    fail(governor, "old", 6.0)
    assert governor.is_canary("canary")
    governor.report(SCOPE, Succeeded(ticket="canary"), now=7.0)
    fail(governor, "older", 8.0)  # it lost its connection before the canary was answered
    assert isinstance(governor.request(session("b"), now=8.0), Granted)


def test_no_limit_falls_and_nothing_is_learnt_about_rates() -> None:
    governor = governor_with(*"abcd")
    for name in "abcd":
        fail(governor, name, 10.0)
    status = governor.status(SCOPE, now=10.0)
    assert status is not None
    assert (status.limit, status.adaptive, status.paused, status.paused_until) == (8, None, True, 15.0)
    assert status.notice == "cannot be reached: one session tries it first"


@pytest.mark.parametrize(
    "answer",
    [
        Succeeded(ticket="running"),
        RateLimited(retry_after=1.0, ticket="running"),
        Overloaded(retry_after=1.0, ticket="running"),
        QuotaClosed(resets_at=200.0, window="5h", source="field", ticket="running"),
    ],
)
def test_any_answer_of_the_provider_ends_the_outage(answer: Signal) -> None:
    governor = governor_with("a", "running")
    fail(governor, "a", 100.0, retry_after=250.0)
    governor.report(SCOPE, answer, now=101.0)
    verdict = governor.request(session("b"), now=203.0)
    assert isinstance(verdict, Granted)


def test_a_canary_that_ends_without_a_verdict_lets_the_next_one_go_and_no_more() -> None:
    governor = governor_with("a")
    fail(governor, "a", 0.0)
    for name in ("b", "c", "d"):
        governor.request(session(name), now=0.0)
    assert let_in(governor, 5.0) == ["b"]
    governor.abandon("b", now=6.0)
    assert let_in(governor, 6.0) == ["c"]
    assert let_in(governor, 60.0) == []


def test_a_canary_that_hangs_is_joined_by_another_after_five_minutes() -> None:
    governor = governor_with("a")
    fail(governor, "a", 0.0)
    governor.request(session("hangs"), now=0.0)
    governor.request(session("next"), now=0.0)
    assert let_in(governor, 5.0) == ["hangs"]
    assert let_in(governor, 304.0) == []
    assert let_in(governor, 305.0) == ["next"]


def test_the_runs_of_the_canary_pass_and_those_of_others_wait() -> None:
    governor = governor_with("a", "other")
    fail(governor, "a", 0.0)
    governor.request(session("canary"), now=0.0)
    assert let_in(governor, 5.0) == ["canary"]
    own = Ticket("canary:1", ("runs", SCOPE), parent="canary", leased=False)
    assert isinstance(governor.request(own, now=6.0), Granted)
    foreign = Ticket("other:1", ("runs", SCOPE), parent="other", leased=False)
    assert isinstance(governor.request(foreign, now=6.0), Deferred)


def test_all_models_of_an_account_back_off_together() -> None:
    governor = governor_with()
    governor.report(f"{SCOPE}/opus-4-6", Unreachable(), now=0.0)
    verdict = governor.request(Ticket("a", ("sessions", SCOPE, f"{SCOPE}/haiku-4-5")), now=1.0)
    assert isinstance(verdict, Deferred)
    assert (verdict.reason, verdict.scope) == ("unreachable", SCOPE)


def test_an_outage_survives_a_restart() -> None:
    governor = governor_with("a")
    fail(governor, "a", 0.0)
    governor.request(session("b"), now=0.0)
    assert let_in(governor, 5.0) == ["b"]
    fail(governor, "b", 6.0)
    stored = msgspec.json.decode(msgspec.json.encode(governor.snapshot()), type=Snapshot)
    again = Governor.restore(stored, now=7.0, keep_slots=False)
    again.request(session("c"), now=7.0)
    assert let_in(again, 15.9) == []
    assert let_in(again, 16.0) == ["c"]


STEPS = st.tuples(st.sampled_from(["fail", "answer", "abandon", "wait"]), st.floats(0.1, 400.0))


@given(st.lists(STEPS, max_size=40))
def test_whatever_becomes_of_canaries_no_limit_falls_and_in_the_end_everybody_has_gone(
    steps: list[tuple[str, float]],
) -> None:
    governor, now = governor_with("first"), 0.0
    fail(governor, "first", now)
    live: list[str] = []
    for count, (kind, seconds) in enumerate(steps):
        governor.request(session(f"w{count}"), now=now)
        live = [*governor.ledger.slots]
        match kind:
            case "wait":
                now += seconds
            case "fail" if live:
                fail(governor, live[-1], now)
            case "answer" if live:
                governor.report(SCOPE, Succeeded(ticket=live[-1]), now=now)
                governor.release(live[-1], now=now)
            case "abandon" if live:
                governor.abandon(live[-1], now=now)
        governor.advance(now=now)
        status = governor.status(SCOPE, now=now)
        assert status is not None
        assert (status.limit, status.adaptive) == (8, None)
    for _ in range(2 * len(steps)):
        for name in [*governor.ledger.slots]:
            governor.release(name, now=now)
        wake = governor.next_wakeup()
        now = now if wake is None else max(now, wake)
        governor.advance(now=now)
    assert (governor.ledger.waiters, governor.ledger.slots) == ({}, {})

"""One refused login is not the end of a night: it is asked again, twice, before a person is needed."""

import msgspec
import pytest

from paceline.core import Deferred, Governor, GovernorSettings, Granted, Snapshot, Ticket
from paceline.core.signals import AuthFailed, BillingStop, Succeeded

ACCOUNT = "anthropic/max-1"
DETAIL = "401 token expired"


def session(name: str) -> Ticket:
    return Ticket(name, ("sessions", ACCOUNT, f"{ACCOUNT}/opus-4-6"), leased=False)


def governor_with(*sessions: str) -> Governor:
    governor = Governor(GovernorSettings(), now=0.0)
    for name in sessions:
        assert isinstance(governor.request(session(name), now=0.0), Granted)
    return governor


def refuse(governor: Governor, name: str, now: float) -> None:
    governor.report(f"{ACCOUNT}/opus-4-6", AuthFailed(detail=DETAIL, ticket=name, reach="account"), now=now)
    governor.abandon(name, now=now)


def let_in(governor: Governor, now: float) -> list[str]:
    return [effect.ticket_id for effect in governor.advance(now=now) if isinstance(effect, Granted)]


def held(governor: Governor, now: float) -> str | None:
    status = governor.status(ACCOUNT, now=now)
    assert status is not None
    return status.held


def test_one_refused_login_is_asked_again_after_a_minute_and_then_all_go_on() -> None:
    governor = governor_with("a")
    refuse(governor, "a", 10.0)
    assert governor.request(session("b"), now=10.0) == Deferred(
        "b",
        "paused",
        ACCOUNT,
        f"the login of {ACCOUNT} was refused ({DETAIL}); one session will ask again before it is held",
        70.0,
        1,
    )
    governor.request(session("c"), now=10.0)
    assert let_in(governor, 69.9) == []
    assert let_in(governor, 70.0) == ["b"]
    why = governor.why("c", now=71.0)
    assert why is not None
    assert why.detail == f"the login of {ACCOUNT} was refused ({DETAIL}); b is asking again"
    governor.report(ACCOUNT, Succeeded(ticket="b"), now=75.0)
    assert let_in(governor, 75.0) == ["c"]
    assert held(governor, 75.0) is None


def test_the_third_refusal_in_a_row_holds_the_account() -> None:
    governor = governor_with("a")
    refuse(governor, "a", 0.0)
    governor.request(session("b"), now=0.0)
    governor.request(session("c"), now=0.0)
    assert let_in(governor, 60.0) == ["b"]
    refuse(governor, "b", 62.0)
    assert let_in(governor, 361.0) == []
    assert let_in(governor, 362.0) == ["c"]
    assert held(governor, 362.0) is None
    refuse(governor, "c", 364.0)
    assert held(governor, 364.0) == DETAIL
    assert governor.request(session("d"), now=365.0) == Deferred(
        "d",
        "held",
        ACCOUNT,
        f"{ACCOUNT} is held: {DETAIL}; one session asks again once an hour, and when its login changes",
        364.0 + 3600.0,
        1,
    )


def hold(governor: Governor) -> None:
    """Let the login be refused three times, the last time at 361 s."""
    for name, now in (("a", 0.0), ("b", 60.0), ("c", 360.0)):
        assert isinstance(governor.request(session(name), now=now), Granted)
        refuse(governor, name, now)


def test_a_held_login_is_asked_again_once_an_hour_until_it_is_accepted() -> None:
    governor = governor_with()
    hold(governor)
    governor.request(session("d"), now=361.0)
    governor.request(session("e"), now=361.0)
    assert let_in(governor, 3959.0) == []
    assert let_in(governor, 3960.0) == ["d"]
    refuse(governor, "d", 3961.0)
    assert let_in(governor, 7560.0) == []
    assert let_in(governor, 7561.0) == ["e"]
    governor.request(session("f"), now=7561.0)
    governor.report(ACCOUNT, Succeeded(ticket="e"), now=7565.0)
    assert (let_in(governor, 7565.0), held(governor, 7565.0)) == (["f"], None)


def test_a_held_login_that_changed_is_asked_again_at_once_by_one_session() -> None:
    governor = governor_with()
    assert not governor.ask_login_again(ACCOUNT, now=0.0)
    hold(governor)
    governor.request(session("d"), now=361.0)
    governor.request(session("e"), now=361.0)
    assert governor.ask_login_again(ACCOUNT, now=400.0)
    assert let_in(governor, 400.0) == ["d"]
    assert not governor.ask_login_again(ACCOUNT, now=401.0)
    governor.report(ACCOUNT, Succeeded(ticket="d"), now=402.0)
    assert (let_in(governor, 402.0), held(governor, 402.0)) == (["e"], None)


def test_a_login_that_the_cli_does_not_find_is_held_at_once() -> None:
    governor = governor_with("a", "b")
    missing = AuthFailed(detail="Not logged in", is_missing=True, ticket="a", reach="account")
    governor.report(ACCOUNT, missing, now=5.0)
    governor.abandon("a", now=5.0)
    assert held(governor, 5.0) == "Not logged in"
    assert governor.request(session("c"), now=6.0) == Deferred(
        "c", "held", ACCOUNT, f"{ACCOUNT} is held: Not logged in; log in, then it is asked again by itself", None, 1
    )
    assert let_in(governor, 3604.0) == []
    assert let_in(governor, 3605.0) == ["c"]


def test_the_hold_of_a_login_survives_a_restart_and_ends_by_itself() -> None:
    governor = governor_with()
    hold(governor)
    stored = msgspec.json.decode(msgspec.json.encode(governor.snapshot()), type=Snapshot)
    again = Governor.restore(stored, now=1000.0, keep_slots=False)
    again.request(session("d"), now=1000.0)
    assert (let_in(again, 3959.0), held(again, 3959.0)) == ([], DETAIL)
    assert let_in(again, 3960.0) == ["d"]


def test_another_session_that_succeeds_ends_the_doubt_at_once() -> None:
    governor = governor_with("a", "other")
    refuse(governor, "a", 0.0)
    governor.request(session("b"), now=0.0)
    governor.report(ACCOUNT, Succeeded(ticket="other"), now=3.0)
    assert let_in(governor, 3.0) == ["b"]


def test_refusals_of_sessions_that_ran_together_are_one() -> None:
    governor = governor_with("a", "b", "c", "d")
    for name in ("a", "b", "c", "d"):
        refuse(governor, name, 5.0)
    assert held(governor, 5.0) is None
    governor.request(session("next"), now=5.0)
    assert let_in(governor, 65.0) == ["next"]


def test_refusals_without_a_ticket_count_once_for_each_time_it_was_asked_again() -> None:
    governor = governor_with()
    for now in (0.0, 1.0, 59.0, 60.0, 61.0, 359.0):
        governor.report(ACCOUNT, AuthFailed(detail=DETAIL), now=now)
        assert held(governor, now) is None
    governor.report(ACCOUNT, AuthFailed(detail=DETAIL), now=360.0)
    assert held(governor, 360.0) == DETAIL


@pytest.mark.parametrize("times", [1, 2])
def test_a_success_between_begins_the_count_anew(times: int) -> None:
    governor, now, count = governor_with("s0"), 0.0, 0
    for _ in range(3):
        for _ in range(times):
            refuse(governor, f"s{count}", now)
            count += 1
            governor.request(session(f"s{count}"), now=now)
            now += 300.0
            assert let_in(governor, now) == [f"s{count}"]
        governor.report(ACCOUNT, Succeeded(ticket=f"s{count}"), now=now)
    assert held(governor, now) is None


def test_a_billing_stop_holds_at_once() -> None:
    governor = governor_with("a")
    governor.report(ACCOUNT, BillingStop(detail="no credit", ticket="a"), now=1.0)
    assert held(governor, 1.0) == "no credit"


def test_lifting_the_hold_ends_the_doubt_too() -> None:
    governor = governor_with("a")
    refuse(governor, "a", 0.0)
    governor.lift_hold(ACCOUNT, now=1.0)
    assert isinstance(governor.request(session("b"), now=1.0), Granted)


def test_the_doubt_survives_a_restart() -> None:
    governor = governor_with("a")
    refuse(governor, "a", 0.0)
    governor.request(session("b"), now=0.0)
    assert let_in(governor, 60.0) == ["b"]
    refuse(governor, "b", 61.0)
    stored = msgspec.json.decode(msgspec.json.encode(governor.snapshot()), type=Snapshot)
    again = Governor.restore(stored, now=100.0, keep_slots=False)
    again.request(session("c"), now=100.0)
    assert let_in(again, 361.0) == ["c"]
    refuse(again, "c", 362.0)
    assert held(again, 362.0) == DETAIL

"""Slots that are adopted or given up: counted, and no gate learns anything from them."""

import msgspec
import pytest

from paceline.core import Deferred, Governor, GovernorSettings, Granted, Snapshot, Ticket
from paceline.core.signals import QuotaClosed, RateLimited, Succeeded, Unreachable
from paceline.events import Event

ACCOUNT = "anthropic/max-1"
RESET = 5 * 3600.0


def session(name: str) -> Ticket:
    return Ticket(name, ("sessions", ACCOUNT), leased=False)


def restarted(governor: Governor, now: float) -> Governor:
    """As an engine restarts: what was learnt stays, who runs is found out again."""
    stored = msgspec.json.decode(msgspec.json.encode(governor.snapshot()), type=Snapshot)
    return Governor.restore(stored, now=now, keep_slots=False)


def closed_with(*adopted: str) -> Governor:
    """A window that closed at 100 and a restart at 200, which found these sessions still running."""
    governor = Governor(GovernorSettings(limits={ACCOUNT: 8}), now=0.0)
    for name in adopted:
        governor.request(session(name), now=0.0)
    governor.report(ACCOUNT, QuotaClosed(window="5h", resets_at=RESET, source="field"), now=100.0)
    again = restarted(governor, now=200.0)
    for name in adopted:
        again.adopt(session(name), now=200.0)
    return again


def window(governor: Governor, now: float) -> tuple[str, float | None]:
    status = governor.status(ACCOUNT, now=now)
    assert status is not None
    assert status.window is not None
    return status.window.state, status.window.probe_at


def grants(governor: Governor, now: float) -> list[str]:
    return [effect.ticket_id for effect in governor.advance(now=now) if isinstance(effect, Granted)]


def event_names(governor: Governor, now: float) -> list[str]:
    return [effect.name for effect in governor.advance(now=now) if isinstance(effect, Event)]


def test_an_adopted_session_is_counted_and_is_no_canary() -> None:
    governor = closed_with("a", "b")
    status = governor.status(ACCOUNT, now=200.0)
    assert status is not None
    assert status.in_flight == 2
    assert window(governor, 200.0) == ("closed", 100.0 + 2700.0)
    assert not governor.is_canary("a")
    assert "window.canary" not in event_names(governor, 200.0)


@pytest.mark.parametrize("reports", [False, True], ids=["only ends", "answers first"])
def test_an_adopted_session_that_ends_well_reopens_no_window(reports: bool) -> None:
    governor = closed_with("a")
    governor.request(session("waits"), now=200.0)
    if reports:
        governor.report(ACCOUNT, Succeeded(ticket="a"), now=201.0)
    governor.release("a", now=202.0)
    assert grants(governor, 202.0) == []
    assert window(governor, 202.0) == ("closed", 2800.0)


def test_an_adopted_session_that_ends_well_while_a_canary_is_out_reopens_no_window() -> None:
    governor = closed_with("a")
    governor.request(session("canary"), now=200.0)
    governor.request(session("waits"), now=200.0)
    assert grants(governor, 2800.0) == ["canary"]
    governor.report(ACCOUNT, Succeeded(ticket="a"), now=2810.0)
    governor.release("a", now=2810.0)
    assert (grants(governor, 2810.0), window(governor, 2810.0)[0]) == ([], "probing")


def test_adopted_sessions_that_ended_at_the_wall_do_not_put_the_next_look_off() -> None:
    governor = closed_with("a", "b", "c")
    for name in ("a", "b", "c"):
        closed = QuotaClosed(window="5h", resets_at=RESET, source="field", ticket=name)
        governor.report(ACCOUNT, closed, now=210.0)
        governor.abandon(name, now=210.0)
    assert window(governor, 210.0) == ("closed", 210.0 + 2700.0)


def test_an_adopted_session_counts_no_start_and_uses_no_rate() -> None:
    governor = Governor(GovernorSettings(), now=0.0)
    governor.adopt(session("a"), now=0.0)
    assert governor.ledger.scope(ACCOUNT).meter.starts == 0
    assert [*governor.ledger.recent] == []


def test_an_adopted_session_that_is_refused_was_not_refused_at_its_start() -> None:
    governor = Governor(GovernorSettings(limits={ACCOUNT: 8}), now=0.0)
    for name in "abcd":
        governor.adopt(session(name), now=0.0)
    governor.report(ACCOUNT, RateLimited(retry_after=1.0, cause="concurrency", ticket="d"), now=4.0)
    status = governor.status(ACCOUNT, now=4.0)
    assert status is not None
    assert status.limit == 7  # one step; "only three run well" would be a limit of three


def test_an_adopted_session_stays_adopted_over_a_restart_that_keeps_slots() -> None:
    governor = closed_with("a")
    stored = msgspec.json.decode(msgspec.json.encode(governor.snapshot()), type=Snapshot)
    again = Governor.restore(stored, now=300.0)
    again.request(session("canary"), now=300.0)
    assert grants(again, 2800.0) == ["canary"]
    again.release("a", now=2801.0)
    assert window(again, 2801.0)[0] == "probing"


@pytest.mark.parametrize("kind", ["window", "outage"])
def test_a_canary_that_is_given_up_reopens_nothing_and_lets_the_next_one_go(kind: str) -> None:
    governor = Governor(GovernorSettings(), now=0.0)
    signal = QuotaClosed(window="5h", resets_at=1000.0, source="field") if kind == "window" else Unreachable()
    governor.report(ACCOUNT, signal, now=0.0)
    for name in ("first", "second", "third"):
        assert isinstance(governor.request(session(name), now=0.0), Deferred)
    opens_at = governor.next_wakeup()
    assert opens_at is not None
    assert grants(governor, opens_at) == ["first"]
    governor.abandon("first", now=opens_at + 1.0)
    assert grants(governor, opens_at + 1.0) == ["second"]
    assert grants(governor, opens_at + 100.0) == []

"""A closing that contradicts what was just reported: looked at again soon, one place less, and never for hours."""

import pytest

from paceline.core import Governor, GovernorSettings, Granted, Ticket
from paceline.core.gates.quota_window import MOST_WINDOWS
from paceline.core.gates.reopening import EARLY_LOOK_SECONDS, first_look
from paceline.core.signals import Budget, QuotaClosed, RateLimited, Succeeded
from paceline.events import Event

ACCOUNT = "anthropic/max-1"
RESET = 5 * 3600.0


def session(name: str) -> Ticket:
    return Ticket(name, ("sessions", ACCOUNT), leased=False)


def governor_with(count: int, limit: int = 4) -> Governor:
    governor = Governor(GovernorSettings(limits={ACCOUNT: limit}), now=0.0)
    for number in range(count):
        assert isinstance(governor.request(session(f"s{number}"), now=0.0), Granted)
    return governor


def report_open(governor: Governor, now: float, used: float | None = None) -> None:
    governor.report(ACCOUNT, Budget(window="5h", resets_at=RESET, used_ratio=used, source="field"), now=now)


def close(governor: Governor, name: str, now: float, confidence: float = 1.0) -> None:
    closed = QuotaClosed(window="5h", resets_at=RESET, source="field", ticket=name, confidence=confidence)
    governor.report(ACCOUNT, closed, now=now)
    governor.abandon(name, now=now)


def belief(governor: Governor, now: float) -> tuple[str, float | None, float, int | None]:
    status = governor.status(ACCOUNT, now=now)
    assert status is not None
    assert status.window is not None
    return status.window.state, status.window.probe_at, status.window.confidence, status.limit


def grants(governor: Governor, now: float) -> list[str]:
    return [effect.ticket_id for effect in governor.advance(now=now) if isinstance(effect, Granted)]


def test_a_closing_seconds_after_a_report_that_it_is_open_is_looked_at_within_two_minutes() -> None:
    governor = governor_with(4)
    report_open(governor, 10.0)
    close(governor, "s3", 15.0)
    assert belief(governor, 15.0) == ("closed", 105.0, 0.5, 3)
    close(governor, "s2", 16.0)  # it met the same refusal
    assert belief(governor, 16.0)[3] == 3


def test_a_closing_in_doubt_is_looked_at_no_later_than_its_own_reset() -> None:
    governor = governor_with(4)
    governor.report(ACCOUNT, Budget(window="5h", resets_at=45.0, source="field"), now=10.0)
    closed = QuotaClosed(window="5h", resets_at=45.0, source="field", ticket="s3")
    governor.report(ACCOUNT, closed, now=15.0)
    assert belief(governor, 15.0) == ("closed", first_look(45.0), 0.5, 3)


def test_a_doubted_closing_that_is_confirmed_counts_as_the_first_refusal() -> None:
    governor = governor_with(2)
    close(governor, "s1", 15.0, confidence=0.5)
    governor.report(ACCOUNT, QuotaClosed(window="5h", source="text", ticket="s0"), now=20.0)
    assert belief(governor, 20.0)[:2] == ("closed", 20.0 + EARLY_LOOK_SECONDS)


def test_the_step_down_of_a_closing_in_doubt_is_undone_once_the_canary_confirms_the_window() -> None:
    # given a closing that says itself that it may be none, and a limit that fell from 4 to 3
    governor = governor_with(4)
    close(governor, "s3", 15.0, confidence=0.5)
    for name in ("s0", "s1", "s2"):
        governor.release(name, now=20.0)
    assert belief(governor, 20.0) == ("closed", 105.0, 0.5, 3)

    # when the canary meets the closed window too
    governor.request(session("canary"), now=20.0)
    assert grants(governor, 105.0) == ["canary"]
    close(governor, "canary", 107.0, confidence=0.5)

    # then the window explains the first refusal, and the limit is what it was
    raised = [effect.fields for effect in governor.advance(now=107.0) if isinstance(effect, Event)]
    assert belief(governor, 107.0)[0] == "closed"
    assert belief(governor, 107.0)[3] == 4
    assert {"limit": 4, "previous": 3} in raised


def test_the_step_down_of_a_closing_in_doubt_stays_where_a_refusal_confirms_it() -> None:
    governor = governor_with(4)
    close(governor, "s3", 15.0, confidence=0.5)
    governor.report(ACCOUNT, RateLimited(cause="concurrency", retry_after=1.0), now=80.0)
    for name in ("s0", "s1", "s2"):
        governor.release(name, now=81.0)
    lowered = belief(governor, 81.0)[3]

    governor.request(session("canary"), now=81.0)
    assert grants(governor, 105.0) == ["canary"]
    close(governor, "canary", 107.0, confidence=0.5)

    assert belief(governor, 107.0)[3] == lowered


def test_a_closing_that_contains_its_own_contradiction_is_doubted() -> None:
    governor = governor_with(2)
    close(governor, "s1", 15.0, confidence=0.5)
    assert belief(governor, 15.0) == ("closed", 105.0, 0.5, 3)


@pytest.mark.parametrize(
    ("running", "reported_at", "used"),
    [(4, None, None), (4, 10.0, None), (1, 60.0, None), (4, 60.0, 0.93)],
    ids=["nothing was reported", "long ago", "nobody else ran", "it was nearly spent"],
)
def test_a_closing_without_a_contradiction_is_believed(
    running: int, reported_at: float | None, used: float | None
) -> None:
    governor = governor_with(running)
    if reported_at is not None:
        report_open(governor, reported_at, used)
    close(governor, "s0", 71.0)
    state, probe_at, confidence, limit = belief(governor, 71.0)
    assert (state, confidence, limit) == ("closed", 1.0, 4)
    assert probe_at is not None
    assert probe_at > 2000.0


def test_the_canary_decides_it_reopens_what_was_no_closing() -> None:
    governor = governor_with(4)
    report_open(governor, 10.0)
    close(governor, "s3", 15.0)
    governor.request(session("canary"), now=20.0)
    governor.release("s2", now=50.0)
    assert grants(governor, 105.0) == ["canary"]
    governor.report(ACCOUNT, Succeeded(ticket="canary"), now=110.0)
    assert belief(governor, 110.0)[0] == "wave"


def test_the_canary_decides_it_closes_what_is_spent_until_the_reset() -> None:
    governor = governor_with(2)
    report_open(governor, 10.0)
    close(governor, "s1", 15.0)
    governor.abandon("s0", now=16.0)
    governor.request(session("canary"), now=20.0)
    assert grants(governor, 105.0) == ["canary"]
    close(governor, "canary", 107.0)
    state, probe_at, confidence, _ = belief(governor, 107.0)
    assert (state, confidence) == ("closed", 1.0)
    assert probe_at == 107.0 + 2700.0  # as after any first closing: the doubted one was none


def test_a_cap_below_the_pool_that_is_reported_as_a_spent_window_is_learnt_within_minutes() -> None:
    """Two may run, four are started; every 429 is called a spent window, and others report it open all the time."""
    governor, now, running = governor_with(4), 5.0, ["s0", "s1"]
    report_open(governor, now)
    for name in ("s3", "s2"):
        close(governor, name, now)
    for number in range(4, 9):
        governor.request(session(f"s{number}"), now=now)
        while now < 3600.0:
            now += 10.0
            report_open(governor, now)
            if refused := grants(governor, now):
                close(governor, refused[0], now + 2.0)
                break
    assert belief(governor, now)[3] == 2
    assert {name for name in running if governor.is_held(name)} == {"s0", "s1"}


def test_windows_that_a_source_invents_are_bounded() -> None:
    governor = governor_with(1)
    for number in range(500):
        governor.report(ACCOUNT, Budget(window=f"w{number}", used_ratio=0.1), now=float(number))
    governor.report(ACCOUNT, QuotaClosed(window="5h", resets_at=RESET, source="field"), now=500.0)
    for number in range(500):
        governor.report(ACCOUNT, Budget(window=f"x{number}", used_ratio=0.1), now=501.0 + number)
    status = governor.status(ACCOUNT, now=1001.0)
    assert status is not None
    assert len(status.windows) == MOST_WINDOWS
    assert [window.name for window in status.windows if window.state == "closed"] == ["5h"]


def test_closed_windows_that_a_source_invents_are_bounded_and_still_close() -> None:
    governor = governor_with(0)
    for number in range(500):
        closed = QuotaClosed(window=f"w{number}", resets_at=1000.0 + number, source="field")
        governor.report(ACCOUNT, closed, now=float(number))
    status = governor.status(ACCOUNT, now=500.0)
    assert status is not None
    assert len(status.windows) == MOST_WINDOWS + 1
    assert max(window.resets_at or 0.0 for window in status.windows) == 1499.0

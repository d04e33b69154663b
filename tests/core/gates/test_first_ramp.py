"""The first seconds of a scope: sessions start over some seconds where its limit is only assumed, else at once."""

import msgspec
import pytest

from paceline.core import Governor, GovernorSettings, Granted, Snapshot, Ticket
from paceline.core.signals import RateLimited, Succeeded, Usage
from paceline.core.values.settings import HeadroomMode

ACCOUNT = "anthropic/max-1"
LIMIT = 48
SECONDS = 15.0


def fresh(limit: int | None = LIMIT, first_ramp: float = SECONDS, headroom: HeadroomMode = "adaptive") -> Governor:
    settings = GovernorSettings(limits={ACCOUNT: limit}, first_ramp=first_ramp, headroom=headroom)
    return Governor(settings, now=0.0)


def start(governor: Governor, count: int, now: float = 0.0, scopes: tuple[str, ...] = ("sessions", ACCOUNT)) -> int:
    """Request so many at once, and return how many are granted at once."""
    verdicts = [governor.request(Ticket(f"s{now:g}-{n}", scopes, leased=False), now=now) for n in range(count)]
    return sum(isinstance(verdict, Granted) for verdict in verdicts)


def live_at(governor: Governor, *times: float) -> list[int]:
    found = []
    for now in times:
        while (wakeup := governor.next_wakeup()) is not None and wakeup <= now:
            governor.advance(now=wakeup)
        governor.advance(now=now)
        status = governor.status(ACCOUNT, now=now)
        found.append(status.in_flight if status is not None else 0)
    return found


def test_sessions_of_a_new_scope_start_over_ten_seconds() -> None:
    governor = fresh()
    assert start(governor, 60) == 16
    assert live_at(governor, 0.1, 1.0, 5.0, 10.0, 15.0) == [16, 19, 32, 48, 48]


def test_why_says_how_far_the_ramp_is() -> None:
    governor = fresh()
    start(governor, 60)
    found = governor.why("s0-59", now=1.0)
    assert found is not None
    assert (found.reason, found.scope, found.detail, found.retry_at) == (
        "pacing",
        ACCOUNT,
        "anthropic/max-1 is ramping up: 19 of 48 so far",
        1.25,
    )


def test_a_limit_that_is_twice_too_high_costs_a_few_refusals() -> None:
    """A start above 24 is refused after a second and a half. Nobody else has started after the first refusal."""
    governor, now, refused = fresh(), 0.0, 0
    start(governor, 60)
    pending = [(1.5, f"s0-{number}") for number in range(16)]
    accepted = 0
    while now < 30.0:
        wakeup = governor.next_wakeup() or 30.0
        now = min(wakeup, pending[0][0] if pending else 30.0)
        while pending and pending[0][0] <= now:
            _, name = pending.pop(0)
            if accepted < LIMIT // 2:
                accepted += 1
                governor.report(ACCOUNT, Succeeded(ticket=name), now=now)
            else:
                refused += 1
                governor.report(ACCOUNT, RateLimited(ticket=name, retry_after=60.0), now=now)
                governor.release(name, now=now)
        granted = [effect.ticket_id for effect in governor.advance(now=now) if isinstance(effect, Granted)]
        pending += [(now + 1.5, name) for name in granted]
    assert (accepted, refused) == (24, 5)


@pytest.mark.parametrize(
    "governor",
    [
        fresh(first_ramp=0.0),
        fresh(16),
        fresh(None),
        fresh(headroom="off"),
    ],
    ids=["switched off", "a small limit", "no limit", "nothing is learnt"],
)
def test_all_start_at_once_without_a_ramp(governor: Governor) -> None:
    status = governor.status(ACCOUNT, now=0.0)
    limit = status.limit if status is not None else None
    assert start(governor, 60) == (limit or 60)


def test_local_scopes_have_no_ramp() -> None:
    governor = Governor(GovernorSettings(limits={"sessions": 48, "host:one": 40}, first_ramp=SECONDS), now=0.0)
    assert start(governor, 60, scopes=("sessions", "host:one")) == 40


def test_calls_without_a_session_are_not_held_back() -> None:
    assert start(fresh(64), 60, scopes=("runs", "anthropic", ACCOUNT)) == 60


def test_the_runs_of_live_sessions_are_not_held_back() -> None:
    governor = fresh()
    start(governor, 60)
    runs = [Ticket(f"run-{n}", ("runs", ACCOUNT), parent=f"s0-{n}", leased=False) for n in range(16)]
    assert all(isinstance(governor.request(run, now=0.1), Granted) for run in runs)


def test_a_reading_that_states_the_limit_ends_the_ramp() -> None:
    governor = fresh()
    start(governor, 60)
    governor.report(ACCOUNT, Usage(concurrent_sessions=16, limit=40), now=1.0)
    assert live_at(governor, 1.0) == [40]


def test_sessions_that_end_make_room_for_more() -> None:
    governor = fresh(64)
    assert start(governor, 64) == 16
    for number in range(16):
        governor.release(f"s0-{number}", now=0.5)
    assert live_at(governor, 0.5) == [34]


@pytest.mark.parametrize("is_old", [False, True], ids=["stored", "stored by a version without ramps"])
def test_a_scope_that_has_run_before_starts_at_once_after_a_restart(is_old: bool) -> None:
    governor = fresh(first_ramp=0.0 if is_old else SECONDS)
    start(governor, 60)
    live_at(governor, 20.0)
    stored = msgspec.json.encode(governor.snapshot())
    for number in range(60):
        governor.abandon(f"s0-{number}", now=21.0)
    settings = GovernorSettings(limits={ACCOUNT: LIMIT}, first_ramp=SECONDS)
    again = Governor.restore(msgspec.json.decode(stored, type=Snapshot), now=30.0, settings=settings)
    for number in range(60):
        again.abandon(f"s0-{number}", now=30.0)
    assert start(again, 60, now=40.0) == LIMIT


def test_a_ramp_continues_after_a_restart_and_a_clock_step() -> None:
    governor = fresh()
    start(governor, 60)
    assert live_at(governor, 5.0) == [32]
    stored = msgspec.json.encode(governor.snapshot())
    again = Governor.restore(msgspec.json.decode(stored, type=Snapshot), now=5.0)
    assert live_at(again, 6.0) == [35]
    again.advance(now=-1000.0)  # the clock was set back
    assert live_at(again, -999.0) == [38]


def test_sessions_that_were_adopted_show_that_the_scope_is_in_use() -> None:
    governor = fresh(100)
    for number in range(40):
        governor.adopt(Ticket(f"old{number}", ("sessions", ACCOUNT)), now=0.0)

    assert isinstance(governor.request(Ticket("new", ("sessions", ACCOUNT)), now=1.0), Granted)


def test_a_scope_that_ran_before_a_restart_does_not_ramp_again() -> None:
    before = fresh(100, first_ramp=0.0)
    for number in range(60):
        before.request(Ticket(f"old{number}", ("sessions", ACCOUNT)), now=0.0)
    settings = GovernorSettings(limits={ACCOUNT: 100}, first_ramp=SECONDS)

    after = Governor.restore(before.snapshot(), now=1.0, settings=settings, keep_slots=True)

    assert isinstance(after.request(Ticket("new", ("sessions", ACCOUNT)), now=1.0), Granted)

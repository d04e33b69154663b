"""When a window reopens: a reset that moves is doubted, looks are soon at first, and their number is bounded."""

import math
from collections.abc import Callable
from functools import partial

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from paceline.core import Governor, GovernorSettings, Ticket
from paceline.core.gates.reopening import DOUBTED_LOOKS, Reopening, first_look
from paceline.core.signals import Budget, QuotaClosed, Succeeded
from paceline.core.state.snapshot import Snapshot
from paceline.core.values.status import WindowStatus

ACCOUNT = "anthropic/max-1"
HOUR = 3600.0
RESET = 2 * HOUR
LENGTH = 5 * HOUR


class Account:
    """A governed account with a spent window. Each refusal states what `stated` returns for its time."""

    def __init__(self, stated: Callable[[float], float | None], window: str | None = "5h") -> None:
        self.governor = Governor(GovernorSettings(limits={ACCOUNT: 4}), now=0.0)
        self.stated = stated
        self.window = window
        self.looks: list[float] = []
        self.refuse(0.0)

    def refuse(self, now: float, ticket: str | None = None) -> None:
        spent = QuotaClosed(resets_at=self.stated(now), window=self.window, source="field", ticket=ticket)
        self.governor.report(ACCOUNT, spent, now=now)

    def look(self) -> str:
        """Let the next canary go as soon as it may, and return its name."""
        governor = self.governor
        ticket = Ticket(f"canary-{len(self.looks)}", ("sessions", ACCOUNT), leased=False)
        governor.request(ticket, now=governor.ledger.now)
        while not governor.is_held(ticket.id):
            governor.advance(now=max(governor.ledger.now, governor.next_wakeup() or math.inf))
        self.looks.append(governor.ledger.now)
        return ticket.id

    def look_in_vain(self) -> float:
        """Let the next canary be refused, and return when that was."""
        ticket, now = self.look(), self.looks[-1]
        self.refuse(now, ticket)
        self.governor.release(ticket, now=now)
        return now

    def look_until(self, opens_at: float) -> str:
        """Look until the window is open, and return the name of the canary that found it so."""
        while (ticket := self.look()) and self.looks[-1] < opens_at:
            assert len(self.looks) < 200
            self.refuse(self.looks[-1], ticket)
            self.governor.release(ticket, now=self.looks[-1])
        return ticket

    def restart(self, step: float = 0.0) -> None:
        """Continue from a stored snapshot, with a clock that is off by `step`."""
        stored = msgspec.json.encode(self.governor.snapshot())
        now = self.governor.ledger.now
        self.governor = Governor.restore(msgspec.json.decode(stored, type=Snapshot), now=now)
        self.governor.advance(now=now + step)

    def status(self) -> WindowStatus:
        status = self.governor.status(ACCOUNT, now=self.governor.ledger.now)
        assert status is not None
        assert status.window is not None
        return status.window


def moves_by(seconds: float | None) -> Callable[[float], float]:
    """The reset is stated rightly until it comes, and so much later from then on."""
    return lambda now: RESET if now < RESET or seconds is None else RESET + seconds


def _always(reset: float, now: float) -> float:
    return reset


def test_a_reset_that_moves_by_a_window_is_looked_at_often_for_an_hour() -> None:
    """Refused at the announced time and told of one window later, although nothing was used in between."""
    account = Account(moves_by(LENGTH))
    account.look_until(RESET + LENGTH)
    minutes = [round((at - RESET) / 60) for at in account.looks if at >= RESET]
    assert minutes == [0, 1, 3, 8, 18, 33, 48, 63, 93, 153, 213, 273, 300]


def test_the_end_of_the_period_by_our_own_count_does_not_begin_the_looks_anew() -> None:
    """It comes minutes after the announced reset where the window had reopened late before."""
    account = Account(moves_by(LENGTH))
    canary, opened = account.look_until(RESET + 600.0), account.looks[-1]
    account.governor.report(ACCOUNT, Succeeded(ticket=canary), now=opened)
    account.stated = lambda now: RESET + LENGTH if now < RESET + LENGTH else RESET + 2 * LENGTH
    account.refuse(opened + HOUR, canary)
    account.governor.release(canary, now=opened + HOUR)
    account.look_until(RESET + LENGTH + HOUR)
    minutes = [round((at - RESET - LENGTH) / 60) for at in account.looks if at >= RESET + LENGTH]
    assert minutes == [0, 1, 3, 8, 18, 33, 48, 63]


def test_a_moved_reset_is_planned_with_only_after_that_hour() -> None:
    account, trust = Account(moves_by(LENGTH)), []
    while account.look_in_vain() < RESET:
        pass
    for _ in range(1 + DOUBTED_LOOKS):
        status = account.status()
        assert (status.resets_at, status.missed_at) == (RESET + LENGTH, RESET)
        trust.append(status.confidence)
        account.look_in_vain()
    assert trust == [0.4] * DOUBTED_LOOKS + [1.0]


def test_why_tells_of_both_times() -> None:
    account = Account(moves_by(LENGTH))
    while account.look_in_vain() < RESET:
        pass
    account.governor.request(Ticket("next", ("sessions", ACCOUNT)), now=RESET + 10.0)
    found = account.governor.why("next", now=RESET + 10.0)
    assert found is not None
    assert (found.reason, found.retry_at, found.detail) == (
        "window_closed",
        first_look(RESET) + 60.0,
        "the 5h window of anthropic/max-1 was to reopen 10 s ago and has refused one look since; "
        "it now states a reset in 5 h, although nothing was used in between",
    )


def test_many_sessions_that_are_told_of_the_moved_reset_are_one_refusal() -> None:
    account = Account(moves_by(LENGTH))
    while account.look_in_vain() < RESET:
        pass
    for second in range(10):
        account.refuse(RESET + 20.0 + second)
    assert account.look_in_vain() == first_look(RESET) + 60.0


def test_a_reset_that_moves_earlier_is_looked_at_then_and_at_the_old_time() -> None:
    """The earlier time comes from a sentence, which a structured field outranks. It costs one look all the same."""
    account = Account(lambda now: RESET)
    earlier = QuotaClosed(resets_at=1000.0, window="5h", source="text", confidence=0.8)
    account.governor.report(ACCOUNT, earlier, now=10.0)
    account.look_until(RESET)
    assert account.status().resets_at == RESET
    assert (account.looks[0], account.looks[-1]) == (first_look(1000.0), first_look(RESET))


def test_a_window_that_we_have_spent_again_is_believed_as_stated() -> None:
    account = Account(moves_by(LENGTH))
    canary = account.look_until(RESET + 100.0)
    account.governor.report(ACCOUNT, Succeeded(ticket=canary), now=account.looks[-1])
    account.refuse(RESET + HOUR, canary)  # it ran for an hour
    status = account.status()
    assert (status.state, status.resets_at, status.missed_at) == ("closed", RESET + LENGTH, None)
    assert status.confidence == 1.0


def test_a_period_that_closes_again_at_its_opening_is_late_and_not_spent() -> None:
    account = Account(moves_by(LENGTH))
    canary = account.look_until(RESET)
    account.governor.report(ACCOUNT, Succeeded(ticket=canary), now=RESET + 1.0)
    account.refuse(RESET + 5.0, canary)
    account.governor.release(canary, now=RESET + 5.0)
    assert account.status().holds_seconds is None
    assert account.look_in_vain() == RESET + 65.0


def test_a_window_that_answers_and_closes_again_is_probed_after_growing_waits() -> None:
    account, now = Account(moves_by(LENGTH)), 0.0
    while now < RESET + HOUR:
        canary, now = account.look(), account.looks[-1]
        if now >= RESET:
            account.governor.report(ACCOUNT, Succeeded(ticket=canary), now=now)
        account.refuse(now, canary)
        account.governor.release(canary, now=now)
    minutes = [round((at - RESET) / 60) for at in account.looks if at >= RESET]
    assert minutes == [0, 1, 3, 8, 18, 33, 48, 63]


def test_after_a_wrong_reset_the_next_ones_are_probed_during_their_last_hour_until_one_is_right() -> None:
    """One period reopens long before its reset. The next reset is probed early on, and the one after it no longer."""
    account, begins, early = Account(lambda now: RESET), 0.0, []
    for number, (opens_at, reset) in enumerate([(2000.0, RESET), (6 * HOUR, 6 * HOUR), (11 * HOUR, 11 * HOUR)]):
        account.stated = partial(_always, reset)
        if number:
            account.refuse(begins + 3 * HOUR, f"canary-{len(account.looks) - 1}")
            account.governor.release(f"canary-{len(account.looks) - 1}", now=begins + 3 * HOUR)
        seen = len(account.looks)
        canary, begins = account.look_until(opens_at), account.looks[-1]
        account.governor.report(ACCOUNT, Succeeded(ticket=canary), now=begins)
        early.append([round((reset - at) / 60) for at in account.looks[seen:]])
    assert early == [[75], [90, 60, 45, 30, 15, 0], [75, 0]]


def test_a_reset_that_is_always_minutes_ahead_does_not_draw_a_look_each_time() -> None:
    account = Account(lambda now: now + 300.0)
    while account.look_in_vain() < 24 * HOUR:
        pass
    assert len(account.looks) <= 40  # hourly, after the short ones


def test_a_refusal_that_states_no_reset_keeps_the_one_that_was_read() -> None:
    governor = Governor(GovernorSettings(limits={ACCOUNT: 4}), now=0.0)
    governor.report(ACCOUNT, Budget(window="5h", used_ratio=0.97, resets_at=RESET, source="header"), now=0.0)
    governor.report(ACCOUNT, QuotaClosed(window="5h", source="field"), now=100.0)
    status = governor.status(ACCOUNT, now=100.0)
    assert status is not None
    assert status.window is not None
    assert (status.window.state, status.window.resets_at, status.window.probe_at) == (
        "closed",
        RESET,
        first_look(RESET),
    )


def test_the_canary_goes_one_to_three_seconds_after_the_reset_that_is_believed() -> None:
    """Resets are stated in whole seconds: a canary in that very second was always refused once."""
    for seconds in range(100):
        reset = 1000.0 + seconds
        account = Account(partial(_always, reset))
        seen = account.status()
        canary = account.look()
        assert seen.resets_at == reset
        assert account.looks == [seen.probe_at]
        assert reset + 1.0 <= account.looks[0] <= reset + 3.0
        assert account.governor.is_canary(canary)


def test_a_refusal_between_the_reset_and_the_look_changes_neither() -> None:
    """A session that was let in before meets the window a moment before its reset comes into effect."""
    for stated in (RESET, None):
        account = Account(lambda now: RESET)
        early = account.look()
        account.refuse(account.looks[-1], early)
        account.governor.release(early, now=account.looks[-1])
        refused = QuotaClosed(resets_at=stated, window="5h", source="field")
        account.governor.report(ACCOUNT, refused, now=RESET + 0.5)
        account.look()
        assert account.looks[-1] == first_look(RESET), stated
        assert account.status().missed_at is None


def test_the_clock_set_back_moves_no_look_after_a_reset() -> None:
    account = Account(lambda now: 1000.0)
    account.restart(step=500.0)
    account.restart(step=-400.0)
    account.look()
    assert account.looks == [first_look(1000.0)]


NAMES = st.sampled_from(["5h", "daily", "weekly", "monthly", "three hours", None])
MOVES = st.sampled_from([None, 3 * HOUR, 5 * HOUR, 24 * HOUR, 168 * HOUR])


@given(late=st.floats(0.0, HOUR), name=NAMES, moves=MOVES)
def test_a_reopening_that_is_late_by_up_to_an_hour_is_found_soon_and_with_few_looks(
    late: float, name: str | None, moves: float | None
) -> None:
    """Never later than a quarter of an hour, nor than a minute or twice as long as the provider was late."""
    account = Account(moves_by(moves), name)
    account.look_until(RESET + late)
    assert 0.0 <= account.looks[-1] - (RESET + late) <= min(900.0, max(60.0, 2 * late))
    assert sum(at >= RESET for at in account.looks) <= 10


@given(late=st.floats(0.0, 0.75 * HOUR), name=NAMES, moves=MOVES, after=st.integers(0, 6), step=st.floats(-90.0, 90.0))
def test_a_restart_changes_no_look_and_a_clock_step_costs_at_most_one_more_wait(
    late: float, name: str | None, moves: float | None, after: int, step: float
) -> None:
    undisturbed, restarted, stepped = (Account(moves_by(moves), name) for _ in range(3))
    for _ in range(after):
        for account in (undisturbed, restarted, stepped):
            account.look_in_vain()
    restarted.restart()
    stepped.restart(step)
    for account in (undisturbed, restarted, stepped):
        account.look_until(RESET + max(late, account.looks[-1] - RESET + 1.0 if account.looks else 0.0))
    assert restarted.looks == undisturbed.looks
    assert stepped.looks[-1] <= undisturbed.looks[-1] + 900.0 + abs(step)


def test_a_reset_that_is_always_stated_as_near_is_looked_for_at_least_hourly() -> None:
    belief, now, waits = Reopening(), 1000.0, []
    for tried in range(30):
        belief.on_stated(now + 300.0, now)
        look_at = belief.next_look(tried, None, now)
        waits.append(look_at - now)
        now = look_at
        belief.on_refused(None, now)

    assert max(waits) <= 3600.0


def test_a_window_of_a_month_is_looked_at_four_times_a_day() -> None:
    belief, now, waits = Reopening(), 1000.0, []
    belief.on_stated(now + 30 * 86400.0, now)
    for tried in range(20):
        look_at = belief.next_look(tried, None, now)
        waits.append(look_at - now)
        now = look_at

    assert max(waits) == 6 * 3600.0

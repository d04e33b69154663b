"""A start refused without a cause: one too many in a short time, or one too many at once."""

import msgspec

from paceline.core import Governor, GovernorSettings, Granted, Ticket
from paceline.core.gates.start_meters import StartSpacing
from paceline.core.limits import StartBursts
from paceline.core.signals import RateLimited, Succeeded
from paceline.core.state.snapshot import Snapshot

SCOPE = "umans"
LIMIT = 48


class Fleet:
    """Sessions that start here. The provider accepts them or refuses them without naming a cause."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.governor = Governor(GovernorSettings(limits={SCOPE: limit}, first_ramp=0.0), now=0.0)
        self.started = 0

    def start(self, now: float) -> str:
        self.started += 1
        name = f"s{self.started}"
        ticket = Ticket(name, ("sessions", SCOPE), leased=False)
        assert isinstance(self.governor.try_request(ticket, now=now), Granted)
        return name

    def accept(self, count: int, now: float) -> list[str]:
        names = [self.start(now) for _ in range(count)]
        for name in names:
            self.governor.report(SCOPE, Succeeded(ticket=name), now=now)
        return names

    def refuse(self, now: float) -> None:
        name = self.start(now)
        self.governor.report(SCOPE, RateLimited(retry_after=1.0, ticket=name), now=now)
        self.governor.release(name, now=now)

    def learnt(self) -> tuple[int, float | None]:
        """Return the limit, and the interval of starts if one was learnt."""
        scope = self.governor.ledger.scope(SCOPE)
        spacing = scope.gates.get(StartSpacing)
        return scope.cap, None if spacing is None else spacing.interval


def test_a_burst_refused_far_below_the_limit_spaces_starts_and_leaves_the_limit() -> None:
    fleet = Fleet()
    fleet.accept(4, 0.0)
    fleet.refuse(0.0)
    assert fleet.learnt() == (LIMIT, 2.5)


def test_the_next_start_waits_until_the_burst_is_over() -> None:
    fleet = Fleet()
    fleet.accept(4, 0.0)
    fleet.refuse(3.0)
    spacing = fleet.governor.ledger.scope(SCOPE).gates.get(StartSpacing)
    assert spacing is not None
    assert spacing.next_at == 10.0


def test_a_burst_refused_near_the_limit_lowers_it() -> None:
    fleet = Fleet()
    fleet.accept(24, 0.0)
    fleet.refuse(0.0)
    assert fleet.learnt() == (24, None)


def test_two_starts_are_no_burst() -> None:
    fleet = Fleet()
    fleet.accept(2, 0.0)
    fleet.refuse(0.0)
    limit, interval = fleet.learnt()
    assert (limit < LIMIT, interval) == (True, None)


def test_a_start_refused_again_although_spaced_is_one_too_many_at_once() -> None:
    fleet = Fleet()
    fleet.accept(4, 0.0)
    fleet.refuse(0.0)
    fleet.governor.advance(now=40.0)
    fleet.refuse(40.0)
    assert fleet.learnt() == (4, 2.5)


def test_a_start_refused_right_after_a_short_retry_after_is_the_rest_of_a_penalty() -> None:
    """Far below a limit that never failed, it leaves the limit as it is. The pause is the usual one."""
    fleet = Fleet()
    fleet.accept(4, 0.0)
    fleet.refuse(0.0)
    fleet.governor.advance(now=12.0)
    fleet.refuse(12.0)
    status = fleet.governor.status(SCOPE, now=12.0)
    assert status is not None
    assert (fleet.learnt(), status.paused_until) == ((LIMIT, 2.5), 42.0)


def test_a_burst_refused_at_a_level_that_held_is_not_blamed_on_the_lag() -> None:
    """Twelve run. Four of them end, and their successors come faster than any that were accepted before."""
    fleet = Fleet(16)
    held = [name for number in range(4) for name in fleet.accept(3, 20.0 * number)]
    fleet.governor.advance(now=100.0)
    fleet.refuse(100.0)
    assert fleet.learnt() == (12, None)
    fleet.governor.release(held.pop(), now=150.0)
    fleet.accept(1, 160.0)  # it ends the slow start
    for name in held[:4]:
        fleet.governor.release(name, now=200.0)
    fleet.accept(3, 200.0)
    fleet.refuse(200.0)
    adaptive = fleet.governor.ledger.scope(SCOPE).adaptive
    assert adaptive is not None
    assert (fleet.learnt(), adaptive.lag.seconds) == ((12, 10.0 / 3), 0.0)


def test_a_burst_no_larger_than_one_that_went_well_is_not_the_cause() -> None:
    bursts = StartBursts()
    for second in range(6):
        bursts.on_accepted(float(second))
    assert (bursts.most, bursts.is_exceeded_by(5.0), bursts.is_exceeded_by(6.5)) == (6, True, True)
    for second in range(5):
        bursts.on_accepted(100.0 + second)
    assert (bursts.size(105.0), bursts.is_exceeded_by(105.0)) == (5, False)


def test_starts_on_the_edge_of_a_burst_are_no_part_of_it() -> None:
    bursts = StartBursts()
    for start in (0.0, 2.5, 5.0, 7.5, 10.0 - 1e-9):
        bursts.on_accepted(start)
    assert bursts.most == 4


def test_bursts_are_kept_in_snapshots_and_follow_the_clock() -> None:
    fleet = Fleet()
    fleet.accept(4, 100.0)
    fleet.refuse(100.0)
    stored = msgspec.json.decode(msgspec.json.encode(fleet.governor.snapshot()), type=Snapshot)
    governor = Governor.restore(stored, now=100.0)
    governor.advance(now=90.0)
    adaptive = governor.ledger.scope(SCOPE).adaptive
    assert adaptive is not None
    assert (adaptive.bursts.accepted, adaptive.bursts.most) == ([90.0] * 4, 4)

"""What the status of a scope says about its learnt limit: what was refused, and when more is tried."""

from paceline.core import Governor, GovernorSettings, Granted, Ticket
from paceline.core.signals import RateLimited, Succeeded
from paceline.core.values.settings import HeadroomMode
from paceline.core.values.status import LearntLimit

SCOPE = "umans"
HALF_AN_HOUR = 1800.0


def session(name: str) -> Ticket:
    return Ticket(name, ("sessions", SCOPE), leased=False)


def governor_refused_at_four(mode: HeadroomMode = "adaptive") -> Governor:
    """Return a Governor of eight places, where three sessions were accepted and the fourth was refused at 100 s."""
    settings = GovernorSettings(limits={SCOPE: 8}, headroom=mode, first_ramp=0.0)
    governor = Governor(settings, now=0.0)
    for number in range(3):
        assert isinstance(governor.request(session(f"s{number}"), now=0.0), Granted)
        governor.report(SCOPE, Succeeded(ticket=f"s{number}"), now=1.0)
    assert isinstance(governor.request(session("fourth"), now=100.0), Granted)
    governor.report(SCOPE, RateLimited(retry_after=5.0, ticket="fourth"), now=100.0)
    governor.release("fourth", now=100.0)
    return governor


def learnt(governor: Governor, now: float) -> LearntLimit | None:
    status = governor.status(SCOPE, now=now)
    assert status is not None
    return status.learnt


def test_a_learnt_limit_says_what_was_refused_and_when_more_is_tried() -> None:
    governor = governor_refused_at_four()

    assert learnt(governor, 101.0) == LearntLimit(
        held=3,
        of=8,
        refused_level=4,
        refused_at=100.0,
        next_level=4,
        next_try_at=100.0 + HALF_AN_HOUR,
        reason="nothing was refused since",
    )


def test_a_level_that_is_being_tried_is_named() -> None:
    governor = governor_refused_at_four()
    governor.report(SCOPE, Succeeded(ticket="s0"), now=110.0)
    governor.request(session("waits"), now=111.0)
    governor.advance(now=100.0 + HALF_AN_HOUR)

    assert learnt(governor, 100.0 + HALF_AN_HOUR) == LearntLimit(
        held=3,
        of=8,
        refused_level=4,
        refused_at=100.0,
        next_level=4,
        next_try_at=None,
        reason="4 is being tried",
    )


def test_a_limit_that_only_a_person_raises_names_no_time() -> None:
    governor = governor_refused_at_four("one-way")

    assert learnt(governor, 101.0) == LearntLimit(
        held=7,
        of=8,
        refused_level=8,
        refused_at=100.0,
        next_level=None,
        next_try_at=None,
        reason="it stays until it is restored",
    )


def test_a_restored_limit_has_nothing_learnt() -> None:
    governor = governor_refused_at_four()
    governor.restore_limit(SCOPE, now=102.0)

    assert learnt(governor, 103.0) is None

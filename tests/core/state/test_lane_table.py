"""What comes and goes by the thousand leaves nothing behind, and what has a setting or a holder stays."""

import pytest

from paceline.core import Governor, GovernorSettings, Granted, Ticket
from paceline.core.state.tables import TIDY_AT_LEAST
from paceline.errors import TicketConflict

MANY = 3 * TIDY_AT_LEAST


def pass_through(governor: Governor, ticket: Ticket) -> None:
    assert isinstance(governor.request(ticket, now=0.0), Granted)
    governor.release(ticket.id, now=0.0)


def test_scopes_with_a_setting_outlive_a_crowd_of_others() -> None:
    settings = GovernorSettings(limits={"sessions": None, "runs": 50, "umans": 4}, cooldowns={"other": 0.5})
    governor = Governor(settings, now=0.0)
    for number in range(MANY):
        pass_through(governor, Ticket(f"t{number}", ("runs", f"provider-{number}")))
    for scope in ("sessions", "runs", "umans", "other"):
        assert governor.status(scope, now=0.0) is not None, scope
    assert len(governor.ledger.scopes.by_name) < 2 * TIDY_AT_LEAST


def test_groups_of_campaigns_long_gone_do_not_pile_up() -> None:
    governor = Governor(now=0.0)
    stays = Ticket("stays", ("runs",), group="busy")
    governor.request(stays, now=0.0)
    for number in range(MANY):
        pass_through(governor, Ticket(f"t{number}", ("runs",), group=f"campaign-{number}"))
    assert len(governor.ledger.shares.groups) < 2 * TIDY_AT_LEAST
    assert governor.ledger.shares.groups["busy"].live == 1
    governor.release("stays", now=1.0)
    assert governor.ledger.shares.groups["busy"].live == 0


def test_lines_of_a_long_session_do_not_pile_up() -> None:
    governor = Governor(now=0.0)
    governor.request(Ticket("session", ("sessions", "umans"), leased=False), now=0.0)
    for number in range(MANY):
        pass_through(governor, Ticket(f"t{number}", ("runs", "umans", f"umans/account-{number}"), parent="session"))
    run_lanes = governor.ledger.lanes.of_session["session"]
    assert run_lanes is not None
    assert len(run_lanes) < 2 * TIDY_AT_LEAST


def test_asking_for_many_at_once_loses_no_scope_on_the_way() -> None:
    governor = Governor(now=0.0)
    for number in range(TIDY_AT_LEAST // 2 - 10):
        pass_through(governor, Ticket(f"t{number}", ("runs", f"provider-{number}")))
    tickets = [Ticket(f"all-{number}", ("runs", f"fresh-{number}")) for number in range(100)]
    governor.request_all(tickets, now=0.0)
    for number in range(100):
        status = governor.status(f"fresh-{number}", now=0.0)
        assert status is not None
        assert status.in_flight == 1


@pytest.mark.parametrize("ids", [("fresh", "held"), ("fresh", "fresh")])
def test_asking_for_many_at_once_with_an_id_in_use_changes_nothing(ids: tuple[str, str]) -> None:
    governor = Governor(now=0.0)
    governor.request(Ticket("held", ("runs",)), now=0.0)
    before = governor.snapshot()
    with pytest.raises(TicketConflict):
        governor.request_all([Ticket(ticket_id, ("runs",)) for ticket_id in ids], now=0.0)
    assert governor.snapshot() == before


def test_a_session_whose_name_comes_back_has_its_own_place_for_its_runs() -> None:
    """A run still waited when the session ended; the next session of that name could not use its own place."""
    settings = GovernorSettings(limits={"runs": 1, "umans": 1})
    governor = Governor(settings, now=0.0)
    session = Ticket("session", ("sessions", "umans"), leased=False)
    governor.request(Ticket("other", ("runs",)), now=0.0)
    governor.request(session, now=0.0)
    governor.request(Ticket("late", ("runs", "umans"), parent="session"), now=0.0)
    governor.release("session", now=0.0)
    governor.release("other", now=0.0)
    assert [effect.ticket_id for effect in governor.advance(now=0.0) if isinstance(effect, Granted)] == ["late"]
    governor.release("late", now=0.0)
    governor.request(session, now=0.0)
    verdict = governor.request(Ticket("run", ("runs", "umans"), parent="session"), now=0.0)
    assert isinstance(verdict, Granted)


def test_a_run_that_asked_before_its_session_does_not_keep_later_ones_from_its_place() -> None:
    governor = Governor(GovernorSettings(limits={"umans": 1}), now=0.0)
    pass_through(governor, Ticket("early", ("runs", "umans"), parent="session"))
    governor.request(Ticket("session", ("sessions", "umans"), leased=False), now=0.0)
    verdict = governor.request(Ticket("run", ("runs", "umans"), parent="session"), now=0.0)
    assert isinstance(verdict, Granted)

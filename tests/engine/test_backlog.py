"""The backlog: every unit that waits counts once in each scope that it could start in."""

from paceline.core.values.tickets import Ticket
from paceline.engine.backlog import backlog
from paceline.engine.ticket_order import TicketQueue
from paceline.store import Campaign


def queue(campaign: Campaign, *scopes: str, tickets: int = 0) -> TicketQueue:
    waiting = {f"t{number}": Ticket(f"t{number}", scopes) for number in range(tickets)}
    return TicketQueue(campaign, None, scopes, tickets=waiting)


def test_a_unit_that_may_start_on_two_accounts_counts_once_where_they_meet() -> None:
    docs = Campaign(name="docs")
    queues = [
        queue(docs, "sessions", "anthropic", "anthropic/max-1", tickets=2),
        queue(docs, "sessions", "anthropic", "anthropic/max-2", tickets=1),
    ]

    found = backlog(queues, {("docs", None): 100})

    assert found == {"sessions": 97, "anthropic": 97, "anthropic/max-1": 98, "anthropic/max-2": 99}


def test_units_of_a_paused_campaign_do_not_wait_for_room() -> None:
    paused = Campaign(name="docs", state="paused")

    assert backlog([queue(paused, "sessions")], {("docs", None): 100}) == {}

"""The backlog: every unit that waits counts once in each scope that it could start in."""

from collections import Counter

import msgspec

from paceline.core import Deferred
from paceline.core.gates.reopening import first_look
from paceline.core.values.tickets import Ticket
from paceline.engine.dispatch.ticket_queues import TicketQueue, backlog
from paceline.executors.interface import Launch
from paceline.simulation.agent_transcripts import init, limit_without_a_time, rejected
from paceline.simulation.executor import Run
from paceline.store import Campaign
from paceline.testing.engine_harness import HOUR, MAX_1, NOW, EngineHarness


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


async def test_lesson_42_every_wait_has_a_reason_a_scope_and_a_time() -> None:
    def script(launch: Launch) -> Run:
        if launch.argv[0] == "claude":
            return Run(stdout=init() + rejected(NOW + 1200.0), exit_code=1)
        return Run(seconds=HOUR)

    async with EngineHarness(script, pool=2, accounts=(MAX_1,)) as harness:
        harness.add_claude("quota", 4)
        await harness.run(10.0)
        harness.add("full", 4)
        harness.add("capped", 4, max_sessions=1)
        harness.add("lost", 1, accounts=("nobody",))
        await harness.run(60.0)

        stored = harness.store.load_state("why")
        assert stored is not None
        why = msgspec.json.decode(stored, type=dict[str, Deferred])
        reasons = {line: (held.reason, held.scope, held.retry_at) for line, held in why.items()}
        assert reasons == {
            "quota max-1": ("window_closed", "anthropic/max-1", first_look(NOW + 1200.0)),
            "full ": ("limit", "sessions", None),
            "capped ": ("limit", "sessions", None),
            "lost nobody": ("held", "campaign:lost", None),
        }
        assert all(held.detail for held in why.values())
        parked = harness.unit("quota/u0")
        assert (parked.reason, parked.resume_at) == ("the quota window is spent", first_look(NOW + 1200.0))
        assert Counter(harness.states().values()) == {"todo": 11, "running": 2}


async def test_lesson_42_a_limit_without_a_time_still_has_a_next_check() -> None:
    async with EngineHarness(lambda _: Run(stdout=init() + limit_without_a_time(), exit_code=1)) as harness:
        harness.add_claude("night", 1)
        await harness.run(1.0)

        assert harness.unit("night/u0").resume_at == NOW + 300.0


async def test_a_campaign_that_is_done_costs_the_passes_after_it_nothing() -> None:
    async with EngineHarness() as harness:
        for number in range(5):
            harness.add(f"night{number}", 1)
        await harness.run(180.0)

        assert set(harness.states().values()) == {"done"}
        assert harness.engine.queues.queues == {}

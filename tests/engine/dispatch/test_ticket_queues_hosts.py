"""Tickets on several hosts: spread by load, bound to conversations, explained per host."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.scripted_hosts import ScriptedFleet, scripted_host

from paceline.agents.account import Account, split_login
from paceline.core import Governor, GovernorSettings, Granted
from paceline.engine.dispatch.ticket_queues import MOST_REQUESTED, TicketQueues, session_scopes, split_queue_name
from paceline.engine.settings import EngineSettings
from paceline.executors.interface import Launch
from paceline.simulation.agent_transcripts import answer, done, init, rejected
from paceline.simulation.executor import Run
from paceline.store import Campaign
from paceline.testing.engine_harness import HOUR, MAX_1, NOW, EngineHarness

WORKS = Run(stdout=init() + answer() + done(), seconds=30.0)


def hosts_of(harness: EngineHarness) -> Counter[str]:
    """Return how many units run on each host."""
    return Counter(split_login(unit.account or "")[1] or "local" for unit in harness.store.running_units())


def reasons(harness: EngineHarness) -> dict[str, tuple[str, str]]:
    return {name: (wait.reason, wait.scope) for name, wait in harness.engine.wait_reasons().items()}


async def test_a_pool_is_spread_over_equal_hosts() -> None:
    hosts = [scripted_host(name, "max-1") for name in ("box1", "box2", "box3")]
    async with ScriptedFleet(hosts, lambda _: Run(seconds=HOUR), pool=4, accounts=(MAX_1,)) as harness:
        harness.add_claude("night", 20, hosts=("box*",))
        await harness.run(10.0)

        assert sorted(hosts_of(harness).values()) == [1, 1, 2]


async def test_a_host_gets_its_part_of_the_sessions_by_its_size() -> None:
    hosts = [scripted_host("big", "max-1", max_sessions=12), scripted_host("small", "max-1", max_sessions=4)]
    async with ScriptedFleet(hosts, lambda _: Run(seconds=HOUR), pool=8, accounts=(MAX_1,)) as harness:
        harness.add_claude("night", 40, hosts=("big", "small"))
        await harness.run(10.0)

        assert hosts_of(harness) == {"big": 6, "small": 2}


async def test_a_host_whose_sessions_take_long_does_not_collect_the_pool() -> None:
    def script(launch: Launch) -> Run:
        unit = harness.unit(launch.env["PACELINE_UNIT"])
        return Run(seconds=10 * HOUR if unit.account == "max-1#slow" else 60.0)

    hosts = [scripted_host(name, "max-1") for name in ("slow", "box1", "box2")]
    harness = ScriptedFleet(hosts, script, pool=4, accounts=(MAX_1,))
    async with harness:
        harness.add_claude("night", 200, hosts=("slow", "box*"))
        await harness.run(HOUR / 2)

        assert hosts_of(harness)["slow"] <= 2
        assert len(harness.store.running_units()) == 4


async def test_the_machine_of_the_engine_is_one_of_the_hosts() -> None:
    hosts = [scripted_host("box1", "max-1")]
    async with ScriptedFleet(hosts, lambda _: Run(seconds=HOUR), pool=4, accounts=(MAX_1,)) as harness:
        harness.add_claude("night", 20)
        await harness.run(10.0)

        assert set(hosts_of(harness)) == {"local", "box1"}


async def test_sessions_of_a_host_occupy_its_scope_and_their_events_name_the_account() -> None:
    hosts = [scripted_host("box1", "max-1")]
    async with ScriptedFleet(hosts, lambda _: Run(seconds=HOUR), pool=4, accounts=(MAX_1,)) as harness:
        harness.add_claude("night", 3, hosts=("box1",))
        await harness.run(10.0)

        assert harness.scope("host:box1").in_flight == 3
        assert {event.scope for event in harness.events("unit.started")} == {"anthropic/max-1/opus-4-6"}
        await harness.crash()
        await harness.run(10.0)
        assert harness.scope("host:box1").in_flight == 3


def test_the_provider_path_stays_the_last_scope_of_a_session() -> None:
    campaign = Campaign(name="night", agent="claude", model="opus-4-6")

    scopes = session_scopes(campaign, MAX_1, "box1")

    assert scopes[:4] == ("sessions", "campaign:night", "host:box1", "agent:claude")
    assert scopes[-1] == "anthropic/max-1/opus-4-6"
    assert session_scopes(campaign, None, "box1")[-1] == "agent:claude"


async def test_a_campaign_whose_hosts_are_all_gone_waits_and_names_each_of_them() -> None:
    hosts = [
        scripted_host("box1", "max-1", presence="absent"),
        scripted_host("box2", "max-1", presence="lost", heard_at=NOW - 60.0),
    ]
    async with ScriptedFleet(hosts, lambda _: WORKS, accounts=(MAX_1,)) as harness:
        harness.add_claude("night", 3, hosts=("box1", "box2"))
        await harness.run(10.0)

        assert harness.running() == []
        assert reasons(harness) == {
            "night #box1": ("unreachable", "host:box1"),
            "night #box2": ("unreachable", "host:box2"),
        }
        assert [split_queue_name(name) for name in reasons(harness)] == [("night", "#box1"), ("night", "#box2")]
        assert not harness.engine.is_idle()
        harness.host_states[0] = scripted_host("box1", "max-1")
        await harness.run(200.0)
        assert set(harness.states().values()) == {"done"}


async def test_nothing_is_waited_for_where_no_host_has_the_label() -> None:
    async with ScriptedFleet([scripted_host("box1", "max-1")], accounts=(MAX_1,)) as harness:
        harness.add_claude("night", 3, labels=("gpu",))
        await harness.run(10.0)

        assert harness.running() == []
        assert set(reasons(harness).values()) == {("held", "host:local"), ("held", "host:box1")}
        assert harness.engine.is_idle()


async def test_a_host_without_the_folder_of_a_campaign_is_left_alone_and_nothing_is_charged() -> None:
    def script(launch: Launch) -> Run:
        unit = harness.unit(launch.env["PACELINE_UNIT"])
        if unit.account == "max-1#box1":
            return Run(not_started="cannot work in '/srv/app': No such file or directory")
        return WORKS

    hosts = [scripted_host("box1", "max-1"), scripted_host("box2", "max-1")]
    harness = ScriptedFleet(hosts, script, accounts=(MAX_1,))
    async with harness:
        harness.add_claude("night", 20, hosts=("box1", "box2"))
        await harness.run(60.0)

        wait = harness.engine.wait_reasons()["night #box1"]
        assert (wait.reason, wait.scope) == ("held", "host:box1")
        assert "box1: cannot work in '/srv/app'" in wait.detail
        await harness.run(400.0)
        assert set(harness.states().values()) == {"done"}
        assert harness.failures() == 0
        assert harness.scope("agent:claude").paused_until is None


@settings(max_examples=15, deadline=None)
@given(plan=st.lists(st.sampled_from(["ends", "parks"]), min_size=1, max_size=12), seed=st.integers(0, 3))
async def test_a_unit_with_a_conversation_is_never_claimed_for_another_login(plan: list[str], seed: int) -> None:
    began: dict[str, str] = {}
    moved: list[tuple[str, str, str]] = []

    def script(launch: Launch) -> Run:
        unit = harness.unit(launch.env["PACELINE_UNIT"])
        login = unit.account or ""
        if unit.conversation_id is not None and began[unit.id] != login:
            moved.append((unit.id, began[unit.id], login))
        is_first = unit.id not in began
        began.setdefault(unit.id, login)
        if is_first and plan[int(unit.spec.id[1:])] == "parks":
            return Run(stdout=init(unit.id) + answer(unit.id) + rejected(harness.clock.now() + 600.0), exit_code=1)
        return Run(stdout=init(unit.id) + answer(unit.id) + done(unit.id), seconds=20.0 + 7.0 * seed)

    hosts = [scripted_host(name, "max-1", "max-2") for name in ("box1", "box2", "box3")]
    harness = ScriptedFleet(hosts, script, pool=3 + seed)
    async with harness:
        harness.add_claude("night", len(plan), accounts=("max-1", "max-2"))
        await harness.run(1500.0)

    assert moved == []
    assert set(harness.states().values()) == {"done"}
    assert harness.failures() == 0


def test_a_pass_keeps_one_queue_for_each_login_that_exists() -> None:
    names = [f"max-{number}" for number in range(1000)]
    accounts = {name: Account(name=name, provider="anthropic") for name in names}
    hosts = [scripted_host(f"box{number}", *names[number::50]) for number in range(50)]
    limits: dict[str, int | None] = {"sessions": 10_000, "anthropic/*": 20}
    settings = EngineSettings(governor=GovernorSettings(limits=limits), accounts=accounts)
    governor = Governor(settings.governor, now=NOW)
    queues = TicketQueues(governor, settings, "leader", hosts=lambda _: hosts)
    campaign = Campaign(name="night", agent="claude", accounts=tuple(names), hosts=("box*",))

    queues.fill([campaign], {("night", None): 1_000_000}, NOW)

    assert len(queues.queues) == 1000
    assert sum(len(queue.tickets) for queue in queues.queues.values()) == MOST_REQUESTED
    assert max(len(queue.tickets) for queue in queues.queues.values()) <= 20


def test_a_host_that_leaves_gives_all_its_tickets_back_at_once() -> None:
    hosts = [scripted_host("box1", "max-1"), scripted_host("box2", "max-1")]
    settings = EngineSettings(governor=GovernorSettings(limits={"sessions": 4}), accounts={"max-1": MAX_1})
    governor = Governor(settings.governor, now=NOW)
    queues = TicketQueues(governor, settings, "leader", hosts=lambda _: hosts)
    campaign = Campaign(name="night", agent="claude", accounts=("max-1",), hosts=("box*",))
    queues.fill([campaign], {("night", None): 100}, NOW)

    hosts[0] = scripted_host("box1", "max-1", presence="leaving")
    queues.fill([campaign], {("night", None): 100}, NOW)

    granted = [effect.ticket_id for effect in governor.advance(now=NOW) if isinstance(effect, Granted)]
    assert {queues.by_ticket[each].host for each in granted if each in queues.by_ticket} == {"box2"}
    assert sum(each in queues.by_ticket for each in granted) == 4
    left = governor.status("host:box1", now=NOW)
    assert left is None or left.in_flight == 0

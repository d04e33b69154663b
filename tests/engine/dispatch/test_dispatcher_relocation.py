"""A conversation returns to its host, or is given up after the patience of its campaign."""

import pytest
from tests.engine.scripted_hosts import ScriptedFleet, scripted_host

from paceline.agents.account import split_login
from paceline.engine.dispatch.dispatcher import BATCH
from paceline.executors.interface import Launch
from paceline.hosts.messages import HostState
from paceline.simulation.agent_transcripts import answer, done, init, rejected
from paceline.simulation.executor import Run
from paceline.testing.engine_harness import HOUR, MAX_1, NOW
from paceline.testing.store_steps import claim, ended, record

PARKED_SECONDS = 600.0


def fleet(*hosts: HostState, units: int = 1, **campaign: object) -> ScriptedFleet:
    """Return a fleet whose units park once for ten minutes, with a conversation, and then end well."""

    def script(launch: Launch) -> Run:
        unit = harness.unit(launch.env["PACELINE_UNIT"])
        if unit.counters.parks == 0:
            return Run(stdout=init(unit.id) + answer(unit.id) + rejected(NOW + PARKED_SECONDS), exit_code=1)
        return Run(stdout=init(unit.id) + answer(unit.id) + done(unit.id), seconds=20.0)

    harness = ScriptedFleet(list(hosts), script, accounts=(MAX_1,), pool=16)
    harness.add_claude("night", units, **({"hosts": ("box*",)} | campaign))
    return harness


def logins(harness: ScriptedFleet) -> list[str]:
    """Return the logins of the attempts of the first unit, as far as the store knows."""
    return [split_login(unit.account or "")[1] for unit in harness.store.units(campaign="night").units]


def gone(name: str, at: float) -> HostState:
    return scripted_host(name, "max-1", presence="lost", heard_at=at)


async def test_a_conversation_returns_to_its_host() -> None:
    async with fleet(scripted_host("box1", "max-1")) as harness:
        await harness.run(30.0)
        harness.host_states[0] = gone("box1", NOW + 30.0)
        harness.host_states.append(scripted_host("box2", "max-1"))
        await harness.run(PARKED_SECONDS)
        assert harness.unit("night/u0").conversation_id is not None

        harness.host_states[0] = scripted_host("box1", "max-1")
        await harness.run(120.0)

        assert harness.states() == {"night/u0": "done"}
        assert logins(harness) == ["box1"]
        assert harness.events("unit.requeued") == []


async def test_a_conversation_is_given_up_when_its_host_is_gone_for_longer_than_the_patience() -> None:
    async with fleet(scripted_host("box1", "max-1"), patience=1800.0) as harness:
        await harness.run(30.0)
        harness.host_states[0] = gone("box1", NOW + 30.0)
        harness.host_states.append(scripted_host("box2", "max-1"))

        await harness.run(1780.0)
        wait = harness.engine.wait_reasons()["night max-1#box1"]
        assert (wait.reason, wait.scope, wait.retry_at) == ("unreachable", "host:box1", NOW + 1830.0)
        assert wait.detail == (
            "their conversation is there until 01:50 UTC, when they begin again elsewhere: "
            "box1 has not answered for 30 min, and its sessions have ended: see `paceline hosts`"
        )
        assert harness.unit("night/u0").conversation_id is not None

        await harness.run(200.0)
        assert harness.states() == {"night/u0": "done"}
        assert logins(harness) == ["box2"]
        assert harness.failures() == 0
        (event,) = harness.events("unit.requeued")
        assert (event.scope, event.unit) == ("host:box1", "night/u0")
        assert str(event.fields["reason"]).startswith("its conversation was given up after 30 min: box1 has not")


async def test_a_parked_conversation_is_given_up_at_once_when_its_window_opens_after_the_patience() -> None:
    async with fleet(scripted_host("box1", "max-1"), patience=60.0) as harness:
        await harness.run(30.0)
        harness.host_states[0] = gone("box1", NOW + 30.0)
        harness.host_states.append(scripted_host("box2", "max-1"))

        await harness.run(PARKED_SECONDS + 60.0)

        assert harness.states() == {"night/u0": "done"}


async def test_a_conversation_is_kept_while_no_other_host_can_take_it() -> None:
    async with fleet(scripted_host("box1", "max-1"), patience=60.0) as harness:
        await harness.run(30.0)
        harness.host_states[0] = gone("box1", NOW + 30.0)

        await harness.run(3 * HOUR)

        assert harness.unit("night/u0").conversation_id is not None
        assert not harness.engine.is_idle()
        assert harness.engine.wait_reasons()["night max-1#box1"].detail.startswith(
            "their conversation is there, and no other host can take them: box1 has not answered"
        )


@pytest.mark.parametrize("change", [{"hosts": ("box2",)}, {"labels": ("gpu",)}])
async def test_a_plan_that_leaves_a_host_gives_up_its_conversations_too(change: dict[str, object]) -> None:
    box1, box2 = scripted_host("box1", "max-1"), scripted_host("box2", "max-1", labels=("gpu",))
    async with fleet(box1, patience=900.0) as harness:
        await harness.run(30.0)
        harness.host_states.append(box2)
        harness.change("night", **change)

        await harness.run(PARKED_SECONDS + 800.0)
        assert harness.unit("night/u0").conversation_id is not None
        await harness.run(300.0)

        assert (harness.states(), logins(harness)) == ({"night/u0": "done"}, ["box2"])


async def test_many_conversations_are_given_up_a_few_per_pass() -> None:
    gone_host, other = gone("box1", NOW - HOUR), scripted_host("box2", "max-1")
    async with fleet(gone_host, other, units=250) as harness:
        units = claim(harness.store, 250, account="max-1#box1")
        record(harness.store, [ended(unit, "yielded", conversation_id="talk") for unit in units])
        harness.engine.start()
        list(harness.engine.make_pass())
        given_up = harness.events("unit.requeued")

        list(harness.engine.make_pass())
        list(harness.engine.make_pass())

        assert len(given_up) == BATCH
        assert len(harness.events("unit.requeued")) == 250
        assert "max-1#box1" not in {login for _, login in harness.store.claimable()}
        harness.engine.close()


async def test_a_host_that_is_not_known_any_more_is_named() -> None:
    async with fleet(scripted_host("box1", "max-1"), scripted_host("box2", "max-1")) as harness:
        await harness.run(30.0)
        (host,) = logins(harness)
        left = [each for each in harness.host_states if each.name != host]
        harness.host_states[:] = left
        await harness.run(PARKED_SECONDS)

        detail = harness.engine.wait_reasons()[f"night max-1#{host}"].detail
        assert detail.endswith(f"the host {host} is not known any more: add it with `paceline hosts add {host}`")

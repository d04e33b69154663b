"""The machine of the engine is a host among others, if anything limits it or there are others."""

import pytest
from tests.engine.scripted_hosts import ScriptedFleet, scripted_host

from paceline.core import GovernorSettings
from paceline.engine.dispatch.placement import READ_SECONDS, logins_on, with_own_machine
from paceline.engine.settings import EngineSettings
from paceline.hosts.messages import HostLoad
from paceline.settings import HostSettings, MachineTable
from paceline.testing.engine_harness import MAX_1, NOW

GOVERNOR = GovernorSettings()
GB = 10**9


def test_a_machine_without_limits_and_without_others_is_nothing_to_choose_from() -> None:
    assert with_own_machine(EngineSettings(governor=GOVERNOR), lambda: ())(NOW) == ()


@pytest.mark.parametrize(
    "limited",
    [
        EngineSettings(governor=GOVERNOR, machine=MachineTable(max_load=4.0)),
        EngineSettings(governor=GOVERNOR, hosts={"local": HostSettings(name="local", max_sessions=2)}),
    ],
)
def test_its_load_is_read_every_few_seconds(limited: EngineSettings) -> None:
    loads = iter([HostLoad(load=1.0), HostLoad(load=2.0)])
    states = with_own_machine(limited, lambda: (), read=lambda: next(loads))

    seen = [states(NOW + seconds)[0].load.load for seconds in (0.0, 0.5 * READ_SECONDS, READ_SECONDS)]

    assert seen == [1.0, 1.0, 2.0]


def test_a_window_of_an_account_concerns_all_its_logins() -> None:
    hosts = [scripted_host("box1", "max-1"), scripted_host("box2", "max-2"), scripted_host("local")]

    assert logins_on(hosts, ["max-1", "max-2"]) == ["max-1", "max-2", "max-1#box1", "max-2#box2"]
    assert logins_on(hosts, [""]) == ["", "#box1", "#box2"]


async def test_nothing_starts_on_a_machine_whose_settings_say_so() -> None:
    harness = ScriptedFleet([scripted_host("box1", "max-1")], accounts=(MAX_1,))
    local = {"local": HostSettings(name="local", max_sessions=0)}
    harness.settings = EngineSettings(governor=harness.settings.governor, accounts={"max-1": MAX_1}, hosts=local)
    harness.engine = harness.new_engine()
    async with harness:
        harness.add_claude("night", 4)
        await harness.run(10.0)

        assert {unit.account for unit in harness.store.running_units()} == {"max-1#box1"}

"""Whole fleets in virtual time: links are cut, workers are killed, hosts reboot, leaders change.

Whatever happens, no unit ever runs twice at a time, all are done in the end, and none is charged an attempt.
"""

import random
from pathlib import Path

import pytest

from paceline.executors import Launch
from paceline.settings import HostSettings
from paceline.simulation.executor import Run
from paceline.testing.fleet_harness import FleetHarness

LEASE = 60.0
MOST = 4
UNITS = 30
SEEDS = 6


def fleet_of(folder: Path, seed: int) -> FleetHarness:
    chance = random.Random(seed)

    def script(launch: Launch) -> Run:
        return Run(stdout="working\n", later=((5.0, "more\n"),), seconds=chance.uniform(1.0, 240.0))

    hosts = {name: HostSettings(name=name, host_lease=LEASE, max_sessions=MOST) for name in ("box1", "box2", "box3")}
    fleet = FleetHarness(folder, hosts, script)
    fleet.add("night", UNITS, hosts=("box*",))
    return fleet


async def disturb(fleet: FleetHarness, chance: random.Random) -> None:
    """Do one thing that happens to fleets."""
    host = chance.choice(list(fleet.machines.values()))
    match chance.randrange(7):
        case 0:
            host.link.cut()
        case 1:
            host.link.restore()
        case 2:
            host.link.lose_answers(chance.randrange(1, 4))
        case 3:
            await host.kill_worker()
        case 4:
            host.start_worker()
        case 5:
            await host.reboot()
        case 6:
            await fleet.crash()
            await fleet.clock.advance(chance.choice([0.0, 5.0, 30.0, 2 * LEASE]))


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_no_unit_is_lost_doubled_or_charged_whatever_happens_to_the_fleet(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    async with fleet_of(tmp_path, seed) as fleet:
        for host in fleet.machines.values():
            host.start_worker()
        await fleet.run(1.0)
        for _ in range(40):
            await disturb(fleet, chance)
            for _ in range(chance.randrange(1, 6)):
                await fleet.run(chance.choice([0.5, 3.0, 20.0]))
                assert fleet.doubled() == []
                assert max(len(host.live_units()) for host in fleet.machines.values()) <= MOST

        for host in fleet.machines.values():
            host.link.restore()
            host.start_worker()
        for _ in range(60):
            await fleet.run(60.0)
            assert fleet.doubled() == []
            if set(fleet.states().values()) == {"done"}:
                break
        await fleet.run(2 * LEASE)  # what is done stays done when every lease has run out

        assert fleet.doubled() == []
        assert set(fleet.states().values()) == {"done"}
        assert fleet.failures() == 0


async def test_checks_on_a_host_that_is_gone_are_made_elsewhere(tmp_path: Path) -> None:
    def script(launch: Launch) -> Run:
        return Run(seconds=30.0 if "check" in launch.attempt_id else 2.0)

    hosts = {name: HostSettings(name=name, host_lease=LEASE) for name in ("box1", "box2")}
    fleet = FleetHarness(tmp_path, hosts, script)
    fleet.add("night", 2, hosts=("box*",), check=("true",))
    async with fleet:
        box1, box2 = fleet.machines.values()
        box1.start_worker()
        await fleet.run(10.0)
        box1.link.cut()
        await box1.kill_worker()
        box2.start_worker()
        for _ in range(10):
            await fleet.run(60.0)
        assert set(fleet.states().values()) == {"done"}
        assert fleet.failures() == 0

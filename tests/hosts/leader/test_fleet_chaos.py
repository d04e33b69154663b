"""Whole fleets in virtual time: links are cut, workers are killed, hosts reboot, leaders change.

Whatever happens, no unit ever runs twice at a time, all are done in the end, and none is charged an attempt.
"""

import random
from pathlib import Path

import pytest
from tests.hosts.leader.fleet_harness import FleetHarness

from paceline.engine import commands as orders
from paceline.executors.interface import Launch
from paceline.settings import HostSettings
from paceline.simulation.executor import Run
from paceline.store.unit_result import CheckRound

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


async def test_a_check_that_waits_for_a_place_on_its_host_is_no_round_for_the_next_engines(tmp_path: Path) -> None:
    def script(launch: Launch) -> Run:
        return Run(seconds=10.0 if "check" in launch.attempt_id or "u0" in launch.attempt_id else 100.0)

    fleet = FleetHarness(tmp_path, {"box1": HostSettings(name="box1", host_lease=LEASE, max_sessions=1)}, script)
    fleet.add("night", 2, hosts=("box1",), check=("true",))
    async with fleet:
        (box1,) = fleet.machines.values()
        box1.start_worker()
        for _ in range(5):
            await fleet.run(20.0)
            await fleet.crash()
        await fleet.run(300.0)

        passed = CheckRound(exit_code=0, seconds=10.0, tail="")
        assert [fleet.unit(f"night/{name}").result.checks for name in ("u0", "u1")] == [(passed,), (passed,)]
        assert len(fleet.events("unit.checked")) == 2


def change_a_unit(fleet: FleetHarness, chance: random.Random) -> None:
    """Do one thing that people do to a unit or to its campaign."""
    now, store = fleet.clock.now(), fleet.store
    unit = fleet.unit(f"night/u{chance.randrange(UNITS)}")
    match chance.randrange(7):
        case 0 | 1 if unit.state != "done":
            orders.cancel_unit(store, unit, now=now)
        case 2 | 3 if unit.state != "done":
            orders.retry_unit(store, unit, fresh=unit.state != "running" and chance.random() < 0.5, now=now)
        case 4 if unit.state == "todo":
            orders.pause_unit(store, unit, now=now)
        case 5 if unit.state == "held":
            orders.resume_unit(store, unit, now=now)
        case 6:
            orders.cancel_campaign(store, "night", now=now)
            orders.retry_campaign(store, "night", now=now)


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_units_that_are_cancelled_and_retried_run_once_and_leave_no_slot(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    async with fleet_of(tmp_path, seed) as fleet:
        for host in fleet.machines.values():
            host.start_worker()
        await fleet.run(1.0)
        for _ in range(40):
            for _ in range(chance.randrange(6)):
                change_a_unit(fleet, chance)
            if chance.random() < 0.4:
                await disturb(fleet, chance)
            await fleet.run(chance.choice([0.5, 3.0, 20.0]))
            assert fleet.doubled() == []

        for host in fleet.machines.values():
            host.link.restore()
            host.start_worker()
        for number in range(UNITS):
            unit = fleet.unit(f"night/u{number}")
            if unit.state != "done":
                orders.retry_unit(fleet.store, unit, now=fleet.clock.now())
        for _ in range(60):
            await fleet.run(60.0)
            assert fleet.doubled() == []
            if set(fleet.states().values()) == {"done"}:
                break

        assert set(fleet.states().values()) == {"done"}
        scopes = ("sessions", "campaign:night", *(f"host:{name}" for name in fleet.machines))
        assert {scope: fleet.scope(scope).in_flight for scope in scopes} == dict.fromkeys(scopes, 0)
        assert {state.sessions for state in fleet.engine.hosts.states()} == {0}


async def test_a_retried_unit_waits_for_its_attempt_on_a_silent_host_through_a_restart(tmp_path: Path) -> None:
    hosts = {name: HostSettings(name=name, host_lease=LEASE, max_sessions=MOST) for name in ("box1", "box2")}
    fleet = FleetHarness(tmp_path, hosts, lambda _: Run(seconds=1000.0))
    fleet.add("night", 1, hosts=("box*",))
    async with fleet:
        box1, box2 = fleet.machines.values()
        box1.start_worker()
        await fleet.run(5.0)
        box2.start_worker()
        box1.link.cut()
        orders.cancel_unit(fleet.store, fleet.unit("night/u0"), now=fleet.clock.now())
        orders.retry_unit(fleet.store, fleet.unit("night/u0"), now=fleet.clock.now())
        await fleet.run(30.0)
        while_silent = (fleet.unit("night/u0").state, fleet.scope("sessions").in_flight, len(box2.executor.started))
        await fleet.crash()
        await fleet.run(30.0)
        after_a_restart = (fleet.unit("night/u0").state, fleet.scope("sessions").in_flight, len(box2.executor.started))
        await fleet.run(2 * LEASE + 60.0)
        after_its_lease = (fleet.unit("night/u0").state, fleet.scope("sessions").in_flight, len(box2.executor.started))

        assert [while_silent, after_a_restart, after_its_lease] == [("todo", 1, 0), ("todo", 1, 0), ("running", 1, 1)]
        assert box1.live_units() == []

"""Workspaces when the disk is full, when an engine is killed during a delivery, and ports of units side by side."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engine.session.test_unit_stages_workspace import add, harness_of, kind_of, works
from tests.workspaces.conftest import git
from tests.workspaces.conftest import top as top

from paceline.core.unit_lifecycle import Counters
from paceline.errors import StoreBusy
from paceline.executors.interface import Launch
from paceline.simulation.executor import Run
from paceline.store import SqliteStore, UnitCounts, UnitResult
from paceline.store.interface import Phase
from paceline.workspaces import folders


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A real file system of two megabytes, of which workspaces may use all."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", path], capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    monkeypatch.setattr(folders, "RESERVE_BYTES", 0)
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


def enlarge(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=32m", disk], check=True)


async def test_a_disk_that_fills_up_while_a_worktree_is_made_is_waited_for_and_nothing_half_made_is_used(
    top: Path, disk: Path
) -> None:
    (top / "large.bin").write_bytes(os.urandom(3 << 20))
    git(top, "add", "-A")
    git(top, "commit", "-qm", "large")
    # Of a partial clone nobody knows the size before git has fetched it: the guard lets it pass, and git fails.
    git(top, "config", "core.repositoryFormatVersion", "1")
    git(top, "config", "extensions.partialClone", "origin")

    async with harness_of(top, works) as harness:
        add(harness, top, root=str(disk), keep="all")
        await harness.run(20.0)
        unit = harness.unit("night/u0")
        assert (unit.state, unit.counters.failures, harness.executor.started) == ("todo", 0, [])
        assert unit.reason is not None
        assert "the disk is full" in unit.reason
        assert [campaign.state for campaign in harness.store.campaigns()] == ["active"]
        await harness.run(200.0)
        assert (harness.unit("night/u0").state, harness.failures()) == ("todo", 0)

        enlarge(disk)
        await harness.run(200.0)
        unit = harness.unit("night/u0")
        assert (unit.state, unit.result.files_changed) == ("done", 1)
        assert (Path(unit.result.workspace or "") / "large.bin").read_bytes() == (top / "large.bin").read_bytes()
        assert git(top, "log", "--format=%s", "paceline/night/u0").splitlines()[0] == "night: u0"


class FailingProgress(SqliteStore):
    """The n-th time that progress is to be stored, another process is writing."""

    def __init__(self, nth: int) -> None:
        super().__init__(":memory:")
        self._left = nth

    def save_progress(self, unit_id: str, fence: int, *, phase: Phase | None, result: UnitResult | None) -> bool:
        self._left -= 1
        if self._left == 0:
            raise StoreBusy("another process is writing")
        return super().save_progress(unit_id, fence, phase=phase, result=result)


@pytest.mark.parametrize("nth", range(1, 7))
async def test_a_store_that_is_busy_once_costs_neither_a_slot_nor_a_fault_of_the_campaign(top: Path, nth: int) -> None:
    count = iter(range(10))

    def script(launch: Launch) -> Run:
        return Run(exit_code=1, seconds=5.0) if next(count) == 0 else works(launch)

    async with harness_of(top, script, pool=1, store=FailingProgress(nth)) as harness:
        add(harness, top, 2)
        await harness.run(1500.0)

        assert harness.store.counts() == {"night": UnitCounts(done=2)}
        assert harness.scope("sessions").in_flight == 0
        reasons = [str(event.fields["reason"]) for event in harness.events("unit.requeued")]
        assert [reason for reason in reasons if "another process" in reason] == []


def delivers(launch: Launch) -> Run:
    return Run(seconds=100.0) if kind_of(launch) == "deliver" else works(launch)


@pytest.mark.parametrize("is_lost", [False, True], ids=["the engine is killed", "the delivery is killed with it"])
async def test_a_delivery_that_runs_while_the_engine_is_killed_is_told_once(top: Path, is_lost: bool) -> None:
    async with harness_of(top, delivers) as harness:
        add(harness, top, deliver=("push", "{branch}"))
        await harness.run(60.0)
        unit = harness.unit("night/u0")
        assert (unit.phase, [kind_of(launch) for launch in harness.executor.started]) == (
            "delivering",
            ["session", "deliver"],
        )
        await harness.crash()
        if is_lost:
            harness.executor.lose(harness.executor.started[-1].attempt_id)
        await harness.run(300.0)

        unit = harness.unit("night/u0")
        assert (unit.state, unit.counters, unit.result.commit) == (
            "done",
            Counters(attempts=1),
            git(top, "rev-parse", "paceline/night/u0"),
        )
        deliveries = 2 if is_lost else 1  # one that may not have done its work is made again
        assert [kind_of(launch) for launch in harness.executor.started] == ["session", *["deliver"] * deliveries]
        assert (len(harness.events("unit.delivered")), len(harness.events("unit.done"))) == (1, 1)
        assert git(top, "rev-list", "--count", "main..paceline/night/u0") == "1"


async def test_a_unit_that_starts_while_another_is_checked_has_other_ports(top: Path) -> None:
    def script(launch: Launch) -> Run:
        return Run(seconds=500.0) if kind_of(launch) == "check" else works(launch)

    async with harness_of(top, script, pool=1) as harness:
        add(harness, top, 2, check=("make", "test"))
        await harness.run(60.0)
        ports = {
            (launch.env["PACELINE_UNIT"], kind_of(launch)): launch.env["PACELINE_PORT_BASE"]
            for launch in harness.executor.started
        }
        assert ports == {
            ("night/u0", "session"): "20000",
            ("night/u0", "check"): "20000",
            ("night/u1", "session"): "20010",
            ("night/u1", "check"): "20010",
        }
        await harness.crash()
        await harness.run(1000.0)
        assert harness.store.counts() == {"night": UnitCounts(done=2)}

"""Workspaces on hosts that nobody needs: a host removes them when it is there, and keeps what would be lost."""

import logging

import msgspec
import pytest
from tests.hosts.leader.test_registry import LEASE, NOW, Leader, PaperWorker

from paceline.hosts.leader.host import LOSS_MARGIN_SECONDS
from paceline.hosts.leader.workspace_cleanup import (
    LOOK_SECONDS,
    WorkspaceCleanup,
    WorkspaceTombstone,
    leave_tombstones,
    workspace_tombstones,
)
from paceline.hosts.messages import Call, CallReport, Sweep
from paceline.store import Campaign, UnitResult, UnitSpec
from paceline.workspaces import WorkspaceLocation


def left(name: str, *, host: str = "box1", force: bool = False) -> WorkspaceTombstone:
    path = f"/home/ada/w/workspaces/docs/{name}"
    place = WorkspaceLocation(path=path, cwd=path, branch=name, base="1" * 40, repository="/home/leader/project")
    return WorkspaceTombstone(host=host, unit=f"docs/{name}", place=place, force=force)


def step(leader: Leader, removals: WorkspaceCleanup) -> None:
    """Make passes until a call has been made and its result has been read."""
    for _ in range(3):
        removals.step(leader.clock.now())
        leader.hosts.step()


async def calls(worker: PaperWorker) -> list[Call]:
    return [order for order in await worker.orders() if not isinstance(order, Sweep) and isinstance(order, Call)]


def paths(call: Call) -> tuple[list[str], bool]:
    places, force = msgspec.json.decode(call.arguments)
    return [each["path"].rpartition("/")[2] for each in places], force


async def test_a_host_removes_what_was_left_to_it_when_it_is_there(caplog: pytest.LogCaptureFixture) -> None:
    leader = Leader()
    removals = WorkspaceCleanup(leader.store, leader.hosts)
    leave_tombstones(leader.store, [left("a"), left("b"), left("c", force=True), left("d", host="box2")])
    step(leader, removals)
    assert len(workspace_tombstones(leader.store)) == 4, "it is not there"

    leader.pass_time(LOOK_SECONDS)
    worker = PaperWorker(leader)
    worker.join()
    step(leader, removals)
    (call,) = await calls(worker)
    assert paths(call) == (["a", "b"], False)

    kept = msgspec.json.encode({"/b": "it has 1 uncommitted change"})
    worker.report(CallReport(call_id=call.call_id, result=msgspec.Raw(kept)))
    with caplog.at_level(logging.WARNING):
        step(leader, removals)
    assert "on box1 the workspace /b stays: it has 1 uncommitted change" in caplog.text
    assert workspace_tombstones(leader.store) == [left("c", force=True), left("d", host="box2")]

    leader.pass_time(LOOK_SECONDS)
    worker.report()
    step(leader, removals)
    (call,) = await calls(worker)
    assert paths(call) == (["c"], True)


async def test_a_host_that_is_lost_meanwhile_is_asked_again() -> None:
    leader = Leader()
    removals = WorkspaceCleanup(leader.store, leader.hosts)
    leave_tombstones(leader.store, [left("a")])
    worker = PaperWorker(leader)
    worker.join()
    step(leader, removals)
    assert len(await calls(worker)) == 1

    leader.pass_time(LEASE + LOSS_MARGIN_SECONDS + 1)
    step(leader, removals)
    assert workspace_tombstones(leader.store) == [left("a")]
    worker.join()
    leader.pass_time(LOOK_SECONDS)
    worker.report()
    step(leader, removals)
    assert [paths(call) for call in await calls(worker)] == [(["a"], False)]


async def test_a_workspace_that_a_unit_works_in_again_is_not_removed() -> None:
    leader = Leader()
    removals = WorkspaceCleanup(leader.store, leader.hosts)
    spec = UnitSpec(id="a", prompt="x", cwd="/")
    leader.store.add_campaign(Campaign(name="docs", command=("true",)), [spec], update=False, now=NOW)
    (unit,) = leader.store.claim_units("docs", "#box1", 1, attempt_ids=["a1"], lease_until=NOW + 60, now=NOW)
    used = left("a")
    result = UnitResult(host="box1", workspace=used.place.path)
    leader.store.save_progress(unit.id, unit.fence, phase=None, result=result)
    leave_tombstones(leader.store, [used, left("b")])
    worker = PaperWorker(leader)
    worker.join()
    step(leader, removals)
    assert [paths(call) for call in await calls(worker)] == [(["b"], False)]

"""The work that a worker does in workspaces for the leader, over real repositories on two machines."""

from pathlib import Path

from tests.hosts.two_machines import TwoMachines
from tests.workspaces.conftest import snapshot, write

from paceline.workspaces import (
    Change,
    Prepared,
    commit_all,
    commit_and_remove,
    diff,
    finish_setup,
    prepare,
    unused_place,
)
from paceline.workspaces.conflicts import FinishedWork
from paceline.workspaces.merges import merge_works


async def test_a_workspace_lives_on_a_host_and_its_branch_comes_to_the_leader(machines: TwoMachines) -> None:
    repository, settings = machines.repository, machines.repository.settings(setup=("make",))
    place = await machines.job(unused_place, machines.place())
    assert place == machines.place()
    assert await machines.job(prepare, place, settings) == Prepared(created=True, needs_setup=True)
    await machines.job(finish_setup, place)
    assert await machines.job(prepare, place, settings) == Prepared(created=False)
    write(Path(place.path, "src/ä b.txt"), "new\n")

    change = await machines.job(commit_all, place, "docs: a")

    assert change == Change(commit=repository.git("rev-parse", "paceline/docs/a"), files_changed=1, lines_added=1)
    assert b"".join(diff(place, change.commit)).startswith(b"diff --git a/src/\xc3\xa4 b.txt")
    work = FinishedWork(
        unit="docs/a", repository=str(repository.top), base=place.base or "", commit=change.commit or ""
    )
    assert merge_works(str(repository.top), [work]).merged == ("docs/a",)
    assert (repository.top / "src/ä b.txt").read_text() == "new\n"
    await machines.job(commit_and_remove, place, None)
    assert snapshot(place.path) == {}

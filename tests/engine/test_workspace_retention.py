"""Removing workspaces: what counts as abandoned while an engine is at work, and what is left of a campaign's folder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.workspaces.conftest import TestRepository
from tests.workspaces.finished_units import new_repository, run_units

from paceline.engine.retention import (
    RemovedWorkspaces,
    check_workspaces,
    leave_workspaces,
    remove_workspaces,
    unneeded_workspaces,
    workspaces_of_campaign,
)
from paceline.hosts.leader.workspace_cleanup import (
    MOST_TOMBSTONES,
    WorkspaceTombstone,
    drop_tombstones,
    leave_tombstones,
    workspace_tombstones,
)
from paceline.store import Page, SqliteStore
from paceline.workspaces import prepare


class ReadStore(SqliteStore):
    """A store during whose reading something else happens."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        super().__init__(":memory:")
        self._meanwhile = meanwhile

    def units(self, **choice: Any) -> Page:
        page = super().units(**choice)
        self._meanwhile()
        return page


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestRepository:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    return new_repository(tmp_path / "project")


def test_a_workspace_that_an_engine_makes_while_units_are_read_is_not_abandoned(repository: TestRepository) -> None:
    place = repository.place()
    store = ReadStore(lambda: prepare(place, repository.settings()))

    assert unneeded_workspaces(store, repository.home) == []
    assert Path(place.path, "kept.txt").exists()


def test_the_workspaces_of_a_home_belong_to_their_units_by_whatever_path_the_home_is_named(
    repository: TestRepository, tmp_path: Path
) -> None:
    store = SqliteStore.in_memory()
    (place,) = run_units(store, repository, repository.home, {"a": {}})
    (tmp_path / "link").symlink_to(repository.home)

    assert [each.unit for each in unneeded_workspaces(store, tmp_path / "link")] == ["docs/a"]
    assert [each.place.path for each in unneeded_workspaces(store, tmp_path / "link")] == [place.path]


def test_the_folder_of_a_campaign_goes_with_its_last_workspace(repository: TestRepository) -> None:
    store = SqliteStore.in_memory()
    one, other = run_units(store, repository, repository.home, {"a": {"new.txt": "x"}, "b": {"new.txt": "y"}})
    folder = Path(one.path).parent
    first, last = workspaces_of_campaign(store, "docs")

    assert remove_workspaces([first], force=False) == RemovedWorkspaces(removed=1)
    assert [each.name for each in folder.iterdir()] == [Path(other.path).name]
    assert remove_workspaces([last], force=False) == RemovedWorkspaces(removed=1)
    assert not folder.exists()


# Workspaces on other hosts.


def test_a_folder_of_the_same_path_on_this_machine_is_never_removed_for_one_on_a_host(
    repository: TestRepository,
) -> None:
    store = SqliteStore.in_memory()
    (place,) = run_units(store, repository, repository.home, {"a": {"new.txt": "x"}}, host="box1")
    repository.git("merge", "-q", "paceline/docs/a")
    Path(place.path, "mine.txt").write_text("of this machine")
    workspaces = workspaces_of_campaign(store, "docs")

    check_workspaces(workspaces)
    assert remove_workspaces(workspaces, force=True) == RemovedWorkspaces()
    assert Path(place.path, "mine.txt").read_text() == "of this machine"


def test_workspaces_on_hosts_are_left_to_them_once(repository: TestRepository) -> None:
    store = SqliteStore.in_memory()
    (place,) = run_units(store, repository, repository.home, {"a": {"new.txt": "x"}}, host="box1")
    workspaces = workspaces_of_campaign(store, "docs")

    assert leave_workspaces(store, workspaces, force=False, dry_run=True) == 1
    assert workspace_tombstones(store) == []
    assert [leave_workspaces(store, workspaces, force=force) for force in (False, True)] == [1, 1]
    assert workspace_tombstones(store) == [WorkspaceTombstone(host="box1", unit="docs/a", place=place, force=True)]
    drop_tombstones(store, workspace_tombstones(store))
    assert workspace_tombstones(store) == []


def test_the_list_of_left_workspaces_is_bounded(repository: TestRepository) -> None:
    store, place = SqliteStore.in_memory(), repository.place()
    many = [
        WorkspaceTombstone(host="box1", unit="docs/a", place=msgspec.structs.replace(place, path=str(number)))
        for number in range(MOST_TOMBSTONES + 5)
    ]
    leave_tombstones(store, many)
    assert workspace_tombstones(store) == many[5:]

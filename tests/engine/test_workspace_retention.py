"""Removing workspaces: what counts as abandoned while an engine is at work, and what is left of a campaign's folder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.workspaces.conftest import TestRepository
from tests.workspaces.finished_units import new_repository, run_units

from paceline.engine.workspace_retention import (
    RemovedWorkspaces,
    remove_workspaces,
    unneeded_workspaces,
    workspaces_of_campaign,
)
from paceline.store import Page
from paceline.store.memory import MemoryStore
from paceline.workspaces import prepare


class ReadStore(MemoryStore):
    """A store during whose reading something else happens."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        super().__init__()
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
    store = MemoryStore()
    (place,) = run_units(store, repository, repository.home, {"a": {}})
    (tmp_path / "link").symlink_to(repository.home)

    assert [each.unit for each in unneeded_workspaces(store, tmp_path / "link")] == ["docs/a"]
    assert [each.place.path for each in unneeded_workspaces(store, tmp_path / "link")] == [place.path]


def test_the_folder_of_a_campaign_goes_with_its_last_workspace(repository: TestRepository) -> None:
    store = MemoryStore()
    one, other = run_units(store, repository, repository.home, {"a": {"new.txt": "x"}, "b": {"new.txt": "y"}})
    folder = Path(one.path).parent
    first, last = workspaces_of_campaign(store, "docs")

    assert remove_workspaces([first], force=False) == RemovedWorkspaces(removed=1)
    assert [each.name for each in folder.iterdir()] == [Path(other.path).name]
    assert remove_workspaces([last], force=False) == RemovedWorkspaces(removed=1)
    assert not folder.exists()

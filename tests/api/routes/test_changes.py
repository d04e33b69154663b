"""What units changed, over HTTP, with real work in real worktrees."""

import os
from pathlib import Path
from typing import Any

import pytest
from tests.daemon import Daemon
from tests.workspaces.conftest import write
from tests.workspaces.finished_units import Files, new_repository, run_units

from paceline.store import Page
from paceline.workspaces import WorkspaceLocation

WORKS: dict[str, Files] = {"a": {"kept.txt": "a\n"}, "b": {"kept.txt": "b \x1b[31m\n"}}


@pytest.fixture(autouse=True)
def _no_settings_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))


def existing(places: list[WorkspaceLocation]) -> list[str]:
    return [place.path for place in places if os.path.lexists(place.path)]


async def test_the_diff_of_a_unit_is_text_and_bounded(daemon: Daemon, tmp_path: Path) -> None:
    repository = new_repository(tmp_path / "project")
    _, place = run_units(daemon.store, repository, daemon.home.path, WORKS)
    whole = await daemon.get("/v1/units/docs/b/diff")
    patch = whole.pop("patch")
    assert "-kept\n+b \n" in patch, "the colour is removed"
    assert whole == {
        "unit": "docs/b",
        "repository": str(repository.top),
        "host": None,
        "workspace": place.path,
        "branch": "paceline/docs/b",
        "base": place.base,
        "commit": repository.git("rev-parse", "paceline/docs/b"),
        "files_changed": 1,
        "lines_added": 1,
        "lines_removed": 1,
        "truncated": False,
    }
    short = await daemon.get("/v1/units/docs%2Fb/diff?most_bytes=10")
    assert (short["patch"], short["truncated"]) == ("diff --git", True)


async def test_a_unit_without_a_workspace_has_no_diff(daemon: Daemon) -> None:
    daemon.add("docs", "true", "a", state="paused")
    assert "has not been started yet" in (await daemon.get("/v1/units/docs/a/diff", code=404))["detail"]


async def test_a_change_that_is_gone_is_a_conflict_not_an_internal_error(daemon: Daemon, tmp_path: Path) -> None:
    repository = new_repository(tmp_path / "project")
    run_units(daemon.store, repository, daemon.home.path, WORKS)
    repository.top.rename(tmp_path / "moved")
    assert (await daemon.get("/v1/units/docs/a/diff", code=409))["error"] == "conflict"


async def test_conflicts_of_a_campaign_are_reported(daemon: Daemon, tmp_path: Path) -> None:
    run_units(daemon.store, new_repository(tmp_path / "project"), daemon.home.path, WORKS)
    assert await daemon.get("/v1/campaigns/docs/conflicts") == {
        "conflicts": [{"unit": "docs/a", "other": "docs/b", "paths": ["kept.txt"]}],
        "pairs_tried": 1,
        "missing": [],
        "is_complete": True,
    }
    await daemon.get("/v1/campaigns/other/conflicts", code=404)


async def test_finished_units_are_read_in_small_steps_so_that_the_engine_is_not_held_up(
    daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_units(daemon.store, new_repository(tmp_path / "project"), daemon.home.path, WORKS)
    monkeypatch.setattr("paceline.api.routes.campaigns.PAGE_UNITS", 1)
    read = daemon.store.units
    limits: list[int] = []

    def units(**choice: Any) -> Page:
        limits.append(choice["limit"])
        return read(**choice)

    monkeypatch.setattr(daemon.store, "units", units)
    report = await daemon.get("/v1/campaigns/docs/conflicts")

    assert (report["pairs_tried"], limits) == (1, [1, 1])


async def test_deleting_a_campaign_removes_its_workspaces_but_no_uncommitted_work(
    daemon: Daemon, tmp_path: Path
) -> None:
    repository = new_repository(tmp_path / "project")
    places = run_units(daemon.store, repository, daemon.home.path, WORKS)
    write(f"{places[0].path}/new.txt", "not committed")
    refused = await daemon.ask("DELETE", "/v1/campaigns/docs", code=409)
    assert "has 1 uncommitted change;" in refused["detail"]
    await daemon.ask("DELETE", "/v1/campaigns/docs?force=true")
    assert existing(places) == []
    assert repository.git("rev-parse", "paceline/docs/a") != places[0].base

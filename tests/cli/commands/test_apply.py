"""`apply`, `diff`, `gc` and `delete` with real work in real worktrees."""

import os
from pathlib import Path

import pytest
from tests.cli.conftest import Workspace
from tests.workspaces.conftest import TestRepository, write
from tests.workspaces.finished_units import Files, new_repository, run_units

from paceline.daemon.home import open_home
from paceline.store import Campaign
from paceline.workspaces import WorkspaceLocation

WORKS: dict[str, Files] = {
    "a": {"kept.txt": "a\n"},
    "b": {"kept.txt": "b\n"},
    "c": {"c.txt": "c\n"},
    "idle": {},
}


@pytest.fixture
def repository(workspace: Workspace) -> TestRepository:
    return new_repository(workspace.folder / "project")


@pytest.fixture
def places(workspace: Workspace, repository: TestRepository) -> dict[str, WorkspaceLocation]:
    """The workspaces of four done units; those of `a` and `b` conflict, and `idle` changed nothing."""
    with open_home() as home:
        found = run_units(home.store, repository, workspace.home, WORKS)
    return dict(zip(WORKS, found, strict=True))


def head(repository: TestRepository) -> str:
    return repository.git("rev-parse", "HEAD")


@pytest.mark.usefixtures("places")
def test_apply_merges_what_merges_and_explains_what_to_do_with_the_rest(
    workspace: Workspace, repository: TestRepository
) -> None:
    before = head(repository)
    shown = workspace.run("apply", "docs", code=1).stdout
    assert shown.splitlines() == [
        f"merged 2 units into main of {repository.top} ({before[:12]} -> {head(repository)[:12]})",
        "left out docs/b: it conflicts in kept.txt",
        f"to do: git -C {repository.top} merge paceline/docs/b   # resolve, and commit",
    ]
    repository.git("merge", "-q", "-X", "ours", "paceline/docs/b")
    again = workspace.run_json("apply", "docs")
    assert (again["ok"], again["repositories"][0]["merged"]) == (True, [])
    assert again["repositories"][0]["contained"] == ["docs/a", "docs/b", "docs/c"]


@pytest.mark.usefixtures("places")
def test_apply_stops_at_the_first_conflict_if_you_ask_for_it(workspace: Workspace, repository: TestRepository) -> None:
    before = head(repository)
    shown = workspace.run("apply", "docs", "--stop-at-conflict", code=1).stdout
    assert shown.splitlines() == [
        f"merged 1 unit into main of {repository.top} ({before[:12]} -> {head(repository)[:12]})",
        "stopped at docs/b: it conflicts in kept.txt",
        "1 unit after it: not tried",
        f"to do: git -C {repository.top} merge paceline/docs/b   # resolve, commit, and run this command again",
    ]
    repository.git("merge", "-q", "-X", "ours", "paceline/docs/b")
    again = workspace.run_json("apply", "docs")
    assert (again["ok"], again["repositories"][0]["merged"]) == (True, ["docs/c"])
    assert again["repositories"][0]["contained"] == ["docs/a", "docs/b"]


@pytest.mark.usefixtures("places")
def test_a_dry_run_reports_all_conflicts_and_changes_nothing(workspace: Workspace, repository: TestRepository) -> None:
    before = head(repository)
    answer = workspace.run_json("apply", "docs", "--dry-run", code=1)
    assert answer["report"] == {
        "conflicts": [{"unit": "docs/a", "other": "docs/b", "paths": ["kept.txt"]}],
        "pairs_tried": 1,
        "missing": [],
        "is_complete": True,
    }
    assert answer["repositories"][0]["conflicts"] == [{"unit": "docs/b", "other": None, "paths": ["kept.txt"]}]
    shown = workspace.run("apply", "docs", "--dry-run", code=1).stdout
    assert "would merge 2 units into main" in shown
    assert "conflict: docs/a and docs/b: kept.txt" in shown
    assert head(repository) == before


@pytest.mark.usefixtures("places")
def test_a_dry_run_names_uncommitted_changes_that_would_stop_the_merge(
    workspace: Workspace, repository: TestRepository
) -> None:
    repository.write("kept.txt", "mine\n")
    repository.write("c.txt", "mine, too\n")
    repository.write("other.txt", "in nobody's way\n")

    shown = workspace.run("apply", "docs/c", "--dry-run").stdout

    assert "not yet: commit or stash your changes in c.txt, which are in the way" in shown
    assert "would be overwritten" in workspace.run("apply", "docs/c", code=2).stderr


@pytest.mark.usefixtures("places")
def test_undo_takes_the_last_application_back(workspace: Workspace, repository: TestRepository) -> None:
    before = head(repository)
    workspace.run("apply", "docs/c")
    assert (repository.top / "c.txt").exists()
    assert "took back 1 unit from main" in workspace.run("apply", "docs/c", "--undo").stdout
    assert head(repository) == before
    assert "nothing was applied" in workspace.run("apply", "docs", "--undo", code=2).stderr


@pytest.mark.usefixtures("places")
def test_what_cannot_be_merged_is_refused(workspace: Workspace) -> None:
    assert "docs/idle changed nothing" in workspace.run("apply", "docs/idle", code=2).stderr
    for option in ("--dry-run", "--stop-at-conflict"):
        refused = workspace.run("apply", "docs", "--undo", option, code=2).stderr
        assert f"--undo and {option} exclude each other" in refused
    plan = workspace.plan("true", "x", name="plain")
    workspace.run("run", plan)
    assert "no unit of plain is done with a commit" in workspace.run("apply", "plain", code=2).stderr
    assert "it worked in its folder itself" in workspace.run("apply", "plain/x", code=2).stderr


# diff


def test_diff_prints_a_patch_that_git_applies(
    workspace: Workspace, repository: TestRepository, places: dict[str, WorkspaceLocation]
) -> None:
    patch = workspace.run("diff", "docs/c").stdout
    write(workspace.folder / "c.patch", patch)
    repository.git("apply", str(workspace.folder / "c.patch"))
    assert (repository.top / "c.txt").read_text() == "c\n"
    answer = workspace.run_json("diff", "docs/c")
    assert answer.pop("patch") == patch
    assert answer == {
        "unit": "docs/c",
        "repository": str(repository.top),
        "host": None,
        "workspace": places["c"].path,
        "branch": "paceline/docs/c",
        "base": places["c"].base,
        "commit": repository.git("rev-parse", "paceline/docs/c"),
        "files_changed": 1,
        "lines_added": 1,
        "lines_removed": 0,
    }


def test_a_unit_without_a_workspace_has_no_diff(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", "x"))
    assert "it has not been started yet" in workspace.run("diff", "docs/x", code=2).stderr


# gc and delete


def test_gc_removes_workspaces_of_done_units_and_merged_branches_only(
    workspace: Workspace, repository: TestRepository, places: dict[str, WorkspaceLocation]
) -> None:
    workspace.run("apply", "docs/a")
    write(f"{places['c'].path}/later.txt", "not committed")
    expected = {
        "removed": 3,
        "kept": [
            {
                "unit": "docs/c",
                "path": places["c"].path,
                "reason": f"{places['c'].path} has 1 uncommitted change; commit, or remove it with `--force`",
            }
        ],
        "branches": ["paceline/docs/a", "paceline/docs/idle"],
    }
    assert workspace.run_json("gc", "--dry-run")["workspaces"] == expected
    assert all(os.path.isdir(place.path) for place in places.values())

    assert workspace.run_json("gc")["workspaces"] == expected
    assert [name for name, place in places.items() if os.path.isdir(place.path)] == ["c"]
    branches = repository.git("for-each-ref", "--format=%(refname:short)", "refs/heads").split()
    assert branches == ["main", "paceline/docs/b", "paceline/docs/c"]
    assert "+c" in workspace.run("diff", "docs/c").stdout
    assert "+b" in workspace.run("diff", "docs/b").stdout, "without its folder"
    assert workspace.run_json("gc", "--force")["workspaces"]["removed"] == 1


def test_delete_is_refused_while_work_is_uncommitted_and_keeps_unmerged_branches(
    workspace: Workspace, repository: TestRepository, places: dict[str, WorkspaceLocation]
) -> None:
    write(f"{places['c'].path}/later.txt", "not committed")
    refused = workspace.run("delete", "docs", "--yes", code=2).stderr
    assert "has 1 uncommitted change;" in refused
    assert len(workspace.run_json("units", "docs")["units"]) == 4
    assert all(os.path.isdir(place.path) for place in places.values())

    assert "and 4 workspaces" in workspace.run("delete", "docs", "--yes", "--force").stdout

    assert not any(os.path.lexists(place.path) for place in places.values())
    branches = repository.git("for-each-ref", "--format=%(refname:short)", "refs/heads").split()
    assert branches == ["main", "paceline/docs/a", "paceline/docs/b", "paceline/docs/c"]


def test_gc_finds_workspaces_whose_campaign_is_gone_if_another_has_their_repository(
    workspace: Workspace, repository: TestRepository, places: dict[str, WorkspaceLocation]
) -> None:
    with open_home() as home:
        home.store.delete_campaign("docs")
    unknown = workspace.run_json("gc")["workspaces"]
    assert (unknown["removed"], sorted(kept["path"] for kept in unknown["kept"])) == (
        0,
        sorted(place.path for place in places.values()),
    )
    assert {"no campaign has its repository" in kept["reason"] for kept in unknown["kept"]} == {True}
    later = Campaign(name="later", command=("true",), workspace=repository.settings())
    with open_home() as home:
        home.store.add_campaign(later, [], update=False, now=0.0)
    write(f"{places['c'].path}/later.txt", "not committed")
    write(workspace.home / "workspaces" / "theirs" / "folder" / "file", "not ours")

    answer = workspace.run_json("gc")["workspaces"]

    assert (answer["removed"], [kept["path"] for kept in answer["kept"]]) == (3, [places["c"].path])
    assert Path(workspace.home, "workspaces", "theirs", "folder", "file").exists()

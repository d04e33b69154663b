"""`summary` with real work in real worktrees: it names what cannot be merged together."""

import shutil

from tests.cli.conftest import Workspace
from tests.workspaces.finished_units import Files, new_repository, run_units

from paceline.cli.wiring import open_home

WORKS: dict[str, Files] = {"a_one": {"kept.txt": "a\n"}, "b_two": {"kept.txt": "b\n"}, "c": {"c.txt": "c\n"}}


def test_the_report_names_conflicts_before_anybody_merges(workspace: Workspace) -> None:
    repository = new_repository(workspace.folder / "project")
    with open_home() as home:
        run_units(home.store, repository, workspace.home, WORKS)

    text = workspace.run("summary", "docs").stdout
    shutil.rmtree(repository.top)
    without_repository = workspace.run("summary", "docs").stdout

    assert "- **Conflicts**: 1\n" in text
    assert "\n## Conflicts\n\n| unit | conflicts with | in |\n| --- | --- | --- |\n" in text
    assert "\n| docs/a_one | docs/b_two | kept.txt |\n" in text
    assert "- **Conflicts**: unknown: " in without_repository


def test_a_report_without_conflicts_says_so(workspace: Workspace) -> None:
    repository = new_repository(workspace.folder / "project")
    with open_home() as home:
        run_units(home.store, repository, workspace.home, {"a": {"a.txt": "a\n"}, "b": {"b.txt": "b\n"}})

    assert "- **Conflicts**: none: all finished work can be merged\n" in workspace.run("summary", "docs").stdout

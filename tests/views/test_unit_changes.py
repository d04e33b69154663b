"""What a unit changed, also where its workspace is on another machine and only its branch is here."""

import platform
import shutil
from pathlib import Path

import msgspec
import pytest
from tests.workspaces.conftest import TestRepository
from tests.workspaces.finished_units import new_repository, run_units

from paceline.errors import InvalidInput, WorkspaceError
from paceline.store import SqliteStore, Unit
from paceline.views.unit_changes import finished_work, unit_change, unit_patch
from paceline.workspaces.merges import conflict_report, merge_works


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestRepository:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    return new_repository(tmp_path / "project")


def unit_on(repository: TestRepository, host: str | None) -> Unit:
    store = SqliteStore.in_memory()
    run_units(store, repository, repository.home, {"a": {"new.txt": "x\n"}}, host=host)
    unit = store.unit("docs/a")
    assert unit is not None
    return unit


def test_the_host_of_a_workspace_is_named_unless_it_is_this_machine(repository: TestRepository) -> None:
    unit = unit_on(repository, "box1")
    assert unit_change(unit).host == "box1"
    here = msgspec.structs.replace(unit.result, host=platform.node())
    assert unit_change(msgspec.structs.replace(unit, result=here)).host is None


def test_a_change_on_a_host_is_shown_and_merged_from_its_branch(repository: TestRepository) -> None:
    unit = unit_on(repository, "box1")
    shutil.rmtree(repository.home)
    assert b"+++ b/new.txt" in b"".join(unit_patch(unit))
    work = finished_work(unit)
    assert conflict_report([work]).conflicts == ()
    assert merge_works(str(repository.top), [work]).merged == ("docs/a",)


def test_a_folder_of_the_same_path_here_is_not_taken_for_the_workspace_on_the_host(repository: TestRepository) -> None:
    unit = msgspec.structs.replace(unit_on(repository, "box1"), state="running")
    Path(unit.result.workspace or "", "mine.txt").write_text("of this machine")
    patch = b"".join(unit_patch(unit))
    assert (b"new.txt" in patch, b"mine.txt" in patch) == (True, False)


def test_without_a_branch_here_the_host_is_named(repository: TestRepository) -> None:
    unit = msgspec.structs.replace(unit_on(repository, "box1"), state="running")
    shutil.rmtree(repository.home)
    repository.git("worktree", "prune")
    repository.git("branch", "-qD", "paceline/docs/a")
    with pytest.raises(WorkspaceError, match=r"docs/a is on the host box1, and nothing of it has come here yet"):
        list(unit_patch(unit))


def test_a_copy_on_a_host_is_only_there(repository: TestRepository) -> None:
    unit = unit_on(repository, "box1")
    copy = msgspec.structs.replace(unit.result, branch=None, base=None, commit=None)
    with pytest.raises(WorkspaceError, match="a copy on another host is in no branch"):
        list(unit_patch(msgspec.structs.replace(unit, result=copy)))


def test_work_that_was_not_committed_is_not_said_to_be_no_change(repository: TestRepository) -> None:
    unit = unit_on(repository, None)
    result = msgspec.structs.replace(unit.result, commit=None, files_changed=None, lines_added=None, lines_removed=None)

    with pytest.raises(InvalidInput, match="docs/a has no commit to merge"):
        finished_work(msgspec.structs.replace(unit, result=result))

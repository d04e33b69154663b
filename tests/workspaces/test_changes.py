import os
from pathlib import Path

import pytest
from tests.workspaces.conftest import TestRepository, git, snapshot, write

from paceline.errors import WorkspaceError
from paceline.store.interface import WorkspaceSettings
from paceline.store.unit_result import UnitResult
from paceline.workspaces import Change, WorkspacePlace, commit_all, diff, place_of, prepare, remove, write_patch


@pytest.fixture
def place(repository: TestRepository) -> WorkspacePlace:
    found = repository.place("a")
    prepare(found, repository.settings())
    return found


def patch_of(place: WorkspacePlace, commit: str | None = None) -> str:
    return b"".join(diff(place, commit)).decode()


# Commits.


def test_everything_is_committed_to_the_branch_and_counted(repository: TestRepository, place: WorkspacePlace) -> None:
    write(f"{place.path}/src/a.txt", "one\n2\nthree\nfour\n")
    write(f"{place.path}/new/b.txt", "new\n")
    Path(place.path, "kept.txt").unlink()
    change = commit_all(place, "Work of a\n\n# not a comment")
    assert change == Change(
        commit=repository.git("rev-parse", "paceline/docs/a"), files_changed=3, lines_added=3, lines_removed=2
    )
    assert repository.git("log", "-1", "--format=%B", change.commit or "") == "Work of a\n\n# not a comment"
    assert git(place.path, "status", "--porcelain") == ""
    assert commit_all(place, "again") == change, "nothing new: the same commit"


def test_without_a_change_there_is_no_commit(place: WorkspacePlace) -> None:
    assert commit_all(place, "nothing") == Change()


def test_commits_of_the_agent_count(place: WorkspacePlace) -> None:
    write(f"{place.path}/kept.txt", "changed\n")
    git(place.path, "commit", "-qam", "by the agent")
    head = git(place.path, "rev-parse", "HEAD")
    assert commit_all(place, "unused") == Change(commit=head, files_changed=1, lines_added=1, lines_removed=1)


def test_nobody_is_asked_who_commits_and_no_hook_or_signature_stops_it(
    repository: TestRepository, place: WorkspacePlace
) -> None:
    for name in ("pre-commit", "commit-msg", "post-commit"):
        hook = repository.top / ".git" / "hooks" / name
        write(hook, "#!/bin/sh\nexit 1\n")
        hook.chmod(0o755)
    repository.git("config", "commit.gpgsign", "true")
    repository.git("config", "gpg.program", "/bin/false")
    repository.git("config", "user.useConfigOnly", "true")
    write(f"{place.path}/new.txt", "x")
    change = commit_all(place, "work")
    shown = repository.git("log", "-1", "--format=%an <%ae> %cn <%ce>", change.commit or "")
    assert shown == "Paceline <paceline@localhost> Paceline <paceline@localhost>"


def test_the_identity_of_the_user_is_used_as_far_as_it_is_known(
    repository: TestRepository, place: WorkspacePlace
) -> None:
    repository.git("config", "user.name", "Bea")
    write(f"{place.path}/new.txt", "x")
    change = commit_all(place, "work")
    assert repository.git("log", "-1", "--format=%an <%ae>", change.commit or "") == "Bea <paceline@localhost>"


def test_included_files_that_git_does_not_ignore_are_not_committed(repository: TestRepository) -> None:
    repository.write("secrets.local", "password")
    settings = repository.settings(include=("secrets.local",))
    place = repository.place("a", settings)
    prepare(place, settings)
    write(f"{place.path}/work.txt", "work\n")
    change = commit_all(place, "work")
    assert repository.git("show", "--format=", "--name-only", change.commit or "") == "work.txt"
    assert "password" not in patch_of(place)


def test_a_lock_of_a_killed_git_does_not_stop_the_commit(repository: TestRepository, place: WorkspacePlace) -> None:
    write(f"{place.path}/new.txt", "x")
    write(repository.top / ".git" / "worktrees" / "a" / "index.lock", "")
    assert commit_all(place, "work").files_changed == 1


def test_a_repository_that_the_agent_made_inside_does_not_stop_the_commit(place: WorkspacePlace) -> None:
    Path(place.path, "inner").mkdir()
    git(f"{place.path}/inner", "init", "-q")
    write(f"{place.path}/inner/file", "x")
    write(f"{place.path}/new.txt", "x\n")
    change = commit_all(place, "work")
    assert (change.files_changed, change.lines_added) == (1, 1)


def test_work_on_another_branch_becomes_work_of_the_units_branch(
    repository: TestRepository, place: WorkspacePlace
) -> None:
    git(place.path, "checkout", "-qb", "agents-own")
    write(f"{place.path}/one.txt", "1\n")
    git(place.path, "add", "-A")
    git(place.path, "commit", "-qm", "one")
    write(f"{place.path}/two.txt", "2\n")
    change = commit_all(place, "two")
    assert git(place.path, "symbolic-ref", "HEAD") == "refs/heads/paceline/docs/a"
    assert repository.git("log", "--format=%s", f"{place.base}..paceline/docs/a") == "two\none"
    assert change.files_changed == 2


def test_work_on_a_head_beside_the_branch_becomes_one_commit_of_it(
    repository: TestRepository, place: WorkspacePlace
) -> None:
    write(f"{place.path}/one.txt", "1\n")
    git(place.path, "add", "-A")
    git(place.path, "commit", "-qm", "one")
    git(place.path, "checkout", "-q", "--detach", place.base or "")
    write(f"{place.path}/two.txt", "2\n")
    change = commit_all(place, "two instead")
    assert repository.git("log", "--format=%s", f"{place.base}..paceline/docs/a") == "two instead\none"
    assert repository.git("diff", "--name-only", place.base or "", change.commit or "") == "two.txt"


def test_a_rebase_that_was_not_finished_does_not_stop_the_commit(
    repository: TestRepository, place: WorkspacePlace
) -> None:
    write(f"{place.path}/kept.txt", "unit\n")
    git(place.path, "commit", "-qam", "unit")
    repository.write("kept.txt", "main\n")
    repository.commit("main")
    with pytest.raises(Exception, match="rebase"):
        git(place.path, "rebase", "-q", "main")
    change = commit_all(place, "left in the middle")
    assert git(place.path, "symbolic-ref", "HEAD") == "refs/heads/paceline/docs/a"
    assert git(place.path, "status", "--porcelain", "--branch") == "## paceline/docs/a"
    assert change.commit == repository.git("rev-parse", "paceline/docs/a")


def test_a_binary_file_counts_as_a_file_and_a_renamed_one_once(place: WorkspacePlace) -> None:
    Path(place.path, "image").write_bytes(bytes(range(256)))
    Path(place.path, "src", "a.txt").rename(f"{place.path}/src/b.txt")
    change = commit_all(place, "work")
    assert (change.files_changed, change.lines_added, change.lines_removed) == (2, 0, 0)


# Patches.


def test_a_patch_has_uncommitted_work_and_leaves_the_index_alone(place: WorkspacePlace) -> None:
    write(f"{place.path}/kept.txt", "changed\n")
    write(f"{place.path}/new.txt", "new\n")
    patch = patch_of(place)
    assert "-kept\n+changed\n" in patch
    assert "+++ b/new.txt" in patch
    assert git(place.path, "status", "--porcelain") == "M kept.txt\n?? new.txt"


def test_the_change_is_known_without_the_folder(repository: TestRepository, place: WorkspacePlace) -> None:
    write(f"{place.path}/kept.txt", "changed\n")
    change = commit_all(place, "work")
    before = patch_of(place)
    remove(place, force=False)
    assert patch_of(place) == before == patch_of(place, change.commit)
    repository.git("branch", "-qD", "paceline/docs/a")
    assert patch_of(place, change.commit) == before, "the commit is still in the repository"
    with pytest.raises(WorkspaceError, match="neither a folder"):
        patch_of(place)


def test_git_applies_the_patch_with_binary_files_and_renames(
    repository: TestRepository, place: WorkspacePlace, tmp_path: Path
) -> None:
    Path(place.path, "image").write_bytes(bytes(range(256)))
    Path(place.path, "src", "a.txt").rename(f"{place.path}/src/b.txt")
    write_patch(place, tmp_path / "patches" / "a.patch")
    assert os.listdir(tmp_path / "patches") == ["a.patch"]
    repository.git("apply", str(tmp_path / "patches" / "a.patch"))
    assert Path(repository.top, "image").read_bytes() == bytes(range(256))
    assert sorted(os.listdir(repository.top / "src")) == ["b.txt"]


def test_a_patch_that_cannot_be_written_is_an_error(place: WorkspacePlace, tmp_path: Path) -> None:
    write(tmp_path / "file", "")
    with pytest.raises(WorkspaceError, match=r"cannot write .*file"):
        write_patch(place, tmp_path / "file" / "a.patch")


# Copies.


def test_the_change_of_a_copy_is_its_difference_to_the_folder(tmp_path: Path) -> None:
    source = tmp_path / "data"
    write(source / "a.txt", "one\n")
    settings = WorkspaceSettings(kind="copy")
    place = place_of(settings, "docs", "a", str(source), tmp_path / "home", UnitResult())
    prepare(place, settings)
    assert commit_all(place, "unused") == Change()
    assert patch_of(place) == ""
    write(f"{place.path}/a.txt", "two\n")
    write(f"{place.path}/sub/b.txt", "new\n")
    assert commit_all(place, "unused") == Change(files_changed=2, lines_added=2, lines_removed=1)
    write_patch(place, tmp_path / "a.patch")
    git(source, "apply", str(tmp_path / "a.patch"))
    assert snapshot(source) == {"a.txt": "two\n", "sub/b.txt": "new\n"}

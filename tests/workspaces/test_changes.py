import os
import shutil
from pathlib import Path

import pytest
from tests.workspaces.conftest import TestRepository, git, snapshot, write

from paceline.errors import UncommittedWork, WorkspaceError
from paceline.store.interface import WorkspaceSettings
from paceline.store.unit_result import UnitResult
from paceline.workspaces import Change, WorkspaceLocation, commit_all, diff, location_of, prepare, remove, write_patch


@pytest.fixture
def place(repository: TestRepository) -> WorkspaceLocation:
    found = repository.place("a")
    prepare(found, repository.settings())
    return found


def patch_of(place: WorkspaceLocation, commit: str | None = None) -> str:
    return b"".join(diff(place, commit)).decode()


# Commits.


def test_everything_is_committed_to_the_branch_and_counted(
    repository: TestRepository, place: WorkspaceLocation
) -> None:
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


def test_without_a_change_there_is_no_commit(place: WorkspaceLocation) -> None:
    assert commit_all(place, "nothing") == Change()


def test_files_that_hide_caches_hold_nothing(repository: TestRepository, place: WorkspaceLocation) -> None:
    write(f"{place.path}/.tool/.gitignore", "*\n")
    write(f"{place.path}/.tool/cache.bin", "cache\n")
    write(f"{place.path}/.gitignore", ".env\ncache/\n.paceline/\nnode_modules/\n")
    write(f"{place.path}/node_modules/x.js", "x\n")
    write(f"{place.path}/new.txt", "new\n")
    change = commit_all(place, "Work of a")
    assert repository.git("diff", "--name-only", f"{place.base}..{change.commit}").split() == [".gitignore", "new.txt"]


def test_a_repository_that_hides_all_but_what_it_names_works_as_its_user_knows_it(repository: TestRepository) -> None:
    repository.write(".gitignore", "*\n!.gitignore\n!src/\n!src/**\n")
    repository.commit()
    place = repository.place("b")
    prepare(place, repository.settings())
    write(f"{place.path}/src/new.txt", "new\n")
    write(f"{place.path}/scratch.txt", "no work\n")
    assert commit_all(place, "Work of b").files_changed == 1


def test_an_ignore_file_that_hides_new_files_holds_the_unit(place: WorkspaceLocation) -> None:
    write(f"{place.path}/src/.gitignore", "/*\n")
    write(f"{place.path}/src/b.txt", "work\n")
    with pytest.raises(UncommittedWork, match=r"src/\.gitignore in .* hides all new files, .* not have src/b\.txt"):
        commit_all(place, "Work of a")
    assert Path(place.path, "src", "b.txt").read_text() == "work\n"


def test_commits_of_the_agent_count(place: WorkspaceLocation) -> None:
    write(f"{place.path}/kept.txt", "changed\n")
    git(place.path, "commit", "-qam", "by the agent")
    head = git(place.path, "rev-parse", "HEAD")
    assert commit_all(place, "unused") == Change(commit=head, files_changed=1, lines_added=1, lines_removed=1)


def test_nobody_is_asked_who_commits_and_no_hook_or_signature_stops_it(
    repository: TestRepository, place: WorkspaceLocation
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


def test_the_identity_of_the_user_is_used_as_far_as_it_is_known(repository: TestRepository) -> None:
    repository.git("config", "user.name", "Bea")
    place = repository.place("a")
    prepare(place, repository.settings())
    git(place.path, "config", "user.name", "Agent")
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


def test_a_lock_of_a_killed_git_does_not_stop_the_commit(repository: TestRepository, place: WorkspaceLocation) -> None:
    write(f"{place.path}/new.txt", "x")
    write(repository.top / ".git" / "worktrees" / "a" / "index.lock", "")
    assert commit_all(place, "work").files_changed == 1


def test_a_repository_that_the_agent_made_inside_holds_the_unit_and_nothing_is_removed(
    place: WorkspaceLocation,
) -> None:
    Path(place.path, "inner").mkdir()
    git(f"{place.path}/inner", "init", "-q")
    write(f"{place.path}/inner/file", "x")
    write(f"{place.path}/new.txt", "x\n")
    for attempt in (lambda: commit_all(place, "work"), lambda: remove(place, force=False)):
        with pytest.raises(UncommittedWork, match=r"has another git repository in it, in inner: a commit of the"):
            attempt()
    assert (Path(place.path, "inner/file").read_text(), Path(place.path, "new.txt").read_text()) == ("x", "x\n")
    shutil.rmtree(f"{place.path}/inner/.git")
    assert commit_all(place, "work").files_changed == 2


def test_work_on_another_branch_becomes_work_of_the_units_branch(
    repository: TestRepository, place: WorkspaceLocation
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
    repository: TestRepository, place: WorkspaceLocation
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
    repository: TestRepository, place: WorkspaceLocation
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


def test_a_binary_file_counts_as_a_file_and_a_renamed_one_once(place: WorkspaceLocation) -> None:
    Path(place.path, "image").write_bytes(bytes(range(256)))
    Path(place.path, "src", "a.txt").rename(f"{place.path}/src/b.txt")
    change = commit_all(place, "work")
    assert (change.files_changed, change.lines_added, change.lines_removed) == (2, 0, 0)


# What an agent changed besides its files.


def test_a_workspace_without_its_git_file_is_held_and_the_repository_around_it_is_left_alone(
    repository: TestRepository,
) -> None:
    settings = repository.settings(root=str(repository.top / "cache"))  # which git ignores
    place = repository.place("a", settings)
    prepare(place, settings)
    Path(place.path, ".git").unlink()
    write(f"{place.path}/new.txt", "work")
    before = repository.git("rev-parse", "HEAD", "--symbolic-full-name", "HEAD")
    for attempt in (lambda: commit_all(place, "work"), lambda: remove(place, force=False), lambda: patch_of(place)):
        with pytest.raises(
            WorkspaceError, match=r"cannot be used: its file `.git` is gone .* files are kept"
        ) as raised:
            attempt()
        assert not raised.value.is_campaigns
    assert repository.git("rev-parse", "HEAD", "--symbolic-full-name", "HEAD") == before
    assert Path(place.path, "new.txt").read_text() == "work"


def test_only_filters_of_the_time_when_the_plan_was_added_run_and_without_the_engines_secrets(
    repository: TestRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("own", "evil"):
        write(tmp_path / name, f"#!/bin/sh\nenv > {tmp_path}/{name}.seen\ntr a-z A-Z\n")
        (tmp_path / name).chmod(0o755)
    repository.write(".gitattributes", "*.own filter=own\n")
    repository.commit()
    repository.git("config", "filter.own.clean", str(tmp_path / "own"))
    settings = repository.settings()
    place = repository.place("a", settings)
    prepare(place, settings)
    monkeypatch.setenv("TEAM_KEY", "secret")
    for key in ("filter.own.clean", "filter.evil.clean", "core.fsmonitor"):
        git(place.path, "config", key, str(tmp_path / "evil"))
    write(f"{place.path}/a.own", "work")
    change = commit_all(place, "work")
    assert repository.git("show", f"{change.commit}:a.own") == "WORK"
    assert "secret" not in (tmp_path / "own.seen").read_text()

    write(f"{place.path}/.gitattributes", "*.own filter=evil\n")
    write(f"{place.path}/b.own", "work")
    with pytest.raises(
        WorkspaceError, match=r"\.own is to go through the filter 'evil', which was not configured when"
    ):
        commit_all(place, "work")
    write(f"{place.path}/.gitattributes", "")
    with pytest.raises(WorkspaceError, match=r"\.own went through the filter 'own', and now it would not"):
        commit_all(place, "work")
    assert not (tmp_path / "evil.seen").exists()
    assert repository.git("rev-parse", "paceline/docs/a") == change.commit


def test_a_filter_that_fails_stores_nothing_unfiltered(repository: TestRepository) -> None:
    repository.write(".gitattributes", "*.own filter=own\n")
    repository.commit()
    repository.git("config", "filter.own.clean", "false")
    settings = repository.settings()
    place = repository.place("a", settings)
    prepare(place, settings)
    write(f"{place.path}/a.own", "work")
    with pytest.raises(WorkspaceError, match="clean filter 'own' failed"):
        commit_all(place, "work")
    assert repository.git("rev-parse", "paceline/docs/a") == place.base


# Patches.


def test_a_patch_has_uncommitted_work_and_leaves_the_index_alone(place: WorkspaceLocation) -> None:
    write(f"{place.path}/kept.txt", "changed\n")
    write(f"{place.path}/new.txt", "new\n")
    patch = patch_of(place)
    assert "-kept\n+changed\n" in patch
    assert "+++ b/new.txt" in patch
    assert git(place.path, "status", "--porcelain") == "M kept.txt\n?? new.txt"


def test_the_change_is_known_without_the_folder(repository: TestRepository, place: WorkspaceLocation) -> None:
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
    repository: TestRepository, place: WorkspaceLocation, tmp_path: Path
) -> None:
    Path(place.path, "image").write_bytes(bytes(range(256)))
    Path(place.path, "src", "a.txt").rename(f"{place.path}/src/b.txt")
    write_patch(place, tmp_path / "patches" / "a.patch")
    assert os.listdir(tmp_path / "patches") == ["a.patch"]
    repository.git("apply", str(tmp_path / "patches" / "a.patch"))
    assert Path(repository.top, "image").read_bytes() == bytes(range(256))
    assert sorted(os.listdir(repository.top / "src")) == ["b.txt"]


def test_a_patch_that_cannot_be_written_is_an_error(place: WorkspaceLocation, tmp_path: Path) -> None:
    write(tmp_path / "file", "")
    with pytest.raises(WorkspaceError, match=r"cannot write .*file"):
        write_patch(place, tmp_path / "file" / "a.patch")


# Copies.


def test_the_change_of_a_copy_is_its_difference_to_the_folder(tmp_path: Path) -> None:
    source = tmp_path / "data"
    write(source / "a.txt", "one\n")
    settings = WorkspaceSettings(kind="copy")
    place = location_of(settings, "docs", "a", str(source), tmp_path / "home", UnitResult())
    prepare(place, settings)
    assert commit_all(place, "unused") == Change()
    assert patch_of(place) == ""
    write(f"{place.path}/a.txt", "two\n")
    write(f"{place.path}/sub/b.txt", "new\n")
    assert commit_all(place, "unused") == Change(files_changed=2, lines_added=2, lines_removed=1)
    write_patch(place, tmp_path / "a.patch")
    git(source, "apply", str(tmp_path / "a.patch"))
    assert snapshot(source) == {"a.txt": "two\n", "sub/b.txt": "new\n"}

from pathlib import Path

import pytest
from tests.workspaces.conftest import TestRepository, git, write

from paceline.errors import InvalidInput
from paceline.workspaces import count_uncommitted, resolve_base


def test_a_base_is_resolved_from_any_folder_of_the_repository(repository: TestRepository) -> None:
    head = repository.git("rev-parse", "HEAD")
    repository.git("tag", "-am", "annotated", "v1")
    assert resolve_base(str(repository.top / "src"), "HEAD") == (str(repository.top), head)
    assert resolve_base(str(repository.top), "v1") == (str(repository.top), head)
    assert resolve_base(str(repository.top), head[:10]) == (str(repository.top), head)


def test_a_linked_worktree_is_a_repository_with_its_own_head(repository: TestRepository, tmp_path: Path) -> None:
    repository.git("worktree", "add", "-qb", "other", str(tmp_path / "linked"))
    git(tmp_path / "linked", "commit", "-q", "--allow-empty", "-m", "more")
    assert resolve_base(str(tmp_path / "linked"), "HEAD") == (
        str(tmp_path / "linked"),
        git(tmp_path / "linked", "rev-parse", "HEAD"),
    )


@pytest.mark.parametrize("base", ["nothing", "-x", "--all", "HEAD~9", "", "a\0b", "HEAD:kept.txt"])
def test_an_unknown_base_is_refused(repository: TestRepository, base: str) -> None:
    with pytest.raises(InvalidInput, match="is no commit, branch or tag of the repository"):
        resolve_base(str(repository.top), base)


def test_a_repository_without_commits_is_refused(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    with pytest.raises(InvalidInput, match="has no commits; a worktree needs one"):
        resolve_base(str(tmp_path), "HEAD")


def test_a_bare_repository_is_refused(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare")
    with pytest.raises(InvalidInput, match="is a bare repository, without files to work on"):
        resolve_base(str(tmp_path), "HEAD")


def test_the_git_folder_is_refused(repository: TestRepository) -> None:
    with pytest.raises(InvalidInput, match="is the git folder of a repository"):
        resolve_base(str(repository.top / ".git"), "HEAD")


def test_a_folder_outside_of_git_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r'is in no git repository; run `git init` .* or set kind = "copy"'):
        resolve_base(str(tmp_path), "HEAD")


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no folder"):
        resolve_base(str(tmp_path / "missing"), "HEAD")


def test_git_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidInput, match="git is not installed"):
        resolve_base(str(tmp_path), "HEAD")


def test_uncommitted_files_are_counted(repository: TestRepository) -> None:
    assert count_uncommitted(str(repository.top)) == 0
    write(repository.top / "kept.txt", "changed")
    write(repository.top / "new.txt", "new")
    write(repository.top / ".env", "ignored")
    assert count_uncommitted(str(repository.top)) == 2

import os
import subprocess
from pathlib import Path

import pytest
from tests.workspaces.conftest import TestRepository, snapshot
from tests.workspaces.test_conflicts import finished

from paceline.errors import InvalidInput, WorkspaceError
from paceline.workspaces.conflicts import Conflict, FinishedWork
from paceline.workspaces.merges import MergeResult, merge_works, undo_merges


def head(repository: TestRepository) -> str:
    return repository.git("rev-parse", "HEAD")


def three_works(repository: TestRepository) -> list[FinishedWork]:
    """The second one conflicts with the first."""
    return [
        finished(repository, "a", {"kept.txt": "a\n", "a.txt": "a\n"}),
        finished(repository, "b", {"kept.txt": "b\n"}),
        finished(repository, "c", {"c.txt": "c\n"}),
    ]


def test_units_are_merged_in_order_up_to_the_first_conflict(repository: TestRepository) -> None:
    works, before = three_works(repository), head(repository)
    result = merge_works(str(repository.top), works)
    assert result == MergeResult(
        repository=str(repository.top),
        branch="main",
        before=before,
        after=head(repository),
        merged=("docs/a",),
        conflict=Conflict(unit="docs/b", paths=("kept.txt",)),
        remaining=("docs/c",),
    )
    assert repository.git("log", "--first-parent", "--format=%s") == "Merge unit docs/a\nfirst"
    assert repository.git("status", "--porcelain") == ""
    assert (repository.top / "a.txt").read_text() == "a\n"


def test_a_repetition_skips_what_the_branch_already_has(repository: TestRepository) -> None:
    works = three_works(repository)
    merge_works(str(repository.top), works)
    before = head(repository)
    result = merge_works(str(repository.top), [works[0], works[2]])
    assert (result.before, result.merged, result.contained) == (before, ("docs/c",), ("docs/a",))
    assert merge_works(str(repository.top), [works[0], works[2]]).merged == ()


def test_a_dry_run_changes_nothing(repository: TestRepository) -> None:
    works, before = three_works(repository), head(repository)
    result = merge_works(str(repository.top), works, dry_run=True)
    assert (result.merged, result.conflict) == (("docs/a",), Conflict(unit="docs/b", paths=("kept.txt",)))
    assert head(repository) == before
    with pytest.raises(InvalidInput, match="nothing was applied"):
        undo_merges(str(repository.top))


def test_an_application_is_taken_back_as_a_whole_and_can_be_repeated(repository: TestRepository) -> None:
    works, before, files = three_works(repository), head(repository), snapshot(repository.top)
    first = merge_works(str(repository.top), works[:1])
    second = merge_works(str(repository.top), works[2:])
    assert undo_merges(str(repository.top)) == MergeResult(
        repository=str(repository.top), branch="main", before=second.after, after=first.after, merged=("docs/c",)
    )
    undo_merges(str(repository.top))
    assert head(repository) == before
    assert snapshot(repository.top) == files
    with pytest.raises(InvalidInput, match="nothing was applied"):
        undo_merges(str(repository.top))
    assert merge_works(str(repository.top), works[:1]).merged == ("docs/a",)


def test_uncommitted_changes_elsewhere_are_kept_by_both(repository: TestRepository) -> None:
    works = three_works(repository)
    repository.write("src/a.txt", "mine\n")
    merge_works(str(repository.top), works[:1])
    undo_merges(str(repository.top))
    assert (repository.top / "src" / "a.txt").read_text() == "mine\n"


def test_uncommitted_changes_in_the_way_stop_it_before_anything_changed(repository: TestRepository) -> None:
    works, before = three_works(repository), head(repository)
    repository.write("kept.txt", "mine\n")
    with pytest.raises(InvalidInput, match=r"nothing was merged into main: (?s:.*)would be overwritten"):
        merge_works(str(repository.top), works[:1])
    assert (head(repository), (repository.top / "kept.txt").read_text()) == (before, "mine\n")
    with pytest.raises(InvalidInput, match="nothing was applied"):
        undo_merges(str(repository.top))


def test_uncommitted_changes_in_the_way_stop_an_undo_before_anything_changed(repository: TestRepository) -> None:
    merge_works(str(repository.top), three_works(repository)[:1])
    after = head(repository)
    repository.write("kept.txt", "mine\n")

    with pytest.raises(InvalidInput, match="nothing was taken back from main: commit or stash your changes"):
        undo_merges(str(repository.top))

    assert (head(repository), (repository.top / "kept.txt").read_text()) == (after, "mine\n")
    repository.git("checkout", "-q", "kept.txt")
    assert undo_merges(str(repository.top)).merged == ("docs/a",)


def test_merges_that_others_built_on_are_not_taken_back(repository: TestRepository) -> None:
    merge_works(str(repository.top), three_works(repository)[:1])
    repository.write("more.txt", "x")
    after = repository.commit()
    with pytest.raises(InvalidInput, match=r"main in .* has moved since; take the merges back with `git revert -m 1"):
        undo_merges(str(repository.top))
    assert head(repository) == after


def test_the_named_command_takes_merges_back_that_others_built_on(repository: TestRepository) -> None:
    works, before = three_works(repository), head(repository)
    merge_works(str(repository.top), [works[0], works[2]])
    repository.write("more.txt", "x")
    repository.commit()
    with pytest.raises(InvalidInput) as refused:
        undo_merges(str(repository.top))
    command = str(refused.value).partition("`")[2].rstrip("`").replace("git revert", "git revert --no-edit")
    environ = os.environ | {f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}

    subprocess.run(["sh", "-c", command], cwd=repository.top, env=environ, check=True, capture_output=True)

    assert repository.git("diff", "--name-only", before) == "more.txt"


def test_an_application_of_another_branch_is_not_taken_back(repository: TestRepository) -> None:
    merge_works(str(repository.top), three_works(repository)[:1])
    repository.git("checkout", "-qb", "other")
    with pytest.raises(InvalidInput, match="the last application was to main, and other is checked out"):
        undo_merges(str(repository.top))


def test_an_application_that_was_interrupted_before_it_moved_is_forgotten(repository: TestRepository) -> None:
    works, before = three_works(repository), head(repository)
    merge_works(str(repository.top), works[:1])
    repository.git("reset", "-q", "--hard", before)
    with pytest.raises(InvalidInput, match="nothing was applied"):
        undo_merges(str(repository.top))


def test_without_a_branch_nothing_is_merged(repository: TestRepository) -> None:
    works = three_works(repository)
    repository.git("checkout", "-q", "--detach")
    with pytest.raises(InvalidInput, match="no branch is checked out"):
        merge_works(str(repository.top), works)


def test_a_commit_that_is_gone_stops_it_before_anything_changed(repository: TestRepository) -> None:
    works, before = three_works(repository), head(repository)
    gone = FinishedWork(unit="docs/gone", repository=str(repository.top), base=before, commit="12" * 20)
    with pytest.raises(WorkspaceError, match=f"the commit {'12' * 20} of docs/gone is no longer in"):
        merge_works(str(repository.top), [works[0], gone])
    assert head(repository) == before


def test_hooks_and_missing_identities_do_not_stop_a_merge(repository: TestRepository, tmp_path: Path) -> None:
    works = three_works(repository)
    hook = repository.top / ".git" / "hooks" / "post-merge"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hook-ran\n")
    hook.chmod(0o755)
    merge_works(str(repository.top), works[:1])
    assert not (tmp_path / "hook-ran").exists()
    assert repository.git("log", "-1", "--format=%cn") == "Paceline"

"""Merging finished units, and what would conflict."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.workspaces.conftest import TestRepository, snapshot, write

from paceline.errors import InvalidInput, WorkspaceError
from paceline.workspaces import commit_all, prepare
from paceline.workspaces.merges import (
    Conflict,
    ConflictReport,
    FinishedWork,
    MergeResult,
    conflict_report,
    merge_works,
    undo_merges,
)


def finished(repository: TestRepository, unit: str, files: dict[str, str | None]) -> FinishedWork:
    """Commit the files as the work of a unit. None deletes a file."""
    place = repository.place(unit)
    prepare(place, repository.settings())
    for path, text in files.items():
        if text is None:
            Path(place.path, path).unlink()
        else:
            write(f"{place.path}/{path}", text)
    commit = commit_all(place, f"work of {unit}").commit
    assert commit is not None
    return FinishedWork(unit=f"docs/{unit}", repository=str(repository.top), base=place.base or "", commit=commit)


def test_only_branches_that_change_the_same_lines_conflict(repository: TestRepository) -> None:
    repository.write("long.txt", "\n".join(str(number) for number in range(40)))
    repository.commit()
    lines = [str(number) for number in range(40)]
    works = [
        finished(repository, "top", {"long.txt": "\n".join(["changed", *lines[1:]])}),
        finished(repository, "bottom", {"long.txt": "\n".join([*lines[:-1], "changed"])}),
        finished(repository, "both", {"long.txt": "\n".join(["other", *lines[1:-1], "other"])}),
        finished(repository, "apart", {"new.txt": "new\n"}),
    ]
    assert conflict_report(works) == ConflictReport(
        conflicts=(
            Conflict(unit="docs/top", other="docs/both", paths=("long.txt",)),
            Conflict(unit="docs/bottom", other="docs/both", paths=("long.txt",)),
        ),
        pairs_tried=3,
    )


def test_a_conflict_with_the_checked_out_branch_has_no_other_unit(repository: TestRepository) -> None:
    works = [finished(repository, "a", {"kept.txt": "unit\n"}), finished(repository, "b", {"new.txt": "x\n"})]
    assert conflict_report(works) == ConflictReport(pairs_tried=0), "nothing was committed since"
    repository.write("kept.txt", "main\n")
    repository.commit()
    assert conflict_report(works) == ConflictReport(
        conflicts=(Conflict(unit="docs/a", paths=("kept.txt",)),), pairs_tried=2
    )


def test_what_is_merged_already_conflicts_no_more(repository: TestRepository) -> None:
    works = [finished(repository, "a", {"kept.txt": "a\n"}), finished(repository, "b", {"kept.txt": "b\n"})]
    merge_works(str(repository.top), works[:1])
    repository.git("merge", "--no-ff", "-X", "theirs", "-m", "by hand", works[1].commit)

    assert conflict_report(works) == ConflictReport()


def test_a_file_that_one_deletes_and_another_changes_conflicts(repository: TestRepository) -> None:
    works = [finished(repository, "a", {"kept.txt": None}), finished(repository, "b", {"kept.txt": "changed\n"})]
    assert conflict_report(works).conflicts == (Conflict(unit="docs/a", other="docs/b", paths=("kept.txt",)),)


def test_the_same_change_twice_is_no_conflict(repository: TestRepository) -> None:
    works = [finished(repository, unit, {"kept.txt": "same\n"}) for unit in ("a", "b")]
    assert conflict_report(works) == ConflictReport(pairs_tried=1)


def test_awkward_paths_are_named_as_they_are(repository: TestRepository) -> None:
    name = "ü b\n\tc.txt"
    works = [finished(repository, unit, {name: f"{unit}\n"}) for unit in ("a", "b")]
    assert conflict_report(works).conflicts == (Conflict(unit="docs/a", other="docs/b", paths=(name,)),)


def test_a_commit_that_is_gone_is_reported_and_the_rest_is_tried(repository: TestRepository) -> None:
    works = [finished(repository, unit, {"kept.txt": f"{unit}\n"}) for unit in ("a", "b")]
    gone = FinishedWork(unit="docs/gone", repository=str(repository.top), base=works[0].base, commit="12" * 20)
    assert conflict_report([gone, *works]) == ConflictReport(
        conflicts=(Conflict(unit="docs/a", other="docs/b", paths=("kept.txt",)),),
        pairs_tried=1,
        missing=("docs/gone",),
    )


def test_repositories_are_compared_apart(
    repository: TestRepository, make_repository: Callable[[str], TestRepository]
) -> None:
    works = [finished(each, "a", {"kept.txt": f"{each.top}\n"}) for each in (repository, make_repository("other"))]
    assert conflict_report(works) == ConflictReport()


def test_too_many_pairs_are_cut_and_that_is_reported(repository: TestRepository) -> None:
    works = [finished(repository, unit, {"kept.txt": f"{unit}\n"}) for unit in ("a", "b", "c")]
    assert conflict_report(works, most_pairs=2) == ConflictReport(
        conflicts=(
            Conflict(unit="docs/a", other="docs/b", paths=("kept.txt",)),
            Conflict(unit="docs/a", other="docs/c", paths=("kept.txt",)),
        ),
        pairs_tried=2,
        is_complete=False,
    )


def test_merges_with_what_is_checked_out_count_as_pairs(repository: TestRepository) -> None:
    works = [finished(repository, unit, {"kept.txt": f"{unit}\n"}) for unit in ("a", "b", "c")]
    repository.write("kept.txt", "mine\n")
    repository.commit()
    assert conflict_report(works, most_pairs=1) == ConflictReport(
        conflicts=(Conflict(unit="docs/a", paths=("kept.txt",)),), pairs_tried=1, is_complete=False
    )


def test_nothing_finished_is_an_empty_report() -> None:
    assert conflict_report([]) == ConflictReport()


def test_a_git_that_is_too_old_is_named(
    repository: TestRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    works = [finished(repository, unit, {"kept.txt": f"{unit}\n"}) for unit in ("a", "b")]
    old = tmp_path / "old" / "git"
    write(
        old,
        '#!/bin/sh\ncase "$*" in *merge-tree*) exit 129;; *version) echo git version 2.34.1;;'
        ' *) PATH=${PATH#*:} exec git "$@";; esac\n',
    )
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{old.parent}:/usr/local/bin:/usr/bin:/bin")
    with pytest.raises(WorkspaceError, match=r"needs git 2.39 or newer, and here is git version 2.34.1"):
        conflict_report(works)


# -- Merges -----------------------------------------------------------------------------------------


def head(repository: TestRepository) -> str:
    return repository.git("rev-parse", "HEAD")


def three_works(repository: TestRepository) -> list[FinishedWork]:
    """The second one conflicts with the first."""
    return [
        finished(repository, "a", {"kept.txt": "a\n", "a.txt": "a\n"}),
        finished(repository, "b", {"kept.txt": "b\n"}),
        finished(repository, "c", {"c.txt": "c\n"}),
    ]


def test_units_are_merged_in_order_and_those_that_conflict_are_left_out(repository: TestRepository) -> None:
    works, before = three_works(repository), head(repository)
    works.insert(2, finished(repository, "b2", {"a.txt": "b2\n"}))
    result = merge_works(str(repository.top), works)
    assert result == MergeResult(
        repository=str(repository.top),
        branch="main",
        before=before,
        after=head(repository),
        merged=("docs/a", "docs/c"),
        conflicts=(Conflict(unit="docs/b", paths=("kept.txt",)), Conflict(unit="docs/b2", paths=("a.txt",))),
    )
    assert repository.git("log", "--first-parent", "--format=%s") == "Merge unit docs/c\nMerge unit docs/a\nfirst"
    assert repository.git("status", "--porcelain") == ""
    assert ((repository.top / "a.txt").read_text(), (repository.top / "c.txt").read_text()) == ("a\n", "c\n")


def test_units_are_merged_up_to_the_first_conflict_where_it_is_to_stop_there(repository: TestRepository) -> None:
    works, before = three_works(repository), head(repository)
    result = merge_works(str(repository.top), works, stop_at_conflict=True)
    assert result == MergeResult(
        repository=str(repository.top),
        branch="main",
        before=before,
        after=head(repository),
        merged=("docs/a",),
        conflicts=(Conflict(unit="docs/b", paths=("kept.txt",)),),
        remaining=("docs/c",),
    )
    assert repository.git("log", "--first-parent", "--format=%s") == "Merge unit docs/a\nfirst"


def test_nothing_is_merged_or_taken_back_in_the_middle_of_a_merge_of_the_user(repository: TestRepository) -> None:
    works = three_works(repository)
    before = merge_works(str(repository.top), works[:2]).after
    with pytest.raises(subprocess.CalledProcessError):
        repository.git("merge", works[1].commit)
    marked = (repository.top / "kept.txt").read_text()
    words = "you are in the middle of a merge .*finish it with `git commit`, or leave it with `git merge --abort`"
    with pytest.raises(InvalidInput, match=words):
        merge_works(str(repository.top), works)
    with pytest.raises(InvalidInput, match=words):
        undo_merges(str(repository.top))
    assert (head(repository), (repository.top / "kept.txt").read_text()) == (before, marked)
    repository.git("checkout", "--ours", "kept.txt")
    repository.git("commit", "-qam", "resolved")
    assert merge_works(str(repository.top), works).merged == ("docs/c",)


def test_a_repetition_skips_what_the_branch_already_has(repository: TestRepository) -> None:
    works = three_works(repository)
    merge_works(str(repository.top), works[:1])
    before = head(repository)
    result = merge_works(str(repository.top), [works[0], works[2]])
    assert (result.before, result.merged, result.contained) == (before, ("docs/c",), ("docs/a",))
    assert merge_works(str(repository.top), [works[0], works[2]]).merged == ()


def test_a_dry_run_changes_nothing(repository: TestRepository) -> None:
    works, before = three_works(repository), head(repository)
    result = merge_works(str(repository.top), works, dry_run=True)
    assert (result.merged, result.conflicts) == (
        ("docs/a", "docs/c"),
        (Conflict(unit="docs/b", paths=("kept.txt",)),),
    )
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


def test_large_files_are_loaded_in_the_tree_of_the_user(repository: TestRepository, tmp_path: Path) -> None:
    smudge = tmp_path / "smudge"
    write(smudge, '#!/bin/sh\n[ -n "$GIT_LFS_SKIP_SMUDGE" ] && exec cat\ncat > /dev/null\necho large\n')
    smudge.chmod(0o755)
    repository.write(".gitattributes", "*.bin filter=lfs\n")
    repository.commit()
    repository.git("config", "filter.lfs.smudge", str(smudge))
    repository.git("config", "filter.lfs.clean", "cat > /dev/null; echo pointer")
    settings = repository.settings()
    place = repository.place("a", settings)
    prepare(place, settings)
    write(f"{place.path}/big.bin", "large\n")
    change = commit_all(place, "work")
    assert repository.git("show", f"{change.commit}:big.bin") == "pointer"
    work = FinishedWork(
        unit="docs/a", repository=str(repository.top), base=place.base or "", commit=change.commit or "", git=place.git
    )
    assert merge_works(str(repository.top), [work]).merged == ("docs/a",)
    assert (repository.top / "big.bin").read_text() == "large\n"

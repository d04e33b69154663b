from collections.abc import Callable
from pathlib import Path

import pytest
from tests.workspaces.conftest import TestRepository, write

from paceline.errors import WorkspaceError
from paceline.workspaces import commit_all, prepare
from paceline.workspaces.conflicts import Conflict, ConflictReport, FinishedWork, conflict_report
from paceline.workspaces.merges import merge_works


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

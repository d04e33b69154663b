"""Commits that travel from one repository to another in a file."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.workspaces.conftest import TestRepository, git, write

from paceline.errors import NoRoomForSession, WorkspaceError
from paceline.workspaces.changes import fetch_refs, known_commits, take_branch, take_bundle, write_bundle
from paceline.workspaces.repository import open_repository

BRANCH = "paceline/docs/ünit-1"


@pytest.fixture
def away(repository: TestRepository, tmp_path: Path) -> Path:
    """A clone on another machine, with the branch of a unit."""
    git(tmp_path, "clone", "-q", str(repository.top), "away")
    git(tmp_path / "away", "switch", "-qc", BRANCH)
    return tmp_path / "away"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return tmp_path / "ä bundle"


def commit(folder: Path, text: str) -> str:
    write(folder / "naïve file.txt", text)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", f"Wörk {text}")
    return git(folder, "rev-parse", "HEAD")


def send(away: Path, bundle: Path, *have: str) -> str:
    tip = git(away, "rev-parse", BRANCH)
    write_bundle(str(away), {f"refs/heads/{BRANCH}": tip}, have, bundle)
    return tip


def refs_of(top: Path) -> dict[str, str]:
    lines = git(top, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    return dict(line.split(" ") for line in lines)


def test_a_branch_arrives_with_its_commits_and_leaves_no_other_name(
    repository: TestRepository, away: Path, bundle: Path
) -> None:
    before, base = refs_of(repository.top), repository.git("rev-parse", "HEAD")
    commit(away, "1")
    tip = commit(away, "2")
    send(away, bundle, base)
    take_bundle(str(repository.top), bundle, BRANCH, tip)
    assert refs_of(repository.top) == {**before, f"refs/heads/{BRANCH}": tip}
    assert repository.git("show", f"{BRANCH}:naïve file.txt") == "2"
    assert repository.git("status", "--porcelain") == ""
    assert not (repository.top / ".git" / "FETCH_HEAD").exists()
    assert bundle.stat().st_size < 2000, "only what is missing travels"
    assert [*repository.top.glob(".git/objects/pack/*")] == [], "packs of a few objects would pile up"


def test_taking_it_again_changes_nothing(repository: TestRepository, away: Path, bundle: Path) -> None:
    tip = commit(away, "1")
    send(away, bundle, repository.git("rev-parse", "HEAD"))
    take_bundle(str(repository.top), bundle, BRANCH, tip)
    before = refs_of(repository.top)
    take_bundle(str(repository.top), bundle, BRANCH, tip)
    assert refs_of(repository.top) == before


def test_a_branch_moves_forward(repository: TestRepository, away: Path, bundle: Path) -> None:
    base, first = repository.git("rev-parse", "HEAD"), commit(away, "1")
    send(away, bundle, base)
    take_bundle(str(repository.top), bundle, BRANCH, first)
    second = commit(away, "2")
    send(away, bundle, base, first)
    take_bundle(str(repository.top), bundle, BRANCH, second)
    assert repository.git("rev-parse", BRANCH) == second


def test_a_branch_with_other_commits_is_not_overwritten(repository: TestRepository, away: Path, bundle: Path) -> None:
    tip = commit(away, "1")
    send(away, bundle, repository.git("rev-parse", "HEAD"))
    repository.git("switch", "-qc", BRANCH)
    other = commit(repository.top, "other")
    repository.git("switch", "-q", "main")
    before = refs_of(repository.top)
    expected = rf"branch {BRANCH} cannot be taken.*it has other commits here \({other[:12]}, and there {tip[:12]}\)"
    with pytest.raises(WorkspaceError, match=expected) as raised:
        take_bundle(str(repository.top), bundle, BRANCH, tip)
    assert not raised.value.is_campaigns
    assert refs_of(repository.top) == before


def test_a_branch_that_is_checked_out_is_not_moved(repository: TestRepository, away: Path, bundle: Path) -> None:
    tip = commit(away, "1")
    send(away, bundle, repository.git("rev-parse", "HEAD"))
    repository.git("switch", "-qc", BRANCH)
    with pytest.raises(WorkspaceError, match=f"it is checked out in {repository.top}; check out another branch"):
        take_bundle(str(repository.top), bundle, BRANCH, tip)
    assert repository.git("status", "--porcelain") == ""


def test_a_branch_without_new_commits_arrives(repository: TestRepository, away: Path, bundle: Path) -> None:
    tip = send(away, bundle, repository.git("rev-parse", "HEAD"))
    take_bundle(str(repository.top), bundle, BRANCH, tip)
    assert repository.git("rev-parse", BRANCH) == tip


def test_thousands_of_commits_arrive(repository: TestRepository, away: Path, bundle: Path) -> None:
    lines = [
        f"commit refs/heads/{BRANCH}\ncommitter A <a@b> {number} +0000\ndata 1\n.\n"
        + (f"from refs/heads/{BRANCH}^0\n" if number == 1 else "")
        + f"M 644 inline f\ndata {len(str(number))}\n{number}\n"
        for number in range(1, 5001)
    ]
    subprocess.run(["git", "fast-import", "--quiet"], input="".join(lines).encode(), cwd=away, check=True)
    tip = send(away, bundle, repository.git("rev-parse", "HEAD"))
    take_bundle(str(repository.top), bundle, BRANCH, tip)
    assert repository.git("rev-list", "--count", f"main..{BRANCH}") == "5000"


def test_a_base_that_no_branch_contains_any_more_is_enough(
    repository: TestRepository, away: Path, bundle: Path
) -> None:
    base = repository.git("rev-parse", "HEAD")
    tip = commit(away, "1")
    send(away, bundle, base)
    repository.git("commit", "-q", "--amend", "-m", "rewritten")
    take_bundle(str(repository.top), bundle, BRANCH, tip)
    assert repository.git("rev-parse", f"{BRANCH}~1") == base


def test_a_missing_base_is_named(
    make_repository: Callable[[str], TestRepository], repository: TestRepository, away: Path, bundle: Path
) -> None:
    repository.write("more.txt", "more")
    base = repository.commit("more")
    git(away, "pull", "-q", "--rebase", "origin", "main")
    tip = commit(away, "1")
    send(away, bundle, base)
    other = make_repository("other")
    with pytest.raises(WorkspaceError, match=f"it began at {base}, which is not in the repository"):
        take_bundle(str(other.top), bundle, BRANCH, tip)
    assert list(refs_of(other.top)) == ["refs/heads/main"]


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "text", "missing"])
def test_a_damaged_bundle_is_refused_and_changes_nothing(
    repository: TestRepository, away: Path, bundle: Path, damage: str
) -> None:
    tip = commit(away, "1")
    send(away, bundle, repository.git("rev-parse", "HEAD"))
    data = bundle.read_bytes()
    middle = len(data) - 60
    match damage:
        case "cut":
            bundle.write_bytes(data[:middle])
        case "flipped":
            bundle.write_bytes(data[:middle] + bytes([data[middle] ^ 255]) + data[middle + 1 :])
        case "missing":
            bundle.unlink()
        case _:
            bundle.write_bytes(b"" if damage == "empty" else b"not a bundle\n")
    before = refs_of(repository.top)
    with pytest.raises(WorkspaceError, match=f"the branch {BRANCH} cannot be taken into {repository.top}"):
        take_bundle(str(repository.top), bundle, BRANCH, tip)
    assert refs_of(repository.top) == before


def test_a_bundle_of_other_commits_than_reported_is_refused(
    repository: TestRepository, away: Path, bundle: Path
) -> None:
    first = commit(away, "1")
    tip = commit(away, "2")
    send(away, bundle, repository.git("rev-parse", "HEAD"))
    with pytest.raises(WorkspaceError, match=f"it arrived at {tip}, and not at {first} as was reported"):
        take_bundle(str(repository.top), bundle, BRANCH, first)
    assert list(refs_of(repository.top)) == ["refs/heads/main"]


def test_names_that_lead_out_of_a_work_tree_are_refused(repository: TestRepository, away: Path, bundle: Path) -> None:
    blob = git(away, "hash-object", "-w", "naïve file.txt") if commit(away, "1") else ""
    entry = b"100644 .git\0" + bytes.fromhex(blob)
    tree = subprocess.run(
        ("git", "hash-object", "-w", "--literally", "-t", "tree", "--stdin"),
        cwd=away,
        input=entry,
        capture_output=True,
        check=True,
    ).stdout.decode()
    git(away, "update-ref", f"refs/heads/{BRANCH}", git(away, "commit-tree", tree.strip(), "-p", "HEAD", "-m", "bad"))
    tip = send(away, bundle, repository.git("rev-parse", "HEAD"))
    with pytest.raises(WorkspaceError, match="hasDotgit"):
        take_bundle(str(repository.top), bundle, BRANCH, tip)
    assert list(refs_of(repository.top)) == ["refs/heads/main"]


def test_a_commit_that_is_gone_is_named(repository: TestRepository, bundle: Path) -> None:
    with pytest.raises(WorkspaceError, match=r"the commit 1111.* is no longer in the repository"):
        write_bundle(str(repository.top), {"refs/heads/x": "1" * 40}, [], bundle)


def test_a_full_disk_is_no_fault_of_the_work(repository: TestRepository) -> None:
    refs = {"refs/heads/x": repository.git("rev-parse", "HEAD")}
    with pytest.raises(NoRoomForSession, match="No space left on device"):
        write_bundle(str(repository.top), refs, [], Path("/dev/full"))


def test_commits_that_the_writer_does_not_know_do_not_matter(
    repository: TestRepository, away: Path, bundle: Path
) -> None:
    tip = commit(away, "1")
    send(away, bundle, "2" * 40, "--all", "", repository.git("rev-parse", "HEAD"))
    take_bundle(str(repository.top), bundle, BRANCH, tip)
    assert known_commits(open_repository(str(repository.top)).git, [tip, "2" * 40, "--all", tip]) == [tip]


def test_a_shallow_clone_takes_a_branch_that_began_there(
    repository: TestRepository, tmp_path: Path, bundle: Path
) -> None:
    repository.write("b.txt", "b")
    base = repository.commit("second")
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{repository.top}", "shallow")
    git(tmp_path, "clone", "-q", str(repository.top), "away")
    git(tmp_path / "away", "switch", "-qc", BRANCH)
    tip = commit(tmp_path / "away", "1")
    send(tmp_path / "away", bundle, base)
    take_bundle(str(tmp_path / "shallow"), bundle, BRANCH, tip)
    assert git(tmp_path / "shallow", "rev-list", "--count", BRANCH) == "2"


def test_a_branch_comes_from_a_remote_as_well(repository: TestRepository, away: Path) -> None:
    tip = commit(away, "1")
    take_branch(str(repository.top), str(away), BRANCH, tip)
    assert repository.git("rev-parse", BRANCH) == tip


def test_a_repository_with_longer_names_of_commits(tmp_path: Path, bundle: Path) -> None:
    for name in ("one", "two"):
        git(tmp_path, "init", "-q", "--object-format=sha256", name)
    tip = commit(tmp_path / "one", "1")
    write_bundle(str(tmp_path / "one"), {"refs/heads/main": tip}, [], bundle)
    fetch_refs(str(tmp_path / "two"), os.fspath(bundle), "refs/heads/main:refs/heads/other")
    assert git(tmp_path / "two", "rev-parse", "other") == tip

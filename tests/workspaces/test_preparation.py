import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.workspaces.conftest import TestRepository, git, snapshot, write

from paceline.errors import NoRoomForSession, UncommittedWork, WorkspaceError, WorkspaceLost
from paceline.store.interface import WorkspaceSettings
from paceline.store.unit_result import UnitResult
from paceline.workspaces import (
    Prepared,
    WorkspaceLocation,
    commit_all,
    finish_setup,
    location_of,
    prepare,
    remove,
    unused_location,
)
from paceline.workspaces import folders as folders_module
from paceline.workspaces.folders import RecordFile, WorkspaceRecord
from paceline.workspaces.repository import open_repository

FILES = {".gitignore": ".env\ncache/\n", "kept.txt": "kept\n", "src/a.txt": "one\ntwo\nthree\n"}
NEW = Prepared(created=True)
FOUND = Prepared(created=False)
LOST = Prepared(created=False, was_lost=True)


def record_of(place: WorkspaceLocation) -> RecordFile:
    return RecordFile(os.path.join(open_repository(place.repository or "").own_folder, "workspaces"), place)


def record_file(repository: TestRepository) -> Path:
    (file,) = (repository.top / ".git" / "paceline" / "workspaces").glob("a-*.json")
    return file


def entries(repository: TestRepository) -> list[str]:
    folder = repository.top / ".git" / "worktrees"
    return sorted(os.listdir(folder)) if folder.exists() else []


# A worktree.


def test_a_worktree_with_relative_links_is_found_as_it_is(repository: TestRepository) -> None:
    place = repository.place("a")
    prepare(place, repository.settings())
    (name,) = entries(repository)
    entry = str(repository.top / ".git" / "worktrees" / name)
    write(f"{place.path}/.git", f"gitdir: {os.path.relpath(entry, place.path)}\n")
    write(f"{entry}/gitdir", f"{os.path.relpath(place.path, entry)}/.git\n")

    assert prepare(place, repository.settings()) == FOUND
    assert Path(place.path, ".git").read_text() == f"gitdir: {os.path.relpath(entry, place.path)}\n"
    remove(place, force=False)
    assert entries(repository) == []


def test_a_unit_gets_a_folder_and_a_branch_at_the_base(repository: TestRepository) -> None:
    place = repository.place("a")
    assert prepare(place, repository.settings()) == NEW
    assert snapshot(place.path) == FILES
    assert git(place.path, "symbolic-ref", "HEAD") == "refs/heads/paceline/docs/a"
    assert git(place.path, "rev-parse", "HEAD") == place.base
    assert git(place.path, "status", "--porcelain") == ""
    assert git(repository.top, "status", "--porcelain") == ""


def test_preparing_again_finds_the_workspace_with_uncommitted_work(repository: TestRepository) -> None:
    place = repository.place("a")
    prepare(place, repository.settings())
    write(f"{place.path}/src/a.txt", "work")
    write(f"{place.path}/new.txt", "more")
    assert prepare(place, repository.settings()) == FOUND
    assert snapshot(place.path) == {**FILES, "src/a.txt": "work", "new.txt": "more"}


def test_the_base_is_the_commit_of_the_plan_not_what_came_later(repository: TestRepository) -> None:
    place = repository.place("a")
    repository.write("later.txt", "later")
    repository.commit()
    prepare(place, repository.settings())
    assert snapshot(place.path) == FILES


def test_a_dirty_main_tree_stays_dirty_and_out_of_the_workspace(repository: TestRepository) -> None:
    repository.write("src/a.txt", "dirty")
    repository.write("untracked.txt", "x")
    place = repository.place("a")
    prepare(place, repository.settings())
    assert snapshot(place.path) == FILES
    assert snapshot(repository.top) == {**FILES, "src/a.txt": "dirty", "untracked.txt": "x"}


def test_a_detached_head_is_a_base_like_any_other(repository: TestRepository) -> None:
    repository.git("checkout", "-q", "--detach")
    place = repository.place("a")
    assert prepare(place, repository.settings()) == NEW
    assert git(place.path, "rev-parse", "HEAD") == place.base


def test_a_cwd_that_git_does_not_track_exists_in_the_workspace(repository: TestRepository) -> None:
    (repository.top / "cache" / "deep").mkdir(parents=True)
    place = repository.place("a", cwd="cache/deep")
    prepare(place, repository.settings())
    assert place.cwd == f"{place.path}/cache/deep"
    assert os.path.isdir(place.cwd)


def test_variables_and_hooks_of_the_user_have_no_effect(
    repository: TestRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = repository.top / ".git" / "hooks" / "post-checkout"
    write(hook, f"#!/bin/sh\ntouch {tmp_path}/hook-ran\nexit 1\n")
    hook.chmod(0o755)
    place, settings = repository.place("a"), repository.settings()
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
    assert prepare(place, settings) == NEW
    assert not (tmp_path / "hook-ran").exists()


# Setup.


def test_setup_is_due_until_it_succeeded_once(repository: TestRepository) -> None:
    settings = repository.settings(setup=("make", "deps"))
    place = repository.place("a", settings)
    assert prepare(place, settings) == Prepared(created=True, needs_setup=True)
    assert prepare(place, settings) == Prepared(created=False, needs_setup=True)
    finish_setup(place)
    assert prepare(place, settings) == FOUND


# What a crash leaves.


def half_made(repository: TestRepository, place: WorkspaceLocation) -> None:
    """Leave the record that is written before anything is made."""
    record_of(place).write(WorkspaceRecord(path=place.path, branch=place.branch))


def only_the_record(repository: TestRepository, place: WorkspaceLocation) -> None:
    half_made(repository, place)


def only_the_branch(repository: TestRepository, place: WorkspaceLocation) -> None:
    half_made(repository, place)
    repository.git("branch", place.branch or "")


def no_checkout(repository: TestRepository, place: WorkspaceLocation) -> None:
    half_made(repository, place)
    repository.git("worktree", "add", "--no-checkout", "-b", place.branch or "", place.path)


def half_a_checkout(repository: TestRepository, place: WorkspaceLocation) -> None:
    no_checkout(repository, place)
    write(f"{place.path}/src/a.txt", "one\n")
    write(repository.top / ".git" / "worktrees" / "a" / "index.lock", "")


def locked_while_initializing(repository: TestRepository, place: WorkspaceLocation) -> None:
    no_checkout(repository, place)
    write(repository.top / ".git" / "worktrees" / "a" / "locked", "initializing")
    (repository.top / ".git" / "worktrees" / "a" / "HEAD").unlink()


def entry_without_folder(repository: TestRepository, place: WorkspaceLocation) -> None:
    locked_while_initializing(repository, place)
    Path(place.path, ".git").unlink()
    Path(place.path).rmdir()


def folder_without_entry(repository: TestRepository, place: WorkspaceLocation) -> None:
    half_a_checkout(repository, place)
    for file in (repository.top / ".git" / "worktrees" / "a").rglob("*"):
        file.unlink() if file.is_file() else None


def lock_of_the_branch(repository: TestRepository, place: WorkspaceLocation) -> None:
    half_made(repository, place)
    write(repository.top / ".git" / "refs" / "heads" / f"{place.branch}.lock", "")


@pytest.mark.parametrize(
    "crash",
    [
        only_the_record,
        only_the_branch,
        no_checkout,
        half_a_checkout,
        locked_while_initializing,
        entry_without_folder,
        folder_without_entry,
        lock_of_the_branch,
    ],
)
def test_what_a_crash_left_half_made_is_made_again(
    repository: TestRepository, crash: Callable[[TestRepository, WorkspaceLocation], None]
) -> None:
    place = repository.place("a")
    os.makedirs(os.path.dirname(place.path))
    crash(repository, place)
    assert prepare(place, repository.settings()) == NEW
    assert snapshot(place.path) == FILES
    assert git(place.path, "status", "--porcelain", "--branch") == "## paceline/docs/a"
    assert prepare(place, repository.settings()) == FOUND


def test_locks_of_a_killed_git_do_not_block_the_next_attempt(repository: TestRepository) -> None:
    place = repository.place("a")
    prepare(place, repository.settings())
    for name in ("index.lock", "HEAD.lock"):
        write(repository.top / ".git" / "worktrees" / "a" / name, "")
    assert prepare(place, repository.settings()) == FOUND
    git(place.path, "commit", "--allow-empty", "-qm", "works")


def test_a_folder_whose_registration_was_pruned_is_held_and_keeps_its_files(repository: TestRepository) -> None:
    place = repository.place("a")
    prepare(place, repository.settings())
    write(f"{place.path}/src/a.txt", "work")
    away = Path(f"{place.path}.away")
    Path(place.path).rename(away)
    repository.git("worktree", "prune")
    away.rename(place.path)
    with pytest.raises(WorkspaceError, match=r"its registration .*/a is gone; all its files") as raised:
        prepare(place, repository.settings())
    assert not raised.value.is_campaigns
    assert snapshot(place.path) == {**FILES, "src/a.txt": "work"}


# What is lost.


def test_a_folder_that_is_gone_is_made_again_from_its_branch(repository: TestRepository) -> None:
    place = repository.place("a")
    prepare(place, repository.settings())
    write(f"{place.path}/work.txt", "done")
    git(place.path, "add", "-A")
    git(place.path, "commit", "-qm", "work")
    subprocess.run(["rm", "-rf", place.path], check=True)
    assert prepare(place, repository.settings()) == LOST
    assert snapshot(place.path) == {**FILES, "work.txt": "done"}
    assert prepare(place, repository.settings()) == FOUND


def test_a_crash_while_a_lost_folder_is_made_again_does_not_hide_the_loss(repository: TestRepository) -> None:
    place = repository.place("a")
    prepare(place, repository.settings())
    subprocess.run(["rm", "-rf", place.path], check=True)
    record_of(place).write(WorkspaceRecord(path=place.path, branch=place.branch, was_lost=True))
    assert prepare(place, repository.settings()) == LOST


def test_without_folder_and_branch_the_workspace_is_lost_until_the_unit_starts_over(
    repository: TestRepository,
) -> None:
    place = repository.place("a")
    prepare(place, repository.settings())
    subprocess.run(["rm", "-rf", place.path], check=True)
    repository.git("worktree", "prune")
    repository.git("branch", "-D", "paceline/docs/a")
    for _ in range(2):
        with pytest.raises(WorkspaceLost, match="so is its branch paceline/docs/a; `paceline retry UNIT --fresh`"):
            prepare(place, repository.settings())
    assert unused_location(place) == place
    assert prepare(place, repository.settings()) == NEW


def test_a_new_unit_does_not_continue_on_a_branch_that_an_earlier_campaign_left(repository: TestRepository) -> None:
    place = repository.place("a", cwd="src")
    assert unused_location(place) == place
    prepare(place, repository.settings())
    second = msgspec.structs.replace(
        place, path=f"{place.path}-2", cwd=f"{place.path}-2/src", branch="paceline/docs/a-2"
    )
    assert unused_location(place) == second
    remove(place, force=False)
    assert unused_location(place) == second, "the branch is still there"


# What is not ours.


def test_a_folder_of_somebody_else_is_not_touched(repository: TestRepository) -> None:
    place = repository.place("a")
    write(f"{place.path}/theirs.txt", "precious")
    with pytest.raises(WorkspaceError, match="exists already and is not a workspace of Paceline") as raised:
        prepare(place, repository.settings())
    assert not raised.value.is_campaigns
    assert snapshot(place.path) == {"theirs.txt": "precious"}
    with pytest.raises(WorkspaceError, match="exists already"):
        prepare(place, repository.settings())
    assert snapshot(place.path) == {"theirs.txt": "precious"}


def test_a_branch_that_is_checked_out_elsewhere_is_the_units_problem(repository: TestRepository) -> None:
    repository.git("checkout", "-qb", "paceline/docs/a")
    with pytest.raises(WorkspaceError, match="already checked out at") as raised:
        prepare(repository.place("a"), repository.settings())
    assert not raised.value.is_campaigns


def test_a_branch_in_the_way_of_all_branches_is_the_campaigns_problem(repository: TestRepository) -> None:
    repository.git("branch", "paceline")
    with pytest.raises(WorkspaceError, match=r"git worktree add failed in .*paceline") as raised:
        prepare(repository.place("a"), repository.settings())
    assert raised.value.is_campaigns


def test_a_repository_that_vanished_is_the_campaigns_problem(repository: TestRepository) -> None:
    place, settings = repository.place("a"), repository.settings()
    repository.top.rename(f"{repository.top}-moved")
    with pytest.raises(WorkspaceError, match=r"the repository .* is gone") as raised:
        prepare(place, settings)
    assert raised.value.is_campaigns


def test_a_base_that_is_no_longer_in_the_repository_is_the_campaigns_problem(repository: TestRepository) -> None:
    settings = WorkspaceSettings(bases={str(repository.top): "12" * 20})
    with pytest.raises(WorkspaceError, match=f"the base commit {'12' * 20} is no longer in") as raised:
        prepare(repository.place("a", settings), settings)
    assert raised.value.is_campaigns


def test_a_root_that_cannot_be_written_is_the_campaigns_problem(repository: TestRepository, tmp_path: Path) -> None:
    write(tmp_path / "file", "")
    settings = repository.settings(root=str(tmp_path / "file"))
    with pytest.raises(WorkspaceError, match=r"cannot write .*file") as raised:
        prepare(repository.place("a", settings), settings)
    assert raised.value.is_campaigns


def test_a_disk_that_is_too_full_takes_no_workspace(
    repository: TestRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = repository.place("a")
    monkeypatch.setattr(folders_module, "RESERVE_BYTES", 1 << 60)
    with pytest.raises(NoRoomForSession, match="must stay free"):
        prepare(place, repository.settings())
    assert not os.path.lexists(place.path)
    assert entries(repository) == []


# Included files.


def test_ignored_files_are_included_by_pattern_and_never_from_outside(
    repository: TestRepository, tmp_path: Path
) -> None:
    write(tmp_path / "secret", "outside")
    for path in (".env", "src/.env", "cache/one/deep", "cache/two", "config.local", "other.local"):
        repository.write(path, path)
    (repository.top / "cache" / "inside").symlink_to("two")
    (repository.top / "cache" / "outside").symlink_to("../../secret")
    (repository.top / "cache" / "absolute").symlink_to(repository.top / ".env")
    settings = repository.settings(include=(".env", "cache/", "config.*", "kept.txt"))
    place = repository.place("a", settings)
    prepare(place, settings)
    assert snapshot(place.path) == {
        **FILES,
        ".env": ".env",
        "src/.env": "src/.env",
        "cache/one/deep": "cache/one/deep",
        "cache/two": "cache/two",
        "cache/inside": "-> two",
        "config.local": "config.local",
    }


# Submodules and LFS.


def test_submodules_are_filled_from_the_clones_of_the_main_tree(
    repository: TestRepository, make_repository: Callable[[str], TestRepository]
) -> None:
    inner = make_repository("inner")
    library = make_repository("library")
    library.git("submodule", "--quiet", "add", str(inner.top), "inner")
    library.commit("with a submodule")
    for name in ("lib", "empty"):
        repository.git("submodule", "--quiet", "add", str(library.top), name)
    repository.git("submodule", "--quiet", "update", "--init", "--recursive")
    repository.commit("with submodules")
    repository.git("submodule", "--quiet", "deinit", "-f", "empty")
    subprocess.run(["rm", "-rf", repository.top / ".git" / "modules" / "empty"], check=True)
    for gone in (inner, library):
        gone.top.rename(f"{gone.top}-unreachable")
    place = repository.place("a")
    assert prepare(place, repository.settings()) == NEW
    assert Path(place.path, "lib", "kept.txt").read_text() == "kept\n"
    assert Path(place.path, "lib", "inner", "kept.txt").read_text() == "kept\n"
    assert os.listdir(Path(place.path, "empty")) == []
    assert git(place.path, "status", "--porcelain") == ""
    remove(place, force=False)
    assert not os.path.lexists(place.path)


def test_large_files_stay_pointers(repository: TestRepository, tmp_path: Path) -> None:
    smudge = tmp_path / "smudge"
    write(smudge, '#!/bin/sh\n[ -n "$GIT_LFS_SKIP_SMUDGE" ] && exec cat\necho downloaded\n')
    smudge.chmod(0o755)
    repository.write(".gitattributes", "*.bin filter=lfs\n")
    repository.write("big.bin", "pointer\n")
    repository.commit()
    repository.git("config", "filter.lfs.smudge", str(smudge))
    place = repository.place("a")
    prepare(place, repository.settings())
    assert Path(place.path, "big.bin").read_text() == "pointer\n"


# Removal.


def test_removing_keeps_the_branch_and_can_be_repeated(repository: TestRepository) -> None:
    place = repository.place("a")
    prepare(place, repository.settings())
    for _ in range(2):
        remove(place, force=False)
        assert not os.path.lexists(place.path)
        assert entries(repository) == []
        assert repository.git("rev-parse", "paceline/docs/a") == place.base


def test_uncommitted_work_is_removed_only_by_force(repository: TestRepository) -> None:
    place = repository.place("a")
    prepare(place, repository.settings())
    write(f"{place.path}/new.txt", "work")
    with pytest.raises(UncommittedWork, match="has 1 uncommitted change; commit"):
        remove(place, force=False)
    assert snapshot(place.path) == {**FILES, "new.txt": "work"}
    remove(place, force=True)
    assert not os.path.lexists(place.path)


def test_commits_that_are_in_no_branch_are_removed_only_by_force(repository: TestRepository) -> None:
    place = repository.place("a")
    prepare(place, repository.settings())
    git(place.path, "checkout", "-q", "--detach")
    git(place.path, "commit", "-q", "--allow-empty", "-m", "nowhere")
    with pytest.raises(UncommittedWork, match="commits that are not in the branch paceline/docs/a"):
        remove(place, force=False)
    remove(place, force=True)


def test_included_files_are_no_uncommitted_work(repository: TestRepository) -> None:
    repository.write("config.local", "x")
    settings = repository.settings(include=("config.local",))
    place = repository.place("a", settings)
    prepare(place, settings)
    remove(place, force=False)
    assert not os.path.lexists(place.path)


def test_only_files_that_were_included_are_left_out_whatever_the_record_says_later(repository: TestRepository) -> None:
    repository.write("config.local", "x")
    settings = repository.settings(include=("config.local",))
    place = repository.place("a", settings)
    place = msgspec.structs.replace(place, uncommitted=prepare(place, settings).uncommitted)
    write(f"{place.path}/new.txt", "work")
    record = record_file(repository)
    record.write_text(record.read_text().replace('["config.local"]', '["new.txt"]'))
    assert prepare(place, settings).uncommitted == ("config.local",)
    with pytest.raises(UncommittedWork, match="1 uncommitted change"):
        remove(place, force=False)
    commit_all(place, "work")
    assert repository.git("ls-tree", "-r", "--name-only", "paceline/docs/a").split() == [
        ".gitignore",
        "kept.txt",
        "new.txt",
        "src/a.txt",
    ]


def test_a_workspace_that_was_made_but_not_stored_so_is_found_with_its_included_files(
    repository: TestRepository,
) -> None:
    repository.write("config.local", "x")
    settings = repository.settings(include=("config.local",))
    place = repository.place("a", settings)
    made = prepare(place, settings)
    assert made.uncommitted == prepare(place, settings).uncommitted == ("config.local",)


def test_links_where_a_record_goes_are_replaced_and_not_followed(repository: TestRepository, tmp_path: Path) -> None:
    settings = repository.settings()
    place = repository.place("a", settings)
    prepare(place, settings)
    mine = tmp_path / "mine.txt"
    mine.write_text("the user's own")
    record = record_file(repository)
    Path(f"{record}.new").symlink_to(mine)
    finish_setup(place)
    assert mine.read_text() == "the user's own"
    assert not record.is_symlink()
    record.unlink()
    record.symlink_to(mine)
    with pytest.raises(WorkspaceError, match=r"cannot read .*/workspaces/a-"):
        prepare(place, settings)


@pytest.mark.parametrize("force", [False, True])
def test_a_link_in_place_of_the_campaigns_folder_is_not_followed(
    repository: TestRepository, tmp_path: Path, force: bool
) -> None:
    place = repository.place("a")
    prepare(place, repository.settings())
    campaign = Path(place.path).parent
    campaign.rename(tmp_path / "elsewhere")
    campaign.symlink_to(tmp_path / "elsewhere")
    before = snapshot(tmp_path / "elsewhere")
    with pytest.raises(WorkspaceError, match=r"docs is a symbolic link now, to .*elsewhere; what it leads to is left"):
        remove(place, force=force)
    assert snapshot(tmp_path / "elsewhere") == before


def test_a_half_made_workspace_is_removed_without_force(repository: TestRepository) -> None:
    place = repository.place("a")
    os.makedirs(os.path.dirname(place.path))
    half_a_checkout(repository, place)
    remove(place, force=False)
    assert not os.path.lexists(place.path)
    assert entries(repository) == []


def test_read_only_folders_are_removed_too(repository: TestRepository) -> None:
    place = repository.place("a")
    prepare(place, repository.settings())
    write(f"{place.path}/cache/pkg/file", "x")
    os.chmod(f"{place.path}/cache/pkg", 0o500)
    remove(place, force=False)
    assert not os.path.lexists(place.path)


def test_a_workspace_whose_repository_is_gone_is_removed_by_force(repository: TestRepository) -> None:
    place = repository.place("a")
    prepare(place, repository.settings())
    repository.top.rename(f"{repository.top}-moved")
    with pytest.raises(WorkspaceError, match="is gone"):
        remove(place, force=False)
    remove(place, force=True)
    assert not os.path.lexists(place.path)


# Copies.


@pytest.fixture
def copied(tmp_path: Path) -> WorkspaceLocation:
    """The place of a copy of a folder, in a root inside of that folder."""
    source = tmp_path / "data"
    write(source / "a" / "b.txt", "b")
    (source / "link").symlink_to("a/b.txt")
    (source / "dangling").symlink_to("/nowhere")
    (source / "readonly").mkdir(mode=0o500)
    settings = WorkspaceSettings(kind="copy", root=str(source / "workspaces"))
    return location_of(settings, "docs", "a", str(source), tmp_path / "home", UnitResult())


COPY = WorkspaceSettings(kind="copy")
COPIED = {"a/b.txt": "b", "link": "-> a/b.txt", "dangling": "-> /nowhere"}


def test_a_copy_has_everything_but_workspaces_and_sockets(copied: WorkspaceLocation) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        here = os.open(".", os.O_RDONLY)
        os.chdir(copied.repository or "")  # the path of a socket must be short
        try:
            server.bind("socket")
        finally:
            os.fchdir(here)
            os.close(here)
        assert prepare(copied, COPY) == NEW
    assert snapshot(copied.path) == COPIED
    assert sorted(os.listdir(copied.path)) == ["a", "dangling", "link", "readonly"]


def test_a_copy_is_made_once(copied: WorkspaceLocation) -> None:
    prepare(copied, COPY)
    write(f"{copied.path}/a/b.txt", "work")
    assert prepare(copied, COPY) == FOUND
    assert snapshot(copied.path) == {**COPIED, "a/b.txt": "work"}


def copy_record(place: WorkspaceLocation) -> RecordFile:
    return RecordFile(os.path.join(os.path.dirname(place.path), ".paceline"), place)


def test_a_half_made_copy_is_made_again(copied: WorkspaceLocation) -> None:
    os.makedirs(os.path.dirname(copied.path))
    copy_record(copied).write(WorkspaceRecord(path=copied.path))
    write(Path(copied.path).parent / ".a.partial" / "half", "x")
    assert prepare(copied, COPY) == NEW
    assert snapshot(copied.path) == COPIED


def test_a_copy_that_was_whole_before_the_crash_is_kept(copied: WorkspaceLocation) -> None:
    prepare(copied, COPY)
    copy_record(copied).write(WorkspaceRecord(path=copied.path))
    write(f"{copied.path}/more", "x")
    assert prepare(copied, COPY) == NEW
    assert snapshot(copied.path) == {**COPIED, "more": "x"}


def test_a_copy_that_is_gone_is_lost(copied: WorkspaceLocation) -> None:
    prepare(copied, COPY)
    folders_module.delete_folder(copied.path)
    with pytest.raises(WorkspaceLost, match="a copy has no branch"):
        prepare(copied, COPY)
    assert unused_location(copied) == copied
    assert prepare(copied, COPY) == NEW


def test_a_copy_is_removed_only_by_force(copied: WorkspaceLocation) -> None:
    prepare(copied, COPY)
    with pytest.raises(UncommittedWork, match="is a copy, whose changes are nowhere else"):
        remove(copied, force=False)
    remove(copied, force=True)
    assert not os.path.lexists(copied.path)


def test_a_folder_that_vanished_cannot_be_copied(copied: WorkspaceLocation) -> None:
    place = msgspec.structs.replace(copied, repository=f"{copied.repository}-gone")
    with pytest.raises(WorkspaceError, match="data-gone is gone") as raised:
        prepare(place, COPY)
    assert raised.value.is_campaigns

"""The work that a worker does in workspaces for the leader, over real repositories on two machines."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.hosts.two_machines import TwoMachines
from tests.workspaces.conftest import TestRepository, git, snapshot, write

from paceline.errors import (
    InvalidInput,
    NoRoomForSession,
    PacelineError,
    SpoolError,
    StoreError,
    UncommittedWork,
    UnfitHost,
    UnknownName,
    WorkspaceError,
    WorkspaceLost,
)
from paceline.hosts.jobs import (
    OutputPiece,
    error_report,
    make_call,
    read_output,
    read_patch,
    read_result,
    remove_all,
    write_wanted,
)
from paceline.hosts.messages import Call, CallReport
from paceline.workspaces import (
    Change,
    Prepared,
    commit_all,
    commit_and_remove,
    diff,
    finish_setup,
    prepare,
    unused_location,
    write_patch,
)
from paceline.workspaces.merges import FinishedWork, merge_works
from paceline.workspaces.preparation import MOST_BYTES


def mirrors(machines: TwoMachines) -> list[Path]:
    return sorted((machines.home / "repositories").glob("*.git"))


async def test_a_workspace_lives_on_a_host_and_its_branch_comes_to_the_leader(machines: TwoMachines) -> None:
    repository, settings = machines.repository, machines.repository.settings(setup=("make",))
    place = await machines.job(unused_location, machines.place())
    assert place == machines.place()
    assert await machines.job(prepare, place, settings) == Prepared(created=True, needs_setup=True)
    await machines.job(finish_setup, place)
    assert await machines.job(prepare, place, settings) == Prepared(created=False)
    write(f"{place.path}/src/ä b.txt", "new\n")

    change = await machines.job(commit_all, place, "docs: a")

    assert change == Change(commit=repository.git("rev-parse", "paceline/docs/a"), files_changed=1, lines_added=1)
    assert b"".join(diff(place, change.commit)).startswith(b"diff --git a/src/\xc3\xa4 b.txt")
    top = str(repository.top)
    work = FinishedWork(unit="docs/a", repository=top, base=place.base or "", commit=change.commit or "")
    assert merge_works(top, [work]).merged == ("docs/a",)
    assert snapshot(top)["src/ä b.txt"] == "new\n"
    await machines.job(commit_and_remove, place, None)
    assert snapshot(place.path) == {}
    assert [git(mirror, "branch", "--list") for mirror in mirrors(machines)] == [""], "the leader has its commits"


# Where a workspace is made from.


async def test_commits_travel_once_for_all_units(machines: TwoMachines) -> None:
    settings = machines.repository.settings()
    found = [await machines.job(prepare, machines.place(unit), settings) for unit in "abc"]
    assert found == [Prepared(created=True)] * 3
    assert machines.fetched == [()]


async def test_only_new_commits_travel_when_the_repository_has_moved_on(machines: TwoMachines) -> None:
    repository = machines.repository
    first = repository.git("rev-parse", "HEAD")
    await machines.job(prepare, machines.place("a"), repository.settings())
    repository.write("more.txt", "more\n")
    repository.commit("more")
    later = machines.place("b")
    await machines.job(prepare, later, repository.settings())
    assert machines.fetched == [(), (first,)]
    assert snapshot(later.path)["more.txt"] == "more\n"


async def test_a_clone_at_the_same_path_is_used_and_nothing_travels(machines: TwoMachines, tmp_path: Path) -> None:
    clone = machines.clone_on_worker()
    place = machines.place()
    assert await machines.job(prepare, place, machines.repository.settings()) == Prepared(created=True)
    assert (machines.fetched, mirrors(machines)) == ([], [])
    write(f"{place.path}/new.txt", "new\n")
    change = await machines.job(commit_all, place, "docs: a")
    assert machines.repository.git("rev-parse", "paceline/docs/a") == change.commit
    await machines.job(commit_and_remove, place, None)
    assert git(clone, "branch", "--list", "paceline/*") == "paceline/docs/a", "a branch of the user's own clone stays"


async def test_a_clone_that_lacks_the_base_stays_as_it_is(machines: TwoMachines) -> None:
    clone = machines.clone_on_worker()
    machines.repository.write("more.txt", "more\n")
    machines.repository.commit("more")
    before = git(clone, "for-each-ref")
    place = machines.place()
    await machines.job(prepare, place, machines.repository.settings())
    assert snapshot(place.path)["more.txt"] == "more\n"
    assert (git(clone, "for-each-ref"), len(mirrors(machines))) == (before, 1)


async def test_a_workspace_keeps_its_repository_when_a_clone_appears(machines: TwoMachines) -> None:
    place, settings = machines.place(), machines.repository.settings()
    await machines.job(prepare, place, settings)
    write(f"{place.path}/new.txt", "new\n")
    machines.clone_on_worker()
    assert await machines.job(prepare, place, settings) == Prepared(created=False)
    assert (await machines.job(commit_all, place, "docs: a")).files_changed == 1


async def test_a_shallow_repository_of_the_leader_is_enough(machines: TwoMachines) -> None:
    repository = machines.repository
    repository.write("more.txt", "more\n")
    repository.commit("more")
    full = repository.top.with_name("full")
    repository.top.rename(full)
    git(full.parent, "clone", "-q", "--depth=1", f"file://{full}", repository.top.name)
    place = machines.place()
    await machines.job(prepare, place, repository.settings())
    write(f"{place.path}/new.txt", "new\n")
    change = await machines.job(commit_all, place, "docs: a")
    assert repository.git("rev-list", "--count", change.commit or "") == "2"


async def test_a_lost_workspace_is_made_again_from_the_branch_of_the_leader(machines: TwoMachines) -> None:
    place, settings = machines.place(), machines.repository.settings()
    await machines.job(prepare, place, settings)
    write(f"{place.path}/new.txt", "new\n")
    await machines.job(commit_all, place, "docs: a")
    machines.forget_everything()
    assert await machines.job(prepare, place, settings) == Prepared(created=False, was_lost=True)
    assert snapshot(place.path)["new.txt"] == "new\n"


async def test_the_work_of_a_lost_workspace_that_was_never_sent_is_found_in_the_mirror(machines: TwoMachines) -> None:
    place, settings = machines.place(), machines.repository.settings()
    await machines.job(prepare, place, settings)
    write(f"{place.path}/new.txt", "new\n")
    git(place.path, "add", "-A")
    git(place.path, "commit", "-qm", "of the agent")
    machines.delete(place.path)
    machines.clone_on_worker()
    assert await machines.job(prepare, place, settings) == Prepared(created=False, was_lost=True)
    assert snapshot(place.path)["new.txt"] == "new\n"


async def test_a_branch_that_the_leader_has_is_not_continued_by_accident(machines: TwoMachines) -> None:
    machines.repository.git("branch", "paceline/docs/a")
    machines.repository.git("branch", "paceline/docs/a-2/x")
    place = machines.place()
    found = await machines.job(unused_location, place)
    assert found == msgspec.structs.replace(
        place, path=f"{place.path}-3", cwd=f"{place.path}-3", branch="paceline/docs/a-3"
    )


async def test_a_link_that_is_down_for_a_while_costs_only_time(machines: TwoMachines) -> None:
    machines.downs = 3
    preparing = asyncio.ensure_future(machines.job(prepare, machines.place(), machines.repository.settings()))
    await machines.pass_time_until(preparing)
    assert (preparing.result(), machines.downs) == (Prepared(created=True), 0)


async def test_a_worker_gets_no_commits_beyond_its_call(machines: TwoMachines, tmp_path: Path) -> None:
    place = machines.place()
    for work, arguments in ((finish_setup, (place,)), (commit_all, (place, "x")), (read_output, ("a", "stdout", 0, 1))):
        call = make_call("call-1", work, arguments)
        with pytest.raises(InvalidInput, match=r"the call call-1 \(\w+\) needs no commits"):
            write_wanted(call, (), tmp_path / "bundle")
    call = make_call("call-1", prepare, (place, machines.repository.settings()))
    with pytest.raises(InvalidInput, match="has no submodule '0'"):
        write_wanted(call, ("submodule:0",), tmp_path / "bundle")


# What a workspace needs besides commits.


async def test_included_files_travel_and_are_not_committed(machines: TwoMachines) -> None:
    repository = machines.repository
    repository.write(".env", "SECRET=1\n")
    repository.write("local/notes.txt", "mine\n")
    os.chmod(repository.top / ".env", 0o640)
    os.symlink("../.env", repository.top / "local/link")
    os.symlink("/etc/passwd", repository.top / "local/out")
    place, settings = machines.place(), repository.settings(include=(".env", "local"))
    await machines.job(prepare, place, settings)
    found = snapshot(place.path)
    assert {name: found.get(name) for name in (".env", "local/notes.txt", "local/link", "local/out")} == {
        ".env": "SECRET=1\n",
        "local/notes.txt": "mine\n",
        "local/link": "-> ../.env",
        "local/out": None,
    }
    assert os.stat(f"{place.path}/.env").st_mode & 0o777 == 0o640
    assert await machines.job(commit_all, place, "docs: a") == Change()


async def test_too_large_included_files_are_an_error_that_names_them(machines: TwoMachines) -> None:
    machines.repository.write(".env", "x" * (MOST_BYTES + 1))
    with pytest.raises(WorkspaceError, match=r"`include` names in .* take more than 1 MB.*\.env is one of them"):
        await machines.job(prepare, machines.place(), machines.repository.settings(include=(".env",)))


async def test_submodules_travel_also_nested_ones(
    machines: TwoMachines, make_repository: Callable[[str], TestRepository]
) -> None:
    inner, outer = make_repository("inner"), make_repository("outer")
    inner.write("deep.txt", "deep\n")
    inner.commit()
    outer.git("submodule", "add", "-q", "--name", "the inner", str(inner.top), "lib/in")
    outer.commit()
    machines.repository.git("submodule", "add", "-q", str(outer.top), "outer")
    machines.repository.git("submodule", "update", "-q", "--init", "--recursive")
    machines.repository.commit()
    for each in (inner, outer):
        machines.delete(str(each.top))
    place, settings = machines.place(), machines.repository.settings()
    machines.clone_on_worker()  # without its submodules
    await machines.job(prepare, place, settings)
    assert snapshot(place.path)["outer/lib/in/deep.txt"] == "deep\n"
    assert len(machines.fetched) == 3
    await machines.job(prepare, machines.place("b"), settings)
    assert len(machines.fetched) == 3


async def test_commits_on_a_host_have_the_author_of_the_leader(machines: TwoMachines) -> None:
    machines.repository.git("config", "user.name", "Ann Ä")
    machines.repository.git("config", "user.email", "ann@example.org")
    place = machines.place()
    await machines.job(prepare, place, machines.repository.settings())
    write(f"{place.path}/new.txt", "new\n")
    change = await machines.job(commit_all, place, "docs: a")
    assert machines.repository.git("log", "-1", "--format=%an <%ae>", change.commit or "") == "Ann Ä <ann@example.org>"


async def test_a_copy_needs_its_folder_on_the_host(machines: TwoMachines, tmp_path: Path) -> None:
    settings = machines.repository.settings(kind="copy")
    with pytest.raises(WorkspaceError, match=f"this host has no folder {machines.repository.top}, and a copy needs it"):
        await machines.job(prepare, machines.place(settings=settings), settings)
    machines.clone_on_worker()
    place = await machines.job(unused_location, machines.place(settings=settings))
    assert await machines.job(prepare, place, settings) == Prepared(created=True)
    write(f"{place.path}/kept.txt", "changed\n")
    assert await machines.job(commit_all, place, "docs: a") == Change(files_changed=1, lines_added=1, lines_removed=1)


# What comes back.


async def test_a_branch_can_come_by_way_of_a_remote(machines: TwoMachines, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare", "hub.git")
    machines.repository.git("remote", "add", "hub", str(tmp_path / "hub.git"))
    machines.remote = "hub"
    place = machines.place()
    await machines.job(prepare, place, machines.repository.settings())
    write(f"{place.path}/new.txt", "new\n")
    change = await machines.job(commit_all, place, "docs: a")
    assert machines.sent == []
    assert git(tmp_path / "hub.git", "rev-parse", "paceline/docs/a") == change.commit
    assert machines.repository.git("rev-parse", "paceline/docs/a") == change.commit


async def test_a_remote_that_refuses_is_named(machines: TwoMachines, tmp_path: Path) -> None:
    machines.remote = str(tmp_path / "nowhere.git")
    place = machines.place()
    await machines.job(prepare, place, machines.repository.settings())
    write(f"{place.path}/new.txt", "new\n")
    with pytest.raises(WorkspaceError, match=r"branch paceline/docs/a cannot be pushed to .*nowhere\.git: git push"):
        await machines.job(commit_all, place, "docs: a")


async def test_a_unit_that_changed_nothing_sends_nothing(machines: TwoMachines) -> None:
    place = machines.place()
    await machines.job(prepare, place, machines.repository.settings())
    assert await machines.job(commit_all, place, "docs: a") == Change()
    assert machines.sent == []


async def test_later_rounds_send_only_what_is_new(machines: TwoMachines) -> None:
    place = machines.place()
    await machines.job(prepare, place, machines.repository.settings())
    write(f"{place.path}/large.bin", os.urandom(100_000).hex())
    await machines.job(commit_all, place, "docs: a")
    write(f"{place.path}/new.txt", "new\n")
    await machines.job(commit_all, place, "docs: a")
    first, second = machines.sent
    assert second < 2000 < first


async def test_a_failed_unit_is_committed_and_sent_before_its_folder_is_removed(machines: TwoMachines) -> None:
    place = machines.place()
    await machines.job(prepare, place, machines.repository.settings())
    write(f"{place.path}/new.txt", "new\n")
    assert await machines.job(commit_and_remove, place, "docs: a") is None
    assert machines.repository.git("show", "paceline/docs/a:new.txt") == "new"
    assert snapshot(place.path) == {}
    assert await machines.job(commit_and_remove, place, "docs: a") is None, "a second time is harmless"


async def test_uncommitted_work_on_a_host_is_not_removed(machines: TwoMachines) -> None:
    place = machines.place()
    await machines.job(prepare, place, machines.repository.settings())
    write(f"{place.path}/new.txt", "new\n")
    with pytest.raises(UncommittedWork, match=f"{place.path} has 1 uncommitted change"):
        await machines.job(commit_and_remove, place, None)
    assert snapshot(place.path)["new.txt"] == "new\n"


async def test_workspaces_that_nobody_needs_are_removed_together(machines: TwoMachines) -> None:
    places = [machines.place(unit) for unit in "abc"]
    for place in places[:2]:
        await machines.job(prepare, place, machines.repository.settings())
    write(f"{places[1].path}/new.txt", "new\n")
    reason = f"{places[1].path} has 1 uncommitted change; commit, or remove it with `--force`"
    assert await machines.job(remove_all, tuple(places), False) == {places[1].path: reason}
    assert [bool(snapshot(place.path)) for place in places] == [False, True, False]
    assert await machines.job(remove_all, tuple(places), True) == {}
    assert [*(machines.home / "workspaces").iterdir()] == []


async def test_a_patch_is_written_on_the_leader(machines: TwoMachines, tmp_path: Path) -> None:
    place = machines.place()
    await machines.job(prepare, place, machines.repository.settings())
    write(f"{place.path}/new.txt", "new\n")
    file = tmp_path / "patches" / "a.patch"
    await machines.job(write_patch, place, file)
    machines.repository.git("apply", str(file))
    assert snapshot(machines.repository.top)["new.txt"] == "new\n"


async def test_the_change_in_a_workspace_is_read_as_it_is_there(machines: TwoMachines) -> None:
    place = machines.place()
    await machines.job(prepare, place, machines.repository.settings())
    write(f"{place.path}/new.txt", "new\n" * 100)
    piece = await machines.job(read_patch, place, 1000)
    assert piece.data.endswith(b"+new\n")
    assert await machines.job(read_patch, place, 20) == OutputPiece(
        data=piece.data[:20], position=20, is_complete=False
    )


async def test_output_is_read_in_pieces(machines: TwoMachines) -> None:
    folder = machines.spool.create("attempt-1")
    write(f"{folder}/stdout", "0123456789")
    assert await machines.job(read_output, "attempt-1", "stdout", 0, 100) == OutputPiece(
        data=b"0123456789", position=10, is_complete=True
    )
    assert await machines.job(read_output, "attempt-1", "stdout", 4, 100) == OutputPiece(
        data=b"456789", position=10, is_complete=True
    )
    assert (await machines.job(read_output, "attempt-1", "stdout", None, 3)).data == b"789"
    with pytest.raises(UnknownName, match="this host has no output of the attempt attempt-2"):
        await machines.job(read_output, "attempt-2", "stdout", 0, 100)


# Errors.


async def test_a_workspace_that_the_host_does_not_have_is_lost(machines: TwoMachines) -> None:
    with pytest.raises(WorkspaceLost, match="this host has no workspace"):
        await machines.job(commit_all, machines.place(), "docs: a")


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (WorkspaceError("x"), UnfitHost("x")),
        (WorkspaceError("x", is_campaigns=False), WorkspaceError("x", is_campaigns=False)),
        (WorkspaceLost("x"), WorkspaceLost("x")),
        (NoRoomForSession("x"), NoRoomForSession("x")),
        (SpoolError("x"), SpoolError("x")),
        (InvalidInput("x"), InvalidInput("x")),
        (StoreError("x"), UnfitHost("x")),
        (OSError(13, "Not allowed", "/a"), UnfitHost("cannot write /a: Not allowed")),
        (
            OSError(28, "No space left"),
            NoRoomForSession("no workspace can be made now: No space left (a file of the host); free some disk space"),
        ),
        (ZeroDivisionError("x"), UnfitHost("ZeroDivisionError: x")),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_on_the_host_is_the_same_error_on_the_leader_and_blames_that_host_alone(
    raised: Exception, expected: PacelineError
) -> None:
    report = msgspec.json.decode(msgspec.json.encode(error_report("call-1", raised)), type=CallReport)
    call = Call(call_id="call-1", job="finish_setup", arguments=msgspec.Raw(b"null"))
    with pytest.raises(PacelineError) as found:
        read_result(call, report, None)
    assert (type(found.value), str(found.value)) == (type(expected), str(expected))
    assert getattr(found.value, "is_campaigns", None) == getattr(expected, "is_campaigns", None)


async def test_a_job_of_another_version_is_refused_by_name(machines: TwoMachines) -> None:
    arguments = msgspec.Raw(b"[]")
    for call, text in (
        (Call(call_id="1", job="fly", arguments=arguments), "this worker cannot do 'fly'; install the version of"),
        (Call(call_id="1", job="prepare", arguments=arguments), "the arguments of prepare cannot be read"),
        (Call(call_id="1", job="prepare", arguments=msgspec.Raw(b"3")), "the arguments of prepare cannot be read"),
    ):
        report = await machines.runner.run(call)
        assert (report.error, report.text[: len(text)]) == ("WorkspaceError", text)


def test_only_the_jobs_of_the_table_can_be_sent() -> None:
    with pytest.raises(InvalidInput, match="no host can do merge_works; it can do unused_place, prepare"):
        make_call("call-1", merge_works, ("x",))


async def test_a_host_cannot_name_another_repository_branch_or_commit(machines: TwoMachines) -> None:
    place = machines.place()
    other = msgspec.structs.replace(place, branch="main")
    for answer in (
        other,
        msgspec.structs.replace(place, repository="/etc"),
        msgspec.structs.replace(place, path="/etc"),
    ):
        call = make_call("c1", unused_location, (place,))
        report = CallReport(call_id="c1", result=msgspec.Raw(msgspec.json.encode(answer)))
        with pytest.raises(WorkspaceError, match="another place"):
            read_result(call, report, None)
    call = make_call("c2", commit_all, (place, "done"))
    change = msgspec.json.encode(Change(commit="refs/heads/main", files_changed=1))
    with pytest.raises(WorkspaceError, match="not the id of a commit"):
        read_result(call, CallReport(call_id="c2", result=msgspec.Raw(change)), None)

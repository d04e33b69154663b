"""A process that is killed while it makes or uses a workspace, at every call of git."""

import itertools
import os
import shutil
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.workspaces.conftest import TestRepository, git, snapshot, write

from paceline.workspaces import Change, Prepared, WorkspaceLocation, commit_all, prepare, remove

FILES = {".gitignore": ".env\ncache/\n", "kept.txt": "kept\n", "src/a.txt": "one\ntwo\nthree\n", ".env": "x"}
KILLERS = {
    "before": 'kill -9 "$PPID"; exit 1',
    "after": '"$REAL" "$@"; kill -9 "$PPID"',
    "meanwhile": 'kill -9 "$PPID"; sleep 0.2; exec "$REAL" "$@"',  # git continues, late and without us
}
"""How a call of git ends the process that made it."""


def was_killed(folder: Path, how: str, at_call: int, verb: Callable[[], object]) -> bool:
    """Carry out the verb in a process that is killed at its n-th call of git. Return False if it ended before that."""
    script = f"""#!/bin/sh
REAL={shutil.which("git")}
count=$(($(cat {folder}/count) + 1))
echo $count > {folder}/count
if [ $count -eq {at_call} ]; then {KILLERS[how]}; else exec "$REAL" "$@"; fi
"""
    write(folder / "git", script)
    (folder / "git").chmod(0o755)
    write(folder / "count", "0")
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
            verb()
            code = 0
        finally:
            os._exit(code)
    ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert ended in (0, -9)
    return ended == -9


@pytest.mark.parametrize("how", KILLERS)
def test_a_workspace_is_whole_whenever_its_maker_was_killed(
    repository: TestRepository, tmp_path: Path, how: str
) -> None:
    repository.write(".env", "x")
    settings = repository.settings(include=(".env",))
    for call in itertools.count(1):
        place = repository.place(f"unit{call}", settings)
        is_cut = was_killed(tmp_path / "killer", how, call, partial(prepare, place, settings))
        again = prepare(place, settings)
        assert again in (Prepared(created=True), Prepared(created=False))
        assert snapshot(place.path) == FILES
        assert git(place.path, "status", "--porcelain", "--branch") == f"## {place.branch}"
        if not is_cut:
            assert call > 4, "git is called several times"
            break
    assert repository.git("worktree", "list").count("\n") == call


@pytest.mark.parametrize("how", KILLERS)
def test_work_is_committed_once_whenever_the_committer_was_killed(
    repository: TestRepository, tmp_path: Path, how: str
) -> None:
    settings = repository.settings()
    for call in itertools.count(1):
        place = repository.place(f"unit{call}", settings)
        prepare(place, settings)
        write(f"{place.path}/work.txt", "work\n")
        is_cut = was_killed(tmp_path / "killer", how, call, partial(commit_all, place, "work"))
        tip = commit_all(place, "work").commit
        assert commit_all(place, "work") == Change(commit=tip, files_changed=1, lines_added=1)
        assert git(place.path, "log", "--format=%s", f"{place.base}..") == "work"
        if not is_cut:
            break


@pytest.mark.parametrize("how", KILLERS)
def test_a_workspace_is_gone_whenever_its_remover_was_killed(
    repository: TestRepository, tmp_path: Path, how: str
) -> None:
    settings = repository.settings()
    for call in itertools.count(1):
        place = repository.place(f"unit{call}", settings)
        prepare(place, settings)
        is_cut = was_killed(tmp_path / "killer", how, call, partial(remove, place, force=False))
        remove(place, force=False)
        assert not os.path.lexists(place.path)
        assert repository.git("rev-parse", place.branch or "") == place.base
        if not is_cut:
            break
    assert repository.git("worktree", "list").count("\n") == 0


def test_many_threads_make_workspaces_of_one_repository_at_once(repository: TestRepository) -> None:
    settings = repository.settings()
    places = [repository.place(f"unit{number}", settings) for number in range(16)]
    results: dict[str, Prepared] = {}

    def work(place: WorkspaceLocation) -> None:
        results[place.path] = prepare(place, settings)

    threads = [threading.Thread(target=work, args=(place,)) for place in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {place.path: Prepared(created=True) for place in places}
    assert len({git(place.path, "symbolic-ref", "HEAD") for place in places}) == 16

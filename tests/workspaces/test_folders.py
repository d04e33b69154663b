import subprocess
import sys
import threading
from pathlib import Path

import pytest

from paceline.errors import WorkspaceError
from paceline.workspaces.folders import locked

HOLDER = """
import sys
from paceline.workspaces.folders import locked
with locked(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lock_holds_between_processes_and_ends_with_its_holder(tmp_path: Path) -> None:
    file = str(tmp_path / "folder" / "lock")
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(WorkspaceError, match="another process has held"), locked(file, seconds=0.01):
            pass
        process.kill()
    with locked(file, seconds=10):
        pass


def test_a_lock_lasts_as_long_as_a_process_that_inherited_it(tmp_path: Path) -> None:
    file = str(tmp_path / "lock")
    with locked(file) as fd:
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=(fd,))
    with child:
        with pytest.raises(WorkspaceError, match="another process"), locked(file, seconds=0.01):
            pass
        child.kill()
    with locked(file, seconds=10):
        pass


def test_threads_take_turns(tmp_path: Path) -> None:
    file = str(tmp_path / "lock")
    inside: list[int] = []
    most: list[int] = []

    def work() -> None:
        for _ in range(5):
            with locked(file):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 40


def test_a_lock_whose_file_was_removed_is_taken_on_the_new_file(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    with locked(str(file)):
        file.unlink()
        with locked(str(file), seconds=0.01):
            assert file.exists()


def test_a_lock_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkspaceError, match="cannot write"), locked(str(tmp_path / "file" / "lock")):
        pass

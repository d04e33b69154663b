"""Home and spool belong to one user: they are private, foreign ones are refused, and no link is followed."""

import os
import stat
from pathlib import Path

import pytest
from tests.executors.conftest import Sandbox, ended

from paceline.errors import SpoolError
from paceline.executors.process import ProcessExecutor
from paceline.executors.spool import (
    Spool,
    is_locked,
    is_open_to_others,
    is_own_folder,
    make_private,
    read_session_status,
    request_stop,
)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def foreign_folder(path: Path) -> Path:
    """A folder of another user: one that we give away, or one of the system if we cannot."""
    if os.geteuid() != 0:
        return Path("/usr")
    path.mkdir()
    os.chown(path, 65534, -1)
    return path


@pytest.mark.parametrize("mode", [0o755, 0o777, 0o710, 0o701])
def test_a_folder_that_others_can_enter_is_made_private(mode: int, tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    folder.chmod(mode)

    make_private(str(folder))

    assert mode_of(folder) == 0o700
    assert not is_open_to_others(str(folder))


def test_a_new_spool_is_private_under_any_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        spool = Spool(str(tmp_path / "spool"))
        folder = Path(spool.create("a1"))
    finally:
        os.umask(before)

    assert [mode_of(each) for each in (tmp_path / "spool", tmp_path / "spool" / ".settled", folder)] == [0o700] * 3


def test_a_folder_of_somebody_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    folder = foreign_folder(tmp_path / "theirs")
    mode = mode_of(folder)

    with pytest.raises(SpoolError, match=r"belongs to .*, not to you .*; set PACELINE_HOME to a folder of yours"):
        make_private(str(folder))

    assert mode_of(folder) == mode


def test_a_link_in_place_of_the_folder_is_refused_and_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir(mode=0o755)
    mode = mode_of(target)
    (tmp_path / "home").symlink_to(target)

    with pytest.raises(SpoolError, match=f"home is a symbolic link to {target}; set PACELINE_HOME to a folder itself"):
        make_private(str(tmp_path / "home"))

    assert mode_of(target) == mode


async def test_a_planted_attempt_is_nobodys_session(executor: ProcessExecutor, sandbox: Sandbox) -> None:
    """A link to a folder of ours, as another user could have left one while the spool was open to all."""
    await ended(executor, executor.start(sandbox.shell("a1", "true")))
    os.rename(sandbox.spool / "a1", sandbox.work / "elsewhere")
    (sandbox.spool / "fake-1").symlink_to(sandbox.work / "elsewhere")

    assert executor.spool.unarchived() == []
    assert executor.sweep(keep=[]) == {}
    assert executor.adopt("fake-1") is None


def test_an_attempt_of_another_user_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir()

    assert is_own_folder(str(tmp_path / "ours"))
    assert not is_own_folder(str(foreign_folder(tmp_path / "theirs")))


def test_a_stop_request_follows_no_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim.txt"
    victim.write_text("precious")
    folder = tmp_path / "a1"
    folder.mkdir()
    (folder / "stop.tmp").symlink_to(victim)

    request_stop(str(folder), 10.0)

    assert victim.read_text() == "precious"
    assert (folder / "stop").read_text() == "10.0\n"


def test_status_and_lock_are_not_read_through_links(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text('{"phase": "ended", "boot_id": "b", "started_at": 1.0}')
    folder = tmp_path / "a1"
    folder.mkdir()
    (folder / "status.json").symlink_to(tmp_path / "real.json")
    (folder / "lock").symlink_to(tmp_path / "real.json")

    assert read_session_status(str(folder)) is None
    assert not is_locked(str(folder))

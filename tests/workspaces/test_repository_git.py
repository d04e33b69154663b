from pathlib import Path

import pytest
from tests.workspaces.conftest import TestRepository, write

from paceline.errors import NoRoomForSession, WorkspaceError
from paceline.workspaces.repository import GitCall, PlainFolder, run_git, stream_git


@pytest.fixture
def fake_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program named git, whose text the test writes."""
    program = tmp_path / "bin" / "git"
    write(program, "")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return program


def test_a_failure_quotes_git(repository: TestRepository) -> None:
    with pytest.raises(WorkspaceError, match=r"git checkout failed in .*: error: pathspec 'x' did not match"):
        run_git(PlainFolder(str(repository.top)), "checkout", "x")


def test_a_git_that_hangs_is_stopped_with_everything_it_started(fake_git: Path, tmp_path: Path) -> None:
    write(fake_git, "#!/bin/sh\nsleep 1000 | sleep 1000\n")
    with pytest.raises(WorkspaceError, match=r"git status in .* did not end within 0.05 s"):
        run_git(PlainFolder(str(tmp_path)), "status", call=GitCall(seconds=0.05))
    with pytest.raises(WorkspaceError, match="git diff failed"):
        list(stream_git(PlainFolder(str(tmp_path)), "diff", call=GitCall(seconds=0.05)))


def test_git_is_asked_nothing_and_answers_in_english(
    fake_git: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(fake_git, "#!/bin/sh\nenv | grep -E '^(GIT|LC_ALL)' | sort\ncat\n")
    monkeypatch.setenv("GIT_DIR", "/elsewhere")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("GITHUB_TOKEN", "secret")
    assert run_git(PlainFolder(str(tmp_path)), "status", call=GitCall(stdin=b"given")).out.decode().splitlines() == [
        "GIT_ASKPASS=true",
        "GIT_EDITOR=:",
        "GIT_OPTIONAL_LOCKS=0",
        "GIT_SSH_COMMAND=ssh -oBatchMode=yes",
        "GIT_TERMINAL_PROMPT=0",
        "LC_ALL=C",
        "given",
    ]


@pytest.mark.parametrize(
    "said",
    ["fatal: write error: No space left on device", "error: unable to write file large.bin"],
)
def test_a_full_disk_is_no_fault_of_the_campaign(fake_git: Path, tmp_path: Path, said: str) -> None:
    write(fake_git, f"#!/bin/sh\necho '{said}' >&2\nexit 128\n")
    with pytest.raises(NoRoomForSession, match="the disk is full: git reset"):
        run_git(PlainFolder(str(tmp_path)), "reset", "--hard")


def test_output_is_streamed_and_may_be_left_early(fake_git: Path, tmp_path: Path) -> None:
    write(fake_git, "#!/bin/sh\nyes\n")
    pieces = stream_git(PlainFolder(str(tmp_path)), "diff")
    assert next(pieces).startswith(b"y\n")
    pieces.close()  # type: ignore[attr-defined]


def test_a_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match=r"there is no folder .*gone"):
        run_git(PlainFolder(str(tmp_path / "gone")), "status")

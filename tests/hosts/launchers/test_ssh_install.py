"""What a host needs, and what is done there once. The Python of these hosts is a script: no package is installed.

`make test-cluster` installs Paceline for real.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.hosts.ssh_server import SshServer, serve_ssh

from paceline.errors import LaunchFailed
from paceline.hosts.launchers.ssh import SshConnection, install_paceline, installation_id, wheel_bytes, wheel_name

PYTHON = """#!/bin/sh
case "$*" in
  *version_info*) echo @VERSION@ ;;
  "-m venv "*) @VENV@ mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  "-m pip "*) @PIP@ for file; do :; done; cp "$file" "$HOME/received.whl" ;;
esac
"""
"""Stands for a Python: it copies itself as its virtual environments do, and keeps the wheel that pip gets."""
MakePython = Callable[..., None]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SshServer]:
    (tmp_path / "bin").mkdir()
    (tmp_path / "home").mkdir()
    for program in ("sh", "cat", "mkdir", "mv", "rm", "cp", "chmod"):
        (tmp_path / "bin" / program).symlink_to(f"/bin/{program}")
    yield from serve_ssh(tmp_path / "ssh", f"SetEnv PATH={tmp_path / 'bin'} HOME={tmp_path / 'home'}")


@pytest.fixture
def make_python(tmp_path: Path) -> MakePython:
    def make(name: str = "python3", version: str = "3.11", venv: str = "", pip: str = "") -> None:
        path = tmp_path / "bin" / name
        path.write_text(PYTHON.replace("@VERSION@", version).replace("@VENV@", venv).replace("@PIP@", pip))
        path.chmod(0o755)

    return make


def connection(server: SshServer) -> SshConnection:
    return SshConnection("box1", server.destination, server.options)


def test_a_host_gets_what_runs_here_and_only_once(server: SshServer, make_python: MakePython, tmp_path: Path) -> None:
    make_python("python3", version="3.9")
    make_python("python3.12", version="3.12")

    assert install_paceline(connection(server)) is True

    folder = tmp_path / "home" / ".local/share/paceline"
    assert (folder / "venv" / "paceline-id").read_text() == installation_id()
    assert (tmp_path / "home" / "received.whl").read_bytes() == wheel_bytes()
    assert os.listdir(folder) == ["venv"]
    (tmp_path / "home" / "received.whl").unlink()
    assert install_paceline(connection(server)) is False
    assert not (tmp_path / "home" / "received.whl").exists()


def test_another_version_takes_the_place_of_the_present_one(
    server: SshServer, make_python: MakePython, tmp_path: Path
) -> None:
    make_python()
    install_paceline(connection(server))
    folder = tmp_path / "home" / ".local/share/paceline"
    (folder / "venv" / "paceline-id").write_text("0.0.9+old")

    assert install_paceline(connection(server)) is True

    assert (folder / "venv" / "paceline-id").read_text() == installation_id()
    assert (folder / "venv.old" / "paceline-id").read_text() == "0.0.9+old"
    assert wheel_name().startswith("paceline-")


@pytest.mark.parametrize(
    ("python", "words"),
    [
        ({"version": "3.9"}, "needs Python 3.11 or newer there, and it has 3.9; install one"),
        ({"venv": "echo 'ensurepip is not available' >&2; exit 1;"}, "install the package python3-venv"),
        ({"pip": "echo 'No matching distribution found for msgspec' >&2; exit 1;"}, "give it a package index"),
        ({"pip": "echo 'No space left on device' >&2; exit 1;"}, "its disk is full"),
        ({"pip": "echo 'it is raining' >&2; exit 1;"}, "cannot be installed there: it is raining"),
    ],
)
def test_what_is_missing_there_is_named_and_nothing_is_left(
    server: SshServer, make_python: MakePython, tmp_path: Path, python: dict[str, str], words: str
) -> None:
    make_python(**python)

    with pytest.raises(LaunchFailed) as failed:
        install_paceline(connection(server))

    assert "host box1: " in str(failed.value)
    assert words in str(failed.value)
    assert [str(path) for path in (tmp_path / "home").rglob("*") if path.is_file()] == []


def test_a_host_without_python_is_named(server: SshServer) -> None:
    with pytest.raises(
        LaunchFailed, match=r"host box1: Paceline needs Python 3\.11 or newer there, and it has no python3"
    ):
        install_paceline(connection(server))

"""Paceline is installed on a host for real: a virtual environment, the wheel of this installation, and its packages."""

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.hosts.ssh_server import SshServer, serve_ssh

from paceline.hosts.launchers.ssh import SshConnection, SshLauncher, installation_id
from paceline.settings import HostSettings

pytestmark = pytest.mark.cluster


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SshServer]:
    (tmp_path / "home").mkdir()
    yield from serve_ssh(tmp_path / "ssh", f"SetEnv HOME={tmp_path / 'home'}")


def test_a_host_gets_the_installation_that_runs_here_and_only_once(server: SshServer, tmp_path: Path) -> None:
    launcher = SshLauncher(HostSettings(name="box1", ssh=server.destination), server.options)
    assert launcher.is_alive() is False  # nothing is there yet

    assert launcher.install() is True
    assert launcher.install() is False

    folder = tmp_path / "home/.local/share/paceline"
    printed = SshConnection("box1", server.destination, server.options).run(
        f"{folder}/venv/bin/python -m paceline --version"
    )
    assert (folder / "venv/paceline-id").read_text() == installation_id()
    assert [path.name for path in folder.iterdir()] == ["venv"]
    assert launcher.is_alive() is False
    assert (printed.code, printed.output) == (0, f"paceline {version('paceline')}\n")

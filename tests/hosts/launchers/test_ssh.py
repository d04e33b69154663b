"""Workers that are started over ssh, with a real SSH server on the loopback."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.hosts.ssh_server import SshServer, free_port, serve_ssh

from paceline.errors import LaunchFailed
from paceline.hosts.launchers.ssh import SshLauncher
from paceline.settings import HostSettings
from paceline.testing.launcher_contract import LauncherContract, LaunchSite, is_running, until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    """Yield one server for all tests, and beside its keys one that it does not know."""
    for server in serve_ssh(tmp_path_factory.mktemp("server") / "ssh"):
        make_strange = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{server.folder}/strange_key"]
        subprocess.run(make_strange, check=True)
        (server.folder / "no_hosts").touch()
        yield server


def host(server: SshServer, tmp_path: Path, **fields: object) -> HostSettings:
    values = {"ssh": server.destination, "python": sys.executable, "home": str(tmp_path / "worker"), **fields}
    return msgspec.convert({"name": "box1", **values}, HostSettings)


class TestSshLauncher(LauncherContract):
    @pytest.fixture
    def site(self, server: SshServer, tmp_path: Path) -> Iterator[LaunchSite]:
        box = host(server, tmp_path)
        strange, unknown = server.options_with(key="strange_key"), server.options_with(known_hosts="no_hosts")
        site = LaunchSite(
            launcher=lambda: SshLauncher(box, server.options),
            home=tmp_path / "worker",
            troubles=(
                (SshLauncher(box, strange), ("does not accept your key", "ssh-copy-id ssh://127.0.0.1")),
                (SshLauncher(box, unknown), ("its key is not known or has changed", "connect once by hand")),
                (
                    SshLauncher(host(server, tmp_path, ssh=f"ssh://127.0.0.1:{free_port()}"), server.options),
                    ("nothing listens there", "start its SSH server"),
                ),
                (
                    SshLauncher(host(server, tmp_path, ssh="no-such-host.invalid"), server.options),
                    ("its name cannot be resolved", "~/.ssh/config"),
                ),
                (
                    SshLauncher(host(server, tmp_path, python="/no/such/python"), server.options),
                    ("there is no Python with Paceline at /no/such/python", "correct python"),
                ),
                (
                    SshLauncher(host(server, tmp_path, python="/bin/true"), server.options),
                    ("Paceline there did not answer",),
                ),
            ),
        )
        yield site
        site.clear()


def test_a_worker_outlives_the_server_of_its_connection(server: SshServer, tmp_path: Path) -> None:
    launcher = SshLauncher(host(server, tmp_path), server.options)
    site = LaunchSite(launcher=lambda: launcher, home=tmp_path / "worker")
    launcher.start(site.worker)
    until(lambda: len(site.workers()) == 1)
    (worker,) = site.workers()

    server.stop()

    with pytest.raises(LaunchFailed, match="nothing listens there"):
        launcher.is_alive()
    assert is_running(worker.pid)
    server.start()
    assert launcher.is_alive() is True
    site.clear()


def test_without_ssh_on_this_machine_the_error_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(LaunchFailed, match=r"host box1: ssh cannot be run here .*install the OpenSSH client"):
        SshLauncher(HostSettings(name="box1", ssh="box1")).is_alive()


def test_what_a_login_prints_does_not_disturb(
    server: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noisy = tmp_path / "a noisy 'python'"
    noisy.write_text(f"#!/bin/sh\necho Welcome; echo 'paceline: hello'\nexec {sys.executable} \"$@\"\n")
    noisy.chmod(0o755)
    launcher = SshLauncher(host(server, tmp_path, python=str(noisy)), server.options)

    assert launcher.is_alive() is False

"""A real SSH server on the loopback, with keys of its own, for the user who runs the tests."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
CONFIG = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile {folder}/sshd.pid
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
MaxStartups 100:30:200
{extra}
"""


class SshServer:
    """One server. `options` are the arguments with which ssh accepts its key and shows its own."""

    def __init__(self, folder: Path, extra: str = "") -> None:
        self.folder = folder
        self.port = free_port()
        for name in ("host_key", "user_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
        shutil.copy(folder / "user_key.pub", folder / "authorized_keys")
        host_key = (folder / "host_key.pub").read_text()
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {host_key}")
        (folder / "sshd_config").write_text(CONFIG.format(port=self.port, folder=folder, extra=extra))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def destination(self) -> str:
        return f"ssh://127.0.0.1:{self.port}"

    @property
    def options(self) -> tuple[str, ...]:
        return self.options_with()

    def options_with(self, *, key: str = "user_key", known_hosts: str = "known_hosts") -> tuple[str, ...]:
        return (
            *("-F", "none", "-i", str(self.folder / key), "-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none"),
            *("-o", f"UserKnownHostsFile={self.folder / known_hosts}", "-o", "GlobalKnownHostsFile=/dev/null"),
        )

    def start(self) -> None:
        assert SSHD is not None
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # it refuses to start as root without this folder
        arguments = [SSHD, "-D", "-e", "-f", str(self.folder / "sshd_config")]
        log = (self.folder / "sshd.log").open("ab")
        self._process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        log.close()
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert self._process.poll() is None, (self.folder / "sshd.log").read_text()

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def serve_ssh(folder: Path, extra: str = "") -> Iterator[SshServer]:
    """Yield a running server. Skip the test where there is none."""
    if SSHD is None or shutil.which("ssh") is None:
        pytest.skip("there is no sshd: install openssh-server and openssh-client")
    folder.mkdir(mode=0o700)
    server = SshServer(folder, extra)
    server.start()
    try:
        probe = subprocess.run(["ssh", *server.options, server.destination, "true"], capture_output=True, text=True)
        if probe.returncode != 0:  # for example in a namespace without the users that it needs
            pytest.skip(f"sshd does not work here: {probe.stderr.strip()}")
        yield server
    finally:
        server.stop()

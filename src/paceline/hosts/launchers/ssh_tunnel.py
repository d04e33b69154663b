"""The way from a host back to its leader: a port on the host's loopback, forwarded over ssh.

The leader usually listens on its own loopback alone. A worker gets all ports that a tunnel may use, because one that
is cut off may hold its port on the host for minutes. Never here: when a tunnel is opened again (`cli/host_care.py`).
"""

import contextlib
import hashlib
import os
import select
import signal
import subprocess
import tempfile
import time
from typing import Final

from paceline.errors import LaunchFailed
from paceline.hosts.launchers.ssh_connection import CONNECT_SECONDS, SshConnection
from paceline.settings import HostSettings

FIRST_PORT: Final = 20_000
PORTS: Final = 12_000
"""Ports from which those of tunnels are chosen: below those that systems give to connections by themselves."""
CANDIDATES: Final = 3
"""Ports per host: one that works, one that a cut connection still holds, one that another program has."""
READY_SECONDS: Final = CONNECT_SECONDS + 15.0
"""How long a tunnel may take to open: the connection, and a login with a slow profile."""
_READY: Final = "paceline-tunnel-ready"


def tunnel_ports(identity: str, host: str) -> tuple[int, ...]:
    """Return the ports on a host that its tunnels may use, for one leader or one fleet: always the same."""
    digest = hashlib.sha256(f"{identity}\0{host}".encode()).digest()
    first = int.from_bytes(digest[:4]) % PORTS
    return tuple(FIRST_PORT + (first + step * PORTS // CANDIDATES) % PORTS for step in range(CANDIDATES))


class SshTunnel:
    """One tunnel to the address of the leader. It is open as long as its ssh runs, and never longer than this process.

    `leader` is where the leader listens on this machine: `127.0.0.1:7433`.
    """

    def __init__(self, host: HostSettings, ports: tuple[int, ...], leader: str, options: tuple[str, ...] = ()) -> None:
        assert host.ssh is not None
        self._connection = SshConnection(host.name, host.ssh, options)
        self._ports = ports
        self._leader = leader
        self._process: subprocess.Popen[bytes] | None = None
        self.port: int | None = None
        """The port on the host, while the tunnel is open."""

    @property
    def is_open(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def open(self) -> None:
        """Open the tunnel unless it is open. It tries one port after the other. Raise `LaunchFailed` if none works."""
        if self.is_open:
            return
        self.close()
        refused = ""
        for port in self._ports:
            refused = self._try(port)
            if not refused:
                self.port = port
                return
            if "forwarding failed" not in refused:
                break
        if "forwarding failed" not in refused:
            raise LaunchFailed(self._connection.failure(refused))
        ports = ", ".join(str(port) for port in self._ports)
        raise LaunchFailed(
            f"host {self._connection.host}: no tunnel back to the leader can be opened there (ports {ports}): allow "
            "AllowTcpForwarding in its sshd_config, or let the leader listen with TLS and set connect for the host"
        )

    def close(self) -> None:
        process, self._process, self.port = self._process, None, None
        if process is not None:
            _end(process)

    def _try(self, port: int) -> str:
        """Try one port, and return what ssh has printed if it failed.

        The program on the other side reports that the port is open. It ends with its input, so that the tunnel ends
        with this process, also with one that is killed.
        """
        forward = f"127.0.0.1:{port}:{self._leader}"
        argv = self._connection.argv("-T", "-o", "ExitOnForwardFailure=yes", "-R", forward)
        with tempfile.TemporaryFile() as errors:
            try:
                process = subprocess.Popen(
                    [*argv, f"exec sh -c 'echo {_READY}; exec cat >/dev/null'"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    start_new_session=True,
                )
            except OSError as error:
                return f"ssh cannot be run: {error.strerror}"
            if _becomes_ready(process):
                self._process = process
                return ""
            _end(process)
            errors.seek(0)
            return errors.read().decode(errors="replace") or "it timed out"


def _becomes_ready(process: "subprocess.Popen[bytes]") -> bool:
    assert process.stdout is not None
    give_up_at = time.monotonic() + READY_SECONDS
    printed = b""
    while _READY.encode() not in printed:
        left = give_up_at - time.monotonic()
        if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
            return False
        piece = os.read(process.stdout.fileno(), 4096)
        if not piece:
            return False
        printed += piece
    return True


def _end(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()

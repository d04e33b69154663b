"""The way from a host back to its leader, through a real SSH server."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.hosts.ssh_server import SshServer, free_port, serve_ssh

from paceline.errors import LaunchFailed
from paceline.hosts.launchers.ssh import SshTunnel, tunnel_ports
from paceline.settings import HostSettings
from paceline.testing.launcher_contract import until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SshServer]:
    yield from serve_ssh(tmp_path / "ssh")


@pytest.fixture
def leader() -> Iterator[str]:
    """An address at which somebody answers, once per connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"leader")

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def host(server: SshServer) -> HostSettings:
    return HostSettings(name="box1", ssh=server.destination)


def asked(port: int | None) -> bytes:
    assert port is not None
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        return connection.recv(100)


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_worker_reaches_the_leader_through_the_first_free_port(server: SshServer, leader: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        ports = (other.getsockname()[1], free_port())
        tunnel = SshTunnel(host(server), ports, leader, server.options)

        tunnel.open()
        tunnel.open()

        assert tunnel.port == ports[1]
        assert asked(tunnel.port) == b"leader"
        tunnel.close()
        assert not tunnel.is_open
        until(lambda: not is_listening(ports[1]))


def test_a_broken_tunnel_is_noticed_and_opened_again(server: SshServer, leader: str) -> None:
    tunnel = SshTunnel(host(server), (free_port(), free_port()), leader, server.options)
    tunnel.open()
    assert tunnel._process is not None

    os.kill(tunnel._process.pid, signal.SIGKILL)
    until(lambda: not tunnel.is_open)
    tunnel.open()

    assert asked(tunnel.port) == b"leader"
    tunnel.close()


def test_a_tunnel_ends_with_a_leader_that_is_killed(server: SshServer, leader: str) -> None:
    port = free_port()
    script = f"""
import signal
from paceline.hosts.launchers.ssh import SshTunnel
from paceline.settings import HostSettings
tunnel = SshTunnel(HostSettings(name="box1", ssh={server.destination!r}), ({port},), {leader!r}, {server.options!r})
tunnel.open()
print("open", flush=True)
signal.pause()
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        assert asked(port) == b"leader"

        process.kill()

    until(lambda: not is_listening(port))


def test_a_server_that_forwards_nothing_is_named_with_the_fix(tmp_path: Path) -> None:
    for server in serve_ssh(tmp_path / "closed", "AllowTcpForwarding no"):
        with pytest.raises(LaunchFailed) as failed:
            SshTunnel(host(server), (free_port(),), "127.0.0.1:1", server.options).open()

    assert "host box1: no tunnel back to the leader" in str(failed.value)
    assert "AllowTcpForwarding" in str(failed.value)


def test_a_host_that_cannot_be_reached_is_named(server: SshServer) -> None:
    server.stop()

    with pytest.raises(LaunchFailed, match=r"host box1: ssh .* failed, nothing listens there"):
        SshTunnel(host(server), (free_port(),), "127.0.0.1:1", server.options).open()


def test_the_ports_of_a_host_are_always_the_same_and_differ_from_those_of_others() -> None:
    ports = tunnel_ports("fleet-1", "box1")

    assert ports == tunnel_ports("fleet-1", "box1")
    assert len({*ports, *tunnel_ports("fleet-1", "box2"), *tunnel_ports("fleet-2", "box1")}) == 9
    assert all(20_000 <= port < 32_000 for port in ports)

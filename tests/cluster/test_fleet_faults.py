"""Sixty units on two SSH hosts under two engines on one PostgreSQL database, whose leader is killed again and again."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.cli.shell import Shell
from tests.cli.shell import shell as shell
from tests.cluster.cluster_run import PYTHON, ClusterRun, end_tunnels, free_port
from tests.cluster.ssh_servers import SshHosts, ssh_hosts
from tests.postgres_server import running_server
from tests.warm_process import WarmProcess

pytestmark = pytest.mark.cluster
LEASE_SECONDS = 30.0
HOSTS = ("box1", "box2")


class FleetRun(ClusterRun):
    """A run with two engines. `daemon` and `http` are the one that leads."""

    def __init__(self, shell: Shell, settings: str) -> None:
        self.members: list[tuple[WarmProcess, httpx.Client]] = []
        super().__init__(shell, settings, port=free_port())
        self._second = ("--port", str(free_port()))
        self._add_second()

    def _start(self) -> tuple[WarmProcess, httpx.Client]:
        member = super()._start()
        self.members.append(member)
        return member

    def _add_second(self) -> None:
        """Start another engine, with a home of its own."""
        self._up, before = self._second, self._up
        self.shell.env["PACELINE_HOME"], home = f"{self.shell.folder}/home{len(self.members)}", self.shell.home
        self._start()
        self.shell.env["PACELINE_HOME"], self._up = str(home), before

    def kill_leader(self) -> None:
        """Kill the engine that leads, wait until the other one leads, and start a third one."""
        self.daemon.kill()
        self.daemon.communicate()
        self.http.close()
        self.members = [member for member in self.members if member[0] is not self.daemon]
        self.daemon, self.http = self.until(self._leading)
        self._second = ("--port", str(free_port()))
        self._add_second()

    def _leading(self) -> tuple[WarmProcess, httpx.Client] | None:
        for member in self.members:
            with contextlib.suppress(httpx.TransportError, KeyError):
                if member[1].get("/v1/status").json()["engine"]["state"] == "leading":
                    return member
        return None

    def close(self) -> None:
        for daemon, http in self.members:
            http.close()
            daemon.kill()
            daemon.communicate()
        end_tunnels(self.shell.folder)


@pytest.fixture
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    with ssh_hosts(tmp_path_factory.mktemp("ssh"), *HOSTS) as made:
        yield made


@pytest.fixture
def run(shell: Shell, hosts: SshHosts) -> Iterator[FleetRun]:
    with running_server() as server:
        shell.env.update(PATH=f"{hosts.bin}:{shell.env['PATH']}", PACELINE_STORE_URL=server.url)
        made = FleetRun(shell, settings(shell.folder))
        try:
            made.await_hosts(*HOSTS)
            yield made
        finally:
            made.close()


def settings(folder: Path) -> str:
    table = (
        '[hosts.{0}]\nssh = "{0}"\npython = "{1}"\nhome = "{2}/workers/{0}"\nhost_lease = "{3:g}s"\nmax_sessions = 4\n'
    )
    return "".join(table.format(name, PYTHON, folder, LEASE_SECONDS) for name in HOSTS)


def test_another_engine_takes_over_with_all_workers(run: FleetRun, hosts: SshHosts) -> None:
    for _ in range(3):
        run.work()
        run.kill_leader()
    run.work()
    run.kill_worker(hosts["box1"])
    run.check("two engines on PostgreSQL, three kills of the leader and one of a worker")

"""Sixty units on two SSH hosts, while workers, machines, cables and the leader fail."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.shell import Shell
from tests.cli.shell import shell as shell
from tests.cluster.cluster_run import LONG_SESSION, PYTHON, SHORT_SESSION, ClusterRun, cluster_run, free_port
from tests.cluster.ssh_servers import SshHosts, ssh_hosts

pytestmark = pytest.mark.cluster
LEASE_SECONDS = 8.0
HOSTS = ("box1", "box2")


@pytest.fixture
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    with ssh_hosts(tmp_path_factory.mktemp("ssh"), *HOSTS) as made:
        yield made


@pytest.fixture
def beats() -> int:
    return SHORT_SESSION


@pytest.fixture
def run(shell: Shell, hosts: SshHosts, beats: int) -> Iterator[ClusterRun]:
    shell.env["PATH"] = f"{hosts.bin}:{shell.env['PATH']}"
    with cluster_run(shell, settings(shell.folder), port=free_port(), beats=beats) as made:
        made.await_hosts(*HOSTS)
        yield made


def settings(folder: Path) -> str:
    table = (
        '[hosts.{0}]\nssh = "{0}"\npython = "{1}"\nhome = "{2}/workers/{0}"\nhost_lease = "{3:g}s"\nmax_sessions = 4\n'
    )
    return "".join(table.format(name, PYTHON, folder, LEASE_SECONDS) for name in HOSTS)


def test_workers_and_the_leader_are_killed(run: ClusterRun, hosts: SshHosts) -> None:
    run.work()
    run.kill_worker(hosts["box1"])
    run.work()
    run.kill_leader()
    run.work()
    run.kill_worker(hosts["box2"], awaits_next=False)
    run.kill_leader()
    run.check("ssh, kills of workers and of the leader")


@pytest.mark.parametrize("beats", [LONG_SESSION])
def test_a_cable_is_cut_for_less_and_for_more_than_the_lease(run: ClusterRun, hosts: SshHosts) -> None:
    run.work()
    hosts["box1"].cut()
    run.pass_time(LEASE_SECONDS / 3)
    hosts["box1"].mend()
    run.work()
    hosts["box2"].cut()
    run.pass_time(3 * LEASE_SECONDS)
    hosts["box2"].mend()
    run.check("ssh, a cable cut for less and for more than the lease")
    assert run.figures().restarts > 0


def test_a_machine_dies_and_boots_again_and_another_one_never_returns(run: ClusterRun, hosts: SshHosts) -> None:
    run.work()
    hosts["box1"].kill()
    run.pass_time(2.0)
    hosts.reboot("box1")
    run.work(2 * 6)
    run.await_hosts("box1")
    hosts["box2"].kill()
    run.check("ssh, a machine rebooted and another one gone", most_repeated=2)

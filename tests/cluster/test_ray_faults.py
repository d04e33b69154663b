"""Sixty units on two nodes of a real Ray, while workers, nodes, links, Ray itself and the leader fail."""

import os
import signal
from collections.abc import Iterator

import pytest
from tests.cli.shell import Shell
from tests.cli.shell import shell as shell
from tests.cluster.cluster_run import LONG_SESSION, PYTHON, ClusterRun, cluster_run, free_port
from tests.cluster.ray_cluster import RayCluster, ray_cluster

pytestmark = pytest.mark.cluster
LEASE_SECONDS = 8.0
HOSTS = ("r2", "r3")


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    with ray_cluster(tmp_path_factory.mktemp("ray")) as made:
        yield made


@pytest.fixture
def run(shell: Shell, cluster: RayCluster) -> Iterator[ClusterRun]:
    port, address = free_port(), cluster.network.address
    table = (
        '[hosts.{0}]\nray = "auto"\nray_python = "{6}"\npython = "{1}"\nhome = "{2}/workers/{0}"\n'
        'host_lease = "{3:g}s"\nmax_sessions = 4\nconnect = "http://{4}:{5}"\n'
    )
    values = (PYTHON, shell.folder, LEASE_SECONDS, address, port, cluster.python_on("r1"))
    settings = f'[api]\nhosts = ["{address}"]\n' + "".join(table.format(name, *values) for name in HOSTS)
    with cluster_run(shell, settings, port=port, beats=LONG_SESSION, up=("--host", "0.0.0.0", "--insecure")) as made:
        made.await_hosts(*HOSTS)
        yield made


def test_workers_actors_nodes_links_and_the_leader_fail(run: ClusterRun, cluster: RayCluster) -> None:
    run.work()
    run.await_session("r2")
    cluster["r2"].kill()
    run.pass_time(2.0)
    cluster.reboot("r2")
    run.kill_leader()
    run.work()
    cluster["r3"].cut()
    run.pass_time(LEASE_SECONDS / 3)
    cluster["r3"].mend()
    run.work()
    for actor in cluster["r3"].pids("ray::HostAgent"):
        os.kill(actor, signal.SIGKILL)
    run.kill_worker(cluster["r3"])
    run.check("Ray, kills of a node, of the leader, of an actor and of a worker, and a cut link", most_repeated=1)
    run.await_hosts(*HOSTS)
    assert run.figures().restarts > 0

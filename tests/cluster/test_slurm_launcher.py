"""Pilot jobs in a real Slurm of three nodes."""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.cluster.launch_sites import RemoteSite
from tests.cluster.slurm_cluster import NODES, REQUEUE_SECONDS, SlurmCluster, slurm_cluster
from tests.fleet import until

from paceline.errors import LaunchFailed
from paceline.hosts.launchers.slurm import SlurmLauncher, read_state
from paceline.settings import HostSettings
from paceline.testing.launcher_contract import LauncherContract, LaunchSite, stand_in_start

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with slurm_cluster(tmp_path_factory.mktemp("slurm")) as made:
        yield made


@pytest.fixture
def home(tmp_path: Path, cluster: SlurmCluster) -> Iterator[Path]:
    yield tmp_path / "worker"
    cluster.run("scancel", "--me")
    until(lambda: cluster.run("squeue", "-h") == "")


def launcher_of(cluster: SlurmCluster, home: Path, **options: str) -> SlurmLauncher:
    host = HostSettings(name="box1", home=str(home), slurm={"partition": "p", "time": "60:00", **options})
    return SlurmLauncher(host, {**os.environ, **cluster.env})


def site_of(cluster: SlurmCluster, home: Path) -> RemoteSite:
    nowhere = SlurmLauncher(HostSettings(name="box1", home=str(home), slurm={}), {"PATH": "/nowhere"})
    return RemoteSite(
        [cluster[node] for node in NODES],
        launcher=lambda: launcher_of(cluster, home),
        worker=stand_in_start("box1", home),
        troubles=(
            (launcher_of(cluster, home, partition="zzz"), ("invalid partition specified: zzz",)),
            (launcher_of(cluster, home, nonsense="1"), ("unrecognized option", "--nonsense=1")),
            (nowhere, ("squeue is not installed here", "a machine that submits jobs")),
        ),
    )


class TestSlurmLauncher(LauncherContract):
    @pytest.fixture
    def site(self, cluster: SlurmCluster, home: Path) -> LaunchSite:
        return site_of(cluster, home)


def test_a_pilot_whose_node_died_runs_again_on_another_one(cluster: SlurmCluster, home: Path) -> None:
    site = site_of(cluster, home)
    site.launcher().start(site.worker)
    until(lambda: site.workers())
    state = read_state(home)
    assert state is not None

    cluster[state.node].kill()
    until(lambda: (now := read_state(home)) is not None and now.node != state.node, REQUEUE_SECONDS)

    until(lambda: len(site.workers()) == 1)
    assert site.launcher().is_alive()
    cluster.reboot(state.node)
    cluster.await_nodes(state.node)


def test_a_cancelled_pilot_is_not_alive_and_the_next_one_starts(cluster: SlurmCluster, home: Path) -> None:
    site = site_of(cluster, home)
    site.launcher().start(site.worker)
    until(lambda: site.workers())

    cluster.run("scancel", "--me")
    until(lambda: not site.launcher().is_alive())

    site.launcher().start(site.worker)
    until(lambda: len(site.workers()) == 1)


def test_a_worker_knows_when_its_allocation_ends_and_a_successor_waits(cluster: SlurmCluster, home: Path) -> None:
    launcher = launcher_of(cluster, home, time="5:00")
    site = site_of(cluster, home)
    launcher.start(site.worker)
    (worker,) = until(lambda: site.workers())
    assert "SLURM_JOB_END_TIME=" in Path(f"/proc/{worker.pid}/environ").read_text()
    assert not launcher.is_alive()  # its time is nearly up, so

    launcher.start(site.worker)

    assert launcher.is_alive()
    states = cluster.run("squeue", "-h", "--me", "-o", "%T %r").splitlines()
    assert sorted(states) == ["PENDING Dependency", "RUNNING None"]
    assert len(site.stand_ins()) == 1

    cluster.run("scancel", "--batch", "--signal=TERM", f"--nodelist={read_node(home)}", "--me")
    until(lambda: len(site.stand_ins()) == 2 and len(site.workers()) == 1)


def test_a_pilot_that_cannot_start_is_reported_with_its_log(cluster: SlurmCluster, home: Path) -> None:
    worker = stand_in_start("box1", home)
    host = HostSettings(name="box1", home=str(home), slurm={}, python="/no/such/python")
    broken = SlurmLauncher(host, {**os.environ, **cluster.env})
    broken.start(worker)
    until(lambda: not broken.is_alive())

    with pytest.raises(LaunchFailed, match=r"host box1: job .* ended before its worker started: .*/no/such/python"):
        broken.start(msgspec.structs.replace(worker))


def read_node(home: Path) -> str:
    state = read_state(home)
    assert state is not None
    return state.node

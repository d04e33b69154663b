"""Workers on the nodes of a real Ray cluster."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.launch_sites import RemoteSite
from tests.cluster.ray_cluster import NODES, RayCluster, ray_cluster
from tests.fleet import until

from paceline.errors import LaunchFailed
from paceline.hosts.launchers.ray_nodes import RayLauncher
from paceline.settings import HostSettings
from paceline.testing.launcher_contract import LauncherContract, LaunchSite, is_running, stand_in_start

pytestmark = pytest.mark.cluster
NODE_LOSS_SECONDS = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    with ray_cluster(tmp_path_factory.mktemp("ray")) as made:
        yield made


def site_of(cluster: RayCluster, home: Path, node: str = "r2") -> RemoteSite:
    def launcher(**fields: str) -> RayLauncher:
        known = {"ray": "auto", "ray_node": node, "ray_python": str(cluster.python_on("r1")), "home": str(home)}
        return RayLauncher(HostSettings(name="box1", **{**known, **fields}), os.environ)  # type: ignore[arg-type]

    return RemoteSite(
        [cluster[name] for name in NODES],
        launcher=launcher,
        worker=stand_in_start("box1", home),
        troubles=(
            (launcher(ray_node="r9"), ("Ray has no node r9", "set ray_node to one of its nodes: r1, r2, r3")),
            (launcher(ray_python="/bin/false"), ("/bin/false ended with exit code 1",)),
            (launcher(ray_python="/no/python"), ("/no/python cannot be run", "set ray_python to a Python with Ray")),
            (launcher(python="/no/python"), ("/no/python is not there", "name its Python with `python`")),
            (launcher(ray="127.0.0.1:1"), ("nothing answers at 127.0.0.1:1", "correct `ray`")),
        ),
    )


@pytest.fixture
def site(cluster: RayCluster, tmp_path: Path) -> Iterator[RemoteSite]:
    made = site_of(cluster, tmp_path / "worker")
    yield made
    for each in made.stand_ins():
        for pid in (each.pid, each.session):
            if is_running(pid):
                os.kill(pid, signal.SIGKILL)


class TestRayLauncher(LauncherContract):
    @pytest.fixture
    def site(self, site: RemoteSite) -> LaunchSite:
        return site


def test_a_worker_outlives_its_actor_and_all_of_ray_on_its_node(cluster: RayCluster, site: RemoteSite) -> None:
    site.launcher().start(site.worker)
    (worker,) = until(lambda: site.workers())

    for actor in cluster["r2"].pids("ray::HostAgent"):
        os.kill(actor, signal.SIGKILL)
    assert site.launcher().is_alive()

    for text in ("raylet/raylet", "ray::", "ray.scripts.scripts start"):
        for process in cluster["r2"].pids(text):
            os.kill(process, signal.SIGKILL)
    until(lambda: "r2" not in cluster.live_nodes(), NODE_LOSS_SECONDS)
    assert (is_running(worker.pid), is_running(worker.session)) == (True, True)

    cluster.serve("r2")
    until(lambda: "r2" in cluster.live_nodes(), NODE_LOSS_SECONDS)
    assert site.launcher().is_alive()
    site.launcher().stop()
    assert (is_running(worker.pid), is_running(worker.session)) == (False, True)


def test_a_lost_node_has_no_worker_and_is_named(cluster: RayCluster, tmp_path: Path) -> None:
    site = site_of(cluster, tmp_path / "worker", node="r3")
    site.launcher().start(site.worker)
    until(lambda: site.workers())

    cluster["r3"].kill()
    until(lambda: "r3" not in cluster.live_nodes(), NODE_LOSS_SECONDS)

    assert not site.launcher().is_alive()
    with pytest.raises(LaunchFailed, match="host box1: the node r3 of Ray is lost; start Ray there again"):
        site.launcher().start(site.worker)
    cluster.reboot("r3")
    until(lambda: "r3" in cluster.live_nodes(), NODE_LOSS_SECONDS)
    site.launcher().start(site.worker)
    assert site.launcher().is_alive()


def test_the_worker_gets_the_environment_of_the_node_and_not_that_of_ray(cluster: RayCluster, site: RemoteSite) -> None:
    site.launcher().start(site.worker)
    (worker,) = until(lambda: site.workers())

    variables = Path(f"/proc/{worker.pid}/environ").read_bytes().split(b"\0")

    names = {variable.partition(b"=")[0].decode() for variable in variables}
    assert {name for name in names if name.startswith("RAY_") or name == "CUDA_VISIBLE_DEVICES"} == set()

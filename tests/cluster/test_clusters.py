"""The clusters of these tests work: SSH, Slurm and Ray, each with several machines."""

import time
from pathlib import Path

import pytest
from tests.cluster.machines import run
from tests.cluster.ray_cluster import ray_cluster
from tests.cluster.slurm_cluster import slurm_cluster
from tests.cluster.ssh_servers import ssh_hosts
from tests.fleet import until

pytestmark = pytest.mark.cluster


def test_ssh_hosts_answer_by_their_names(tmp_path: Path) -> None:
    with ssh_hosts(tmp_path, "box1", "box2") as hosts:
        for name in ("box1", "box2"):
            assert run(str(hosts.bin / "ssh"), name, "hostname") == f"{name}\n"


def test_slurm_runs_a_job_again_whose_node_died(tmp_path: Path) -> None:
    begun = time.monotonic()
    with slurm_cluster(tmp_path) as cluster:
        ready = time.monotonic() - begun
        assert cluster.run("srun", "-w", "w2", "hostname") == "w2\n"
        job = cluster.run("sbatch", "--parsable", f"--chdir={tmp_path}", "--wrap", "sleep 600").strip()

        def node() -> str:
            return cluster.run("squeue", "-h", "-j", job, "-o", "%T %N").strip()

        until(lambda: node() == "RUNNING w1")
        killed = time.monotonic()
        cluster["w1"].kill()
        until(lambda: "w1" not in node())
        print(
            f"\nSlurm: ready in {ready:.1f} s, a job of a dead node queued again in {time.monotonic() - killed:.1f} s"
        )
        cluster.reboot("w1")
        cluster.await_nodes("w1")


def test_ray_sees_three_nodes_and_the_loss_of_one(tmp_path: Path) -> None:
    begun = time.monotonic()
    with ray_cluster(tmp_path) as cluster:
        print(f"\nRay: three nodes in {time.monotonic() - begun:.1f} s")
        assert set(cluster.live_nodes()) == {"r1", "r2", "r3"}
        killed = time.monotonic()
        cluster["r3"].kill()
        until(lambda: set(cluster.live_nodes()) == {"r1", "r2"})
        print(f"Ray: a dead node was seen after {time.monotonic() - killed:.1f} s")
        cluster.reboot("r3")
        until(lambda: set(cluster.live_nodes()) == {"r1", "r2", "r3"})

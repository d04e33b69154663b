"""A real Ray of three machines from the environment .venv-ray: `r1`, which is the head, `r2` and `r3`."""

import contextlib
import json
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.machines import Machine, MachineNetwork, answers, machines
from tests.fleet import ROOT, until

NODES = ("r1", "r2", "r3")
PORT = 6379
START_SECONDS = 120.0
ENVIRONMENT = ROOT / ".venv-ray"
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_worker_niceness": "0",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "3000",
    "RAY_health_check_failure_threshold": "5",
}
LIST_NODES = """\
import json, ray
ray.init(address="{address}", log_to_driver=False, logging_level="ERROR")
print(json.dumps({{node["NodeManagerHostname"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}}))
"""


class RayCluster:
    """The cluster, and the Python that has Ray."""

    def __init__(self, folder: Path, network: MachineNetwork, scratch: Path) -> None:
        self.folder = folder
        self.scratch = scratch
        self.network = network
        self.python = str(ENVIRONMENT / "bin" / "python")
        self.address = f"{network['r1'].address}:{PORT}"

    def __getitem__(self, name: str) -> Machine:
        return self.network[name]

    def serve(self, node: str) -> None:
        """Start Ray on a node that has booted."""
        machine = self.network[node]
        place = (
            ("--head", f"--port={PORT}", "--include-dashboard=false")
            if node == "r1"
            else (f"--address={self.address}",)
        )
        size = ("--num-cpus=2", "--object-store-memory=80000000", f"--resources={json.dumps({node: 1})}")
        machine.serve(
            self.python, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats", *place, *size,
            f"--node-ip-address={machine.address}", *((f"--temp-dir={self.scratch}",) if node == "r1" else ()),
            log=self.folder / f"{node}.log", **QUIET,
        )  # fmt: skip
        if node == "r1":
            answers(machine, PORT)

    def reboot(self, node: str) -> None:
        self.network[node].start()
        self.serve(node)

    def python_on(self, node: str) -> Path:
        """Return a program on the real machine that is the Python with Ray on a node."""
        program = self.folder / f"python-{node}"
        program.write_text(f'#!/bin/sh\nexec {shlex.join(self.network[node].inside([self.python]))} "$@"\n')
        program.chmod(0o755)
        return program

    def live_nodes(self) -> dict[str, str]:
        """Return the address of each live node by its name, as a driver on the head sees them."""
        program = LIST_NODES.format(address=self.address)
        said = self.network["r1"].run(self.python, "-c", program, **QUIET)
        return dict(json.loads(next(line for line in said.splitlines() if line.startswith("{"))))


@contextlib.contextmanager
def ray_cluster(folder: Path) -> Iterator[RayCluster]:
    """Start the cluster. Everything of it ends with the block."""
    if not (ENVIRONMENT / "bin" / "ray").exists():
        pytest.fail(f"{ENVIRONMENT} has no Ray; run scripts/cluster.sh")
    # Ray makes its sockets below this folder, and their names must be short.
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as scratch, contextlib.ExitStack() as stack:
        network = stack.enter_context(machines(folder, *NODES, private=[Path(scratch)]))
        cluster = RayCluster(folder, network, Path(scratch))
        for node in NODES:
            cluster.serve(node)
        until(lambda: len(cluster.live_nodes()) == len(NODES), START_SECONDS)
        yield cluster

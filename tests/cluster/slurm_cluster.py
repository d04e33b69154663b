"""A real Slurm of three nodes: munged and slurmctld on the machine `n0`, slurmd on `w1`, `w2` and `w3`."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.machines import Machine, MachineNetwork, machines, run
from tests.fleet import until

REQUEUE_SECONDS = 120.0
"""How long it may take until Slurm runs the job of a dead node again."""
NODES = ("w1", "w2", "w3")
CONFIGURATION = """\
ClusterName=t
SlurmctldHost=n0({controller})
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/run/munge.sock,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/run/ctld.pid
SlurmdPidFile={folder}/run/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1
ReturnToService=2
SlurmdTimeout=10
SlurmctldTimeout=10
KillWait=2
MinJobAge=300
{nodes}
PartitionName=p Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class SlurmCluster:
    """The cluster, and the variables with which `sbatch` and the like find it."""

    def __init__(self, folder: Path, network: MachineNetwork) -> None:
        self.folder = folder
        self.network = network
        self.env = {"SLURM_CONF": str(folder / "slurm.conf")}
        for name in ("run", "state", *(f"spool-{node}" for node in NODES)):
            (folder / name).mkdir()
        (folder / "run").chmod(0o755)
        (folder / "munge.key").write_bytes(b"k" * 64)
        (folder / "munge.key").chmod(0o600)
        nodes = [f"NodeName={node} NodeAddr={network[node].address} CPUs=2 State=UNKNOWN" for node in NODES]
        text = CONFIGURATION.format(folder=folder, controller=network["n0"].address, nodes="\n".join(nodes))
        (folder / "slurm.conf").write_text(text)

    def __getitem__(self, name: str) -> Machine:
        return self.network[name]

    def start(self) -> None:
        run_folder, controller = self.folder / "run", self.network["n0"]
        munged = ("munged", "--foreground", "--force", "--key-file", f"{self.folder}/munge.key")
        files = ("--socket", f"{run_folder}/munge.sock", "--pid-file", f"{run_folder}/munged.pid")
        seed = ("--seed-file", f"{run_folder}/munged.seed", "--log-file", f"{run_folder}/munged.log")
        controller.serve(*munged, *files, *seed, log=self.folder / "munged.log")
        until((run_folder / "munge.sock").exists)
        controller.serve("slurmctld", "-D", log=self.folder / "slurmctld.log", **self.env)
        for node in NODES:
            self.serve(node)
        self.await_nodes(*NODES)

    def serve(self, node: str) -> None:
        """Start the slurmd of a node that has booted."""
        self.network[node].serve("slurmd", "-D", "-N", node, log=self.folder / f"slurmd-{node}.log", **self.env)

    def reboot(self, node: str) -> None:
        self.network[node].start()
        self.serve(node)

    def run(self, *argv: str) -> str:
        """Run a program of Slurm on the real machine."""
        return run(*argv, **self.env)

    def states(self) -> dict[str, str]:
        """Return the state of each node, such as `idle`."""
        with contextlib.suppress(AssertionError):  # the controller does not answer yet
            return dict(line.split() for line in self.run("sinfo", "-hN", "-o", "%N %T").splitlines())
        return {}

    def await_nodes(self, *nodes: str) -> None:
        until(lambda: all(self.states().get(node) in ("idle", "mixed", "allocated") for node in nodes))


@contextlib.contextmanager
def slurm_cluster(folder: Path) -> Iterator[SlurmCluster]:
    """Start the cluster. Everything of it ends with the block."""
    missing = [program for program in ("munged", "slurmctld", "slurmd", "sbatch") if shutil.which(program) is None]
    if missing:
        pytest.fail(f"{', '.join(missing)} not found; run scripts/cluster.sh")
    with machines(folder, "n0", *NODES) as network:
        cluster = SlurmCluster(folder, network)
        cluster.start()
        yield cluster

"""Sixty units in pilot jobs of a real Slurm, while workers, nodes, links and the leader fail."""

from collections.abc import Iterator

import pytest
from tests.cli.shell import Shell
from tests.cli.shell import shell as shell
from tests.cluster.cluster_run import CAMPAIGN, PYTHON, ClusterRun, cluster_run, free_port
from tests.cluster.machines import Machine
from tests.cluster.slurm_cluster import REQUEUE_SECONDS, SlurmCluster, slurm_cluster

from paceline.hosts.launchers.slurm import read_state

pytestmark = pytest.mark.cluster
LEASE_SECONDS = 8.0
CLAUDE = """\
#!/bin/sh
[ "$1" = --version ] && exec echo "2.1.0 (Claude Code)"
id="conversation-$PACELINE_ATTEMPT" kind=new
while [ $# -gt 0 ]; do [ "$1" = --resume ] && id=$2 kind=resumed; shift; done
echo '{"type":"system","subtype":"init","session_id":"'$id'","apiKeySource":"none","model":"claude-opus-4-6"}'
echo '{"type":"assistant","session_id":"'$id'","message":{"content":[{"type":"text","text":"working"}]}}'
echo "$PACELINE_UNIT $kind $id $(hostname)" >>"$HOME/conversations"
[ $kind = resumed ] || exec sleep 600
echo '{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"ok","session_id":"'$id'",\
"usage":{"input_tokens":5,"output_tokens":7}}'
"""
"""A stand-in for the CLI. A new conversation never ends by itself; one that is resumed does."""
HOSTS = ("pilot1", "pilot2")


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with slurm_cluster(tmp_path_factory.mktemp("slurm")) as made:
        yield made


@pytest.fixture
def run(shell: Shell, cluster: SlurmCluster) -> Iterator[ClusterRun]:
    tools = shell.folder / "bin"
    tools.mkdir()
    (tools / "claude").write_text(CLAUDE)
    (tools / "claude").chmod(0o755)
    (shell.folder / ".claude").mkdir()
    (shell.folder / ".claude" / ".credentials.json").write_text("{}")
    shell.env.update(cluster.env, PATH=f"{tools}:{shell.env['PATH']}")
    port, address = free_port(), cluster.network.address
    table = (
        '[hosts.{0}]\nslurm = {{ partition = "p", time = "2:00:00" }}\npython = "{1}"\nhome = "{2}/workers/{0}"\n'
        'host_lease = "{3:g}s"\nmax_sessions = 4\nconnect = "http://{4}:{5}"\n'
    )
    hosts = "".join(table.format(name, PYTHON, shell.folder, LEASE_SECONDS, address, port) for name in HOSTS)
    settings = f'[api]\nhosts = ["{address}"]\n{hosts}'
    with cluster_run(shell, settings, port=port, up=("--host", "0.0.0.0", "--insecure")) as made:
        made.await_hosts(*HOSTS)
        yield made


def node_of(run: ClusterRun, cluster: SlurmCluster, host: str) -> Machine:
    """Return the node on which the pilot of the host runs."""
    state = read_state(run.shell.folder / "workers" / host)
    assert state is not None
    return cluster[state.node]


def test_workers_nodes_links_and_the_leader_fail(run: ClusterRun, cluster: SlurmCluster) -> None:
    run.work()
    run.kill_worker(node_of(run, cluster, "pilot1"))
    run.work()
    run.kill_leader()
    run.work()
    cut = node_of(run, cluster, "pilot2")
    cut.cut()
    run.pass_time(LEASE_SECONDS / 3)
    cut.mend()
    run.work()
    run.await_session("pilot1")
    lost = node_of(run, cluster, "pilot1")
    lost.kill()
    run.check("Slurm, kills of a worker, of the leader and of a node, and a cut link", most_repeated=1)
    run.until(lambda: node_of(run, cluster, "pilot1") is not lost, REQUEUE_SECONDS)  # Slurm runs the pilot elsewhere
    run.await_hosts(*HOSTS)


def test_a_pilot_that_is_warned_hands_its_units_to_the_next_one(run: ClusterRun, cluster: SlurmCluster) -> None:
    run.work()
    for _ in range(2):
        for host in HOSTS:
            state = read_state(run.shell.folder / "workers" / host)
            assert state is not None
            cluster.run("scancel", "--batch", "--signal=TERM", state.job)
        run.work()
    run.check("Slurm, four pilots warned that their time is up")


def test_conversations_are_resumed_by_the_next_pilot_on_another_node(
    run: ClusterRun, cluster: SlurmCluster, shell: Shell
) -> None:
    shell.run("cancel", CAMPAIGN)
    units = [f"talk/u{number}" for number in range(4)]
    lines = ['[campaign]\nname = "talk"\nagent = "claude"\nhosts = ["pilot1"]']
    lines += [f'[[unit]]\nid = "u{number}"\nprompt = "x"' for number in range(len(units))]
    (shell.folder / "talk.toml").write_text("\n".join(lines))
    shell.run("add", "talk.toml")

    def conversations(kind: str) -> dict[str, tuple[str, str]]:
        """The id and the node of each conversation, by its unit."""
        path = shell.folder / "conversations"
        found = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return {unit: (identity, node) for unit, how, identity, node in found if how == kind}

    run.until(lambda: set(conversations("new")) == set(units))
    state = read_state(shell.folder / "workers" / "pilot1")
    assert state is not None
    cluster.run("scontrol", "update", f"nodename={state.node}", "state=drain", "reason=test")
    cluster.run("scancel", "--batch", "--signal=TERM", state.job)
    run.until(lambda: set(conversations("resumed")) == set(units))

    before, after = conversations("new"), conversations("resumed")
    assert {unit: found[0] for unit, found in after.items()} == {unit: found[0] for unit, found in before.items()}
    assert {found[1] for found in before.values()}.isdisjoint({found[1] for found in after.values()})
    run.until(lambda: [unit["state"] for unit in run.units("talk")] == ["done"] * len(units))
    assert [unit["attempts"] for unit in run.units("talk")] == [0] * len(units)
    print("\nSlurm, four conversations resumed by the next pilot on another node, 0 attempts charged")

"""Other machines in paceline.toml: what is read, and what is refused with its place and the fix."""

import pytest

from paceline.errors import InvalidInput
from paceline.settings import HostSettings, MachineTable
from paceline.settings.host_fields import make_host

from .conftest import Load, Refused


def test_a_host_has_a_way_to_start_its_worker_and_what_it_may_run(load: Load) -> None:
    found = load(
        """
        [hosts.box1]
        ssh = "user@box1"
        max_sessions = 8
        labels = ["gpu", "big", "gpu"]
        host_lease = "5m"
        min_free_memory = "2GB"
        connect = "https://leader.example.com:7433/"
        git_remote = "git@example.com:team/repository.git"
        [hosts.pilot]
        slurm = { partition = "long", nodes = 1, exclusive = true }
        [hosts.pods]
        command = ["kubectl", "apply", "-f", "{home}/{name}.yaml"]
        alive = ["kubectl", "get", "pod", "{name}"]
        home = "~/work"
        [hosts.by-hand]
        [machine]
        min_free_memory = "500MB"
        max_load = 4
        """
    )

    assert found.hosts == {
        "box1": HostSettings(
            name="box1",
            ssh="user@box1",
            max_sessions=8,
            labels=("gpu", "big"),
            host_lease=300.0,
            min_free_memory=2_000_000_000,
            connect="https://leader.example.com:7433",
            git_remote="git@example.com:team/repository.git",
        ),
        "pilot": HostSettings(name="pilot", slurm={"partition": "long", "nodes": "1", "exclusive": ""}),
        "pods": HostSettings(
            name="pods",
            command=("kubectl", "apply", "-f", "{home}/{name}.yaml"),
            alive=("kubectl", "get", "pod", "{name}"),
            home="~/work",
        ),
        "by-hand": HostSettings(name="by-hand"),
    }
    assert found.machine == MachineTable(min_free_memory=500_000_000, max_load=4.0)
    assert [host.launcher for host in found.hosts.values()] == ["ssh", "slurm", "command", None]


def test_the_leaders_own_machine_can_be_kept_free(load: Load) -> None:
    found = load('[hosts.local]\nmax_sessions = 0\nlabels = ["mac"]\nmin_free_memory = "1GB"')

    assert found.hosts == {
        "local": HostSettings(name="local", max_sessions=0, labels=("mac",), min_free_memory=1_000_000_000)
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '[hosts.a]\nssh = "b"\nray = "auto"',
            "paceline.toml:3: hosts.a has ssh and ray: a worker is started in one way",
        ),
        ("[hosts.a]\nmax_sessions = 0", "paceline.toml:2: hosts.a.max_sessions = 0: must be at least 1"),
        ('[hosts.local]\nssh = "b"', "paceline.toml:2: hosts.local is the leader's own machine, which needs no worker"),
        ('[hosts."-a"]', "paceline.toml:1: '-a' cannot name a host: use up to 63 letters"),
        ('[hosts."a/b"]', "paceline.toml:1: 'a/b' cannot name a host"),
        ('[hosts."a#b"]', "paceline.toml:1: 'a#b' cannot name a host"),
        ('[hosts.".."]', "paceline.toml:1: '..' cannot name a host"),
        ('[hosts.a]\nssh = "-oProxyCommand=x"', "paceline.toml:2: hosts.a.ssh = "),
        ('[hosts.a]\nssh = "b c"', "must be what ssh connects to"),
        ('[hosts.a]\nssh = "b:22"', 'must have its port in a URL: "ssh://b:22"'),
        ("[hosts.a]\nslurm = 1", "must be a table of options for sbatch"),
        ('[hosts.a]\nslurm = { "--time" = 1 }', "write it without dashes"),
        ('[hosts.a]\nslurm = { wrap = "a\\nb" }', "wrap must be text on one line"),
        ('[hosts.a]\nslurm = { job_name = "x" }', "job_name is set by Paceline; remove it"),
        ("[hosts.a]\nslurm = { nodes = 2 }", "a host is one node; write one [hosts.NAME] for each"),
        ('[hosts.a]\nray = "head"', 'must be "auto" or the address of a Ray cluster'),
        ("[hosts.a]\ncommand = []", "must be a list of texts"),
        ('[hosts.a]\ncommand = ["x", "{token}"]', "has {token}, which means nothing; there are {name}, {url}"),
        ('[hosts.a]\nalive = ["x"]', "hosts.a.alive belongs to a host with command"),
        ('[hosts.a]\npython = "/usr/bin/python3"', "hosts.a.python belongs to a host with ssh or slurm or ray"),
        ('[hosts.a]\nssh = "b"\nray_node = "c"', "hosts.a.ray_node belongs to a host with ray"),
        ('[hosts.a]\nray = "auto"\nray_node = "a b"', "must be the name, the address or the id of a node of Ray"),
        ('[hosts.a]\nray = "auto"\nray_python = "python3"', "must be a Python with Ray that begins with / or ~/"),
        ('[hosts.a]\nconnect = "leader:7433"', "must be the address by which the host reaches the leader"),
        ('[hosts.a]\nhome = "work"', "must be a folder on the host that begins with / or ~/"),
        ('[hosts.a]\nlabels = "gpu"', 'must be a list of names, such as ["gpu"]'),
        ('[hosts.a]\nlabels = ["a b"]', 'has "a b": a label has letters'),
        ('[hosts.a]\nhost_lease = "1s"', 'must be at least "5s"'),
        ('[hosts.a]\nmin_free_memory = "much"', "must be a size"),
        ('[hosts.a]\ngit_remote = "-x"', "must be a remote of git"),
        ('[hosts.a]\ngit_remote = "https://u:p@example.com/r"', "hosts.a.git_remote contains a password"),
        ('[hosts.a]\nsssh = "b"', 'unknown key hosts.a.sssh; did you mean "ssh"?'),
        ("[hosts]\na = 1", "hosts.a must be a table"),
        ("[machine]\nmax_load = 0", "machine.max_load = 0: must be a load above 0"),
        ("[machine]\nmemory = 1", "unknown key machine.memory"),
    ],
)
def test_a_wrong_host_is_refused_with_its_place_and_the_fix(refused: Refused, text: str, said: str) -> None:
    mistakes = refused(text)

    assert len(mistakes) == 1
    assert said in mistakes[0]


def test_a_password_is_not_shown(refused: Refused) -> None:
    assert "hunter" not in refused('[hosts.a]\ngit_remote = "https://u:hunter@example.com/r"')[0]


def test_a_host_of_the_command_line_is_checked_by_the_same_rules() -> None:
    assert make_host("box1", {"ssh": "box1", "labels": ["gpu"]}) == HostSettings(
        name="box1", ssh="box1", labels=("gpu",)
    )
    with pytest.raises(InvalidInput, match='ssh = "-x": must be what ssh connects to'):
        make_host("box1", {"ssh": "-x"})
    with pytest.raises(InvalidInput, match="'a b' cannot name a host"):
        make_host("a b", {})

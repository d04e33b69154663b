"""`hosts`: adding, listing and removing other machines, without a daemon."""

import os
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Workspace, finish, read_until

from paceline.agents.account import login_on
from paceline.daemon.home import open_home
from paceline.hosts.messages import known_hosts
from paceline.settings import HostSettings


def stored() -> dict[str, HostSettings]:
    with open_home() as home:
        return known_hosts(home.store)


def test_a_host_without_a_launcher_is_added_with_the_command_to_run_there(workspace: Workspace) -> None:
    printed = workspace.run(
        "hosts", "add", "box1", "--max-sessions", "8", "--label", "gpu", "--host-lease", "5m"
    ).stdout

    token = (workspace.home / "hosts/box1/token").read_text().strip()
    assert stored() == {"box1": HostSettings(name="box1", max_sessions=8, labels=("gpu",), host_lease=300.0)}
    assert printed.splitlines()[:4] == [
        "added box1",
        "On that machine, install Paceline, and run:",
        f"  (umask 077; echo {token} > ~/paceline-token)",
        "  paceline worker --connect http://127.0.0.1:7433 --token-file ~/paceline-token",
    ]
    assert "listens on its own machine only" in printed
    assert token.startswith("box1.")
    assert workspace.run("hosts", "token", "box1").stdout.strip() == token


def test_the_address_that_a_host_is_given_is_printed(workspace: Workspace) -> None:
    printed = workspace.run("hosts", "add", "box1", "--connect", "https://leader.example:7433").stdout

    assert "paceline worker --connect https://leader.example:7433 --token-file" in printed
    assert "listens on its own machine only" not in printed


def test_hosts_are_listed_as_they_were_stored_last(workspace: Workspace) -> None:
    assert "`paceline hosts add NAME --ssh user@host` adds one" in workspace.run("hosts").stdout
    workspace.run("hosts", "add", "box1", "--max-sessions", "8", "--label", "gpu")

    printed = workspace.run("hosts").stdout
    found = workspace.run_json("hosts")

    assert printed.splitlines()[0].split() == [
        "host",
        "state",
        "sessions",
        "free",
        "memory",
        "logins",
        "agents",
        "heard",
    ]
    assert printed.splitlines()[1].split() == ["box1", "absent", "0/8"]
    assert "No daemon answers" in printed
    assert found["is_live"] is False
    assert [(each["name"], each["presence"], each["labels"]) for each in found["hosts"]] == [
        ("box1", "absent", ["gpu"])
    ]


def test_a_host_with_a_command_waits_for_a_daemon(workspace: Workspace) -> None:
    words = "systemd-run --user paceline worker --connect {url} --token-file {token_file}"

    printed = workspace.run("hosts", "add", "box1", "--command", words, "--alive", "true").stdout

    assert printed == "added box1\n`paceline up` starts its worker (command systemd-run).\n"
    assert stored()["box1"].command == tuple(words.split())


def test_a_host_of_slurm_has_its_options(workspace: Workspace) -> None:
    workspace.run("hosts", "add", "pilot", "--slurm", "partition=long", "--slurm", "exclusive")

    assert stored()["pilot"].slurm == {"partition": "long", "exclusive": ""}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("box 1",), "'box 1' cannot name a host"),
        (("local",), "local is the leader's own machine: write [hosts.local] in paceline.toml"),
        (("box1", "--ssh", "a", "--ray", "auto"), "hosts.box1 has ssh and ray"),
        (("box1", "--ssh=-oProxyCommand=x"), "must be what ssh connects to"),
        (("box1", "--command", "a 'b"), "is not a command: No closing quotation"),
        (("box1", "--command", "a {token}"), "has {token}, which means nothing"),
        (("box1", "--max-sessions", "0"), "must be at least 1"),
        (("box1", "--host-lease", "soon"), "must be a duration"),
        (("box1", "--connect", "leader"), "must be the address by which the host reaches the leader"),
    ],
)
def test_wrong_options_are_refused_and_add_nothing(workspace: Workspace, options: tuple[str, ...], said: str) -> None:
    assert said in workspace.run("hosts", "add", *options, code=2).stderr
    assert stored() == {}
    assert not (workspace.home / "hosts").exists()


def test_a_host_that_cannot_be_reached_is_not_added(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    script = workspace.write("ssh", "#!/bin/sh\necho 'Permission denied (publickey).' >&2\nexit 255\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{workspace.folder}:{os.environ['PATH']}")

    failed = workspace.run("hosts", "add", "box1", "--ssh", "user@box1", code=1)

    assert "host box1: ssh user@box1 failed, it does not accept your key" in failed.stderr
    assert "ssh-copy-id user@box1" in failed.stderr
    assert stored() == {}


def test_a_known_host_is_changed_only_on_purpose(workspace: Workspace) -> None:
    workspace.run("hosts", "add", "box1")
    token = workspace.run("hosts", "token", "box1").stdout

    refused = workspace.run("hosts", "add", "box1", "--max-sessions", "2", code=2).stderr
    assert "there is a host box1 already: `paceline hosts add box1 --update ...` changes it" in refused
    workspace.run("hosts", "add", "box1", "--max-sessions", "2", "--update")

    assert stored() == {"box1": HostSettings(name="box1", max_sessions=2)}
    assert workspace.run("hosts", "token", "box1").stdout == token


def test_a_host_of_the_file_is_changed_in_the_file(workspace: Workspace) -> None:
    file = workspace.write("paceline.toml", "[pool]\nsessions = 2\n\n[hosts.box1]\nmax_sessions = 2\n")

    for argv in (("add", "box1"), ("remove", "box1")):
        refused = workspace.run("hosts", *argv, code=2).stderr
        assert f"box1 is in {file}:4: change [hosts.box1] there" in refused
    assert workspace.run_json("hosts")["hosts"][0]["max_sessions"] == 2
    assert workspace.run("hosts", "token", "box1").stdout.startswith("box1.")


def test_a_removed_host_is_forgotten_and_its_token_refused(workspace: Workspace) -> None:
    stopped = workspace.folder / "stopped"
    stop = f"{sys.executable} -c \"open('{stopped}', 'w')\""
    workspace.run("hosts", "add", "box1", "--command", "true", "--stop", stop)

    removed = workspace.run_json("hosts", "remove", "box1")

    assert removed == {"ok": True, "name": "box1", "tokens_revoked": 1, "problem": None}
    assert stopped.exists()
    assert stored() == {}
    assert workspace.run_json("token", "--list") == {"tokens": []}
    refused = workspace.run("hosts", "remove", "box1", code=2).stderr
    assert "there is no host 'box1'" in refused
    assert "there is no host 'box1'" in workspace.run("hosts", "token", "box1", code=2).stderr


def test_a_worker_that_cannot_be_stopped_does_not_keep_its_host(workspace: Workspace) -> None:
    workspace.run("hosts", "add", "box1", "--command", "true", "--stop", "no-such-program")

    printed = workspace.run("hosts", "remove", "box1").stdout

    assert printed.startswith("removed box1: its token is refused from now on\nIts worker could not be stopped")
    assert stored() == {}


def test_a_host_with_running_units_is_kept_unless_forced(workspace: Workspace) -> None:
    workspace.run("hosts", "add", "box1")
    workspace.run("add", workspace.plan("true", "a", "b"))
    with open_home() as home:
        login = login_on("", "box1")
        home.store.claim_units("docs", login, 1, attempt_ids=["x-1"], lease_until=9e9, now=1.0)

    refused = workspace.run("hosts", "remove", "box1", code=2).stderr
    assert "1 units run on box1 (docs/a): wait for them or cancel them; --force removes the host" in refused
    assert list(stored()) == ["box1"]

    workspace.run("hosts", "remove", "box1", "--force")
    assert stored() == {}


def test_adding_and_removing_is_in_the_audit(workspace: Workspace) -> None:
    workspace.run("hosts", "add", "box1")
    workspace.run("hosts", "remove", "box1")

    lines = workspace.run("events", "--audit").stdout
    assert [line.partition("(cli): ")[2] for line in lines.splitlines()] == [
        "add host box1",
        "create token host:box1",
        "remove host box1",
        "revoke token host:box1",
    ]


def test_a_damaged_home_of_a_host_is_named(workspace: Workspace, tmp_path: Path) -> None:
    workspace.run("hosts", "add", "box1")
    (workspace.home / "hosts/box1/token").chmod(0o644)

    assert "can be read by others (mode 644)" in workspace.run("hosts", "token", "box1", code=2).stderr


def test_an_engine_in_the_foreground_starts_no_worker(workspace: Workspace) -> None:
    engine = workspace.start("run", workspace.plan("while [ ! -e go ]; do sleep 0.05; done", "a"))
    read_until(engine, "started docs/a")

    said = workspace.run("hosts", "add", "box1", "--command", "true").stdout
    (workspace.folder / "go").touch()
    finish(engine)

    assert said.startswith("added box1\n`paceline up` starts its worker")

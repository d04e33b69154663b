"""Machines with a real sshd, and an `ssh` that knows them: `ssh box1` just works, as on a person's machine."""

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.cluster.machines import Machine, MachineNetwork, answers, machines, run

PORT = 2222
SERVER = """\
Port 2222
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
StrictModes no
UsePAM no
PermitRootLogin yes
PasswordAuthentication no
PidFile none
UseDNS no
"""
CLIENT = """\
Host *
  User root
  Port 2222
  IdentityFile {folder}/user_key
  IdentitiesOnly yes
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
  ConnectTimeout 5
"""


class SshHosts:
    """Machines that take SSH connections. `bin` holds an `ssh` with the right keys, for PATH."""

    def __init__(self, folder: Path, network: MachineNetwork) -> None:
        self.folder = folder
        self.network = network
        self.bin = folder / "bin"
        for key in ("host_key", "user_key"):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key))
        (folder / "sshd_config").write_text(SERVER.format(folder=folder))
        names = [f"Host {machine.name}\n  HostName {machine.address}" for machine in network.machines.values()]
        (folder / "ssh_config").write_text("\n".join([*names, CLIENT.format(folder=folder)]))
        self.bin.mkdir()
        for program in ("ssh", "scp"):
            real = shutil.which(program)
            (self.bin / program).write_text(f'#!/bin/sh\nexec {real} -F {folder}/ssh_config "$@"\n')
            (self.bin / program).chmod(0o755)

    def __getitem__(self, name: str) -> Machine:
        return self.network[name]

    def serve(self, name: str) -> None:
        """Start the sshd of a machine that has booted."""
        machine = self.network[name]
        machine.run("mkdir", "-p", "/run/sshd")
        machine.serve("/usr/sbin/sshd", "-D", "-e", "-f", f"{self.folder}/sshd_config", log=self.folder / f"{name}.log")
        answers(machine, PORT)

    def reboot(self, name: str) -> None:
        self.network[name].start()
        self.serve(name)


@contextlib.contextmanager
def ssh_hosts(folder: Path, *names: str, private: Sequence[Path] = ()) -> Iterator[SshHosts]:
    """Boot machines with these names, each with an sshd. Each has its own `private` folders."""
    if not Path("/usr/sbin/sshd").exists():
        pytest.fail("sshd is not installed; run scripts/cluster.sh")
    with machines(folder, *names, private=private) as network:
        hosts = SshHosts(folder, network)
        for name in names:
            hosts.serve(name)
        yield hosts

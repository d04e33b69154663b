"""Machines on one machine: each has its own network, processes, name and mounts, and a cable that can be pulled.

A machine is a process namespace whose first process ends when this process does, and with it everything that runs
there. So `Machine.kill` is what a power failure is, and a test that is killed leaves no process behind. What can be
left are names of networks; the next run removes those whose owner has gone.
"""

import contextlib
import ipaddress
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from tests.fleet import until

COMMAND_SECONDS = 120.0
PREFIX = "pacet"
NETWORK = "10.123.{}.0/24"
NEEDED_PROGRAMS = ("ip", "unshare", "nsenter")
INIT = """\
import os, select, signal
signal.signal(signal.SIGCHLD, lambda *_: None)
wake, signalled = os.pipe()
os.set_blocking(signalled, False)
signal.set_wakeup_fd(signalled, warn_on_full_buffer=False)
print("ready", flush=True)
while True:
    ready, _, _ = select.select([0, wake], [], [])
    if 0 in ready and not os.read(0, 1):
        break
    os.read(wake, 4096)
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
"""
"""The first process of a machine: it reaps orphans, and ends when its standard input does."""


def run(*argv: str, **env: str) -> str:
    """Run a program, and return what it prints."""
    done = subprocess.run(
        argv, env={**os.environ, **env}, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
    )
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stdout}{done.stderr}"
    return done.stdout


class Machine:
    """One machine. `start` boots it, `kill` is a power failure, `cut` pulls its cable."""

    def __init__(self, network: "MachineNetwork", name: str, address: str, binds: Mapping[Path, Path]) -> None:
        self.name = name
        self.address = address
        self._namespace = f"{network.prefix}-{name}"
        self._binds = binds
        self._unshare: subprocess.Popen[str] | None = None
        self._services: list[subprocess.Popen[bytes]] = []
        cable = f"{network.prefix}{address.rpartition('.')[2]}"
        run("ip", "netns", "add", self._namespace)
        run(
            "ip",
            "link",
            "add",
            cable,
            "netns",
            network.switch,
            "type",
            "veth",
            "peer",
            "eth0",
            "netns",
            self._namespace,
        )
        run("ip", "-n", network.switch, "link", "set", cable, "master", "br0", "up")
        run("ip", "-n", self._namespace, "addr", "add", f"{address}/24", "dev", "eth0")
        run("ip", "-n", self._namespace, "link", "set", "eth0", "up")
        run("ip", "-n", self._namespace, "link", "set", "lo", "up")

    @property
    def is_up(self) -> bool:
        return self._unshare is not None and self._unshare.poll() is None

    @property
    def _first_pid(self) -> str:
        assert self._unshare is not None
        pid = self._unshare.pid
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0]

    def start(self) -> None:
        """Boot it. Its own files and folders are in place of those of the real machine."""
        lines = [f"mount --bind '{ours}' '{place}'" for place, ours in self._binds.items()]
        script = "\n".join(["set -e", f"hostname {self.name}", *lines, 'exec "$@"'])
        spaces = ("--pid", "--fork", "--kill-child=SIGKILL", "--mount", "--mount-proc", "--uts")
        # Not `ip netns exec`: it mounts another /sys, without the cgroups that slurmd looks for.
        self._unshare = subprocess.Popen(
            [
                "nsenter",
                f"--net=/run/netns/{self._namespace}",
                "unshare",
                *spaces,
                "sh",
                "-c",
                script,
                "sh",
                sys.executable,
                "-I",
                "-c",
                INIT,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._unshare.stdout is not None
        assert self._unshare.stdout.readline() == "ready\n"

    def inside(self, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs `argv` on this machine."""
        return ["nsenter", "--target", self._first_pid, "--net", "--pid", "--mount", "--uts", "--", *argv]

    def run(self, *argv: str, **env: str) -> str:
        return run(*self.inside(argv), **env)

    def serve(self, *argv: str, log: Path, **env: str) -> None:
        """Start a service. It ends with the machine."""
        with log.open("ab") as output:
            service = subprocess.Popen(
                self.inside(argv), env={**os.environ, **env}, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        self._services.append(service)

    def pids(self, text: str) -> list[int]:
        """Return the processes (as the real machine numbers them) whose command line contains the text."""
        found = []
        for folder in self._processes():
            with contextlib.suppress(OSError):
                if text in (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"):
                    found.append(int(folder.name))
        return found

    def real_pid(self, pid: int) -> int | None:
        """Return the number that a process of this machine has on the real machine; None if it is gone."""
        for folder in self._processes():
            with contextlib.suppress(OSError, StopIteration):
                lines = (folder / "status").read_text().splitlines()
                if next(line for line in lines if line.startswith("NSpid:")).split()[-1] == str(pid):
                    return int(folder.name)
        return None

    def _processes(self) -> Iterator[Path]:
        space = os.readlink(f"/proc/{self._first_pid}/ns/pid")
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.readlink(folder / "ns/pid") == space:
                    yield folder

    def kill(self) -> None:
        """End all its processes at once, as a power failure does."""
        if self._unshare is None:
            return
        try:
            os.kill(int(self._first_pid), signal.SIGKILL)  # the kernel then kills all others, before this one is gone
        except (OSError, IndexError):
            self._unshare.kill()
        self._unshare.communicate(timeout=COMMAND_SECONDS)
        for service in self._services:
            service.wait(COMMAND_SECONDS)
        self._services = []

    def cut(self) -> None:
        run("ip", "-n", self._namespace, "link", "set", "eth0", "down")

    def mend(self) -> None:
        run("ip", "-n", self._namespace, "link", "set", "eth0", "up")


class MachineNetwork:
    """A switch, machines on it, and a cable to the real machine, which is `address` there."""

    def __init__(self, folder: Path, names: Sequence[str], private: Sequence[Path] = ()) -> None:
        self.prefix = f"{PREFIX}{os.getpid()}"
        self.switch = f"{self.prefix}-sw"
        self._uplink = f"{self.prefix}up"
        addresses = [str(each) for each in ipaddress.ip_network(NETWORK.format(os.getpid() % 250)).hosts()]
        self.address = addresses[0]
        self.machines: dict[str, Machine] = {}
        hosts = folder / "hosts"
        named = dict(zip(names, addresses[9:], strict=False))
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in named.items())]
        hosts.write_text("\n".join(lines) + "\n")
        try:
            self._make_switch()
            for name, address in named.items():
                binds = {place: folder / f"{name}-{number}" for number, place in enumerate(private)}
                for ours in binds.values():
                    ours.mkdir(exist_ok=True)
                self.machines[name] = Machine(self, name, address, {Path("/etc/hosts"): hosts, **binds})
        except BaseException:
            self.close()
            raise

    def _make_switch(self) -> None:
        run("ip", "netns", "add", self.switch)
        run("ip", "-n", self.switch, "link", "add", "br0", "type", "bridge")
        run("ip", "-n", self.switch, "link", "set", "br0", "up")
        run("ip", "link", "add", self._uplink, "type", "veth", "peer", "up0", "netns", self.switch)
        run("ip", "-n", self.switch, "link", "set", "up0", "master", "br0", "up")
        run("ip", "addr", "add", f"{self.address}/24", "dev", self._uplink)
        run("ip", "link", "set", self._uplink, "up")

    def __getitem__(self, name: str) -> Machine:
        return self.machines[name]

    def close(self) -> None:
        """End all machines, and remove all names."""
        for machine in self.machines.values():
            machine.kill()
        subprocess.run(["ip", "link", "del", self._uplink], capture_output=True, check=False)
        remove_networks(self.prefix)


def remove_networks(prefix: str) -> None:
    for line in run("ip", "netns", "list").splitlines():
        name = line.split()[0]
        if name.startswith(f"{prefix}-"):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def remove_leftovers() -> None:
    """Remove the networks of test processes that were killed."""
    for line in run("ip", "netns", "list").splitlines():
        owner = line.split()[0].removeprefix(PREFIX).partition("-")[0]
        if line.startswith(PREFIX) and owner.isdigit() and not Path(f"/proc/{owner}").exists():
            remove_networks(f"{PREFIX}{owner}")


@contextlib.contextmanager
def machines(folder: Path, *names: str, private: Sequence[Path] = ()) -> Iterator[MachineNetwork]:
    """Boot machines with these names. Everything they are made of ends with the block.

    They share all files but the `private` folders: there each has its own, which are kept when it boots again.
    """
    missing = [program for program in NEEDED_PROGRAMS if shutil.which(program) is None]
    if os.geteuid() != 0 or missing:
        pytest.fail(f"machines in namespaces need root{' and ' + ', '.join(missing) if missing else ''}")
    remove_leftovers()
    network = MachineNetwork(folder, names, private)
    try:
        for machine in network.machines.values():
            machine.start()
        yield network
    finally:
        network.close()


def answers(machine: Machine, port: int, patience: float = COMMAND_SECONDS) -> None:
    """Wait until something listens on the port."""
    until(lambda: f":{port} " in machine.run("ss", "-Htln"), patience)

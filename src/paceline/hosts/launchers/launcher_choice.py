"""The launcher of a host, by its settings."""

from collections.abc import Mapping
from pathlib import Path

from paceline.executors.private_folder import make_private
from paceline.hosts.launchers.command import CommandLauncher
from paceline.hosts.launchers.interface import WorkerLauncher
from paceline.hosts.launchers.ray_nodes import RayLauncher
from paceline.hosts.launchers.slurm import SlurmLauncher
from paceline.hosts.launchers.ssh import SshLauncher
from paceline.settings import HostSettings


def launcher_of(host: HostSettings, folder: Path, environ: Mapping[str, str]) -> WorkerLauncher | None:
    """Return what starts the worker of the host; None if a person does it.

    `folder` is private to the host, in the home of the leader. `environ` is the leader's.
    """
    match host.launcher:
        case "ssh":
            return SshLauncher(host)
        case "slurm":
            return SlurmLauncher(host, environ)
        case "ray":
            return RayLauncher(host, environ)
        case "command":
            make_private(str(folder))
            return CommandLauncher(host, folder, environ)
        case _:
            return None

"""Hosts as commands see them: what the daemon knows of them now, how they reach it, and where they are configured."""

from paceline.api.tokens import HOST_FOLDER
from paceline.cli.daemon_address import ALL_INTERFACES, daemon_url, fleet_url
from paceline.cli.live_state import asking
from paceline.cli.wiring import Home
from paceline.client.home_daemon import LOOPBACK
from paceline.config_files.documents import Mistakes, read_toml
from paceline.engine.hosts.stored_hosts import stored_host_states
from paceline.errors import InvalidInput
from paceline.hosts.launchers.interface import WorkerLauncher
from paceline.hosts.launchers.launcher_choice import launcher_of
from paceline.settings import HostSettings
from paceline.views.hosts import Hosts, HostView, host_views


def read_hosts(home: Home) -> tuple[list[HostView], bool]:
    """Return the hosts, and whether a daemon has said so. Without one, they are as they were stored last."""
    with asking(home) as ask:
        answer = None if ask is None else ask("/v1/hosts")
    found = None if answer is None else answer.decoded(Hosts)
    if found is not None:
        return found.hosts, True
    return host_views(stored_host_states(home.store, home.settings.hosts)), False


def refuse_configured(home: Home, name: str) -> None:
    """Raise `InvalidInput` if paceline.toml has the host: there it must be changed."""
    file = home.settings.file
    if name in home.settings.hosts and file is not None:
        document = read_toml(file, Mistakes())
        place = file if document is None else document.place(("hosts", name))
        raise InvalidInput(f"{name} is in {place}: change [hosts.{name}] there, and start the engine again")


def worker_url(home: Home, host: HostSettings) -> str:
    """Return the address by which a worker reaches the leader that a person starts."""
    if host.connect is not None:
        return host.connect
    api = home.settings.api
    return daemon_url(home) if api.host not in ALL_INTERFACES else fleet_url(api.host, api.port, api)


def is_only_local(url: str) -> bool:
    """Return whether only programs on the leader's own machine can use the address."""
    return any(f"//{name}:" in url or f"//[{name}]:" in url for name in LOOPBACK)


def host_launcher(home: Home, host: HostSettings) -> WorkerLauncher | None:
    """Return what starts the worker of the host from this home."""
    return launcher_of(host, home.path / HOST_FOLDER / host.name, home.environ)

"""How the leader of a home and its hosts reach each other, and what commands see of hosts."""

from paceline.api.tokens import HOST_FOLDER, host_token_of
from paceline.client.home_daemon import LOOPBACK
from paceline.daemon.contact import ALL_INTERFACES, answer_of, daemon_url, fleet_url
from paceline.daemon.home import FLEET_STATE, Home
from paceline.errors import InvalidInput, LaunchFailed
from paceline.hosts.launchers.interface import WorkerLauncher
from paceline.hosts.launchers.ssh import SshTunnel, tunnel_ports
from paceline.hosts.leader.worker_supervision import launcher_of
from paceline.hosts.messages import stored_host_states
from paceline.leadership.election import this_machine
from paceline.settings import HostSettings
from paceline.settings.checks import Mistakes, read_toml
from paceline.views.status import Hosts, HostView, host_views


def read_hosts(home: Home) -> tuple[list[HostView], bool]:
    """Return the hosts, and whether a daemon has said so. Without one, they are as they were stored last."""
    found = answer_of(home, "/v1/hosts", Hosts)
    if found is not None:
        return found.hosts, True
    return host_views(stored_host_states(home.store, home.settings.hosts)), False


def refuse_configured(home: Home, name: str) -> None:
    """Raise `InvalidInput` if paceline.toml has the host: there it must be changed."""
    file = home.settings.file
    if name in home.settings.hosts and file is not None:
        document = read_toml(file, Mistakes())
        place = file if document is None else document.locate(("hosts", name))
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


class HomeEndpoints:
    """How one leader and its hosts reach each other.

    `address` is where the leader listens on its own machine, `url` how other machines reach it. With TLS its
    certificate is for that name, so a tunnel to another one would not be trusted.
    """

    def __init__(self, home: Home, *, address: str, url: str, has_tls: bool) -> None:
        self._home = home
        self._address = address
        self._url = url
        self._has_tls = has_tls
        fleet = home.store.load_state(FLEET_STATE) if home.store.is_shared else None
        self._identity = f"{this_machine()} {home.path}" if fleet is None else fleet.decode()

    def launcher(self, host: HostSettings) -> WorkerLauncher | None:
        return host_launcher(self._home, host)

    def tunnel(self, host: HostSettings) -> SshTunnel | None:
        return SshTunnel(host, self._ports(host), self._address) if self._needs_tunnel(host) else None

    def addresses(self, host: HostSettings) -> tuple[str, ...]:
        if host.connect is not None:
            return (host.connect,)
        if self._needs_tunnel(host):
            return tuple(f"http://127.0.0.1:{port}" for port in self._ports(host))
        if host.ssh is not None and "//127.0.0.1:" in self._url:
            raise LaunchFailed(
                f"host {host.name}: the leader serves TLS on its own machine only; let it listen where the host reaches"
                " it, and set connect to its URL"
            )
        return (self._url,)

    def token(self, name: str) -> str:
        return host_token_of(self._home.store, self._home.path, name)

    def _needs_tunnel(self, host: HostSettings) -> bool:
        return host.ssh is not None and host.connect is None and not self._has_tls

    def _ports(self, host: HostSettings) -> tuple[int, ...]:
        return tunnel_ports(self._identity, host.name)

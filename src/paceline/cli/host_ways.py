"""How the leader of a home and its hosts reach each other: launchers, tunnels, addresses and tokens."""

from paceline.api.token_registry import host_token_of
from paceline.cli.host_access import host_launcher
from paceline.cli.wiring import FLEET_STATE, Home
from paceline.errors import LaunchFailed
from paceline.hosts.launchers.interface import WorkerLauncher
from paceline.hosts.launchers.ssh_tunnel import SshTunnel, tunnel_ports
from paceline.settings import HostSettings
from paceline.shared_leadership import this_machine


class LeaderWays:
    """The ways between one leader and its hosts.

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

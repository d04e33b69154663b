"""How other processes and hosts reach the daemon of a home, and what it answers that no store has.

Its scopes as they are now, the calls of its gateway, and its hosts. Here: asking the daemon of a home, or the leader of
its fleet, and how the leader and its hosts reach each other. Never here: what a command prints.
"""

import contextlib
import http.client
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec

from paceline.api.tokens import HOST_FOLDER, host_token_of, own_token_of
from paceline.client.home_daemon import LOOPBACK, written_url
from paceline.core import ScopeStatus
from paceline.daemon.home import FLEET_STATE, Home
from paceline.errors import InvalidInput, LaunchFailed
from paceline.hosts.launchers.interface import WorkerLauncher
from paceline.hosts.launchers.ssh import SshTunnel, tunnel_ports
from paceline.hosts.leader.worker_supervision import launcher_of
from paceline.hosts.messages import stored_host_states
from paceline.leadership.election import Leader, this_machine
from paceline.settings import HostSettings
from paceline.settings.checks import Mistakes, read_toml
from paceline.settings.model import ApiTable
from paceline.store import Balances
from paceline.views.capacity import AccountView, FleetState, KeyList, account_views, key_list, known_accounts
from paceline.views.gateway_calls import GatewayActivity, GatewayCounts, GatewaySpend, MemberFailure
from paceline.views.status import Hosts, HostView, host_views

# -- addresses ----------------------------------------------------------------------------------------

ALL_INTERFACES = ("0.0.0.0", "::", "")


def server_url(host: str, port: int, api: ApiTable) -> str:
    """Return the address by which programs on this machine reach the server.

    With TLS it has the first name of `api.hosts`, if there is one: certificates are made for names.
    """
    name = "127.0.0.1" if host in ALL_INTERFACES else host
    if api.tls_cert is not None and api.hosts:
        name = urlsplit(f"//{api.hosts[0]}").hostname or name
    scheme = "http" if api.tls_cert is None else "https"
    return f"{scheme}://{f'[{name}]' if ':' in name else name}:{port}"


def fleet_url(host: str, port: int, api: ApiTable) -> str:
    """Return the address by which other machines reach the server; that of this machine if they cannot."""
    if host not in ALL_INTERFACES:
        return server_url(host, port, api)
    return server_url(api.hosts[0] if api.hosts else socket.gethostname(), port, api)


def dashboard_url(server: str, token: str) -> str:
    """Return the address that opens the dashboard in a browser on this machine."""
    return f"{server}/?token={token}"


def daemon_url(home: Home) -> str:
    """Return where the daemon of the home listens, or will listen if none runs."""
    api = home.settings.api
    return written_url(home.path) or server_url(api.host, api.port, api)


# -- answers ------------------------------------------------------------------------------------------

ANSWER_SECONDS = 2.0
"""How long a daemon may take to answer. One that is alive takes milliseconds, and a person waits."""
OK = 200

Value = TypeVar("Value")


class LiveState(msgspec.Struct, frozen=True, kw_only=True):
    """What the daemon has answered. `scopes` is None without a daemon, `gateway` if it did not answer."""

    scopes: Sequence[ScopeStatus] | None = None
    gateway: GatewayActivity | None = None

    @property
    def counts(self) -> GatewayCounts | None:
        """How many calls the gateway has."""
        return None if self.gateway is None else self.gateway.counts

    @property
    def failures(self) -> Sequence[MemberFailure]:
        """The accounts of pools that fail."""
        return () if self.gateway is None else self.gateway.failures


class DaemonAnswer(msgspec.Struct, frozen=True):
    """The status and the body of an answer."""

    status: int
    body: bytes

    def decoded(self, kind: type[Value]) -> Value | None:
        """Return the value of a good answer."""
        try:
            return msgspec.json.decode(self.body, type=kind) if self.status == OK else None
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None


def read_live(home: Home) -> LiveState:
    """Return what the daemon knows now. Without one there are no calls.

    Nothing is known of a daemon that another machine cannot ask.
    """
    with asking(home) as ask:
        if ask is None:
            leader = home.engine_leader()
            return LiveState(gateway=None if leader is not None and leader.url is not None else GatewayActivity())
        scopes = ask("/v1/scopes")
        gateway = None if scopes is None else ask("/v1/gateway")
    found = None if scopes is None else scopes.decoded(dict[str, list[ScopeStatus]])
    activity = None if gateway is None else gateway.decoded(GatewayActivity)
    return LiveState(scopes=None if found is None else found["scopes"], gateway=activity)


Ask = Callable[[str], DaemonAnswer | None]
"""Asks a daemon for a path. It returns None for what the daemon does not answer in time."""


@contextlib.contextmanager
def asking(home: Home) -> Iterator[Ask | None]:
    """Yield what asks the daemon of the home, on one connection; None if none serves it."""
    leader = home.engine_leader()
    url = None if leader is None else _leader_address(home, leader)
    if url is None:
        yield None
        return
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=ANSWER_SECONDS)
    if parts.scheme == "https":
        from paceline.client.daemon_calls import trusted_authorities  # imported here because it is slow

        authorities = trusted_authorities()
        connection = http.client.HTTPSConnection(
            parts.hostname or "", parts.port, timeout=ANSWER_SECONDS, context=authorities
        )
    headers = {"authorization": f"Bearer {own_token_of(home.store, home.path, 'read')}"}

    def ask(path: str) -> DaemonAnswer | None:
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return DaemonAnswer(answer.status, answer.read())
        except (OSError, http.client.HTTPException):
            return None

    with contextlib.closing(connection):
        yield ask


def answer_of(home: Home, path: str, kind: type[Value]) -> Value | None:
    """Return what the daemon of the home answers; None without a good answer."""
    with asking(home) as ask:
        answer = None if ask is None else ask(path)
    return None if answer is None else answer.decoded(kind)


def _leader_address(home: Home, leader: Leader) -> str | None:
    """Return where the leader serves. An engine that runs a plan in the foreground serves nothing."""
    url = leader.url
    if url is not None and urlsplit(url).hostname in LOOPBACK and leader.machine != this_machine():
        return None  # it listens only on its own machine
    if url is None and not home.store.is_shared:
        return written_url(home.path)
    return url


def live_spend(home: Home, by: str, first: str, key: str | None) -> GatewaySpend | None:
    """Return what the daemon answers: it also knows the calls of the last seconds."""
    asked = {"by": by, "since": first} | ({} if key is None else {"key": key})
    return answer_of(home, f"/v1/gateway/spend?{urlencode(asked)}", GatewaySpend)


def read_accounts(home: Home, fleet: FleetState) -> list[AccountView]:
    """Return the accounts, and what they have spent of their budgets, by the daemon if there is one."""
    if (live := answer_of(home, "/v1/accounts", dict[str, list[AccountView]])) is not None:
        return live["accounts"]
    accounts = known_accounts(home.settings, fleet.campaigns)
    return account_views(accounts, home.environ, fleet.scopes, _balances(home), fleet.now)


def read_keys(home: Home, now: float) -> KeyList:
    """Return the keys of clients and what they have spent, by the daemon if there is one."""
    live = answer_of(home, "/v1/keys", KeyList)
    return live or key_list(home.store.client_keys(), _balances(home), now)


def _balances(home: Home) -> Balances:
    return Balances(home.store.spend(by_model=False))


# -- hosts --------------------------------------------------------------------------------------------


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

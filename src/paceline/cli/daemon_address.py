"""The address of the daemon: how programs, browsers and other commands reach it."""

import socket
from urllib.parse import urlsplit

from paceline.cli.wiring import Home
from paceline.client.home_daemon import URL_FILE
from paceline.settings.model import ApiTable

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
    try:
        return (home.path / URL_FILE).read_text().strip()
    except OSError:
        api = home.settings.api
        return server_url(api.host, api.port, api)

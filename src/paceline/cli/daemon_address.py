"""The address of the daemon: how programs, browsers and other commands reach it."""

from paceline.cli.wiring import Home
from paceline.client.daemon_calls import URL_FILE

ALL_INTERFACES = ("0.0.0.0", "::", "")


def server_url(host: str, port: int) -> str:
    """Return the address by which programs on this machine reach the server."""
    name = "127.0.0.1" if host in ALL_INTERFACES else host
    return f"http://{f'[{name}]' if ':' in name else name}:{port}"


def dashboard_url(server: str, token: str) -> str:
    """Return the address that opens the dashboard in a browser on this machine."""
    return f"{server}/?token={token}"


def daemon_url(home: Home) -> str:
    """Return where the daemon of the home listens, or will listen if none runs."""
    try:
        return (home.path / URL_FILE).read_text().strip()
    except OSError:
        return server_url(home.settings.api.host, home.settings.api.port)

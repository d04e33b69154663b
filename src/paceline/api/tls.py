"""TLS of the server: the certificate that the settings name, and the addresses that may not be served without one.

Never here: sockets, or what a client trusts.
"""

import socket
import ssl
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from paceline.errors import InvalidInput, InvalidSettings
from paceline.settings.model import ApiTable

EXPOSED: Final = (
    "{host} can be reached from other machines, and without TLS they could read the token and everything else: "
    "set tls_cert and tls_key in [api] of paceline.toml; or listen on 127.0.0.1, behind an ssh tunnel or a reverse "
    "proxy with TLS; or give --insecure to serve it unencrypted"
)


def load_tls(api: ApiTable) -> ssl.SSLContext | None:
    """Return what a server with the certificate of the settings needs, or None if they name none."""
    if api.tls_cert is None:
        return None
    for key, path in (("api.tls_cert", api.tls_cert), ("api.tls_key", api.tls_key)):
        if path is not None:
            _check_readable(key, Path(path))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(api.tls_cert, api.tls_key, password=_no_password)
    except ssl.SSLError as error:
        raise InvalidSettings(_load_error(api, error)) from error
    return context


def _check_readable(key: str, path: Path) -> None:
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise InvalidSettings(f"{key}: {path} cannot be read: {error.strerror}") from error


def _no_password() -> str:
    """Refuse a key with a password: a daemon has nobody to ask for it."""
    raise InvalidSettings("api.tls_key: the key has a password; remove it with: openssl pkey -in KEY -out NEW_KEY")


def _load_error(api: ApiTable, error: ssl.SSLError) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"api.tls_key: {api.tls_key or api.tls_cert} is not the key of the certificate {api.tls_cert}"
    if api.tls_key is None:
        return f"api.tls_cert: {api.tls_cert} does not hold a certificate and its key in PEM form; set tls_key"
    return f"api.tls_cert: {api.tls_cert} with {api.tls_key} is not a certificate and its key in PEM form"


def check_exposure(host: str, tls: ssl.SSLContext | None, *, insecure: bool) -> str | None:
    """Refuse an address that other machines can reach without TLS, unless `insecure`. Returns a warning or None."""
    if tls is not None or not is_exposed(host):
        return None
    if not insecure:
        raise InvalidInput(EXPOSED.format(host=host))
    return f"{host} is served without TLS: whoever reads the network reads the token too"


def is_exposed(host: str) -> bool:
    """Return whether other machines can reach the address. One that nobody can bind to is not exposed."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        return not host
    return not all(ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in found)

"""TLS of the server: the certificate that the settings name, and the addresses that may not be served without one.

Never here: sockets, or what a client trusts.
"""

import logging
import os
import socket
import ssl
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from paceline.errors import InvalidInput, InvalidSettings
from paceline.settings.model import ApiTable

log = logging.getLogger("paceline.api")

EXPOSED: Final = (
    "{host} can be reached from other machines, and without TLS they could read the token and everything else: "
    "set tls_cert and tls_key in [api] of paceline.toml; or listen on 127.0.0.1, behind an ssh tunnel or a reverse "
    "proxy with TLS; or give --insecure to serve it unencrypted"
)


class ServerCertificate:
    """The certificate of the settings, as a server uses it. It follows its files: certificates are renewed often."""

    def __init__(self, api: ApiTable) -> None:
        self._api = api
        self._seen = _file_times(api)
        self.context = _loaded(api)

    def refresh(self) -> None:
        """Use the certificate in the files from now on, if they have changed and can be used."""
        found = _file_times(self._api)
        if found == self._seen:
            return
        self._seen = found
        try:
            _loaded(self._api)  # apart: a failure must not leave half of it in use
            self.context.load_cert_chain(str(self._api.tls_cert), self._api.tls_key, password=_no_password)
        except (InvalidSettings, ssl.SSLError, OSError) as error:
            log.warning("the certificate was changed and cannot be used, so the present one stays: %s", error)


def load_certificate(api: ApiTable) -> ServerCertificate | None:
    """Return the certificate that the settings name, or None if they name none."""
    return None if api.tls_cert is None else ServerCertificate(api)


def _loaded(api: ApiTable) -> ssl.SSLContext:
    for key, path in (("api.tls_cert", api.tls_cert), ("api.tls_key", api.tls_key)):
        if path is not None:
            _check_readable(key, Path(path))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(str(api.tls_cert), api.tls_key, password=_no_password)
    except ssl.SSLError as error:
        raise InvalidSettings(_load_error(api, error)) from error
    return context


def _file_times(api: ApiTable) -> tuple[tuple[int, int] | None, ...]:
    """Return when each file was changed, and its number: a renewal may replace a link to the file."""
    return tuple(_file_time(path) for path in (api.tls_cert, api.tls_key) if path is not None)


def _file_time(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None  # a renewal is under way
    return found.st_mtime_ns, found.st_ino


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


def check_exposure(host: str, tls: ServerCertificate | None, *, insecure: bool) -> str | None:
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

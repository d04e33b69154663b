"""The daemon of the home: where it listens, and its token.

Never here: an HTTP client. Commands that only need an address would wait for its import.
"""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from paceline.errors import DaemonUnreachable, InvalidInput

DEFAULT_URL = "http://127.0.0.1:7433"
URL_FILE = "url"
"""The file in the home with the address of the running daemon, for programs on this machine."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def own_url(environ: Mapping[str, str]) -> str:
    """Return PACELINE_URL, or the address that the daemon of the home has written."""
    return environ.get("PACELINE_URL") or _written_url(environ) or DEFAULT_URL


def _written_url(environ: Mapping[str, str]) -> str | None:
    try:
        return written_url(_home(environ))
    except InvalidInput:  # no home: the first call fails with that
        return None


def written_url(home: Path) -> str | None:
    """Return the address that the daemon of the home has written; None without a daemon."""
    try:
        return (home / URL_FILE).read_text().strip() or None
    except OSError:
        return None


def own_token(url: str, environ: Mapping[str, str]) -> str:
    """Return PACELINE_TOKEN, or the token of the home, which is sent only to its own daemon or to this machine."""
    if token := environ.get("PACELINE_TOKEN"):
        return token
    if urlsplit(url).hostname not in LOOPBACK and url != _written_url(environ):
        raise InvalidInput(f"the token of the daemon at {url} is unknown: pass token=, or set PACELINE_TOKEN")
    path = _home(environ) / "token"
    try:
        return path.read_text().strip()
    except OSError as error:
        raise DaemonUnreachable(
            f"the daemon's token cannot be read from {path} ({error.strerror}): start a daemon with `paceline up`,"
            " or set PACELINE_TOKEN"
        ) from error


def _home(environ: Mapping[str, str]) -> Path:
    from paceline.settings.environment import home_folder  # imported here because it is slow

    return home_folder(Path.cwd(), environ)

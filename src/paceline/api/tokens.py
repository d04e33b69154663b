"""The daemon's tokens: two files in the home that only their owner can read, and the rights of each.

Never here: requests; `auth.py` checks those.
"""

import hashlib
import hmac
import os
import secrets
import stat
from pathlib import Path
from typing import Final, Literal

from paceline.errors import InvalidSettings

TOKEN_FILE: Final = "token"
READ_ONLY_FILE: Final = "token-readonly"
SHORTEST: Final = 24
"""Characters: shorter ones can be guessed."""
LONGEST_BYTES: Final = 4096
_RANDOM_BYTES: Final = 32
_COOKIE_PURPOSE: Final = b"paceline page cookie"
_CHANGE_PURPOSE: Final = b"paceline page change"

Rights = Literal["full", "read"]


class AccessTokens:
    """The two tokens, compared in constant time. A cookie is derived from its token and cannot be used as one.

    A browser sends a cookie to every port of its host, so any server on this machine may see it. A cookie alone
    therefore only reads. It has the rights of its token together with the change key, which the page keeps to itself.
    """

    def __init__(self, full: str, read_only: str) -> None:
        self.full = full
        self.read_only = read_only
        self._known: tuple[tuple[bytes, Rights], ...] = ((full.encode(), "full"), (read_only.encode(), "read"))
        self._cookies: tuple[tuple[bytes, Rights], ...] = tuple((cookie_of(token), r) for token, r in self._known)

    def rights_of(self, token: bytes) -> Rights | None:
        """Return the rights of a token, or None for an unknown one."""
        return _find(self._known, token)

    def rights_of_cookie(self, cookie: bytes, change_key: bytes) -> Rights | None:
        """Return the rights of a cookie with the change key that came with it, or None for an unknown cookie."""
        rights = _find(self._cookies, cookie)
        is_full = rights == "full" and hmac.compare_digest(change_key, change_key_of(self.full.encode()))
        return "read" if rights == "full" and not is_full else rights


def cookie_of(token: bytes) -> bytes:
    """Return the cookie value that the dashboard keeps instead of the token."""
    return hmac.new(token, _COOKIE_PURPOSE, hashlib.sha256).hexdigest().encode()


def change_key_of(token: bytes) -> bytes:
    """Return the value that the dashboard sends with a change, besides its cookie."""
    return hmac.new(token, _CHANGE_PURPOSE, hashlib.sha256).hexdigest().encode()


def _find(known: tuple[tuple[bytes, Rights], ...], given: bytes) -> Rights | None:
    """Compare with all of them: the time taken must not reveal which one matched."""
    rights: Rights | None = None
    for value, granted in known:
        if hmac.compare_digest(value, given):
            rights = granted
    return rights


def load_tokens(home: Path) -> AccessTokens:
    """Return the tokens of the home, creating missing ones."""
    return AccessTokens(load_token(home / TOKEN_FILE), load_token(home / READ_ONLY_FILE))


def load_token(path: Path) -> str:
    """Return the token in the file, creating it if needed. A file that others can read is refused."""
    try:
        if not path.exists():
            _make(path)
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            content = file.read(LONGEST_BYTES + 1)
    except OSError as error:
        raise InvalidSettings(f"{path} cannot be read: {error.strerror}; it holds the token of the API") from error
    if mode & 0o077:
        raise InvalidSettings(f"{path} can be read by others (mode {mode:o}): delete it, and a new token is made")
    token = content.strip()
    if not (SHORTEST <= len(token) <= LONGEST_BYTES and token.isascii() and token.decode("ascii").isprintable()):
        raise InvalidSettings(f"{path} has no token of {SHORTEST} or more characters: delete it, and one is made")
    return token.decode("ascii")


def _make(path: Path) -> None:
    """Create the file whole or not at all, and never replace one: two commands may create it at once."""
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(secrets.token_urlsafe(_RANDOM_BYTES) + "\n")
    try:
        os.link(fresh, path)
    except FileExistsError:
        pass  # another process created it first
    finally:
        fresh.unlink()

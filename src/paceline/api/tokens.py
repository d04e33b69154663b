"""The tokens that a daemon accepts: two files in the home that only their owner can read, and those of its fleet.

Never here: requests; `auth.py` checks those. What the store keeps of tokens is in `token_registry.py`.
"""

import contextlib
import hashlib
import hmac
import logging
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from paceline.agents.account import gateway_key
from paceline.errors import InvalidSettings, PacelineError

log = logging.getLogger("paceline.api")

Rights = Literal["full", "read", "host"]
"""`host`: the requests of the worker of one host, and nothing else."""

FILES: Final[Mapping[Rights, str]] = {"full": "token", "read": "token-readonly"}
"""The files of a home that hold its tokens."""
HOST_FOLDER: Final = "hosts"
"""The folder of a home with one folder for each host whose worker it starts."""
SECRET_FILE: Final = "gateway-secret"
"""The file with the secret that the keys of sessions are derived from."""
SHORTEST: Final = 24
"""Characters: shorter ones can be guessed."""
LONGEST_BYTES: Final = 4096
READ_AGAIN_SECONDS: Final = 1.0
"""How long a new or a revoked token may go unnoticed: a person hardly waits for it, and one read is cheap."""
AFTER_FAILURE_SECONDS: Final = 5.0
"""The same after a failed read. A store that does not answer holds a reader up, so it is asked less often."""
_RANDOM_BYTES: Final = 32
_COOKIE_PURPOSE: Final = b"paceline page cookie"
_CHANGE_PURPOSE: Final = b"paceline page change"


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """What a token grants, and the name it is known by."""

    name: str
    rights: Rights
    host: str | None = None
    """The host whose worker has the token, with the rights `host`."""


class FleetAccess(msgspec.Struct, frozen=True, kw_only=True):
    """What the fleet accepts: tokens by their digests, and by account the digests of the keys of its sessions."""

    grants: Mapping[str, Grant]
    session_keys: Mapping[str, frozenset[str]] = {}


class AccessTokens:
    """The tokens of this home in clear, and those of the whole fleet by their digests.

    A token is looked up by its digest, so the time taken reveals nothing about any token. A cookie is derived from its
    token and cannot be used as one. A browser sends a cookie to every port of its host, so any server on this machine
    may see it. A cookie alone therefore only reads. It has the rights of its token together with the change key, which
    the page keeps to itself.

    Sessions that call the gateway have a key for each account, derived from `session_secret`, which no other home
    knows. It outlives a rotated token, and so do the sessions.

    `read` returns what the fleet accepts, `reload` those in the files of the home. Both may raise a `PacelineError`;
    then everything known stays as it is.
    """

    def __init__(
        self,
        full: str,
        read_only: str,
        *,
        session_secret: str | None = None,
        read: Callable[[], FleetAccess] | None = None,
        reload: Callable[[], tuple[str, str]] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.full = full
        self.read_only = read_only
        self.session_secret = session_secret or full
        self._read = read
        self._reload = reload
        self._now = now
        self._read_at = -READ_AGAIN_SECONDS
        self._cookies: dict[str, bytes] = {}
        """The clear tokens that browsers have cookies of, by the digest of the cookie."""
        own: tuple[tuple[str, Rights], ...] = ((full, "full"), (read_only, "read"))
        self._known = FleetAccess(
            grants={digest_of(token.encode()): Grant(name=FILES[rights], rights=rights) for token, rights in own}
        )
        self._keep_own_cookies()

    def find(self, token: bytes) -> Grant | None:
        """Return what a token grants, or None for an unknown one."""
        self._catch_up()
        return self._known.grants.get(digest_of(token))

    def find_cookie(self, cookie: bytes, change_key: bytes) -> Grant | None:
        """Return what a cookie grants with the change key that came with it, or None for an unknown cookie."""
        token = self._cookies.get(digest_of(cookie))
        grant = None if token is None else self.find(token)
        if token is None or grant is None or grant.rights == "host":  # no page is opened for a worker
            return None
        may_change = hmac.compare_digest(change_key, change_key_of(token))
        return grant if may_change else msgspec.structs.replace(grant, rights="read")

    def keep_cookie(self, token: bytes) -> bytes:
        """Return the cookie of a token that was found, and know it from now on."""
        cookie = cookie_of(token)
        self._cookies[digest_of(cookie)] = token
        return cookie

    def has_full_rights(self, token: bytes) -> bool:
        grant = self.find(token)
        return grant is not None and grant.rights == "full"

    def is_session_key(self, account: str, key: bytes) -> bool:
        """Return whether a session of the account has this key, which opens the gateway for nothing else."""
        self._catch_up()
        if digest_of(key) in self._known.session_keys.get(account, ()):
            return True
        # An earlier version derived the keys from the token, and its sessions may still run.
        return hmac.compare_digest(key, gateway_key(self.full, account).encode())

    def _catch_up(self) -> None:
        """Read the tokens of the fleet again, if the last time is a while ago."""
        now = self._now()
        if self._read is None or now - self._read_at < READ_AGAIN_SECONDS:
            return
        self._read_at = now
        try:
            self._known = self._read()
            own = (digest_of(each.encode()) for each in (self.full, self.read_only))
            if self._reload is not None and any(digest not in self._known.grants for digest in own):
                self.full, self.read_only = self._reload()  # a token of this home was rotated
                self._keep_own_cookies()
        except PacelineError as error:
            self._read_at = now + AFTER_FAILURE_SECONDS - READ_AGAIN_SECONDS
            log.debug("the tokens of the fleet stay as they are: %s", error)

    def _keep_own_cookies(self) -> None:
        """Know the cookies of this home: pages stay open over a restart."""
        for token in (self.full, self.read_only):
            self.keep_cookie(token.encode())


def digest_of(secret: bytes) -> str:
    """Return the SHA-256 of a token or a cookie. It needs no salt: both are random and long."""
    return hashlib.sha256(secret).hexdigest()


def cookie_of(token: bytes) -> bytes:
    """Return the cookie value that the dashboard keeps instead of the token."""
    return hmac.new(token, _COOKIE_PURPOSE, hashlib.sha256).hexdigest().encode()


def change_key_of(token: bytes) -> bytes:
    """Return the value that the dashboard sends with a change, besides its cookie."""
    return hmac.new(token, _CHANGE_PURPOSE, hashlib.sha256).hexdigest().encode()


def load_tokens(home: Path) -> AccessTokens:
    """Return the tokens of the home alone, creating missing ones."""
    return AccessTokens(load_token(home / FILES["full"]), load_token(home / FILES["read"]))


def load_token(path: Path, *, host: str | None = None) -> str:
    """Return the token in the file, creating it if needed. A file that others can read is refused.

    The token of a host begins with the host's name.
    """
    try:
        if not path.exists():
            _make(path, host)
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


@contextlib.contextmanager
def replacing_token(path: Path, *, host: str | None = None) -> Iterator[str]:
    """Yield a new token. It replaces the one in the file at the end of the block, unless the block raises."""
    try:
        fresh, token = _write_token(path, host)
    except OSError as error:
        raise InvalidSettings(f"{path} cannot be written: {error.strerror}") from error
    try:
        yield token
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def _make(path: Path, host: str | None) -> None:
    """Create the file whole or not at all, and never replace one: two commands may create it at once."""
    fresh, _ = _write_token(path, host)
    try:
        os.link(fresh, path)
    except FileExistsError:
        pass  # another process created it first
    finally:
        fresh.unlink()


def _write_token(path: Path, host: str | None) -> tuple[Path, str]:
    """Write a new token to a file beside the path, which only its owner can read."""
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    token = f"{'' if host is None else f'{host}.'}{secrets.token_urlsafe(_RANDOM_BYTES)}"
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(f"{token}\n")
    return fresh, token

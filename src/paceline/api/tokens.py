"""The tokens that a daemon accepts: two files in the home that only their owner can read, and those of its fleet.

The store keeps names, rights and SHA-256 digests, never a token itself. Every home keeps its own two tokens in its
files, and those of the hosts whose workers it starts. All engines of a store accept the tokens of all its homes, and
each reads the registry again while it runs. A revoked digest stays refused. Never here: requests; `auth.py` checks
those.
"""

import hashlib
import hmac
import logging
import os
import secrets
import socket
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from paceline.agents.account import gateway_key
from paceline.engine import command_log
from paceline.engine.command_log import person
from paceline.errors import InvalidSettings, PacelineError, StoreDamaged, UnknownName
from paceline.executors.spool import make_private
from paceline.settings.checks import did_you_mean
from paceline.store import Store

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


class TokenEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One token that is accepted. `home` is the folder whose file holds it."""

    name: str
    rights: Rights
    digest: str
    home: str = ""
    since: float = 0.0
    host: str | None = None
    """The host whose worker has the token, with the rights `host`."""
    session_keys: dict[str, str] = {}
    """The digests of the keys that sessions of this home present to a gateway, by account."""


class TokenRegistry(msgspec.Struct, frozen=True, kw_only=True):
    """All tokens of a store, and the digests of revoked ones."""

    tokens: tuple[TokenEntry, ...] = ()
    revoked: tuple[str, ...] = ()

    def entry_of(self, owner: "TokenOwner", digest: str | None) -> TokenEntry | None:
        """Return the entry of the owner, which has this digest unless its folder or its machine was renamed."""
        by_digest = (entry for entry in self.tokens if entry.digest == digest)
        wanted = (home_name(owner.home), owner.rights, owner.host)
        by_home = (entry for entry in self.tokens if (entry.home, entry.rights, entry.host) == wanted)
        return next(by_digest, None) or next(by_home, None)

    def with_revoked(self, digest: str) -> tuple[str, ...]:
        return (*self.revoked, digest)[-MOST_REVOKED:]


class AccessTokens:
    """The tokens of this home in clear, and those of the whole fleet by their digests.

    A token is looked up by its digest, so the time taken reveals nothing about any token. A cookie is derived from its
    token and cannot be used as one. A browser sends a cookie to every port of its host, so any server on this machine
    may see it. A cookie alone therefore only reads. It has the rights of its token together with the change key, which
    the page keeps to itself.

    Sessions that call the gateway have a key for each account, derived from `session_secret`, which no other home
    knows. It outlives a rotated token, and so do the sessions.

    `read` returns those of the fleet, `reload` those in the files of the home. Both may raise a `PacelineError`;
    then everything known stays as it is.
    """

    def __init__(
        self,
        full: str,
        read_only: str,
        *,
        session_secret: str | None = None,
        read: Callable[[], TokenRegistry] | None = None,
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
        entries = [
            TokenEntry(name=FILES[rights], rights=rights, digest=digest_of(each.encode())) for each, rights in own
        ]
        self._accept(TokenRegistry(tokens=tuple(entries)))
        self._keep_own_cookies()

    def find(self, token: bytes) -> TokenEntry | None:
        self._catch_up()
        return self._known.get(digest_of(token))

    def find_cookie(self, cookie: bytes, change_key: bytes) -> TokenEntry | None:
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
        if self._read is None:
            return hmac.compare_digest(key, gateway_key(self.session_secret, account).encode())
        return (account, digest_of(key)) in self._session_keys

    def _accept(self, registry: TokenRegistry) -> None:
        self._known = {each.digest: each for each in registry.tokens}
        self._session_keys = {pair for each in registry.tokens for pair in each.session_keys.items()}

    def _catch_up(self) -> None:
        """Read the tokens of the fleet again, if the last time is a while ago."""
        now = self._now()
        if self._read is None or now - self._read_at < READ_AGAIN_SECONDS:
            return
        self._read_at = now
        try:
            self._accept(self._read())
            own = (digest_of(each.encode()) for each in (self.full, self.read_only))
            if self._reload is not None and any(digest not in self._known for digest in own):
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


TOKENS_STATE: Final = "access_tokens"
"""The key under which a store keeps the registry."""
MOST_REVOKED: Final = 1000
"""Revoked digests that are remembered. They only keep a home from using a revoked token again by mistake."""


class TokenOwner(msgspec.Struct, frozen=True, kw_only=True):
    """Whose token it is: that of a home, or that of a host, which the home gives its worker."""

    home: Path
    rights: Rights
    host: str | None = None

    @property
    def file(self) -> Path:
        """The file in the home that holds the token."""
        return self.home / FILES[self.rights] if self.host is None else self.home / HOST_FOLDER / self.host / "token"

    @property
    def rotate_command(self) -> str:
        """What makes a new token in place of this one."""
        if self.host is not None:
            return f"paceline hosts token {self.host} --rotate"
        return f"paceline token{' --read-only' if self.rights == 'read' else ''} --rotate"


def read_registry(store: Store) -> TokenRegistry:
    """Return the tokens of the store. Raise `StoreDamaged` if they cannot be read."""
    value = store.load_state(TOKENS_STATE)
    try:
        return TokenRegistry() if value is None else msgspec.json.decode(value, type=TokenRegistry)
    except msgspec.DecodeError as error:
        raise StoreDamaged(f"the tokens in the store are damaged ({error}): restore a copy of the store") from error


def join_fleet(
    store: Store, home: Path, accounts: Iterable[str] = (), *, now: Callable[[], float] = time.monotonic
) -> AccessTokens:
    """Return the tokens that an engine of this store accepts, with those of the home, which are created if needed.

    Sessions of the accounts, by name, may call the gateway of any engine of the store.
    """
    full, read_only = (own_token_of(store, home, rights) for rights in FILES)
    secret = load_token(home / SECRET_FILE)
    keys = {account: digest_of(gateway_key(secret, account).encode()) for account in accounts}
    _register_session_keys(store, digest_of(full.encode()), keys)
    return AccessTokens(
        full,
        read_only,
        session_secret=secret,
        read=lambda: read_registry(store),
        reload=lambda: (load_token(home / FILES["full"]), load_token(home / FILES["read"])),
        now=now,
    )


def own_token_of(store: Store, home: Path, rights: Rights, host: str | None = None) -> str:
    """Return the token in the file of the home, its own or that of a host, and make sure that the fleet knows it."""
    owner = TokenOwner(home=home, rights=rights, host=host)
    make_private(str(owner.file.parent))
    token = load_token(owner.file, host=host)
    digest = digest_of(token.encode())
    if all(entry.digest != digest for entry in read_registry(store).tokens):
        _register(store, owner, token)
    return token


def host_token_of(store: Store, home: Path, host: str) -> str:
    """Return the token that this home gives the worker of a host, and make sure that the fleet knows it."""
    return own_token_of(store, home, "host", host)


def rotate_token(store: Store, home: Path, rights: Rights, host: str | None = None) -> str:
    """Give the home, or a host, a new token in place of its present one, which nobody accepts any more."""
    owner = TokenOwner(home=home, rights=rights, host=host)
    make_private(str(owner.file.parent))
    present = load_token(owner.file, host=host)
    try:
        fresh, token = _write_token(owner.file, host)
    except OSError as error:
        raise InvalidSettings(f"{owner.file} cannot be written: {error.strerror}") from error
    try:
        with store.together():
            _register(store, owner, token, replaces=present)
            fresh.replace(owner.file)  # the file before the store: a failure keeps both
    finally:
        fresh.unlink(missing_ok=True)
    return token


def revoke_host_tokens(store: Store, home: Path, host: str) -> int:
    """Let nobody accept a token of the host any more, whichever home has made it. Return how many there were."""
    with store.together():
        registry = read_registry(store)
        found = [entry for entry in registry.tokens if entry.host == host]
        for entry in found:
            revoke_token(store, entry.name)
    TokenOwner(home=home, rights="host", host=host).file.unlink(missing_ok=True)
    return len(found)


def revoke_token(store: Store, name: str) -> TokenEntry:
    """Let nobody accept the token of that name any more."""
    with store.together():
        registry = read_registry(store)
        found = next((entry for entry in registry.tokens if entry.name == name), None)
        if found is None:
            hint = did_you_mean(name, [entry.name for entry in registry.tokens])
            raise UnknownName(f"there is no token {name!r:.80}{hint or '; `paceline token --list` lists them'}")
        left = tuple(entry for entry in registry.tokens if entry is not found)
        _save(store, TokenRegistry(tokens=left, revoked=registry.with_revoked(found.digest)))
        _record(store, "revoke", name)
    return found


def _register_session_keys(store: Store, digest: str, keys: dict[str, str]) -> None:
    """Store the digests of the keys with the token of their home. It needs no write if they are there."""
    if all(each.digest != digest or each.session_keys == keys for each in read_registry(store).tokens):
        return
    with store.together():
        registry = read_registry(store)
        entries = [
            msgspec.structs.replace(each, session_keys=keys) if each.digest == digest else each
            for each in registry.tokens
        ]
        _save(store, msgspec.structs.replace(registry, tokens=tuple(entries)))


def home_name(home: Path) -> str:
    """Return how the registry names a home: its folder and its machine."""
    return f"{home} on {socket.gethostname()}"


def _register(store: Store, owner: TokenOwner, token: str, *, replaces: str | None = None) -> None:
    """Store the digest of the owner's token, in place of an earlier one."""
    digest = digest_of(token.encode())
    old = None if replaces is None else digest_of(replaces.encode())
    with store.together():  # it reads what it changes: another home may join at the same time
        registry = read_registry(store)
        if digest in registry.revoked:
            raise InvalidSettings(f"the token in {owner.file} was revoked; `{owner.rotate_command}` makes a new one")
        before = registry.entry_of(owner, old)
        others = tuple(entry for entry in registry.tokens if entry is not before)
        name = before.name if before is not None else _free_name(owner, {entry.name for entry in others})
        entry = TokenEntry(
            name=name,
            rights=owner.rights,
            digest=digest,
            home=home_name(owner.home),
            since=time.time(),
            host=owner.host,
            session_keys={} if before is None else before.session_keys,
        )
        revoked = registry.revoked if old is None else registry.with_revoked(old)
        _save(store, TokenRegistry(tokens=(*others, entry), revoked=revoked))
        _record(store, "create" if old is None else "rotate", name)


def _free_name(owner: TokenOwner, taken: set[str]) -> str:
    """Return the user and the machine, or the host, with a number if another home has registered one before."""
    numbers = ("", *(f"-{number}" for number in range(2, len(taken) + 2)))
    base = person() if owner.host is None else f"host:{owner.host}"
    names = (f"{base}{number}{'-readonly' if owner.rights == 'read' else ''}" for number in numbers)
    return next(name for name in names if name not in taken)


def _save(store: Store, registry: TokenRegistry) -> None:
    store.save_state(TOKENS_STATE, msgspec.json.encode(registry))


def _record(store: Store, action: str, name: str) -> None:
    command_log.send(store, "token", now=time.time(), action=action, target=name)

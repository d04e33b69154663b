"""The tokens of a fleet in its store: names, rights and SHA-256 digests, never a token itself.

Every home keeps its own two tokens in its files, and those of the hosts whose workers it starts. All engines of a store
accept the tokens of all its homes, and each reads the registry again while it runs. A revoked digest stays refused.
"""

import socket
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from paceline.agents.account import gateway_key
from paceline.api.tokens import (
    FILES,
    HOST_FOLDER,
    SECRET_FILE,
    AccessTokens,
    FleetAccess,
    Grant,
    Rights,
    digest_of,
    load_token,
    replacing_token,
)
from paceline.config_files.documents import did_you_mean
from paceline.engine import command_log
from paceline.engine.authorship import person
from paceline.errors import InvalidSettings, StoreDamaged, UnknownName
from paceline.executors.private_folder import make_private
from paceline.store import Store

TOKENS_STATE: Final = "access_tokens"
"""The key under which a store keeps the registry."""
HOST_TOKENS_STATE: Final = "host_tokens"
"""The key of those for hosts. An earlier version of Paceline on the same store neither reads nor loses them."""
MOST_REVOKED: Final = 1000
"""Revoked digests that are remembered. They only keep a home from using a revoked token again by mistake."""


class TokenEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One token of the fleet. `home` is the folder whose file holds it."""

    name: str
    rights: Rights
    digest: str
    home: str
    since: float
    host: str | None = None
    """The host whose worker has the token."""
    session_keys: dict[str, str] = {}
    """The digests of the keys that sessions of this home present to a gateway, by account."""


class TokenRegistry(msgspec.Struct, frozen=True, kw_only=True):
    """All tokens of a store, and the digests of revoked ones."""

    tokens: tuple[TokenEntry, ...] = ()
    revoked: tuple[str, ...] = ()

    @property
    def grants(self) -> dict[str, Grant]:
        """What each token grants, by its digest."""
        return {each.digest: Grant(name=each.name, rights=each.rights, host=each.host) for each in self.tokens}

    @property
    def access(self) -> FleetAccess:
        """What engines go by."""
        keys: dict[str, frozenset[str]] = {}
        for entry in self.tokens:
            for account, digest in entry.session_keys.items():
                keys[account] = keys.get(account, frozenset()) | {digest}
        return FleetAccess(grants=self.grants, session_keys=keys)

    def entry_of(self, owner: "TokenOwner", digest: str | None) -> TokenEntry | None:
        """Return the entry of the owner, which has this digest unless its folder or its machine was renamed."""
        by_digest = (entry for entry in self.tokens if entry.digest == digest)
        wanted = (owner.home_name, owner.rights, owner.host)
        by_home = (entry for entry in self.tokens if (entry.home, entry.rights, entry.host) == wanted)
        return next(by_digest, None) or next(by_home, None)

    def with_revoked(self, digest: str) -> tuple[str, ...]:
        return (*self.revoked, digest)[-MOST_REVOKED:]


class TokenOwner(msgspec.Struct, frozen=True, kw_only=True):
    """Whose token it is: that of a home, or that of a host, which the home gives its worker."""

    home: Path
    rights: Rights
    host: str | None = None

    @property
    def home_name(self) -> str:
        return home_name(self.home)

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
    value, hosts = store.load_state(TOKENS_STATE), store.load_state(HOST_TOKENS_STATE)
    try:
        registry = TokenRegistry() if value is None else msgspec.json.decode(value, type=TokenRegistry)
        of_hosts = () if hosts is None else msgspec.json.decode(hosts, type=tuple[TokenEntry, ...])
        return msgspec.structs.replace(registry, tokens=registry.tokens + of_hosts)
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
        read=lambda: read_registry(store).access,
        reload=lambda: (load_token(home / FILES["full"]), load_token(home / FILES["read"])),
        now=now,
    )


def own_token_of(store: Store, home: Path, rights: Rights) -> str:
    """Return the token in the file of the home, and make sure that the fleet knows it."""
    return _token_of(store, TokenOwner(home=home, rights=rights))


def rotate_token(store: Store, home: Path, rights: Rights) -> str:
    """Give the home a new token in place of its present one, which nobody accepts any more."""
    return _rotate(store, TokenOwner(home=home, rights=rights))


def host_token_of(store: Store, home: Path, host: str) -> str:
    """Return the token that this home gives the worker of a host, and make sure that the fleet knows it."""
    owner = TokenOwner(home=home, rights="host", host=host)
    make_private(str(owner.file.parent))
    return _token_of(store, owner)


def rotate_host_token(store: Store, home: Path, host: str) -> str:
    """Make a new token for a host. The present one of this home is refused from now on."""
    owner = TokenOwner(home=home, rights="host", host=host)
    make_private(str(owner.file.parent))
    return _rotate(store, owner)


def revoke_host_tokens(store: Store, home: Path, host: str) -> int:
    """Let nobody accept a token of the host any more, whichever home has made it. Return how many there were."""
    with store.together():
        registry = read_registry(store)
        found = [entry for entry in registry.tokens if entry.host == host]
        for entry in found:
            revoke_token(store, entry.name)
    TokenOwner(home=home, rights="host", host=host).file.unlink(missing_ok=True)
    return len(found)


def _token_of(store: Store, owner: TokenOwner) -> str:
    token = load_token(owner.file, host=owner.host)
    if digest_of(token.encode()) not in read_registry(store).grants:
        _register(store, owner, token)
    return token


def _rotate(store: Store, owner: TokenOwner) -> str:
    present = load_token(owner.file, host=owner.host)
    with (
        store.together(),
        replacing_token(owner.file, host=owner.host) as fresh,
    ):  # the file first: a failure keeps both
        _register(store, owner, fresh, replaces=present)
    return fresh


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

    def changed(registry: TokenRegistry) -> TokenRegistry:
        entries = [
            msgspec.structs.replace(entry, session_keys=keys) if entry.digest == digest else entry
            for entry in registry.tokens
        ]
        return msgspec.structs.replace(registry, tokens=tuple(entries))

    known = read_registry(store)
    if changed(known) != known:
        with store.together():
            _save(store, changed(read_registry(store)))


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
            home=owner.home_name,
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
    of_hosts = tuple(entry for entry in registry.tokens if entry.host is not None)
    others = tuple(entry for entry in registry.tokens if entry.host is None)
    store.save_state(TOKENS_STATE, msgspec.json.encode(msgspec.structs.replace(registry, tokens=others)))
    if of_hosts or store.load_state(HOST_TOKENS_STATE) is not None:
        store.save_state(HOST_TOKENS_STATE, msgspec.json.encode(of_hosts))


def _record(store: Store, action: str, name: str) -> None:
    command_log.send(store, "token", now=time.time(), action=action, target=name)

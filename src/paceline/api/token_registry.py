"""The tokens of a fleet in its store: names, rights and SHA-256 digests, never a token itself.

Every home keeps its own two tokens in its files. All engines of a store accept the tokens of all its homes, and each
reads the registry again while it runs. A revoked digest stays refused.
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
from paceline.store import Store

TOKENS_STATE: Final = "access_tokens"
"""The key under which a store keeps the registry."""
MOST_REVOKED: Final = 1000
"""Revoked digests that are remembered. They only keep a home from using a revoked token again by mistake."""


class TokenEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One token of the fleet. `home` is the folder whose file holds it."""

    name: str
    rights: Rights
    digest: str
    home: str
    since: float
    session_keys: dict[str, str] = {}
    """The digests of the keys that sessions of this home present to a gateway, by account."""


class TokenRegistry(msgspec.Struct, frozen=True, kw_only=True):
    """All tokens of a store, and the digests of revoked ones."""

    tokens: tuple[TokenEntry, ...] = ()
    revoked: tuple[str, ...] = ()

    @property
    def grants(self) -> dict[str, Grant]:
        """What each token grants, by its digest."""
        return {entry.digest: Grant(name=entry.name, rights=entry.rights) for entry in self.tokens}

    @property
    def access(self) -> FleetAccess:
        """What engines go by."""
        keys: dict[str, frozenset[str]] = {}
        for entry in self.tokens:
            for account, digest in entry.session_keys.items():
                keys[account] = keys.get(account, frozenset()) | {digest}
        return FleetAccess(grants=self.grants, session_keys=keys)

    def entry_of(self, home: str, rights: Rights, digest: str | None) -> TokenEntry | None:
        """Return the entry of the home, which has this digest unless its folder or its machine was renamed."""
        by_digest = (entry for entry in self.tokens if entry.digest == digest)
        by_home = (entry for entry in self.tokens if (entry.home, entry.rights) == (home, rights))
        return next(by_digest, None) or next(by_home, None)

    def with_revoked(self, digest: str) -> tuple[str, ...]:
        return (*self.revoked, digest)[-MOST_REVOKED:]


def read_registry(store: Store) -> TokenRegistry:
    """Return the tokens of the store. Raise `StoreDamaged` if they cannot be read."""
    value = store.load_state(TOKENS_STATE)
    if value is None:
        return TokenRegistry()
    try:
        return msgspec.json.decode(value, type=TokenRegistry)
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
    token = load_token(home / FILES[rights])
    if digest_of(token.encode()) not in read_registry(store).grants:
        _register(store, home, rights, token)
    return token


def rotate_token(store: Store, home: Path, rights: Rights) -> str:
    """Give the home a new token in place of its present one, which nobody accepts any more."""
    path = home / FILES[rights]
    present = load_token(path)
    with store.together(), replacing_token(path) as fresh:  # the file first: a store that fails keeps both
        _register(store, home, rights, fresh, replaces=present)
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


def _register(store: Store, home: Path, rights: Rights, token: str, *, replaces: str | None = None) -> None:
    """Store the digest of the home's token, in place of an earlier one of this home."""
    digest = digest_of(token.encode())
    old = None if replaces is None else digest_of(replaces.encode())
    with store.together():  # it reads what it changes: another home may join at the same time
        registry = read_registry(store)
        if digest in registry.revoked:
            option = " --read-only" if rights == "read" else ""
            raise InvalidSettings(
                f"the token in {home / FILES[rights]} was revoked; `paceline token{option} --rotate` makes a new one"
            )
        before = registry.entry_of(home_name(home), rights, old)
        others = tuple(entry for entry in registry.tokens if entry is not before)
        name = before.name if before is not None else _free_name(rights, {entry.name for entry in others})
        keys = {} if before is None else before.session_keys
        entry = TokenEntry(
            name=name, rights=rights, digest=digest, home=home_name(home), since=time.time(), session_keys=keys
        )
        revoked = registry.revoked if old is None else registry.with_revoked(old)
        _save(store, TokenRegistry(tokens=(*others, entry), revoked=revoked))
        _record(store, "create" if old is None else "rotate", name)


def _free_name(rights: Rights, taken: set[str]) -> str:
    """Return the user and the machine, with a number if another home of them has joined before."""
    numbers = ("", *(f"-{number}" for number in range(2, len(taken) + 2)))
    names = (f"{person()}{number}{'-readonly' if rights == 'read' else ''}" for number in numbers)
    return next(name for name in names if name not in taken)


def _save(store: Store, registry: TokenRegistry) -> None:
    store.save_state(TOKENS_STATE, msgspec.json.encode(registry))


def _record(store: Store, action: str, name: str) -> None:
    command_log.send(store, "token", now=time.time(), action=action, target=name)

"""Clients' keys at the gateway: which key a request presents, what it may use, and its place in the queue.

Here: the keys of the store, read again while the daemon runs, and the rules of one key. Never here: its rules for
bodies (`key_rules.py`), what it has spent (`key_budgets.py`), and how keys are made (`paceline.engine.key_commands`).
"""

import logging
import time
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from hashlib import blake2s
from typing import Final

from paceline.engine.key_commands import KEY_PREFIX, digest_of_key, present_keys, scope_of_key
from paceline.errors import PacelineError
from paceline.gateway.errors import GatewayError
from paceline.limiter.slot import SlotGroup
from paceline.store import ClientKey, HashedKey

log = logging.getLogger("paceline.gateway")

READ_AGAIN_SECONDS = 0.5
"""How late a revoked key is noticed. Reading the small table takes a fraction of a millisecond."""
MISS_SECONDS = 0.05
"""Between two readings because of unknown keys: a new key works at once, and a wrong one costs few readings."""
OUTAGE_SECONDS = 5.0
"""Until the next reading after one that failed. A reading holds up all requests, and it may end with a time-out."""
MOST_PARTS = 64
"""Parts of one key at a time. Clients choose the ids, so the number needs a bound; further ones share one part."""
IDLE_PART_SECONDS = 600.0
"""When a part that sends nothing makes room for another."""
OTHER_PARTS = "other"
_PREFIX = KEY_PREFIX.encode()
_READING = frozenset({"GET", "HEAD", "OPTIONS"})

AFTER_WAIT_SECONDS = 0.05
"""The same for a call that has waited: its limits end with its key, so it may get its slot because of that."""
REVOKED: Final = "key_revoked"
"""The code of the error for a key that was revoked."""


class ClientKeys:
    """The keys of a store, by digest. `now` counts seconds, from any time on."""

    def __init__(
        self, read: Callable[[], Sequence[HashedKey]] | None = None, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._read = read
        self._now = now
        self._read_at = -READ_AGAIN_SECONDS
        self._by_digest: dict[str, ClientKey] = {}
        self._by_name: dict[str, ClientKey] = {}
        """Those that are not revoked."""
        self._parts: dict[str, dict[str, float]] = {}
        self.on_new: Callable[[], object] = lambda: None
        """Called when there is a new key: its limits must hold from its first call on."""

    def find(self, presented: bytes) -> ClientKey | None:
        """Return the key with this text, also one that is revoked. None if there never was one."""
        if not presented.startswith(_PREFIX):
            return None
        self._catch_up(READ_AGAIN_SECONDS)
        digest = digest_of_key(presented)
        found = self._by_digest.get(digest)
        if found is None:
            self._catch_up(MISS_SECONDS)
            found = self._by_digest.get(digest)
        return found

    def check_present(self, key: ClientKey) -> None:
        """Raise `GatewayError` if the key was revoked meanwhile."""
        self._catch_up(AFTER_WAIT_SECONDS)
        if self._by_name.get(key.name) != key:
            raise revoked(key)

    def group(self, key: ClientKey, fairness_id: bytes) -> SlotGroup:
        """Return the place of a request in the queue: its key, and the part of it that the client names."""
        part = self._part(key.name, fairness_id) if fairness_id else ""
        scope = scope_of_key(key.name)
        return SlotGroup(f"{scope}/{part}" if part else scope, key.weight, scope)

    def _part(self, name: str, fairness_id: bytes) -> str:
        """Return a short name for the id: it may be a person's address, and the queue is stored."""
        parts = self._parts.setdefault(name, {})
        part = blake2s(fairness_id, digest_size=8).hexdigest()
        now = self._now()
        if part not in parts and len(parts) >= MOST_PARTS:
            for idle in [each for each, used_at in parts.items() if now - used_at > IDLE_PART_SECONDS]:
                del parts[idle]
            if len(parts) >= MOST_PARTS:
                return OTHER_PARTS
        parts[part] = now
        return part

    def _catch_up(self, seconds: float) -> None:
        """Read the keys again, if the last time is that long ago. A store that fails leaves them as they are."""
        now = self._now()
        if self._read is None or now - self._read_at < seconds:
            return
        try:
            keys = self._read()
            before, self._by_digest = self._by_digest, {each.digest: each.key for each in keys}
            self._by_name = {each.key.name: each.key for each in present_keys(keys)}
            self._read_at = self._now()  # the reading itself may have taken long
        except PacelineError as error:
            self._read_at = self._now() + OUTAGE_SECONDS
            log.warning("the keys of clients stay as they are: %s", error)
        else:
            if before.keys() != self._by_digest.keys():
                self.on_new()


# -- the rules of one key ------------------------------------------------------------------------


def check_key_address(key: ClientKey, name: str) -> None:
    """Raise `GatewayError` if the key may not use the account or pool of that name."""
    if key.revoked_at is not None:
        raise revoked(key)
    if key.pool is not None and key.pool != name:
        raise GatewayError(403, "address_not_allowed", f"the key {key.name} may use /gateway/{key.pool}/ only")


def check_uncounted(key: ClientKey, method: str, path: bytes) -> None:
    """Raise `GatewayError` for a change that no model call counts, such as a batch: it would bypass the key's rules."""
    if method in _READING or path.endswith((b"/count_tokens", b":countTokens", b"/input_tokens")):
        return
    if key.models or key.budget is not None:
        rules = "models" if key.models else "a budget"
        message = f"the key {key.name} has {rules}, so it may only call models: this call would not be counted"
        raise GatewayError(403, "call_not_allowed", message)


def check_model(key: ClientKey, scope: str, model: str | None) -> None:
    """Raise `GatewayError` unless the key may call the model, which the scope names canonically."""
    if not key.models:
        return
    canonical = scope.split("/", 2)[-1]
    if model is None or not any(fnmatchcase(canonical, allowed) for allowed in key.models):
        named = "a call without a model" if model is None else f"the model {model!r:.80}"
        allowed = ", ".join(key.models)
        raise GatewayError(403, "model_not_allowed", f"the key {key.name} does not allow {named}; it allows: {allowed}")


def revoked(key: ClientKey) -> GatewayError:
    return GatewayError(401, REVOKED, f"the key {key.name} was revoked; ask for a new one")

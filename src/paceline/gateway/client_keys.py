"""Clients' keys at the gateway: which key a request presents, and what it may use.

Here: the keys of the store, read again in threads while the daemon runs, so that a store that hangs holds up only the
requests that need it, and the rules of one key. Never here: its rules for bodies (`request_access.py`), what it has
spent (`spend_ledger.py`), and how keys are made (`paceline.engine.key_commands`).
"""

import asyncio
import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from paceline.core.values.model_patterns import is_listed
from paceline.engine.key_commands import KEY_PREFIX, digest_of_key, present_keys
from paceline.errors import PacelineError, StoreBusy
from paceline.gateway.routes import GatewayError, Route
from paceline.store import ClientKey, HashedKey, Store

log = logging.getLogger("paceline.gateway")

READ_AGAIN_SECONDS = 0.5
"""How late a revoked key is noticed. Reading the small table takes a fraction of a millisecond."""
MISS_SECONDS = 0.05
"""Between two readings because of unknown keys: a new key works at once, and a wrong one costs few readings."""
OUTAGE_SECONDS = 5.0
"""How long requests do not wait for a store that failed or hung: they use the keys as they were read last."""
_PREFIX = KEY_PREFIX.encode()

AFTER_WAIT_SECONDS = 0.05
"""The same for a call that has waited: its limits end with its key, so it may get its slot because of that."""
REVOKED: Final = "key_revoked"
"""The code of the error for a key that was revoked."""
LONGEST_READ_SECONDS = 1.0
"""How long a request waits for a reading: a hundred times what a healthy store needs, and less than people notice."""

Answer = TypeVar("Answer")


def in_thread(read: Callable[[], Answer]) -> "asyncio.Future[Answer]":
    """Return the future result of a reading. Its thread does not keep the process alive, however long it hangs."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Answer] = loop.create_future()

    def settle(answer: Answer | None, error: Exception | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(answer)  # type: ignore[arg-type]
        else:
            future.set_exception(error)

    def run() -> None:
        answer, failure = None, None
        try:
            answer = read()
        except Exception as error:  # noqa: BLE001 - it is raised where the reading was asked for
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop may be closed by now
            loop.call_soon_threadsafe(settle, answer, failure)

    threading.Thread(target=run, name="paceline-store-reading", daemon=True).start()
    return future


class BackgroundStore:
    """A store that is opened by the first reading, for one thread at a time."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open_store = open_store
        self._store: Store | None = None
        self._lock = threading.Lock()

    def client_keys(self) -> Sequence[HashedKey]:
        return self._read(lambda store: store.client_keys())

    def close(self) -> None:
        """Close the store, unless a reading hangs: it ends with the process."""
        if self._lock.acquire(timeout=LONGEST_READ_SECONDS):
            try:
                if self._store is not None:
                    self._store.close()
            finally:
                self._lock.release()

    def _read(self, query: Callable[[Store], Answer]) -> Answer:
        if not self._lock.acquire(timeout=LONGEST_READ_SECONDS):
            raise StoreBusy("an earlier reading has not ended yet")
        try:
            if self._store is None:
                self._store = self._open_store()
            return query(self._store)
        finally:
            self._lock.release()


class ClientKeys:
    """The keys of a store, by digest, as they were read last. `now` counts seconds, from any time on."""

    def __init__(
        self, read: Callable[[], Sequence[HashedKey]] | None = None, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        """`read` is called in a thread."""
        self._read = read
        self._now = now
        self._read_at = -math.inf
        """When the last reading that succeeded began."""
        self._outage_until = -math.inf
        self._reading: asyncio.Future[None] | None = None
        self._by_digest: dict[str, ClientKey] = {}
        self._by_name: dict[str, ClientKey] = {}
        """Those that are not revoked."""
        self.on_new: Callable[[], object] = lambda: None
        """Called when there is a new key: its limits must hold from its first call on."""

    @property
    def is_outage(self) -> bool:
        """Whether the store failed or hung a moment ago."""
        return self._now() < self._outage_until

    def find(self, presented: bytes) -> ClientKey | None:
        """Return the key with this text, also one that is revoked. None if there never was one."""
        return self._by_digest.get(digest_of_key(presented)) if is_client_key(presented) else None

    def check_present(self, key: ClientKey) -> None:
        """Raise `GatewayError` if the key was revoked meanwhile."""
        present = self._by_name.get(key.name)
        if present is not key and present != key:  # most calls compare a key with itself
            raise revoked(key)

    def check_use(self, key: ClientKey, route: Route, method: str) -> None:
        """Raise `GatewayError` if the key was revoked, or for a path that is of no use to call models.

        Files, batches and stored answers belong to the account, so to all its teams, and no limit of a key counts them.
        """
        self.check_present(key)
        if key.all_paths or method in route.model_methods:
            return
        path = route.path.decode("latin-1")
        message = (
            f"the key {key.name} may call models, list them and count tokens, and {method} {path:.80} is none of "
            "these; a key made with --all-paths may do it"
        )
        raise GatewayError(403, "path_not_allowed", message)

    def is_due(self, seconds: float) -> bool:
        """Return whether the keys were not read within these seconds."""
        return self._read is not None and self._read_at <= self._now() - seconds

    async def catch_up(self, seconds: float) -> None:
        """Read the keys again unless that was done within these seconds. A store that fails leaves them as they are.

        All requests wait for the same reading, and none of them for long.
        """
        wanted = self._now() - seconds
        for _ in range(2):  # a reading that had begun before may lack what this request is about
            if self._read is None or self._read_at > wanted or self.is_outage:
                return
            if self._reading is None:
                self._reading = asyncio.ensure_future(self._read_again(self._read))
            try:
                async with asyncio.timeout(LONGEST_READ_SECONDS):
                    await asyncio.shield(self._reading)
            except TimeoutError:
                self._note_outage("the store does not answer")

    async def _read_again(self, read: Callable[[], Sequence[HashedKey]]) -> None:
        began_at = self._now()
        try:
            keys = await in_thread(read)
        except PacelineError as error:
            self._note_outage(str(error))
            return
        finally:
            self._reading = None
        before, self._by_digest = self._by_digest, {each.digest: each.key for each in keys}
        self._by_name = {each.key.name: each.key for each in present_keys(keys)}
        self._read_at, self._outage_until = began_at, -math.inf
        if before.keys() != self._by_digest.keys():
            try:
                self.on_new()
            except PacelineError as error:
                log.warning("the limits of a new key hold a little later: %s", error)

    def _note_outage(self, why: str) -> None:
        if not self.is_outage:
            log.warning("the keys of clients stay as they are: %s", why)
        self._outage_until = self._now() + OUTAGE_SECONDS


def is_client_key(presented: bytes) -> bool:
    """Return whether this is the key of a client, known or not. No token looks like one."""
    return presented.startswith(_PREFIX)


# -- the rules of one key ------------------------------------------------------------------------


def check_key_address(key: ClientKey, name: str) -> None:
    """Raise `GatewayError` if the key may not use the account or pool of that name."""
    if key.revoked_at is not None:
        raise revoked(key)
    if key.pool is not None and key.pool != name:
        raise GatewayError(403, "address_not_allowed", f"the key {key.name} may use /gateway/{key.pool}/ only")


def check_model(key: ClientKey, provider: str, model: str | None) -> None:
    """Raise `GatewayError` unless the key may call the model of an account of that provider."""
    if not key.models:
        return
    if model is None or not is_listed(key.models, model, provider):
        named = "a call without a model" if model is None else f"the model {model!r:.80}"
        allowed = ", ".join(key.models)
        raise GatewayError(403, "model_not_allowed", f"the key {key.name} does not allow {named}; it allows: {allowed}")


def revoked(key: ClientKey) -> GatewayError:
    return GatewayError(401, REVOKED, f"the key {key.name} was revoked; ask for a new one")

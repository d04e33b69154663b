"""Slots of the daemon (`paceline up`), over HTTP, with the interface of the Limiter. Every call is awaited.

    async with Client() as client, client.slot("anthropic/max-1/opus-4-6", session="s1") as slot:
        ...
        await slot.rate_limited(retry_after=12.0)

All programs that use one daemon share every limit with each other, with its units and with the gateway.
"""

import secrets
from urllib.parse import quote

import msgspec

from paceline.client.daemon_calls import (
    RESPONSE_SECONDS,
    DaemonConnection,
    DeferredReply,
    Json,
    SlotReply,
    decode_reply,
    scope_path,
    signal_body,
)
from paceline.client.slot import ClientSlot, ClientSlotContext
from paceline.client.slot_wait import SlotWait
from paceline.clock import Clock, SystemClock
from paceline.core import Deferred, ScopeStatus
from paceline.core.signals import RateLimited, Signal
from paceline.core.values.scopes import RUNS, SESSIONS, canonical_scope, path_scopes
from paceline.core.values.validation import check_callable, check_limit, check_name, check_seconds
from paceline.errors import InvalidInput
from paceline.limiter.slot import OnQueued
from paceline.limiter.status import LimiterStatus, limiter_status


class Client:
    """A client for the daemon's slots, limits and scopes.

    `url` defaults to PACELINE_URL, else to the running daemon of the home. It may name several engines of a fleet,
    separated by commas; any one that answers is enough. `token` defaults to PACELINE_TOKEN, else
    to the home's. A slot lasts `ttl` seconds from its last renewal. A wait survives a daemon that is away for up to
    `patience` seconds.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        ttl: float = 60.0,
        patience: float = 60.0,
        clock: Clock | None = None,
    ) -> None:
        self._ttl = check_seconds(ttl, "ttl", above_zero=True)
        self._patience = check_seconds(patience, "patience")
        self._clock = SystemClock() if clock is None else clock
        self._daemon = DaemonConnection(url, token)

    @property
    def url(self) -> str:
        return self._daemon.url

    @property
    def clock(self) -> Clock:
        return self._clock

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the client. Pending waits raise CapacityError. Slots still in use last until their leases expire."""
        await self._daemon.aclose()

    # -- slots -------------------------------------------------------------------------------------

    def slot(
        self,
        scope: str,
        *,
        session: str | None = None,
        priority: int = 0,
        since: float | None = None,
        timeout: float | None = None,
        on_queued: OnQueued = None,
    ) -> ClientSlotContext:
        """Return a context manager: it waits for a slot, renews it while the block runs, and always releases it."""
        return ClientSlotContext(
            lambda: self.acquire(
                scope, session=session, priority=priority, since=since, timeout=timeout, on_queued=on_queued
            )
        )

    async def acquire(
        self,
        scope: str,
        *,
        session: str | None = None,
        priority: int = 0,
        since: float | None = None,
        timeout: float | None = None,
        on_queued: OnQueued = None,
    ) -> ClientSlot:
        """Wait for a slot. The caller must renew it within `ttl` seconds, and release it."""
        if timeout is not None:
            check_seconds(timeout, "timeout")
        if on_queued is not None:
            check_callable(on_queued, "on_queued")
        began = self._clock.now()
        body = self._request(scope, session, priority, since, began)
        wait = SlotWait(
            lambda seconds: self._take(body, session, began, seconds),
            clock=self._clock,
            timeout=timeout,
            patience=self._patience,
        )
        return await wait.slot(on_queued)

    async def try_acquire(
        self, scope: str, *, session: str | None = None, priority: int = 0, since: float | None = None
    ) -> ClientSlot | Deferred:
        """Return a slot, or the reason why there is none now."""
        began = self._clock.now()
        return await self._take(self._request(scope, session, priority, since, began), session, began, 0.0)

    def _request(
        self, scope: str, session: str | None, priority: int, since: float | None, began: float
    ) -> dict[str, object]:
        """Build the body of a slot request. `since` keeps the rank of a wait that outlives a daemon's restart."""
        path_scopes(scope)
        if session is not None:
            check_name(session, "session")
        if type(priority) is not int:
            raise InvalidInput(f"priority must be a whole number; got {priority!r:.80}")
        if since is not None and type(since) not in (float, int):
            raise InvalidInput(f"since must be a time in seconds, or None; got {since!r:.80}")
        return {
            "scope": scope,
            "session": session,
            "priority": priority,
            "since": began if since is None else since,
            "ttl": self._ttl,
            "idempotency_key": secrets.token_hex(16),
        }

    async def _take(
        self, body: dict[str, object], session: str | None, began: float, wait: float
    ) -> ClientSlot | Deferred:
        sent = self._clock.now()
        response = await self._daemon.send("POST", "/v1/slots", body | {"wait": wait}, within=wait + RESPONSE_SECONDS)
        if response.status_code == 409:
            deferred = decode_reply(response, DeferredReply)
            return Deferred("", deferred.reason, deferred.scope, deferred.detail, deferred.retry_at, deferred.position)
        granted = decode_reply(response, SlotReply)
        return ClientSlot(self._daemon, self._clock, granted, session=session, ttl=self._ttl, began=began, sent=sent)

    # -- limits and signals ------------------------------------------------------------------------

    async def set_limit(self, scope: str, limit: int | None) -> None:
        """Set the configured limit of a scope or a pattern. What was learnt there is forgotten."""
        if check_limit(limit) is None:
            await self.remove_limit(scope)
        else:
            decode_reply(
                await self._daemon.send("PUT", f"/concurrency/limits/{scope_path(scope)}", {"limit": limit}), Json
            )

    async def get_limit(self, scope: str) -> int | None:
        """Return the configured limit."""
        response = await self._daemon.send("GET", f"/concurrency/limits/{scope_path(scope)}")
        return None if response.status_code == 404 else int(decode_reply(response, Json)["limit"])

    async def remove_limit(self, scope: str) -> None:
        """Remove the configured limit. Live slots stay counted, and a pause stays."""
        response = await self._daemon.send("DELETE", f"/concurrency/limits/{scope_path(scope)}")
        if response.status_code != 404:
            decode_reply(response, Json)

    async def restore_limit(self, scope: str) -> None:
        """Return to the configured limit: forget what was learnt."""
        decode_reply(await self._daemon.send("POST", f"/concurrency/restore/{scope_path(scope)}"), Json)

    async def limits(self) -> dict[str, int]:
        """Return every configured limit by scope or pattern. The global pool is in `status`."""
        limits = decode_reply(await self._daemon.send("GET", "/concurrency/limits"), Json)["limits"]
        return {each["providerId"]: each["limit"] for each in limits if each["providerId"] not in (SESSIONS, RUNS)}

    async def set_cooldown(self, scope: str, cooldown: float) -> None:
        """Set how long a released slot still counts in the scope, in seconds, rounded to milliseconds."""
        milliseconds = round(check_seconds(cooldown, "cooldown") * 1000)
        path = f"/concurrency/cooldown/{scope_path(scope)}"
        decode_reply(await self._daemon.send("PUT", path, {"cooldownMs": milliseconds}), Json)

    async def get_cooldown(self, scope: str) -> float | None:
        """Return the cooldown in seconds, None if the daemon does not know the scope."""
        response = await self._daemon.send("GET", f"/concurrency/cooldown/{scope_path(scope)}")
        return None if response.status_code == 404 else float(decode_reply(response, Json)["cooldownMs"]) / 1000

    async def report(self, scope: str, signal: Signal) -> None:
        """Report a signal of `paceline.core.signals` about a scope."""
        body = signal_body(signal) | {"scope": canonical_scope(scope)}
        decode_reply(await self._daemon.send("POST", "/v1/signals", body), Json)

    async def report_rate_limit(self, scope: str, retry_after: float | None = None) -> None:
        await self.report(scope, RateLimited(retry_after=retry_after))

    # -- status ------------------------------------------------------------------------------------

    async def scope_status(self, scope: str) -> ScopeStatus | None:
        """Return the status of one scope, None if nothing was ever set, requested or learnt there."""
        return next(iter(await self._scopes(canonical_scope(scope))), None)

    async def statuses(self) -> list[ScopeStatus]:
        """Return the status of every known scope."""
        return await self._scopes()

    async def status(self) -> LimiterStatus:
        """Return the status of the global pool."""
        sessions, runs = await self._scopes(SESSIONS, RUNS)
        return limiter_status(sessions, runs)

    async def _scopes(self, *names: str) -> list[ScopeStatus]:
        query = "&".join(f"scope={quote(name, safe='')}" for name in names)
        response = decode_reply(await self._daemon.send("GET", f"/v1/scopes?{query}"), Json)
        return msgspec.convert(response["scopes"], list[ScopeStatus])

"""Slots of the daemon (`paceline up`), over HTTP, with the face of the Limiter. Every call is awaited.

    async with Client() as client, client.slot("anthropic/max-1/opus-4-6", session="s1") as slot:
        ...
        await slot.rate_limited(retry_after=12.0)

All programs that ask one daemon share every limit with each other, with its units and with the gateway.
"""

import secrets
from urllib.parse import quote

import msgspec

from paceline.client.daemon_calls import (
    ANSWER_SECONDS,
    DeferredAnswer,
    Json,
    SlotAnswer,
    Wire,
    read,
    scope_path,
    signal_body,
)
from paceline.client.slot import ClientSlot, ClientSlotContext
from paceline.client.slot_wait import Wait
from paceline.clock import Clock, SystemClock
from paceline.core import Deferred, ScopeStatus
from paceline.core.signals import RateLimited, Signal
from paceline.core.values.scopes import RUNS, SESSIONS, canonical_scope, path_scopes
from paceline.core.values.validation import check_callable, check_limit, check_name, check_seconds
from paceline.errors import InvalidInput
from paceline.limiter.slot import OnQueued
from paceline.limiter.status import LimiterStatus, limiter_status


class Client:
    """The daemon's slots, limits and what it knows of scopes.

    `url` is PACELINE_URL or where the daemon of the home is, `token` PACELINE_TOKEN or the one of the home. A slot
    lasts `ttl` seconds from its last renewal. A wait outlasts a daemon that is away for up to `patience` seconds.
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
        self._wire = Wire(url, token)

    @property
    def url(self) -> str:
        return self._wire.url

    @property
    def clock(self) -> Clock:
        return self._clock

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Hang up: who waits gets CapacityError. Slots that are held last until their leases run out."""
        await self._wire.aclose()

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
        """`async with` a slot: it waits its turn, is kept while the body runs, and always comes back."""
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
        """Wait for a slot. The holder releases it, and renews it within `ttl` seconds."""
        if timeout is not None:
            check_seconds(timeout, "timeout")
        if on_queued is not None:
            check_callable(on_queued, "on_queued")
        began = self._clock.now()
        body = self._request(scope, session, priority, since, began)
        wait = Wait(
            lambda seconds: self._take(body, session, began, seconds),
            clock=self._clock,
            timeout=timeout,
            patience=self._patience,
        )
        return await wait.slot(on_queued)

    async def try_acquire(
        self, scope: str, *, session: str | None = None, priority: int = 0, since: float | None = None
    ) -> ClientSlot | Deferred:
        """A slot now, or what stands against it."""
        began = self._clock.now()
        return await self._take(self._request(scope, session, priority, since, began), session, began, 0.0)

    def _request(
        self, scope: str, session: str | None, priority: int, since: float | None, began: float
    ) -> dict[str, object]:
        """A wait that goes on at a daemon that was started anew counts from when it began."""
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
        answer = await self._wire.send("POST", "/v1/slots", body | {"wait": wait}, within=wait + ANSWER_SECONDS)
        if answer.status_code == 409:
            why = read(answer, DeferredAnswer)
            return Deferred("", why.reason, why.scope, why.detail, why.retry_at, why.position)
        granted = read(answer, SlotAnswer)
        return ClientSlot(self._wire, self._clock, granted, session=session, ttl=self._ttl, began=began, sent=sent)

    # -- limits and what is learnt -----------------------------------------------------------------

    async def set_limit(self, scope: str, limit: int | None) -> None:
        """Set a limit by hand, for a scope or a pattern; what was learnt there is forgotten."""
        if check_limit(limit) is None:
            await self.remove_limit(scope)
        else:
            read(await self._wire.send("PUT", f"/concurrency/limits/{scope_path(scope)}", {"limit": limit}), Json)

    async def get_limit(self, scope: str) -> int | None:
        """The configured limit."""
        answer = await self._wire.send("GET", f"/concurrency/limits/{scope_path(scope)}")
        return None if answer.status_code == 404 else int(read(answer, Json)["limit"])

    async def remove_limit(self, scope: str) -> None:
        """Unlimited from now on; live slots stay counted, a pause stays."""
        answer = await self._wire.send("DELETE", f"/concurrency/limits/{scope_path(scope)}")
        if answer.status_code != 404:
            read(answer, Json)

    async def restore_limit(self, scope: str) -> None:
        """Back to the configured limit: forget what was learnt."""
        read(await self._wire.send("POST", f"/concurrency/restore/{scope_path(scope)}"), Json)

    async def limits(self) -> dict[str, int]:
        """Every configured limit by scope or pattern; the global pool is in `status`."""
        limits = read(await self._wire.send("GET", "/concurrency/limits"), Json)["limits"]
        return {each["providerId"]: each["limit"] for each in limits if each["providerId"] not in (SESSIONS, RUNS)}

    async def set_cooldown(self, scope: str, cooldown: float) -> None:
        """How long a released slot still counts in the scope, in seconds, to the millisecond."""
        milliseconds = round(check_seconds(cooldown, "cooldown") * 1000)
        path = f"/concurrency/cooldown/{scope_path(scope)}"
        read(await self._wire.send("PUT", path, {"cooldownMs": milliseconds}), Json)

    async def get_cooldown(self, scope: str) -> float | None:
        """In seconds; None where the daemon knows nothing of the scope."""
        answer = await self._wire.send("GET", f"/concurrency/cooldown/{scope_path(scope)}")
        return None if answer.status_code == 404 else float(read(answer, Json)["cooldownMs"]) / 1000

    async def report(self, scope: str, signal: Signal) -> None:
        """Tell what was learnt about a scope: any signal of `paceline.core.signals`."""
        body = signal_body(signal) | {"scope": canonical_scope(scope)}
        read(await self._wire.send("POST", "/v1/signals", body), Json)

    async def report_rate_limit(self, scope: str, retry_after: float | None = None) -> None:
        await self.report(scope, RateLimited(retry_after=retry_after))

    # -- looking in --------------------------------------------------------------------------------

    async def scope_status(self, scope: str) -> ScopeStatus | None:
        """One scope, or None if nothing was ever set, asked or learnt there."""
        return next(iter(await self._scopes(canonical_scope(scope))), None)

    async def statuses(self) -> list[ScopeStatus]:
        """Every scope of which something is known."""
        return await self._scopes()

    async def status(self) -> LimiterStatus:
        """The global pool."""
        sessions, runs = await self._scopes(SESSIONS, RUNS)
        return limiter_status(sessions, runs)

    async def _scopes(self, *names: str) -> list[ScopeStatus]:
        query = "&".join(f"scope={quote(name, safe='')}" for name in names)
        answer = read(await self._wire.send("GET", f"/v1/scopes?{query}"), Json)
        return msgspec.convert(answer["scopes"], list[ScopeStatus])

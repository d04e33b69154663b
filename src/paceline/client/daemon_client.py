"""Slots of the daemon (`paceline up`), over HTTP, with the interface of the Limiter. Every call is awaited.

    async with Client() as client, client.slot("anthropic/max-1/opus-4-6", session="s1") as slot:
        ...
        await slot.rate_limited(retry_after=12.0)

All programs that use one daemon share every limit with each other, with its units and with the gateway.
"""

import asyncio
import logging
import math
import secrets
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TypeVar, Unpack
from urllib.parse import quote

import httpx
import msgspec

from paceline import errors
from paceline.client.daemon_calls import (
    RESPONSE_SECONDS,
    DaemonConnection,
    DeferredReply,
    Json,
    SlotReply,
    decode_reply,
    scope_path,
    signal_body,
    text_of_problem,
)
from paceline.clock import Clock, SystemClock
from paceline.core import Deferred, ScopeStatus
from paceline.core.signals import Overloaded, QuotaClosed, RateLimited, Signal
from paceline.core.values.scopes import RUNS, SESSIONS, canonical_scope, path_scopes
from paceline.core.values.validation import check_callable, check_limit, check_name, check_seconds
from paceline.limiter import LimiterStatus, OnQueued, QueueOptions

log = logging.getLogger("paceline.client")
Reply = TypeVar("Reply")

RENEWALS_PER_LEASE = 3
"""Two renewals may fail before the lease expires, and renewals stay rare."""
LONGEST_RETRY_SECONDS = 1.0
"""Between two calls to renew while the daemon is away: it must be noticed quickly when it is back."""
RELEASE_PAUSES = (0.1, 0.4, 1.5)
"""Seconds between calls to release at the end of a block. A restarting daemon is back soon; after that the lease
expires by itself."""

POLL_SECONDS = 30.0
"""The longest wait in one call. Proxies and routers often cut idle connections after a minute."""
FIRST_PAUSE_SECONDS = 0.1
"""Before the second call to a daemon that is away. It doubles with every failure: a restart takes seconds."""
LONGEST_PAUSE_SECONDS = 2.0
"""The longest such pause. A waiter should return soon after the daemon does."""


class ClientSlot:
    """A slot of the daemon. A caller of `acquire` must renew it within its `ttl`, and release it."""

    def __init__(
        self,
        daemon: DaemonConnection,
        clock: Clock,
        reply: SlotReply,
        *,
        session: str | None,
        ttl: float,
        began: float,
        sent: float,
    ) -> None:
        self._daemon = daemon
        self._clock = clock
        self._ttl = ttl
        self._kept_until = sent + ttl
        self._is_lost = False
        self._is_abandoned = False
        self._renewal: asyncio.Task[None] | None = None
        self.id = reply.id
        self.scope = reply.scope
        self.token = reply.token
        """The fencing token: a later grant always has a larger one."""
        self.expires_at = reply.expires_at
        """When the lease expires unless it is renewed, on the daemon's clock."""
        self.session = session
        self.waited = clock.now() - began
        self.granted_at = reply.expires_at - ttl
        self.released = False

    @property
    def lost(self) -> bool:
        """Whether the lease expired before the release. While the daemon is away, computed on the local clock."""
        return not self.released and (self._is_lost or self._clock.now() >= self._kept_until)

    async def renew(self) -> None:
        """Extend the lease by another `ttl`. Raises `SlotLost` if it has expired."""
        sent = self._clock.now()
        self.expires_at = (await self._post("renew", None, SlotReply)).expires_at
        self._kept_until = sent + self._ttl

    async def release(self) -> None:
        """Release the slot. Without an earlier report, the call counts as a success. Repeating has no effect."""
        if not self.released:
            query = "?abandon=true" if self._is_abandoned else ""
            await self._daemon.call("DELETE", f"/v1/slots/{self.id}{query}")
            self.released = True

    async def abandon(self) -> None:
        """Release the slot without an outcome, because the call never reached the provider, or broke."""
        self._is_abandoned = True  # remembered for the end of the block, if the daemon is away now
        await self.release()

    async def report(self, signal: Signal) -> None:
        """Report a signal of the provider. Raises `SlotLost` if the lease has expired."""
        await self._post("signal", signal_body(signal), Json)

    async def rate_limited(self, retry_after: float | None = None) -> None:
        await self.report(RateLimited(retry_after=retry_after))

    async def overloaded(self, retry_after: float | None = None) -> None:
        await self.report(Overloaded(retry_after=retry_after))

    async def quota_closed(self, resets_at: float | None = None, window: str | None = None) -> None:
        await self.report(QuotaClosed(resets_at=resets_at, window=window))

    def __repr__(self) -> str:
        return f"<ClientSlot {self.id} in {self.scope}>"

    async def _post(self, verb: str, body: dict[str, object] | None, kind: type[Reply]) -> Reply:
        """Return the daemon's reply. Raises `SlotLost` if it does not know the slot any more."""
        response = await self._daemon.send("POST", f"/v1/slots/{self.id}/{verb}", body)
        if response.status_code in (404, 409):
            self._is_lost = True
            raise errors.SlotLost(text_of_problem(response))
        return decode_reply(response, kind)

    def start_renewals(self) -> None:
        """Renew until the slot is lost, or `stop_renewals` is called."""
        self._renewal = asyncio.create_task(self._keep_renewed())

    def stop_renewals(self) -> None:
        """Let the lease expire, unless the holder releases the slot."""
        if self._renewal is not None:
            self._renewal.cancel()

    async def _keep_renewed(self) -> None:
        """Renew until the slot is lost. If the daemon is away, retry soon."""
        pause = self._ttl / RENEWALS_PER_LEASE
        while True:
            await self._clock.sleep(pause)
            try:
                await self.renew()
                pause = self._ttl / RENEWALS_PER_LEASE
            except errors.SlotLost as error:
                log.warning("%r is lost: %s", self, error)
                return
            except errors.DaemonError as error:
                log.warning("%r could not be renewed: %s", self, error)
                pause = min(LONGEST_RETRY_SECONDS, self._ttl / RENEWALS_PER_LEASE)

    async def release_at_end(self) -> None:
        """Release at the end of a block. A daemon that is away is logged and does not fail the block."""
        for pause in RELEASE_PAUSES:
            try:
                await self.release()
                return
            except errors.DaemonError as error:
                log.warning("%r could not be released: %s", self, error)
            await self._clock.sleep(pause)
        log.warning("%r was not released; its lease will expire", self)


class ClientSlotContext:
    """The `async with` of `client.slot(...)`: it waits, renews the slot, and releases it. One slot at a time."""

    def __init__(self, acquire: Callable[[], Awaitable[ClientSlot]]) -> None:
        self._acquire = acquire
        self._is_entered = False

    async def __aenter__(self) -> ClientSlot:
        if self._is_entered:
            raise RuntimeError("this slot(...) is in use; call client.slot(...) again for each `async with`")
        self._is_entered = True
        try:
            self._slot = await self._acquire()
        except BaseException:
            self._is_entered = False
            raise
        self._slot.start_renewals()
        return self._slot

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_entered = False
        self._slot.stop_renewals()
        await self._slot.release_at_end()


class SlotOptions(QueueOptions, total=False):
    """What a caller that waits may say besides."""

    timeout: float | None
    on_queued: OnQueued


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
        self._named: dict[str, ClientSlot] = {}

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
        for key in list(self._named):
            self._forget(key)
        await self._daemon.aclose()

    # -- slots -------------------------------------------------------------------------------------

    def slot(self, scope: str, **options: Unpack[SlotOptions]) -> ClientSlotContext:
        """Return a context manager: it waits for a slot, renews it while the block runs, and always releases it."""
        return ClientSlotContext(lambda: self.acquire(scope, **options))

    async def acquire(
        self, scope: str, *, timeout: float | None = None, on_queued: OnQueued = None, **options: Unpack[QueueOptions]
    ) -> ClientSlot:
        """Wait for a slot. The caller must renew it within `ttl` seconds, and release it.

        A daemon that goes away is waited for, up to `patience` seconds; one that never answered is not.
        """
        if timeout is not None:
            check_seconds(timeout, "timeout")
        if on_queued is not None:
            check_callable(on_queued, "on_queued")
        began = self._clock.now()
        until = math.inf if timeout is None else began + timeout
        body = self._request(scope, began, **options)  # all calls of the wait share its idempotency key
        wait = min(POLL_SECONDS, until - began) if on_queued is None else 0.0  # learn at once whether there is a queue
        was_reachable, failing_since, pause = False, math.inf, FIRST_PAUSE_SECONDS
        while True:
            try:
                reply = await self._take(body, options.get("session"), began, wait)
            except errors.DaemonUnreachable as error:
                if not was_reachable and isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout):
                    raise
                now = self._clock.now()
                was_reachable, failing_since = True, min(failing_since, now)
                if now >= until:
                    raise errors.SlotTimeout(f"no slot within {timeout:g} s: {error}") from error
                if now - failing_since >= self._patience:
                    raise
                await self._clock.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            else:
                if isinstance(reply, ClientSlot):
                    return reply
                was_reachable, failing_since, pause = True, math.inf, FIRST_PAUSE_SECONDS
                if on_queued is not None:
                    on_queued(reply)
                    on_queued = None
                if self._clock.now() >= until:
                    raise errors.SlotTimeout(f"no slot within {timeout:g} s: {reply.detail}", reply)
            wait = min(POLL_SECONDS, max(0.0, until - self._clock.now()))

    async def try_acquire(self, scope: str, **options: Unpack[QueueOptions]) -> ClientSlot | Deferred:
        """Return a slot, or the reason why there is none now."""
        began = self._clock.now()
        return await self._take(self._request(scope, began, **options), options.get("session"), began, 0.0)

    async def acquire_session(self, session: str) -> None:
        """Take a slot for a whole session, or raise `MaxSessionsExceeded`. No-op for one that has it.

        It is renewed until it is released. The daemon knows it by its name too, so a client that is back finds it.
        """
        check_name(session, "session")
        await self._acquire_named(f"session:{session}", SESSIONS, session, errors.MaxSessionsExceeded)

    async def acquire_run(self, session: str, run: str, *, scope: str | None = None) -> None:
        """Take a slot for one run of a session, or raise `MaxRunsExceeded`. No-op for one that has it."""
        check_name(session, "session")
        key = f"run:{check_name(run, 'run')}"
        owner = self._named[key].session if key in self._named else session
        if owner != session:
            raise errors.TicketConflict(
                f"run {run!r} belongs to session {owner!r}; choose another id for session {session!r}"
            )
        await self._acquire_named(
            key, RUNS if scope is None else canonical_scope(scope), session, errors.MaxRunsExceeded
        )

    async def _acquire_named(self, key: str, scope: str, session: str, error: type[errors.CapacityError]) -> None:
        named = self._named.get(key)
        if named is not None and not named.lost:
            return
        self._forget(key)
        body: dict[str, object] = {"scope": scope, "session": session, "ttl": self._ttl, "idempotency_key": key}
        slot = await self._take(body, session, self._clock.now(), 0.0)
        if isinstance(slot, Deferred):
            raise error(slot.detail)
        slot.start_renewals()
        self._named[key] = slot

    async def release_run(self, run: str) -> None:
        """Release a run's slot. Idempotent."""
        key = f"run:{check_name(run, 'run')}"
        if key in self._named:
            await self._named[key].release()
            self._forget(key)

    async def release_session(self, session: str) -> None:
        """Release the slots of all runs of the session, and then its own. Idempotent."""
        await self._daemon.call("DELETE", f"/v1/slots?session={quote(check_name(session, 'session'), safe='')}")
        for key in [key for key, named in self._named.items() if named.session == session]:
            self._forget(key)

    def _forget(self, key: str) -> None:
        """Stop to renew a slot. It lasts until its lease expires."""
        named = self._named.pop(key, None)
        if named is not None:
            named.stop_renewals()

    def _request(
        self, scope: str, began: float, *, session: str | None = None, priority: int = 0, since: float | None = None
    ) -> dict[str, object]:
        """Build the body of a slot request. `since` keeps the rank of a wait that outlives a daemon's restart."""
        path_scopes(scope)
        if session is not None:
            check_name(session, "session")
        if type(priority) is not int:
            raise errors.InvalidInput(f"priority must be a whole number; got {priority!r:.80}")
        if since is not None and type(since) not in (float, int):
            raise errors.InvalidInput(f"since must be a time in seconds, or None; got {since!r:.80}")
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
            await self._daemon.call("PUT", f"/concurrency/limits/{scope_path(scope)}", {"limit": limit})

    async def get_limit(self, scope: str) -> int | None:
        response = await self._daemon.send("GET", f"/concurrency/limits/{scope_path(scope)}")
        return None if response.status_code == 404 else int(decode_reply(response, Json)["limit"])

    async def remove_limit(self, scope: str) -> None:
        """Remove the configured limit. Live slots stay counted, and a pause stays."""
        response = await self._daemon.send("DELETE", f"/concurrency/limits/{scope_path(scope)}")
        if response.status_code != 404:
            decode_reply(response, Json)

    async def restore_limit(self, scope: str) -> None:
        """Return to the configured limit: forget what was learnt."""
        await self._daemon.call("POST", f"/concurrency/restore/{scope_path(scope)}")

    async def limits(self) -> dict[str, int]:
        """Return every configured limit by scope or pattern. The global pool is in `status`."""
        limits = (await self._daemon.call("GET", "/concurrency/limits"))["limits"]
        return {each["providerId"]: each["limit"] for each in limits if each["providerId"] not in (SESSIONS, RUNS)}

    async def set_cooldown(self, scope: str, cooldown: float) -> None:
        """Set how long a released slot still counts in the scope, in seconds, rounded to milliseconds."""
        milliseconds = round(check_seconds(cooldown, "cooldown") * 1000)
        path = f"/concurrency/cooldown/{scope_path(scope)}"
        await self._daemon.call("PUT", path, {"cooldownMs": milliseconds})

    async def get_cooldown(self, scope: str) -> float | None:
        """Return the cooldown in seconds, None if the daemon does not know the scope."""
        response = await self._daemon.send("GET", f"/concurrency/cooldown/{scope_path(scope)}")
        return None if response.status_code == 404 else float(decode_reply(response, Json)["cooldownMs"]) / 1000

    async def report(self, scope: str, signal: Signal) -> None:
        """Report a signal of `paceline.core.signals` about a scope."""
        body = signal_body(signal) | {"scope": canonical_scope(scope)}
        await self._daemon.call("POST", "/v1/signals", body)

    async def report_rate_limit(self, scope: str, retry_after: float | None = None) -> None:
        await self.report(scope, RateLimited(retry_after=retry_after))

    # -- status ------------------------------------------------------------------------------------

    async def scope_status(self, scope: str) -> ScopeStatus | None:
        """Return the status of one scope, None if nothing was ever set, requested or learnt there."""
        return next(iter(await self._scopes(canonical_scope(scope))), None)

    async def statuses(self) -> list[ScopeStatus]:
        return await self._scopes()

    async def status(self) -> LimiterStatus:
        sessions, runs = await self._scopes(SESSIONS, RUNS)
        return LimiterStatus.of(sessions, runs)

    async def _scopes(self, *names: str) -> list[ScopeStatus]:
        query = "&".join(f"scope={quote(name, safe='')}" for name in names)
        found = await self._daemon.call("GET", f"/v1/scopes?{query}")
        return msgspec.convert(found["scopes"], list[ScopeStatus])

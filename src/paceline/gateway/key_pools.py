"""Pools of keys: which account of a pool serves a request, and where the request goes when an account refuses it.

Here: the choice, from the load of each account and from the Governor's answers, and the sessions' accounts. Never here:
sockets, waiting, and what a refusal means to an account (`paceline.core`).
"""

import logging
import math
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2s
from typing import Literal
from urllib.parse import quote

import msgspec

from paceline.agents.account import Account
from paceline.core.signals import AuthFailed, BillingStop, PlatformLimit, QuotaClosed, RateLimited, Signal
from paceline.core.values.scopes import canonical_scope
from paceline.core.values.tickets import Deferred
from paceline.errors import CapacityError
from paceline.gateway.http_heads import header_value
from paceline.gateway.request_access import RequestAccess, RequestHead, UpstreamRequest, check_model, check_price
from paceline.gateway.routes import BUDGET_IN_USE, BUDGET_REACHED, BudgetError, ModelNames
from paceline.gateway.spend_ledger import Estimate, SpendLedger
from paceline.gateway.upstream_pool import UpstreamError
from paceline.limiter import AdmissionRequest, Limiter, SlotContext
from paceline.protocols import OwnError, scope_of
from paceline.settings import FallbackRoute, KeyPoolSettings
from paceline.views.gateway_calls import MemberFailure

MOST_SESSIONS = 10_000
"""Sessions whose account is remembered, the last used ones. Clients choose the names, so the number needs a bound."""
SESSION_BYTES = 512 * 1024
"""Bytes of a body that are read to find its session. Most conversations are smaller, and thousands can wait."""
UNLIMITED_AS = 50
"""The limit with which accounts without one are compared: the shipped limit of all calls."""
LOOK_AGAIN_SECONDS = 1.0
"""How long a request waits for one account before it checks the others again."""
LOOK_AGAIN_SECONDS_EACH = 0.005
"""Added for each request that waits: a look costs a fraction of a millisecond, and thousands can wait."""
KEY_REFUSED = "key_refused"
"""The code of the error for a call to an account whose key the provider has refused."""
_NEXT_KEY_STATUSES = frozenset({401, 429, 529})
_ABOUT_THE_KEY = (AuthFailed, BillingStop, QuotaClosed, RateLimited, PlatformLimit)
_CLOSED = frozenset({"paused", "window_closed", "reserve", "unreachable", "held"})
_MODEL_IN_TARGET = re.compile(rb"(/(?:models|tunedModels|deployments)/)[^/:?]+")
_SESSION_IN_BODY = re.compile(
    rb'"metadata"\s*:\s*\{[^{}"]*"user_id"\s*:\s*"((?:[^"\\]|\\.){1,500})"'
    rb'|"prompt_cache_key"\s*:\s*"((?:[^"\\]|\\.){1,500})"'
)
"""What clients send to name a conversation: Claude Code in `metadata`, and clients of OpenAI for its cache.

It decides only which account is preferred, so a match inside of another object does no harm.
"""
_LENGTH_HEADERS = frozenset({b"content-length", b"transfer-encoding"})
Admission = Callable[[str], AdmissionRequest]
"""Returns what is asked of the limiter for a scope."""
log = logging.getLogger("paceline.gateway")

FIRST_OUTAGE_SECONDS, LONGEST_OUTAGE_SECONDS = 5.0, 300.0
"""How long an account that could not be reached is tried last, doubling. As the Governor waits after an outage."""

REPEATED_SECONDS = 30.0
"""How long a provider must refuse an account, without serving it, to be worth a line. A single 429 is not."""


class Choice(msgspec.Struct):
    """The account that a request uses next. `body` replaces that of the client, None: unchanged."""

    request: UpstreamRequest
    scope: str
    model: str | None
    waiting: SlotContext
    body: bytes | None = None
    fallback: str | None = None
    deferred: Deferred | None = None
    """Why the account has no slot now."""

    @property
    def is_closed(self) -> bool:
        """Whether the account has no slot for another reason than that it lacks room."""
        return self.deferred is not None and self.deferred.reason in _CLOSED


class PoolRequest(msgspec.Struct):
    """A request to a pool: its model and, if a fallback has another model, the members of its body."""

    pool: KeyPoolSettings
    model: str | None
    session: str | None
    arrived: UpstreamRequest
    """The request as it was let in, with the key of one of the accounts."""
    members: Mapping[str, msgspec.Raw] | None = None
    refused_by: set[str] = msgspec.field(default_factory=set)
    """Accounts that refused it in a way that waiting does not change."""
    failure: UpstreamError | None = None
    """Why the last of them could not be reached."""
    choice: Choice | None = None
    """The account that it waits for, or was sent to. A session leaves one that has no room for longer than one wait."""
    headers: bytes = b""
    """Headers of the response that name the account, once there is a slot."""
    estimate: Estimate = Estimate()

    def may_fail_over(self, request: UpstreamRequest, status: int, signals: Sequence[Signal]) -> bool:
        """Return whether another key may serve the request. Waiting would not help with the one that refused it."""
        if request.has_own_key or not refuses_key(status, signals):
            return False
        self.refused_by.add(request.route.account.name)
        return True


class KeyPools:
    """What the pools of one gateway remember: who was used last, and which account each session uses."""

    def __init__(self, access: RequestAccess, names: ModelNames, spend: SpendLedger) -> None:
        self._access = access
        self._names = names
        self._spend = spend
        self._used_at: dict[str, int] = {}
        self._count = 0
        self._account_of: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._failing: dict[str, MemberFailure] = {}
        """The accounts whose calls fail: each from its first failed call to the next one that it serves."""
        self._outage_seconds: dict[str, float] = {}
        """How long an account that could not be reached is tried last."""

    @property
    def sessions(self) -> int:
        """The number of sessions whose account is remembered."""
        return len(self._account_of)

    def choose(self, request: PoolRequest, limiter: Limiter, admission: Admission) -> Choice | None:
        """Return the account to use now, or the one to wait for. None: each has refused this request for good.

        Raises `OwnError` if a person must help first: all accounts are held.
        """
        if request.arrived.client is not None:  # no other account would take a key that was revoked meanwhile
            self._access.keys.check_present(request.arrived.client)
        deferred: list[Choice] = []
        useless: list[OwnError] = []
        for choice in self._choices(request, limiter, admission, useless):
            account = choice.request.route.account
            is_last_resort = choice.fallback is not None or self._is_tried_last(account.name, limiter.clock.now())
            if is_last_resort and not all(each.is_closed for each in deferred):
                break  # an open account will have room; the choices that follow are last resorts too
            with suppress(CapacityError):  # nothing is granted now; the wait ends, or says why
                choice.deferred = choice.waiting.enter_now()
            if choice.deferred is None:
                request.choice = choice
                return choice
            refused = None if choice.request.has_own_key else refused_key(limiter, account)
            if refused is not None:
                useless.append(refused)
            else:
                deferred.append(choice)
        request.choice = best_to_wait_for(deferred)
        if request.choice is None and not request.refused_by:
            held = [each.deferred.detail for each in deferred if each.deferred is not None]
            raise all_held(request.pool.name, held, useless)
        return request.choice

    def _choices(
        self, request: PoolRequest, limiter: Limiter, admission: Admission, useless: list[OwnError]
    ) -> Iterable[Choice]:
        """Yield the accounts in the order in which they are tried, then the fallback routes."""
        accounts = [self._access.accounts[name] for name in request.pool.accounts if name not in request.refused_by]
        kept = None
        if request.session is not None and request.choice is None:
            kept = self._account_of.get((request.pool.name, request.session))
        now = limiter.clock.now()

        def rank(account: Account) -> tuple[bool, bool, float, int]:
            name = account.name
            scope = scope_of(account.provider, name, request.model)
            demands = limiter.demand(account.scope), limiter.demand(scope)
            load = max(demand / (limit or UNLIMITED_AS) for demand, limit in demands)
            is_new = kept is not None and name != kept
            return self._is_tried_last(name, now), is_new, load, self._used_at.get(name, 0)

        for account in sorted(accounts, key=rank):
            try:
                self._spend.check_account(account, request.model, request.estimate)
                upstream = request.arrived
                if upstream.route.account.name != account.name:
                    upstream = self._access.readdressed(upstream, account.name)
            except OwnError as error:
                useless.append(error)
                continue
            scope = self._names.scope(account.provider, account.name, request.model)
            yield Choice(upstream, scope, request.model, limiter.slot_for(admission(scope)))
        for route in request.pool.fallback:
            if (choice := self._fallback(request, route, limiter, admission)) is not None:
                yield choice

    def _fallback(
        self, request: PoolRequest, route: FallbackRoute, limiter: Limiter, admission: Admission
    ) -> Choice | None:
        """Return the request as it is sent on a fallback route. None if it cannot use the route."""
        account, model = self._access.accounts[route.account], route.model or request.model
        arrived = request.arrived
        client, head, body = arrived.client, arrived.arrived, None
        try:
            if client is not None:
                check_model(client, account.provider, model)
                check_price(client, model, self._spend.is_priced)
            self._spend.check_account(account, model, request.estimate)
            if route.account in request.refused_by:
                return None
            if route.model is not None and route.model != request.model:
                changed = with_model(head, request.members, route.model)
                if changed is None:
                    return None
                head, body = changed
            upstream = self._access.readdressed(arrived, account.name, head)
        except OwnError:
            return None
        scope = self._names.counted_scope(canonical_scope(scope_of(account.provider, account.name, model)))
        name = f"{account.name}/{model or 'unnamed'}"
        return Choice(upstream, scope, model, limiter.slot_for(admission(scope)), body, name)

    def begin(self, request: PoolRequest) -> bytes | None:
        """Remember that the request has a slot of its choice. Returns the body to send, None: that of the client."""
        choice = request.choice
        assert choice is not None
        name = choice.request.route.account.name
        self._count += 1
        self._used_at[name] = self._count
        request.headers = b"x-paceline-account: %b\r\n" % header_value(name)
        if choice.fallback is not None:
            request.headers += b"x-paceline-fallback: %b\r\n" % header_value(choice.fallback)
        elif request.session is not None:
            place = (request.pool.name, request.session)
            self._account_of[place] = name
            self._account_of.move_to_end(place)
            if len(self._account_of) > MOST_SESSIONS:
                self._account_of.popitem(last=False)
        return choice.body

    def may_skip_unreachable(
        self, request: PoolRequest, sent: UpstreamRequest, error: UpstreamError, now: float
    ) -> bool:
        """Return whether another account may serve a request whose upstream could not be reached."""
        name = sent.route.account.name
        if not error.is_unsent or sent.has_own_key or name in request.refused_by:
            return False
        request.refused_by.add(name)
        request.failure = error
        if self._is_tried_last(name, now):  # calls that failed together are one outage
            self._note("unreachable", name, str(error), now, self._failing[name].retry_at)
            return True
        seconds = min(max(FIRST_OUTAGE_SECONDS, 2 * self._outage_seconds.get(name, 0.0)), LONGEST_OUTAGE_SECONDS)
        self._outage_seconds[name] = seconds
        log.warning("%s cannot be reached (%s): its pools try it last for %g s", name, error, seconds)
        self._note("unreachable", name, str(error), now, now + seconds)
        return True

    def note_answer(self, sent: UpstreamRequest, status: int, signals: Sequence[Signal], now: float) -> None:
        """Note that the account of the request has answered, be it that its key cannot be used."""
        name = sent.route.account.name
        if not sent.has_own_key and refuses_key(status, signals):
            self._outage_seconds.pop(name, None)
            self._note("refused", name, f"status {status}", now, None)
        elif self._failing.pop(name, None) is not None:
            self._outage_seconds.pop(name, None)

    def without_slot(self, request: UpstreamRequest, limiter: Limiter) -> UpstreamRequest:
        """Return a request without a slot as it is sent: to the first account in the pool's order that is open.

        Files and batches belong to an account, so these requests are not spread.
        """
        assert request.route.pool is not None
        now = limiter.clock.now()
        for name in sorted(request.route.pool.accounts, key=lambda each: self._is_tried_last(each, now)):
            status = limiter.scope_status(self._access.accounts[name].scope)
            is_open = status is None or not (
                status.held is not None or status.paused or any(each.state != "open" for each in status.windows)
            )
            if is_open and self._access.has_key(name):
                return self._access.readdressed(request, name)
        return request

    # -- accounts that fail ------------------------------------------------------------------------

    def _is_tried_last(self, name: str, now: float) -> bool:
        found = self._failing.get(name)
        return found is not None and found.retry_at is not None and now < found.retry_at

    def failures(self) -> list[MemberFailure]:
        """Return the accounts that fail, those that fail longest first. A single refusal is not worth a line."""
        return [
            each
            for each in self._failing.values()
            if each.kind == "unreachable" or each.last_at - each.since >= REPEATED_SECONDS
        ]

    def _note(
        self, kind: Literal["unreachable", "refused"], name: str, detail: str, now: float, retry_at: float | None
    ) -> None:
        before = self._failing.get(name)
        self._failing[name] = MemberFailure(
            account=name,
            scope=self._access.accounts[name].scope,
            pools=self._access.pools_of(name),
            kind=kind,
            detail=detail,
            since=now if before is None else before.since,
            last_at=now,
            calls=1 if before is None else before.calls + 1,
            retry_at=retry_at,
        )


# -- the rules -----------------------------------------------------------------------------------


def best_to_wait_for(choices: Sequence[Choice]) -> Choice | None:
    """Return the first one that only lacks room, else the one that opens first. None if all are held."""
    waits = [(each, why) for each in choices if (why := each.deferred) is not None and why.reason != "held"]
    for choice, _ in waits:
        if not choice.is_closed:
            return choice
    opening = min(waits, key=lambda each: math.inf if each[1].retry_at is None else each[1].retry_at, default=None)
    return None if opening is None else opening[0]


def refused_key(limiter: Limiter, account: Account) -> OwnError | None:
    """Return the answer to a call for an account whose key the provider has refused: nothing comes of waiting.

    A later call asks again, when the Governor lets one in.
    """
    status = limiter.scope_status(account.scope)
    if status is None or status.paused_reason != "auth":
        return None
    return OwnError(401, KEY_REFUSED, f"{account.scope}: {status.notice}")


def all_held(pool: str, held: Sequence[str], errors: Sequence[OwnError]) -> OwnError:
    """Return the answer if no account can serve: about a refused key or a budget if one is in the way, else a 403."""
    message = f"no account of the pool {pool} can serve this: {'; '.join([*held, *map(str, errors)])}"
    for error in errors:
        if isinstance(error, BudgetError) and error.code == BUDGET_IN_USE:
            return BudgetError(error.status, error.code, message, error.scope, retry_after=error.retry_after)
    if any(each.code == KEY_REFUSED for each in errors):
        return OwnError(401, KEY_REFUSED, message)
    if held or any(each.code != BUDGET_REACHED for each in errors):
        return OwnError(403, "held", message)
    return OwnError(402, BUDGET_REACHED, message, retry_after=errors[0].retry_after)


def look_again_seconds(waiting: int) -> float:
    """Return how long a request waits for one account before it checks the others."""
    return LOOK_AGAIN_SECONDS + LOOK_AGAIN_SECONDS_EACH * waiting


def session_in_body(pieces: Sequence[bytes]) -> str | None:
    """Return a short name for the conversation that the body names, None if it names none."""
    body = b"".join(pieces)
    if b'"user_id"' not in body and b'"prompt_cache_key"' not in body:
        return None
    found = _SESSION_IN_BODY.search(body)
    return None if found is None else blake2s(found[1] or found[2], digest_size=12).hexdigest()


def refuses_key(status: int, signals: Sequence[Signal]) -> bool:
    """Return whether a response refuses the key, so that another key may serve the same request."""
    return status in _NEXT_KEY_STATUSES or any(isinstance(signal, _ABOUT_THE_KEY) for signal in signals)


def with_model(
    head: RequestHead, members: Mapping[str, msgspec.Raw] | None, model: str
) -> tuple[RequestHead, bytes | None] | None:
    """Return the head and the body of a request with another model. None if there is no model to replace.

    All other members of the body keep their bytes.
    """
    target, replaced = _MODEL_IN_TARGET.subn(rb"\g<1>" + quote(model, safe="").encode(), head.target, count=1)
    if replaced:
        return RequestHead(head.method, target, head.headers), None
    if members is None or "model" not in members:
        return None
    changed = msgspec.json.encode({**members, "model": model})
    kept = [header for header in head.headers if header[0].lower() not in _LENGTH_HEADERS]
    return RequestHead(head.method, head.target, [*kept, (b"content-length", b"%d" % len(changed))]), changed

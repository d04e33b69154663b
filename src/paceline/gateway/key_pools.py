"""Pools of keys: which account of a pool serves a request, and where the request goes when an account refuses it.

Here: the choice, from the load of each account and from the Governor's answers, and the sessions' accounts. Never here:
sockets, waiting, and what a refusal means to an account (`paceline.core`).
"""

import math
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2s
from urllib.parse import quote

import msgspec

from paceline.core.signals import AuthFailed, BillingStop, PlatformLimit, QuotaClosed, RateLimited, Signal
from paceline.core.values.scopes import canonical_scope
from paceline.core.values.status import ScopeStatus
from paceline.core.values.verdicts import Deferred
from paceline.errors import CapacityError
from paceline.gateway.account_budgets import AccountBudgets
from paceline.gateway.client_keys import REVOKED, check_model
from paceline.gateway.errors import BUDGET_REACHED, GatewayError
from paceline.gateway.key_rules import IsPriced, check_price
from paceline.gateway.member_failures import Failing, MemberFailures
from paceline.gateway.model_names import ModelNames
from paceline.gateway.request_access import RequestAccess, RequestHead, UpstreamRequest
from paceline.gateway.upstream_pool import UpstreamError
from paceline.limiter import Limiter
from paceline.limiter.slot import AdmissionRequest, SlotContext
from paceline.protocols import scope_of
from paceline.settings import AccountSettings, FallbackRoute, KeyPoolSettings
from paceline.store import ClientKey
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


class Choice(msgspec.Struct):
    """The account that a request uses next. `body` replaces that of the client, None: unchanged."""

    request: UpstreamRequest
    scope: str
    model: str | None
    waiting: SlotContext
    body: bytes | None = None
    fallback: str | None = None


class PoolRequest(msgspec.Struct):
    """A request to a pool: its head, its model and, if the pool has a fallback, its whole body."""

    head: RequestHead
    pool: KeyPoolSettings
    model: str | None
    session: str | None
    client: ClientKey | None = None
    body: bytes | None = None
    refused_by: set[str] = msgspec.field(default_factory=set)
    """Accounts that refused it in a way that waiting does not change."""
    failure: UpstreamError | None = None
    """Why the last of them could not be reached."""
    choice: Choice | None = None
    """The account that it waits for, or was sent to. A session leaves one that has no room for longer than one wait."""
    headers: bytes = b""
    """Headers of the response that name the account, once there is a slot."""
    arrived: UpstreamRequest | None = None
    """The request as it was let in, with the key of one of the accounts."""

    def authorized(self, account: str) -> UpstreamRequest | None:
        """Return the request with the key of the account, if that was checked just now."""
        is_new = self.choice is None and self.arrived is not None and self.arrived.route.account.name == account
        return self.arrived if is_new else None

    def goes_on(self, request: UpstreamRequest, status: int, signals: Sequence[Signal]) -> bool:
        """Return whether another key may serve the request. Waiting would not help with the one that refused it."""
        if request.has_own_key or not goes_to_next_key(status, signals):
            return False
        self.refused_by.add(request.route.account.name)
        return True


class _Candidate(msgspec.Struct):
    """An account that has no slot now, and why."""

    choice: Choice
    deferred: Deferred


class KeyPools:
    """What the pools of one gateway remember: who was used last, and which account each session uses."""

    def __init__(self, access: RequestAccess, names: ModelNames, is_priced: IsPriced, budgets: AccountBudgets) -> None:
        """`is_priced` returns whether the cost of a model is known."""
        self._access = access
        self._names = names
        self._is_priced = is_priced
        self._budgets = budgets
        self._used_at: dict[str, int] = {}
        self._count = 0
        self._account_of: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._failures = MemberFailures()

    @property
    def sessions(self) -> int:
        """The number of sessions whose account is remembered."""
        return len(self._account_of)

    def choose(
        self, request: PoolRequest, limiter: Limiter, admission: Callable[[str], AdmissionRequest]
    ) -> Choice | None:
        """Return the account to use now, or the one to wait for. None: each has refused this request for good.

        Raises `GatewayError` if a person must help first: all accounts are held.
        """
        request.choice = self._choose(request, limiter, admission)
        return request.choice

    def _choose(
        self, request: PoolRequest, limiter: Limiter, admission: Callable[[str], AdmissionRequest]
    ) -> Choice | None:
        deferred: list[_Candidate] = []
        useless: list[GatewayError] = []
        for choice in self._choices(request, limiter, admission, useless):
            if self._is_last_resort(choice, limiter) and any(not _is_closed(each) for each in deferred):
                break  # an open account will have room; the choices that follow are last resorts too
            try:
                verdict = choice.waiting.enter_now()
            except CapacityError:
                return choice  # nothing is granted now; the wait ends, or says why
            if verdict is None:
                return choice
            deferred.append(_Candidate(choice, verdict))
        best = best_to_wait_for(deferred)
        if best is not None:
            return best.choice
        if not request.refused_by:
            raise all_held(request.pool.name, [each.deferred.detail for each in deferred], useless)
        return None

    def _choices(
        self,
        request: PoolRequest,
        limiter: Limiter,
        admission: Callable[[str], AdmissionRequest],
        useless: list[GatewayError],
    ) -> Iterable[Choice]:
        """Yield the accounts in the order in which they are tried, then the fallback routes."""
        accounts = [self._access.account(name) for name in request.pool.accounts if name not in request.refused_by]
        kept = None
        if request.session is not None and request.choice is None:
            kept = self._account_of.get((request.pool.name, request.session))
        now = limiter.clock.now()

        def rank(account: AccountSettings) -> tuple[bool, bool, float, int]:
            name = account.name
            is_new = kept is not None and name != kept
            return (
                self._failures.is_tried_last(name, now),
                is_new,
                self._load(limiter, account, request.model),
                self._used(name),
            )

        for account in sorted(accounts, key=rank):
            try:
                self._budgets.check(account, request.model)
                upstream = request.authorized(account.name) or self._access.authorize(request.head, account.name)
            except GatewayError as error:
                if error.code == REVOKED:  # no other account would take the client's key
                    raise
                useless.append(error)
                continue
            scope = self._names.scope(account.provider, account.name, request.model)
            yield Choice(upstream, scope, request.model, limiter.slot_for(admission(scope)))
        for route in request.pool.fallback:
            if (choice := self._fallback(request, route, limiter, admission)) is not None:
                yield choice

    def _is_last_resort(self, choice: Choice, limiter: Limiter) -> bool:
        """Return whether the choice is for a pool without an open account: a fallback, or one just unreachable."""
        name = choice.request.route.account.name
        return choice.fallback is not None or self._failures.is_tried_last(name, limiter.clock.now())

    def _fallback(
        self,
        request: PoolRequest,
        route: FallbackRoute,
        limiter: Limiter,
        admission: Callable[[str], AdmissionRequest],
    ) -> Choice | None:
        """Return the request as it is sent on a fallback route. None if it cannot use the route."""
        account, model = self._access.account(route.account), route.model or request.model
        scope = canonical_scope(scope_of(account.provider, account.name, model))
        head, body = request.head, None
        try:
            if request.client is not None:
                check_model(request.client, account.provider, model)
                check_price(request.client, model, self._is_priced)
            self._budgets.check(account, model)
            if route.account in request.refused_by:
                return None
            if route.model is not None and route.model != request.model:
                changed = with_model(request.head, request.body, route.model)
                if changed is None:
                    return None
                head, body = changed
            upstream = self._access.authorize(head, account.name)
        except GatewayError:
            return None
        scope = self._names.counted_scope(scope)
        name = f"{account.name}/{model or 'unnamed'}"
        return Choice(upstream, scope, model, limiter.slot_for(admission(scope)), body, name)

    def begin(self, request: PoolRequest) -> bytes | None:
        """Remember that the request has a slot of its choice. Returns the body to send, None: that of the client."""
        choice = request.choice
        assert choice is not None
        name = choice.request.route.account.name
        self._count += 1
        self._used_at[name] = self._count
        request.headers = b"x-paceline-account: %b\r\n" % name.encode()
        if choice.fallback is not None:
            request.headers += b"x-paceline-fallback: %b\r\n" % choice.fallback.encode()
        elif request.session is not None:
            place = (request.pool.name, request.session)
            self._account_of[place] = name
            self._account_of.move_to_end(place)
            if len(self._account_of) > MOST_SESSIONS:
                self._account_of.popitem(last=False)
        return choice.body

    def goes_past(self, request: PoolRequest, sent: UpstreamRequest, error: UpstreamError, now: float) -> bool:
        """Return whether another account may serve a request whose upstream could not be reached."""
        name = sent.route.account.name
        if not error.is_unsent or sent.has_own_key or name in request.refused_by:
            return False
        self._failures.note_unreachable(name, str(error), now)
        request.refused_by.add(name)
        request.failure = error
        return True

    def note_answer(self, sent: UpstreamRequest, status: int, signals: Sequence[Signal], now: float) -> None:
        """Note that the account of the request has answered, be it that its key cannot be used."""
        if sent.has_own_key or not goes_to_next_key(status, signals):
            self._failures.note_served(sent.route.account.name)
        else:
            self._failures.note_refused(sent.route.account.name, status, now)

    def failures(self) -> list[MemberFailure]:
        """Return the accounts of pools that have failed since they last served, those that fail longest first."""
        failing = self._failures.failing.items()
        return [self._failure(name, each) for name, each in failing if each.is_worth_showing]

    def _failure(self, name: str, failing: Failing) -> MemberFailure:
        return MemberFailure(
            account=name,
            scope=self._access.account(name).scope,
            pools=self._access.pools_of(name),
            kind=failing.kind,
            detail=failing.detail,
            since=failing.since,
            last_at=failing.last_at,
            calls=failing.calls,
            retry_at=failing.tried_last_until or None,
        )

    def uncounted(self, head: RequestHead, request: UpstreamRequest, limiter: Limiter) -> UpstreamRequest:
        """Return a request without a slot as it is sent: to the first account in the pool's order that is open.

        Files and batches belong to an account, so these requests are not spread.
        """
        assert request.route.pool is not None
        now = limiter.clock.now()
        for name in sorted(request.route.pool.accounts, key=lambda each: self._failures.is_tried_last(each, now)):
            status = limiter.scope_status(self._access.account(name).scope)
            if self._access.has_key(name) and (status is None or not is_shut(status)):
                return self._access.authorize(head, name)
        return request

    def _load(self, limiter: Limiter, account: AccountSettings, model: str | None) -> float:
        scope = scope_of(account.provider, account.name, model)
        return max(load_of(*limiter.demand(account.scope)), load_of(*limiter.demand(scope)))

    def _used(self, name: str) -> int:
        return self._used_at.get(name, 0)


# -- the rules -----------------------------------------------------------------------------------


def load_of(demand: int, limit: int | None) -> float:
    """Return how much of its limit a scope uses: calls that run, wait and cool down."""
    return demand / (limit or UNLIMITED_AS)


def is_shut(status: ScopeStatus) -> bool:
    """Return whether the scope admits nobody now, however much room it has."""
    return status.held is not None or status.paused or any(each.state != "open" for each in status.windows)


def best_to_wait_for(candidates: Sequence[_Candidate]) -> _Candidate | None:
    """Return the first one that only lacks room, else the one that opens first. None if all are held."""
    waits = [each for each in candidates if each.deferred.reason != "held"]
    for each in waits:
        if not _is_closed(each):
            return each
    return min(waits, key=_opens_at, default=None)


def _is_closed(candidate: _Candidate) -> bool:
    return candidate.deferred.reason in _CLOSED


def _opens_at(candidate: _Candidate) -> float:
    at = candidate.deferred.retry_at
    return math.inf if at is None else at


def all_held(pool: str, held: Sequence[str], errors: Sequence[GatewayError]) -> GatewayError:
    """Return the answer if no account can serve: a 402 if only budgets are in the way, else a 403."""
    message = f"no account of the pool {pool} can serve this: {'; '.join([*held, *map(str, errors)])}"
    if held or any(each.code != BUDGET_REACHED for each in errors):
        return GatewayError(403, "held", message)
    return GatewayError(402, BUDGET_REACHED, message, retry_after=errors[0].retry_after)


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


def goes_to_next_key(status: int, signals: Sequence[Signal]) -> bool:
    """Return whether a response refuses the key, so that another key may serve the same request."""
    return status in _NEXT_KEY_STATUSES or any(isinstance(signal, _ABOUT_THE_KEY) for signal in signals)


def with_model(head: RequestHead, body: bytes | None, model: str) -> tuple[RequestHead, bytes | None] | None:
    """Return the head and the body of a request with another model. None if there is no model to replace.

    All other members of the body keep their bytes.
    """
    target, replaced = _MODEL_IN_TARGET.subn(rb"\g<1>" + quote(model, safe="").encode(), head.target, count=1)
    if replaced:
        return RequestHead(head.method, target, head.headers), None
    try:
        members = msgspec.json.decode(body or b"", type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if "model" not in members:
        return None
    changed = msgspec.json.encode({**members, "model": model})
    kept = [header for header in head.headers if header[0].lower() not in _LENGTH_HEADERS]
    return RequestHead(head.method, head.target, [*kept, (b"content-length", b"%d" % len(changed))]), changed

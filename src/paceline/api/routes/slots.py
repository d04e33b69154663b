"""`/v1/slots`: slots for programs in any language. Take one and wait for it, renew it, tell what was met, give it back.

Also what a program asks beside that: a signal without a slot, and what scopes do, in seconds. Taking and releasing
are called in front of the framework (`slots_front.py`). Never here: who may enter, and how long a slot lasts. That is
the engine's (`engine/leases.py`).
"""

from typing import Annotated, Any, Literal

import msgspec
from litestar import Request, Response, delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, QueryParameter

from paceline.api.auth import Header, Receive, Scope, Send
from paceline.api.context import OnSite, Site
from paceline.api.errors import Problem, Refused
from paceline.api.request_body import read_body
from paceline.api.schemas import Asked, Ok, Wire
from paceline.core import Deferred, ScopeStatus
from paceline.core.signals import KINDS, AnySignal, Cause, Reach
from paceline.core.values.scopes import canonical_scope
from paceline.core.values.verdicts import Reason
from paceline.engine.external_slots.leases import CallerGone, SlotRequest
from paceline.errors import CapacityError, SlotLost, TicketConflict
from paceline.store import StoredSlot

SLOT_LOST = "slot_lost"


class SlotAnswer(Wire, frozen=True, kw_only=True):
    """A slot. `token` grows with every grant; who writes on behalf of the slot can have an older one refused."""

    id: str
    scope: str
    token: int
    expires_at: float


class DeferredAnswer(Wire, frozen=True, kw_only=True):
    """No slot within the wait, and what binds: `retry_at` is when that may change, `position` the place in line."""

    error: Literal["deferred"] = "deferred"
    reason: Reason
    scope: str
    detail: str
    retry_at: float | None
    position: int | None


class Released(Wire, frozen=True, kw_only=True):
    """`released` is false where there was nothing to give back: it was released before, or its lease ran out."""

    ok: bool = True
    id: str
    released: bool


class SignalBody(Asked, frozen=True, kw_only=True):
    """What a provider answered. Which fields there are depends on `kind`; what is not known is left out.

    `retry_after` is in seconds from now; `resets_at`, `requests_reset_at` and `tokens_reset_at` are Unix times.
    """

    kind: Literal[
        "rate_limited",
        "overloaded",
        "quota_closed",
        "platform_limit",
        "billing_stop",
        "auth_failed",
        "usage",
        "budget",
        "succeeded",
    ]
    reach: Reach | None = None
    confidence: float | None = None
    source: str | None = None
    retry_after: float | None = None
    cause: Cause | None = None
    resets_at: float | None = None
    window: str | None = None
    limit: int | None = None
    in_use: int | None = None
    detail: str | None = None
    concurrent_sessions: int | None = None
    hard_cap: int | None = None
    requests_remaining: int | None = None
    requests_reset_at: float | None = None
    tokens_remaining: int | None = None
    tokens_reset_at: float | None = None
    used_ratio: float | None = None
    tokens: int | None = None


class ScopeSignalBody(SignalBody, frozen=True, kw_only=True):
    """The same without a slot: `scope` says what it is about."""

    scope: str


class Scopes(Wire, frozen=True, kw_only=True):
    scopes: list[ScopeStatus]


NOT_THERE = ResponseSpec(
    Problem, generate_examples=False, description="There is no such slot: it was released, or lost long ago"
)
LOST = ResponseSpec(
    Problem, generate_examples=False, description="`slot_lost`: the lease ran out, and the slot is given on"
)
DEFERRED = ResponseSpec(
    DeferredAnswer, generate_examples=False, description="No slot within the wait, and what stands against it"
)
CONFLICT = ResponseSpec(
    Problem, generate_examples=False, description="`conflict`: the idempotency_key belongs to another request"
)


@post(
    "/v1/slots",
    status_code=201,
    summary="Take a slot, and wait for it up to `wait` seconds",
    opt={"body": SlotRequest},
    responses={409: DEFERRED, 422: CONFLICT},
)
async def take_slot(request: Request[Any, Any, Any], site: OnSite) -> Response[SlotAnswer]:
    return await take(site, await read_body(request, SlotRequest), request.receive)  # type: ignore[arg-type]


async def take(site: Site, body: SlotRequest, receive: Receive) -> "Answer":
    try:
        answer = await site.engine.leases.take(body, hung_up=lambda: _hung_up(receive))
    except CallerGone:
        return Answer(None, 499)  # nobody reads it
    except TicketConflict as error:
        return Answer(Problem("conflict", str(error)), 422)
    except CapacityError as error:
        raise Refused(503, str(error)) from None
    if isinstance(answer, Deferred):
        return Answer(_deferred(answer), 409)
    return Answer(_slot(answer), 201)


@post(
    "/v1/slots/{slot_id:str}/renew",
    status_code=200,
    summary="Keep a slot for another `ttl`",
    responses={404: NOT_THERE, 409: LOST},
)
async def renew_slot(slot_id: FromPath[str], site: OnSite) -> Response[SlotAnswer]:
    try:
        return Answer(_slot(await site.engine.leases.renew(slot_id)), 200)
    except SlotLost as error:
        return Answer(Problem(SLOT_LOST, str(error)), 409)
    except CapacityError as error:
        raise Refused(503, str(error)) from None


@post(
    "/v1/slots/{slot_id:str}/signal",
    status_code=200,
    summary="Tell what the provider answered to the holder of a slot",
    opt={"body": SignalBody},
    responses={404: NOT_THERE, 409: LOST},
)
async def signal_slot(request: Request[Any, Any, Any], slot_id: FromPath[str], site: OnSite) -> Response[Ok]:
    signal = _signal(await read_body(request, SignalBody))
    try:
        site.engine.leases.report(slot_id, signal)
    except SlotLost as error:
        return Answer(Problem(SLOT_LOST, str(error)), 409)
    except CapacityError as error:
        raise Refused(503, str(error)) from None
    return Answer(Ok(), 200)


@delete("/v1/slots/{slot_id:str}", status_code=200, summary="Give a slot back; harmless when repeated")
async def release_slot(
    slot_id: FromPath[str],
    site: OnSite,
    abandon: Annotated[
        bool, QueryParameter(description="Learn nothing from it: the call never reached the provider, or broke")
    ] = False,
) -> Response[Released]:
    return await release(site, slot_id, was_used=not abandon)


async def release(site: Site, slot_id: str, *, was_used: bool = True) -> "Answer":
    try:
        was_held = await site.engine.leases.release(slot_id, was_used=was_used)
        return Answer(Released(id=slot_id, released=was_held), 200)
    except CapacityError as error:
        raise Refused(503, str(error)) from None


@post(
    "/v1/signals",
    status_code=200,
    summary="Tell what was learnt about a scope, without a slot",
    opt={"body": ScopeSignalBody},
)
async def signal_scope(request: Request[Any, Any, Any], site: OnSite) -> Ok:
    body = await read_body(request, ScopeSignalBody)
    site.engine.leases.report_scope(canonical_scope(body.scope), _signal(body))
    return Ok()


@get("/v1/scopes", sync_to_thread=False, summary="What scopes do now: those that are named, or all")
def get_scopes(
    site: OnSite,
    names: Annotated[list[str] | None, QueryParameter(name="scope", description="A scope; may be repeated")] = None,
) -> Scopes:
    """One that nothing is known of is left out."""
    if not names:
        return Scopes(scopes=site.engine.limiter.statuses())
    found = [site.engine.limiter.scope_status(canonical_scope(name)) for name in names]
    return Scopes(scopes=[status for status in found if status is not None])


async def _hung_up(receive: Receive) -> None:
    """Returns once the client is gone; after the body, nothing else can come."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _slot(slot: StoredSlot) -> SlotAnswer:
    assert slot.lease is not None
    return SlotAnswer(id=slot.id, scope=slot.scopes[-1], token=slot.lease.token, expires_at=slot.lease.expires_at)


def _deferred(why: Deferred) -> DeferredAnswer:
    return DeferredAnswer(
        reason=why.reason, scope=why.scope, detail=why.detail, retry_at=why.retry_at, position=why.position
    )


def _signal(body: SignalBody) -> AnySignal:
    """The signal of this kind; a field that it does not have is refused."""
    given = {name: value for name, value in msgspec.structs.asdict(body).items() if value is not None}
    kind = KINDS[given.pop("kind")]
    given.pop("scope", None)
    known = [name for name in kind.__struct_fields__ if name != "ticket"]
    for name in given:
        if name not in known:
            raise Refused(400, f"{name}: {body.kind} has no such field; it has {', '.join(known)}")
    return kind(**given)


class Answer(Response[Any]):
    """Sent as it is: to be made and sent by the framework, an answer takes longer than the engine does for a slot."""

    def __init__(self, content: object, status: int, *headers: Header) -> None:
        self.content = content  # what the framework would look at is left out
        self.status_code = status
        self._more_headers = headers

    def to_asgi_response(self, *_: Any, **__: Any) -> Any:
        return self.send

    async def send(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = msgspec.json.encode(self.content)
        length = str(len(body)).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", length), *self._more_headers]
        await send({"type": "http.response.start", "status": self.status_code or 0, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})


ROUTES: list[HTTPRouteHandler] = [take_slot, renew_slot, signal_slot, release_slot, signal_scope, get_scopes]

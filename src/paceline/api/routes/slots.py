"""The routes of slots, for programs in any language: acquire one and wait for it, renew, signal and release it.

Also signals without a slot, and the status of scopes in seconds. `SlotShortcut` calls `acquire` and `release` without
the framework. Never here: who may enter, and how long a slot lasts; `engine/capacity/external_slots.py` decides that.
"""

import logging
from typing import Annotated, Any, Final

import msgspec
from litestar import Request, Response, delete, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, QueryParameter

from paceline.api import bodies
from paceline.api.auth import App, Header, Receive, Scope, Send, send_whole
from paceline.api.context import ApiContext, Context
from paceline.api.schemas import (
    Ok,
    Scopes,
    ScopeSignalBody,
    SessionRelease,
    SignalBody,
    SlotDeferral,
    SlotGrant,
    SlotRelease,
)
from paceline.core import Deferred
from paceline.core.signals import KINDS, AnySignal
from paceline.core.values.fields import fields_of
from paceline.core.values.scopes import canonical_scope
from paceline.engine.capacity.leases import CallerGone, SlotRequest
from paceline.errors import CapacityError, PacelineError, SlotLost, TicketConflict
from paceline.store import StoredSlot

SLOT_LOST = "slot_lost"


NO_SUCH_SLOT = ResponseSpec(
    bodies.ErrorBody, generate_examples=False, description="There is no such slot: it was released, or lost long ago"
)
LOST = ResponseSpec(
    bodies.ErrorBody, generate_examples=False, description="`slot_lost`: the lease expired, and the slot was reclaimed"
)
DEFERRED = ResponseSpec(SlotDeferral, generate_examples=False, description="No slot within the wait, and what binds")
CONFLICT = ResponseSpec(
    bodies.ErrorBody, generate_examples=False, description="`conflict`: the idempotency_key belongs to another request"
)


@post(
    "/v1/slots",
    status_code=201,
    summary="Acquire a slot, waiting for it up to `wait` seconds",
    opt={"body": SlotRequest},
    responses={409: DEFERRED, 422: CONFLICT},
)
async def acquire_slot(request: Request[Any, Any, Any], context: Context) -> Response[SlotGrant]:
    return await acquire(context, await bodies.read_body(request, SlotRequest), request.receive)  # type: ignore[arg-type]


def _with_present_scope(context: ApiContext, body: SlotRequest) -> SlotRequest:
    """Return the request for the scope that its login is counted under."""
    scope = context.settings.login_scope(body.scope)
    return body if scope == body.scope else msgspec.structs.replace(body, scope=scope)


async def acquire(context: ApiContext, body: SlotRequest, receive: Receive) -> "JsonResponse":
    try:
        outcome = await context.engine.leases.take(
            _with_present_scope(context, body), hung_up=lambda: _disconnected(receive)
        )
    except CallerGone:
        return JsonResponse(None, 499)  # nobody reads the response
    except TicketConflict as error:
        return JsonResponse(bodies.ErrorBody("conflict", str(error)), 422)
    except CapacityError as error:
        raise bodies.HttpError(503, str(error)) from None
    if isinstance(outcome, Deferred):
        return JsonResponse(_deferral(outcome), 409)
    return JsonResponse(_grant(outcome), 201)


@post(
    "/v1/slots/{slot_id:str}/renew",
    status_code=200,
    summary="Keep a slot for another `ttl`",
    responses={404: NO_SUCH_SLOT, 409: LOST},
)
async def renew_slot(slot_id: FromPath[str], context: Context) -> Response[SlotGrant]:
    try:
        return JsonResponse(_grant(await context.engine.leases.renew(slot_id)), 200)
    except SlotLost as error:
        return JsonResponse(bodies.ErrorBody(SLOT_LOST, str(error)), 409)
    except CapacityError as error:
        raise bodies.HttpError(503, str(error)) from None


@post(
    "/v1/slots/{slot_id:str}/signal",
    status_code=200,
    summary="Report what the provider answered to the holder of a slot",
    opt={"body": SignalBody},
    responses={404: NO_SUCH_SLOT, 409: LOST},
)
async def signal_slot(request: Request[Any, Any, Any], slot_id: FromPath[str], context: Context) -> Response[Ok]:
    signal = _signal(await bodies.read_body(request, SignalBody))
    try:
        context.engine.leases.report(slot_id, signal)
    except SlotLost as error:
        return JsonResponse(bodies.ErrorBody(SLOT_LOST, str(error)), 409)
    except CapacityError as error:
        raise bodies.HttpError(503, str(error)) from None
    return JsonResponse(Ok(), 200)


@delete("/v1/slots/{slot_id:str}", status_code=200, summary="Release a slot; harmless when repeated")
async def release_slot(
    slot_id: FromPath[str],
    context: Context,
    abandon: Annotated[
        bool, QueryParameter(description="Learn nothing from it: the call failed or never reached the provider")
    ] = False,
) -> Response[SlotRelease]:
    return await release(context, slot_id, was_used=not abandon)


@delete("/v1/slots", status_code=200, summary="Release the slots of a session and of its runs; harmless when repeated")
async def release_session(
    context: Context,
    session: Annotated[str, QueryParameter(description="The session that its slots were requested for")],
) -> SessionRelease:
    try:
        return SessionRelease(session=session, released=await context.engine.leases.release_session(session))
    except CapacityError as error:
        raise bodies.HttpError(503, str(error)) from None


async def release(context: ApiContext, slot_id: str, *, was_used: bool = True) -> "JsonResponse":
    try:
        was_held = await context.engine.leases.release(slot_id, was_used=was_used)
        return JsonResponse(SlotRelease(id=slot_id, released=was_held), 200)
    except CapacityError as error:
        raise bodies.HttpError(503, str(error)) from None


@post(
    "/v1/signals",
    status_code=200,
    summary="Report a signal about a scope, without a slot",
    opt={"body": ScopeSignalBody},
)
async def signal_scope(request: Request[Any, Any, Any], context: Context) -> Ok:
    body = await bodies.read_body(request, ScopeSignalBody)
    context.engine.leases.report_scope(_present(context, body.scope), _signal(body))
    return Ok()


@get("/v1/scopes", sync_to_thread=False, summary="The status of the named scopes, or of all")
def get_scopes(
    context: Context,
    names: Annotated[list[str] | None, QueryParameter(name="scope", description="A scope; may be repeated")] = None,
) -> Scopes:
    """Leave out scopes about which nothing is known."""
    if not names:
        return Scopes(scopes=context.statuses())
    found = [context.engine.limiter.scope_status(_present(context, name)) for name in names]
    return Scopes(scopes=[status for status in found if status is not None])


def _present(context: ApiContext, scope: str) -> str:
    """Return the scope in its canonical spelling, under the name that its login is counted by."""
    return context.settings.login_scope(canonical_scope(scope))


async def _disconnected(receive: Receive) -> None:
    """Return once the client has disconnected: after the body, that is the only message that can come."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _grant(slot: StoredSlot) -> SlotGrant:
    assert slot.lease is not None
    return SlotGrant(id=slot.id, scope=slot.scopes[-1], token=slot.lease.token, expires_at=slot.lease.expires_at)


def _deferral(why: Deferred) -> SlotDeferral:
    return SlotDeferral(**fields_of(SlotDeferral, why))


def _signal(body: SignalBody) -> AnySignal:
    """Return the signal of this kind. A field that it does not have is refused."""
    given = {name: value for name, value in msgspec.structs.asdict(body).items() if value is not None}
    kind = KINDS[given.pop("kind")]
    given.pop("scope", None)
    known = [name for name in kind.__struct_fields__ if name != "ticket"]
    for name in given:
        if name not in known:
            raise bodies.HttpError(400, f"{name}: {body.kind} has no such field; it has {', '.join(known)}")
    return kind(**given)


class JsonResponse(Response[Any]):
    """A response that encodes and sends itself: the framework's way takes longer than the engine needs for a slot."""

    def __init__(self, content: object, status: int, *headers: Header) -> None:
        self.content = content  # the fields that only the framework reads are left out
        self.status_code = status
        self._extra_headers = headers

    def to_asgi_response(self, *_: Any, **__: Any) -> Any:
        return self.send

    async def send(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send_whole(send, self.status_code or 0, msgspec.json.encode(self.content), self._extra_headers)


log = logging.getLogger("paceline.api")

PATH: Final = "/v1/slots"


class SlotShortcut:
    """ASGI middleware that answers the two calls that programs make most, and passes everything else on.

    The framework's routing and parameter handling take longer than everything else in these calls.
    """

    def __init__(self, app: App, context: ApiContext) -> None:
        self._app = app
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        slot_id = _slot_to_release(scope)
        if slot_id is None and not _is_acquire(scope):
            await self._app(scope, receive, send)
            return
        try:
            if slot_id is None:
                response = await self._acquire(scope, receive)
            else:
                response = await release(self._context, slot_id)
        except PacelineError as error:
            status = bodies.status_of(error)
            closing = [(b"connection", b"close")] if bodies.closes_connection(status, scope["headers"]) else []
            response = JsonResponse(bodies.http_error_body(status, str(error)), status, *closing)
        except Exception:
            log.exception("%s %s failed", scope["method"], PATH)
            response = JsonResponse(bodies.http_error_body(500, bodies.INTERNAL_ERROR), 500)
        await response.send(scope, receive, send)

    async def _acquire(self, scope: Scope, receive: Receive) -> JsonResponse:
        bodies.check_media_type(scope["headers"])
        body = await bodies.decode_body(await _read_content(receive), SlotRequest)
        return await acquire(self._context, body, receive)


def _is_acquire(scope: Scope) -> bool:
    return (scope["type"], scope.get("method"), scope.get("path")) == ("http", "POST", PATH)


def _slot_to_release(scope: Scope) -> str | None:
    """Return the id of the slot if the request releases one and has no further parameters."""
    if scope["type"] != "http" or scope["method"] != "DELETE" or scope["query_string"]:
        return None
    path: str = scope["path"]
    before, _, slot_id = path.rpartition("/")
    return slot_id if before == PATH and slot_id else None


async def _read_content(receive: Receive) -> bytes:
    content = b""
    while True:
        message = await receive()
        content += bytes(message.get("body", b""))
        if len(content) > bodies.SMALL_BYTES:
            raise bodies.HttpError(413, bodies.DETAILS[413])
        if not message.get("more_body", False):
            return content

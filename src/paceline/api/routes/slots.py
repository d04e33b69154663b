"""The routes of slots, for programs in any language: acquire one and wait for it, renew, signal and release it.

Also signals without a slot, and the status of scopes in seconds. `with_shortcut` calls `acquire` and `release` without
the framework. Never here: who may enter, and how long a slot lasts; `engine/capacity/leases.py` decides that.
"""

import contextlib
import logging
from collections.abc import Iterator
from typing import Annotated, Any, Final

import msgspec
from litestar import Request, Response, delete, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, QueryParameter

from paceline.api import bodies
from paceline.api.bodies import App, Receive, Scope, Send, send_whole
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


async def acquire(context: ApiContext, body: SlotRequest, receive: Receive) -> "JsonResponse":
    body = msgspec.structs.replace(body, scope=context.settings.login_scope(body.scope))
    try:
        with _slot_errors():
            outcome = await context.engine.leases.take(body, hung_up=lambda: bodies.disconnected(receive))
    except CallerGone:
        return JsonResponse(None, 499)  # nobody reads the response
    if isinstance(outcome, Deferred):
        return JsonResponse(SlotDeferral(**fields_of(SlotDeferral, outcome)), 409)
    return JsonResponse(_grant(outcome), 201)


@contextlib.contextmanager
def _slot_errors() -> Iterator[None]:
    """Answer what keeps a slot from its program, each with a code of its own."""
    try:
        yield
    except SlotLost as error:
        raise bodies.HttpError(409, str(error), error.code) from None
    except TicketConflict as error:
        raise bodies.HttpError(422, str(error), "conflict") from None
    except CapacityError as error:
        raise bodies.HttpError(503, str(error)) from None


@post(
    "/v1/slots/{slot_id:str}/renew",
    status_code=200,
    summary="Keep a slot for another `ttl`",
    responses={404: NO_SUCH_SLOT, 409: LOST},
)
async def renew_slot(slot_id: FromPath[str], context: Context) -> Response[SlotGrant]:
    with _slot_errors():
        return JsonResponse(_grant(await context.engine.leases.renew(slot_id)), 200)


@post(
    "/v1/slots/{slot_id:str}/signal",
    status_code=200,
    summary="Report what the provider answered to the holder of a slot",
    opt={"body": SignalBody},
    responses={404: NO_SUCH_SLOT, 409: LOST},
)
async def signal_slot(request: Request[Any, Any, Any], slot_id: FromPath[str], context: Context) -> Response[Ok]:
    signal = _signal(await bodies.read_body(request, SignalBody))
    with _slot_errors():
        context.engine.leases.report(slot_id, signal)
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
    with _slot_errors():
        return SessionRelease(session=session, released=await context.engine.leases.release_session(session))


async def release(context: ApiContext, slot_id: str, *, was_used: bool = True) -> "JsonResponse":
    with _slot_errors():
        was_held = await context.engine.leases.release(slot_id, was_used=was_used)
    return JsonResponse(SlotRelease(id=slot_id, released=was_held), 200)


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


def _grant(slot: StoredSlot) -> SlotGrant:
    assert slot.lease is not None
    return SlotGrant(id=slot.id, scope=slot.scopes[-1], token=slot.lease.token, expires_at=slot.lease.expires_at)


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

    def __init__(self, content: object, status: int) -> None:
        self.content = content  # the fields that only the framework reads are left out
        self.status_code = status

    def to_asgi_response(self, *_: Any, **__: Any) -> Any:
        return self.send

    async def send(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send_whole(send, self.status_code or 0, msgspec.json.encode(self.content))


log = logging.getLogger("paceline.api")

PATH: Final = "/v1/slots"


def with_shortcut(app: App, context: ApiContext) -> App:
    """Return an application that answers the two calls that programs make most, and passes everything else on.

    The framework's routing and parameter handling take longer than everything else in these calls.
    """

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        slot_id = _slot_to_release(scope)
        is_acquire = (scope["type"], scope.get("method"), scope.get("path")) == ("http", "POST", PATH)
        if slot_id is None and not is_acquire:
            await app(scope, receive, send)
            return
        try:
            if slot_id is None:
                bodies.check_media_type(scope["headers"])
                content = await bodies.read_whole(receive, bodies.SMALL_BYTES)
                if content is None:
                    raise bodies.HttpError(413, bodies.DETAILS[413])
                response = await acquire(context, await bodies.decode_body(content, SlotRequest), receive)
            else:
                response = await release(context, slot_id)
        except CallerGone:
            return
        except PacelineError as error:
            status, answer = bodies.error_answer(PATH, error)
            is_last = bodies.closes_connection(status, scope["headers"])
            await send_whole(send, status, answer, [(b"connection", b"close")] if is_last else [])
        except Exception:
            log.exception("%s %s failed", scope["method"], PATH)
            await send_whole(send, 500, bodies.error_json(PATH, 500, bodies.INTERNAL_ERROR))
        else:
            await response.send(scope, receive, send)

    return serve


def _slot_to_release(scope: Scope) -> str | None:
    """Return the id of the slot if the request releases one and has no further parameters."""
    if scope["type"] != "http" or scope["method"] != "DELETE" or scope["query_string"]:
        return None
    path: str = scope["path"]
    before, _, slot_id = path.rpartition("/")
    return slot_id if before == PATH and slot_id else None

"""The bodies of requests and of errors: read within their bounds, decoded strictly; and names with slashes in paths.

An error has a status, a short code for programs and a sentence for people: its body is `{error, detail}`. Under
`/concurrency` it is `{error}` with the sentence alone. The sentences come from the code that finds the mistakes.

A name with slashes (`/concurrency/limits/anthropic/max-1`) is folded into one part of the path before routing, so that
routes have plain parameters. A client may write the slashes as they are or as `%2F`; the server has unquoted the path
in either case. Never here: routes.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException

from paceline import errors
from paceline.engine.capacity.leases import CallerGone
from paceline.settings.checks import did_you_mean

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]
Answer = tuple[int, bytes, tuple[Header, ...]]
"""A whole response: its status, its body and its headers."""

log = logging.getLogger("paceline.api")

CONCURRENCY = "/concurrency"
MOST_DISCARDED_BYTES = 256 << 20
"""Rest of a refused body that is read and thrown away so that its sender sees the answer; beyond it, hang up."""
CODES = {
    400: "invalid",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    409: "conflict",
    410: "not_joined",
    413: "too_large",
    415: "unsupported_media_type",
    421: "wrong_host",
    426: "other_version",
    500: "internal",
    503: "unavailable",
}
DETAILS = {
    404: "there is no such route; /openapi.json lists the routes",
    405: "this route does not accept this method; the Allow header lists the methods that it accepts",
    413: "the body is too large",
}
OUTAGE = ". Nothing starts meanwhile, running sessions continue, and nothing is lost"
INTERNAL_ERROR = "Internal error; see paceline.log"


async def send_whole(send: Send, status: int, body: bytes, headers: Iterable[Header] = ()) -> None:
    """Send a whole response. It is JSON unless the headers name another type."""
    given = (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *headers
    await send({"type": "http.response.start", "status": status, "headers": list(dict(given).items())})
    await send({"type": "http.response.body", "body": body})


async def disconnected(receive: Receive) -> None:
    """Return once the client has disconnected: after the body, that is the only message that can come."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def read_whole(receive: Receive, most: int) -> bytes | None:
    """Return the body of a request; None if it has more than `most` bytes."""
    content = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise CallerGone
        content += bytes(message.get("body", b""))
        if len(content) > most:
            return None
        if not message.get("more_body", False):
            return content


class ErrorBody(msgspec.Struct, frozen=True):
    """`error` is a short code, `detail` a sentence that names the field and what to do."""

    error: str
    detail: str


class ConcurrencyErrorBody(msgspec.Struct, frozen=True):
    """A sentence that says what is wrong."""

    error: str


class HttpError(errors.PacelineError):
    """A request that is answered with this status, and with a code if it is not that of the status."""

    def __init__(self, status: int, detail: str, code: str | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code


def error_json(path: str, status: int, detail: str, code: str | None = None) -> bytes:
    """Return the JSON of an error at this path."""
    if is_concurrency(path):
        return msgspec.json.encode(ConcurrencyErrorBody(detail))
    return msgspec.json.encode(ErrorBody(code or CODES.get(status, "invalid"), detail))


def is_concurrency(path: str) -> bool:
    """Return whether the path is under `/concurrency`, where errors have no code."""
    return path == CONCURRENCY or path.startswith(CONCURRENCY + "/")


def on_paceline_error(request: Request, error: errors.PacelineError) -> Response[bytes]:  # type: ignore[type-arg]
    """Answer an error that Paceline raised on purpose."""
    status, body = error_answer(request.scope["path"], error)
    return _response(request, status, body)


def error_answer(path: str, error: errors.PacelineError) -> tuple[int, bytes]:
    """Return the status and the JSON of an error that Paceline raised on purpose."""
    detail = f"{error}{OUTAGE}" if isinstance(error, errors.StoreUnreachable) else str(error)
    status, code = status_of(error), error.code if isinstance(error, HttpError) else None
    return status, error_json(path, status, detail, code)


def status_of(error: errors.PacelineError) -> int:
    """Return the HTTP status that an error stands for."""
    match error:
        case HttpError():
            return error.status
        case errors.UnknownName():
            return 404
        case (
            errors.IllegalStep()
            | errors.TicketConflict()
            | errors.CapacityError()
            | errors.WorkspaceError()
            | errors.HostTaken()
        ):
            return 409
        case errors.NotJoined():
            return 410
        case errors.VersionMismatch():
            return 426
        case errors.InvalidInput():
            return 400
        case errors.StoreError() | errors.EngineBusy() | errors.HostLost():
            return 503
    return 500


def on_http_exception(request: Request, error: HTTPException) -> Response[bytes]:  # type: ignore[type-arg]
    """Answer an error of the framework: an unknown route, a wrong method or a wrong parameter."""
    detail = DETAILS.get(error.status_code, error.detail)
    if isinstance(error, ValidationException):
        detail = _wrong_parameters(request, error)
    body = error_json(request.scope["path"], error.status_code, detail)
    return _response(request, error.status_code, body, error.headers)


def _wrong_parameters(request: Request, error: ValidationException) -> str:  # type: ignore[type-arg]
    """Return which parameters are wrong and why, with the names that they have in the request."""
    fields = request.route_handler.parsed_fn_signature.parameters
    found = []
    for each in error.extra if isinstance(error.extra, list) else []:
        field = fields.get(each.get("key", ""))
        name = getattr(field.kwarg_definition, "name", None) if field is not None else None
        found.append(f"{name or each.get('key', 'the request')}: {each.get('message', 'is wrong')}")
    return "; ".join(found) or error.detail


def on_unexpected_error(request: Request, error: Exception) -> Response[bytes]:  # type: ignore[type-arg]
    """Answer a mistake of Paceline's own. It is logged without anything from the request, which may hold secrets."""
    log.error("%s %s failed", request.method, request.scope.get("path_template", "?"), exc_info=error)
    return _response(request, 500, error_json(request.scope["path"], 500, INTERNAL_ERROR))


def _response(
    request: Request,  # type: ignore[type-arg]
    status: int,
    body: bytes,
    headers: dict[str, str] | None = None,
) -> Response[bytes]:
    if closes_connection(status, request.scope["headers"]):
        headers = {**(headers or {}), "connection": "close"}
    return Response(body, status_code=status, media_type="application/json", headers=headers)


def closes_connection(status: int, headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether the connection ends with the response.

    Otherwise the rest of a body that is too large is read and thrown away, so that its sender sees the response.
    """
    announced = next((value for name, value in headers if name == b"content-length"), b"")
    has_end = announced.isdigit() and int(announced) <= MOST_DISCARDED_BYTES
    return status == 413 and not has_end


# -- bodies of requests -----------------------------------------------------------------------------

SMALL_BYTES = 1 << 20
"""Far more than any body but a plan needs."""
PLAN_BYTES = 64 << 20
"""A plan of a million short units fits."""
LARGE_BYTES = 256 * 1024
"""Bytes of a body that are decoded on the loop, within a few milliseconds. Larger ones must not block the engine."""
Type = TypeVar("Type")
_AT = re.compile(r" - at `\$\.?(.*)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_NAMED = re.compile(r"field `(.*)`$")


async def read_body(request: Request[Any, Any, Any], kind: type[Type]) -> Type:
    """Return the body as the type. An error names the wrong field."""
    check_media_type(request.scope["headers"])
    return await decode_body(await request.body(), kind)


async def read_optional(request: Request[Any, Any, Any], kind: type[Type]) -> Type:
    """Return the body as the type, whose defaults stand for a body that was left out."""
    return await read_body(request, kind) if await request.body() else kind()


async def decode_body(content: bytes, kind: type[Type]) -> Type:
    """Decode JSON into the type, a large body off the loop. An error names the wrong field."""
    if len(content) <= LARGE_BYTES:
        return _decoded(content, kind)
    return await asyncio.to_thread(_decoded, content, kind)


def _decoded(content: bytes, kind: type[Type]) -> Type:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        raise HttpError(400, _described(str(error), kind)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise HttpError(400, "the body is not valid JSON") from None


def check_media_type(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Refuse a body that is declared to be something other than JSON."""
    named = next((value for name, value in headers if name == b"content-type"), b"")
    given = named.decode("latin-1").partition(";")[0].strip().lower()
    if given and given != "application/json" and not given.endswith("+json"):
        raise HttpError(415, f"the body must be JSON: send the header Content-Type: application/json, not {given:.80}")


def _described(message: str, kind: object) -> str:
    """Put the name of the field in front: `sessions: Expected `int`, got `str``."""
    unknown = _UNKNOWN.fullmatch(message)
    if unknown is not None and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        known = [field.encode_name for field in msgspec.structs.fields(kind)]
        hint = did_you_mean(unknown[1], known)
        return (
            f"{unknown[1]:.80}: there is no such field{f'{hint} Known' if hint else '; known'} are {', '.join(known)}"
        )
    at = _AT.search(message)
    if at is not None:
        return f"{at[1] or 'the body'}: {message[: at.start()]}"
    named = _NAMED.search(message)
    return f"{named[1]}: {message}" if named is not None else f"the body: {message}"


SCOPE_PREFIXES: Final = (
    "/concurrency/limits/",
    "/concurrency/cooldown/",
    "/concurrency/rates/",
    "/concurrency/restore/",
)
UNIT_PREFIX: Final = "/v1/units/"
UNIT_VIEW: Final = re.compile(r"(.*/.*)(/why|/log|/output|/diff)", re.DOTALL)
UNIT_ACTION: Final = re.compile(r"(.*)(/retry|/cancel|/pause|/resume|/accept)", re.DOTALL)


def fold_path(path: str, method: str) -> str:
    """Return the path with the name in it quoted into one part.

    A unit may be named `docs/log` or `docs/retry`: the end of a path is a view only behind a whole unit id, and an
    action only in a POST, which is nothing else for a unit.
    """
    for prefix in SCOPE_PREFIXES:
        if path.startswith(prefix) and len(path) > len(prefix):
            return prefix + quote(path[len(prefix) :], safe="")
    if path.startswith(UNIT_PREFIX) and len(path) > len(UNIT_PREFIX):
        name = path[len(UNIT_PREFIX) :]
        found = (UNIT_ACTION if method == "POST" else UNIT_VIEW).fullmatch(name)
        name, ending = found.groups() if found is not None else (name, "")
        return UNIT_PREFIX + quote(name, safe="") + ending
    return path


def unfold(name: str) -> str:
    """Return the name of a folded part."""
    return unquote(name)

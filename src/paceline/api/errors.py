"""Errors as responses: the status, a short code for programs and a sentence for people.

The body is `{error, detail}`. Under `/concurrency` it is `{error}` with the sentence alone. Never here: finding
mistakes. The sentences come from the code that finds them.
"""

import logging
from collections.abc import Iterable

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException

from paceline.errors import (
    CapacityError,
    EngineBusy,
    HostLost,
    HostTaken,
    IllegalStep,
    InvalidInput,
    NotJoined,
    PacelineError,
    StoreError,
    StoreUnreachable,
    TicketConflict,
    UnknownName,
    VersionMismatch,
    WorkspaceError,
)

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


class ErrorBody(msgspec.Struct, frozen=True):
    """`error` is a short code, `detail` a sentence that names the field and what to do."""

    error: str
    detail: str


class ConcurrencyErrorBody(msgspec.Struct, frozen=True):
    """A sentence that says what is wrong."""

    error: str


class HttpError(PacelineError):
    """A request that is answered with this status."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


def error_json(path: str, status: int, detail: str) -> bytes:
    """Return the JSON of an error at this path."""
    if is_concurrency(path):
        return msgspec.json.encode(ConcurrencyErrorBody(detail))
    return msgspec.json.encode(http_error_body(status, detail))


def http_error_body(status: int, detail: str) -> ErrorBody:
    """Return the body of an error outside of `/concurrency`."""
    return ErrorBody(CODES.get(status, "invalid"), detail)


def is_concurrency(path: str) -> bool:
    """Return whether the path is under `/concurrency`, where errors have no code."""
    return path == CONCURRENCY or path.startswith(CONCURRENCY + "/")


def on_paceline_error(request: Request, error: PacelineError) -> Response[bytes]:  # type: ignore[type-arg]
    """Answer an error that Paceline raised on purpose."""
    detail = f"{error}{OUTAGE}" if isinstance(error, StoreUnreachable) else str(error)
    return _response(request, status_of(error), detail)


def status_of(error: PacelineError) -> int:
    """Return the HTTP status that an error stands for."""
    match error:
        case HttpError():
            return error.status
        case UnknownName():
            return 404
        case IllegalStep() | TicketConflict() | CapacityError() | WorkspaceError() | HostTaken():
            return 409
        case NotJoined():
            return 410
        case VersionMismatch():
            return 426
        case InvalidInput():
            return 400
        case StoreError() | EngineBusy() | HostLost():
            return 503
    return 500


def on_http_exception(request: Request, error: HTTPException) -> Response[bytes]:  # type: ignore[type-arg]
    """Answer an error of the framework: an unknown route, a wrong method or a wrong parameter."""
    detail = DETAILS.get(error.status_code, error.detail)
    if isinstance(error, ValidationException):
        detail = _wrong_parameters(request, error)
    return _response(request, error.status_code, detail, error.headers)


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
    return _response(request, 500, INTERNAL_ERROR)


def _response(
    request: Request,  # type: ignore[type-arg]
    status: int,
    detail: str,
    headers: dict[str, str] | None = None,
) -> Response[bytes]:
    body = error_json(request.scope["path"], status, detail)
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

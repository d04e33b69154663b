"""What went wrong, as an answer: the status, a short code for programs and a sentence for people.

Everywhere `{error, detail}`; under `/concurrency`, whose shapes are older, `{error}` with the sentence alone.
Never here: what is wrong. That is said where it is found.
"""

import logging
from collections.abc import Iterable

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException

from paceline.errors import (
    CapacityError,
    EngineBusy,
    IllegalStep,
    InvalidInput,
    PacelineError,
    StoreError,
    TicketConflict,
    UnknownName,
)

log = logging.getLogger("paceline.api")

OLD_SHAPES = "/concurrency"
MOST_PASSED_OVER_BYTES = 256 << 20
CODES = {
    400: "invalid",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    409: "conflict",
    413: "too_large",
    415: "unsupported_media_type",
    421: "wrong_host",
    500: "internal",
    503: "unavailable",
}
SENTENCES = {
    404: "there is nothing at this address; /openapi.json lists what there is",
    405: "this address does not take this method; the Allow header names those that it takes",
    413: "the body is too large",
}
FAILED = "this failed, and the fault is Paceline's; paceline.log in the home says more"


class Problem(msgspec.Struct, frozen=True):
    """What is wrong. `error` is a short code, `detail` a sentence that names the field and the way out."""

    error: str
    detail: str


class OldProblem(msgspec.Struct, frozen=True):
    """What is wrong, in a sentence."""

    error: str


class Refused(PacelineError):
    """A request that is answered with this status."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


def problem_body(path: str, status: int, detail: str) -> bytes:
    """The JSON of a refusal at this path."""
    if is_old(path):
        return msgspec.json.encode(OldProblem(detail))
    return msgspec.json.encode(problem_of(status, detail))


def problem_of(status: int, detail: str) -> Problem:
    return Problem(CODES.get(status, "invalid"), detail)


def is_old(path: str) -> bool:
    return path == OLD_SHAPES or path.startswith(OLD_SHAPES + "/")


def on_problem(request: Request, error: PacelineError) -> Response[bytes]:  # type: ignore[type-arg]
    """Of our own errors."""
    return _answer(request, status_of(error), str(error))


def status_of(error: PacelineError) -> int:
    match error:
        case Refused():
            return error.status
        case UnknownName():
            return 404
        case IllegalStep() | TicketConflict() | CapacityError():
            return 409
        case InvalidInput():
            return 400
        case StoreError() | EngineBusy():
            return 503
    return 500


def on_http_problem(request: Request, error: HTTPException) -> Response[bytes]:  # type: ignore[type-arg]
    """Of the framework: addresses, methods and parameters."""
    detail = SENTENCES.get(error.status_code, error.detail)
    if isinstance(error, ValidationException):
        detail = _parameters(request, error)
    return _answer(request, error.status_code, detail, error.headers)


def _parameters(request: Request, error: ValidationException) -> str:  # type: ignore[type-arg]
    """Which parameters are wrong, and why; by the names that they have in the request."""
    fields = request.route_handler.parsed_fn_signature.parameters
    told = []
    for each in error.extra if isinstance(error.extra, list) else []:
        field = fields.get(each.get("key", ""))
        name = getattr(field.kwarg_definition, "name", None) if field is not None else None
        told.append(f"{name or each.get('key', 'the request')}: {each.get('message', 'is wrong')}")
    return "; ".join(told) or error.detail


def on_failure(request: Request, error: Exception) -> Response[bytes]:  # type: ignore[type-arg]
    """A mistake of ours: told in the log, where nothing of the request is repeated."""
    log.error("%s %s failed", request.method, request.scope.get("path_template", "?"), exc_info=error)
    return _answer(request, 500, FAILED)


def _answer(
    request: Request,  # type: ignore[type-arg]
    status: int,
    detail: str,
    headers: dict[str, str] | None = None,
) -> Response[bytes]:
    body = problem_body(request.scope["path"], status, detail)
    if hangs_up(status, request.scope["headers"]):
        headers = {**(headers or {}), "connection": "close"}
    return Response(body, status_code=status, media_type="application/json", headers=headers)


def hangs_up(status: int, headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether the connection ends with the answer. Else the rest of a large body is read, and its sender sees why."""
    announced = next((value for name, value in headers if name == b"content-length"), b"")
    has_end = announced.isdigit() and int(announced) <= MOST_PASSED_OVER_BYTES
    return status == 413 and not has_end

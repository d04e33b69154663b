"""Errors in the provider's own shape, so that a client's SDK raises the same exception as for the provider itself.

Here: bodies and headers of error responses that Paceline sends itself. Never here: when to send them.
"""

import math

import msgspec

from paceline.core.values.verdicts import Deferred
from paceline.protocols.families import Family

JSON_TYPE = b"application/json"
DEFAULT_RETRY_SECONDS = 30.0
"""`Retry-After` for a client whose wait ran out when no better time is known. Most pauses are shorter."""
LONGEST_RETRY_SECONDS = 600.0
"""The longest `Retry-After` that is computed from the speed of a queue. By then that speed is another one."""
FIRST_SERVER_ERROR = 500

_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_OPENAI_TYPES = {
    401: "authentication_error",
    402: "insufficient_quota",
    403: "permission_error",
    429: "rate_limit_error",
}
_GEMINI_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class OwnResponse(msgspec.Struct, frozen=True):
    """A response that Paceline sends instead of the provider."""

    status: int
    code: str
    message: str
    retry_after: float | None = None


def response_when_held(deferred: Deferred) -> OwnResponse | None:
    """Return the response for a held account, which only a person can release. None if waiting may help."""
    return OwnResponse(403, "held", deferred.detail) if deferred.reason == "held" else None


def response_when_timed_out(
    message: str, deferred: Deferred | None, now: float, expected_wait: float | None = None
) -> OwnResponse:
    """Return the response after a wait for a slot ran out. `deferred` is the last reason for the wait.

    `expected_wait` is how many seconds the queue will take at its present speed, if that is known.
    """
    usual = DEFAULT_RETRY_SECONDS if expected_wait is None else min(expected_wait, LONGEST_RETRY_SECONDS)
    if deferred is None:
        return OwnResponse(429, "wait_ran_out", message, usual)
    retry_after = usual if deferred.retry_at is None else deferred.retry_at - now
    position = "" if deferred.position is None else f"; position {deferred.position} in the queue"
    return OwnResponse(429, deferred.reason, f"{message} ({deferred.reason}{position})", retry_after)


def error_body(family: Family, status: int, code: str, message: str) -> bytes:
    """Return the body of an error response. `code` is Paceline's name for the error; some shapes omit it."""
    match family:
        case "anthropic":
            kind = _ANTHROPIC_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
            body: dict[str, object] = {"type": "error", "error": {"type": kind, "message": message}}
        case "gemini":
            name = _GEMINI_STATUSES.get(status, "FAILED_PRECONDITION" if status < 500 else "INTERNAL")
            details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": code, "domain": "paceline"}]
            body = {"error": {"code": status, "message": message, "status": name, "details": details}}
        case "openai":
            kind = _OPENAI_TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
            body = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    return msgspec.json.encode(body)


def error_headers(status: int, retry_after: float | None = None) -> list[tuple[bytes, bytes]]:
    """Return the headers of an error response.

    SDKs are asked not to retry errors below 500: Paceline has waited as long as the client wanted, and a retry would
    only be a second wait in the same queue. An unreachable upstream or a stopping daemon (500 and above) may be back
    in a moment. There the SDKs retry as they would without Paceline.
    """
    headers = [(b"content-type", JSON_TYPE)]
    if status < FIRST_SERVER_ERROR:
        headers.append((b"x-should-retry", b"false"))
    if retry_after is not None:
        headers.append((b"retry-after", str(max(1, math.ceil(retry_after))).encode()))
    return headers

"""Errors in the provider's own shape, so that a client's SDK raises what it would raise for the provider's own.

Here: bodies and headers of answers that Paceline gives itself. Never here: when to give them.
"""

import math

import msgspec

from paceline.core.values.verdicts import Deferred
from paceline.protocols.families import Family

JSON_TYPE = b"application/json"
GIVEN_RETRY_SECONDS = 30.0
"""What a client whose wait ran out is told where no time is known."""
FIRST_SERVER_ERROR = 500

_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_OPENAI_TYPES = {
    401: "authentication_error",
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


class OwnAnswer(msgspec.Struct, frozen=True):
    """What a client is told in place of the provider's answer."""

    status: int
    code: str
    message: str
    retry_after: float | None = None


def answer_when_held(deferred: Deferred) -> OwnAnswer | None:
    """No wait mends an account that a person has to see to; None where waiting may help."""
    return OwnAnswer(403, "held", deferred.detail) if deferred.reason == "held" else None


def answer_when_out_of_time(message: str, deferred: Deferred | None, now: float) -> OwnAnswer:
    """The wait for a slot ran out; `deferred` is what held it in the end."""
    if deferred is None:
        return OwnAnswer(429, "wait_ran_out", message, GIVEN_RETRY_SECONDS)
    retry_after = GIVEN_RETRY_SECONDS if deferred.retry_at is None else deferred.retry_at - now
    place = "" if deferred.position is None else f"; place {deferred.position} in line"
    return OwnAnswer(429, deferred.reason, f"{message} ({deferred.reason}{place})", retry_after)


def error_body(family: Family, status: int, code: str, message: str) -> bytes:
    """The body of an error answer. `code` is Paceline's own word for it, where the shape has room for one."""
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
    """The headers that go with it.

    The SDKs are told not to try again by themselves where that is in vain: Paceline has waited as long as it was asked
    to, and what a client would add to that is a second wait in the same line. An upstream that cannot be reached, or
    a daemon that stops, may be back in a moment: there they do what they would do without Paceline.
    """
    headers = [(b"content-type", JSON_TYPE)]
    if status < FIRST_SERVER_ERROR:
        headers.append((b"x-should-retry", b"false"))
    if retry_after is not None:
        headers.append((b"retry-after", str(max(1, math.ceil(retry_after))).encode()))
    return headers

"""The kinds of limit that detection separates, and the two plain codes for them: HTTP statuses and error names.

Here: tables of values. Never here: sentences, or anything that only one provider means.
"""

from typing import Literal

Kind = Literal["quota", "rate", "overloaded", "platform", "billing", "auth", "unreachable", "none"]

KIND_OF_STATUS: dict[int, Kind] = {
    401: "auth",
    402: "billing",
    423: "platform",
    429: "rate",
    503: "overloaded",
    529: "overloaded",
}
"""What a bare HTTP status means for the account. 403 is missing on purpose: providers also send it for spent plans,
regions and content, so a single answer proves nothing. `run_outcome` adds it for runs that ended with it."""

KIND_OF_ERROR_NAME: dict[str, Kind] = {
    "rate_limit": "rate",
    "overloaded": "overloaded",
    "server_error": "overloaded",
    "billing_error": "billing",
    "authentication_failed": "auth",
}
"""The names for errors that several agent CLIs put into their retry and error events."""


def kind_of_status(status: float | None) -> Kind | None:
    """Return what an HTTP status means by itself, or None."""
    return KIND_OF_STATUS.get(int(status or 0))


def kind_of_failure(status: float | None) -> Kind | None:
    """Return what the status of a failed model call means: as `kind_of_status`, and every 5xx is an overload."""
    return kind_of_status(status) or ("overloaded" if status and status >= 500 else None)

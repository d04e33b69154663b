"""The template of an error (see `facts`), and helpers that derive one error from another."""

from typing import Any, Literal

import msgspec

Kind = Literal["rate_limit", "quota_window", "platform_limit", "overloaded", "billing", "auth", "failed"]
Place = Literal["before", "midstream", "reset", "midstream_reset", "midstream_end"]


class ProviderError(msgspec.Struct, frozen=True, kw_only=True):
    """A refusal. `kind` is what a reader should detect, `place` where in the exchange it happens."""

    kind: Kind
    status: int = 200
    headers: dict[str, str] = {}
    body: dict[str, Any] = {}
    place: Place = "before"


def with_headers(error: ProviderError, headers: dict[str, str]) -> ProviderError:
    return msgspec.structs.replace(error, headers=error.headers | headers)


def midstream(error: ProviderError) -> ProviderError:
    """Return the same error, sent after half of the answer."""
    return msgspec.structs.replace(error, place="midstream")


RETRY_AFTER = {"retry-after": "{retry_after}"}
ENDINGS = {
    "rst": ProviderError(kind="failed", place="reset"),
    "midstream_rst": ProviderError(kind="failed", place="midstream_reset"),
    "midstream_end": ProviderError(kind="failed", place="midstream_end"),
}

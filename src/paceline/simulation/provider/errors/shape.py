"""What an error is, as a template (see `facts`), and the few ways to make one from another."""

from typing import Any, Literal

import msgspec

Kind = Literal["rate_limit", "quota_window", "platform_limit", "overloaded", "billing", "auth", "failed"]
Place = Literal["before", "midstream", "reset", "midstream_reset", "midstream_end"]


class ProviderError(msgspec.Struct, frozen=True, kw_only=True):
    """A refusal. `kind` says what a reader should make of it, `place` where in the exchange it happens."""

    kind: Kind
    status: int = 200
    headers: dict[str, str] = {}
    body: dict[str, Any] = {}
    place: Place = "before"


def with_headers(error: ProviderError, headers: dict[str, str]) -> ProviderError:
    return msgspec.structs.replace(error, headers=error.headers | headers)


def midstream(error: ProviderError) -> ProviderError:
    """The same, after half of the answer was sent."""
    return msgspec.structs.replace(error, place="midstream")


RETRY_AFTER = {"retry-after": "{retry_after}"}
ENDINGS = {
    "rst": ProviderError(kind="failed", place="reset"),
    "midstream_rst": ProviderError(kind="failed", place="midstream_reset"),
    "midstream_end": ProviderError(kind="failed", place="midstream_end"),
}

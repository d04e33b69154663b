"""Signals: what an observation means. Values only; the reader decides what to do.

`retry_after` is always relative seconds, `resets_at` always absolute wall time (Unix seconds).
`reach` says whose limit it is; `confidence` (0-1) and `source` say how far to trust it and where
it was read: `field`, `header`, `text` or `backoff`.
"""

from typing import Final, Literal

import msgspec

__all__ = [
    "KINDS",
    "AnySignal",
    "AuthFailed",
    "BillingStop",
    "Budget",
    "Cause",
    "Overloaded",
    "PlatformLimit",
    "QuotaClosed",
    "RateLimited",
    "Reach",
    "Signal",
    "Succeeded",
    "Unreachable",
    "Usage",
]

Reach = Literal["model", "account", "provider"]
Cause = Literal["concurrency", "requests", "tokens", "starts"]


class Signal(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The fields that all signals share. `ticket` is the slot it came from, where there is one."""

    ticket: str | None = None
    reach: Reach | None = None
    confidence: float = 1.0
    source: str | None = None


class RateLimited(Signal, frozen=True, kw_only=True):
    """Too much at once or too fast: pause the scope, then continue."""

    retry_after: float | None = None
    cause: Cause | None = None


class Overloaded(Signal, frozen=True, kw_only=True):
    """The provider's own trouble (529, 503): pause with backoff; the limits are not to blame."""

    retry_after: float | None = None


class Unreachable(Signal, frozen=True, kw_only=True):
    """Nobody answered: no network, no connection, or the agent's program is away. Back off, and charge nothing."""

    retry_after: float | None = None
    detail: str | None = None


class QuotaClosed(Signal, frozen=True, kw_only=True):
    """A quota window is spent until `resets_at`; `window` is its name (`5h`, `weekly`, ...)."""

    resets_at: float | None = None
    window: str | None = None


class PlatformLimit(Signal, frozen=True, kw_only=True):
    """The provider named its own cap: `in_use` of `limit`."""

    limit: int | None = None
    in_use: int | None = None
    retry_after: float | None = None


class BillingStop(Signal, frozen=True, kw_only=True):
    """Credits or a spending cap are exhausted: a person is needed."""

    detail: str | None = None


class AuthFailed(Signal, frozen=True, kw_only=True):
    """The login or key is not accepted: a person is needed. `is_missing`: the CLI itself found no login to try."""

    detail: str | None = None
    is_missing: bool = False


class Usage(Signal, frozen=True, kw_only=True):
    """The provider's own count of what runs. `concurrent_sessions=None` means unknown."""

    concurrent_sessions: int | None = None
    limit: int | None = None
    hard_cap: int | None = None


class Budget(Signal, frozen=True, kw_only=True):
    """What response headers say is left, of a rate (`*_remaining` of `*_limit`) or of a window (`used_ratio`)."""

    requests_remaining: int | None = None
    requests_reset_at: float | None = None
    tokens_remaining: int | None = None
    tokens_reset_at: float | None = None
    requests_limit: int | None = None
    tokens_limit: int | None = None
    used_ratio: float | None = None
    window: str | None = None
    resets_at: float | None = None


class Succeeded(Signal, frozen=True, kw_only=True):
    """A turn or call went through, having used `tokens` where that is known."""

    tokens: int | None = None


AnySignal = (
    RateLimited
    | Overloaded
    | Unreachable
    | QuotaClosed
    | PlatformLimit
    | BillingStop
    | AuthFailed
    | Usage
    | Budget
    | Succeeded
)

KINDS: Final[dict[str, type[AnySignal]]] = {
    "rate_limited": RateLimited,
    "overloaded": Overloaded,
    "unreachable": Unreachable,
    "quota_closed": QuotaClosed,
    "platform_limit": PlatformLimit,
    "billing_stop": BillingStop,
    "auth_failed": AuthFailed,
    "usage": Usage,
    "budget": Budget,
    "succeeded": Succeeded,
}
"""The signals by their names on the wire."""

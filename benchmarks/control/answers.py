"""The answers of a simulated provider: all that a policy other than the oracle may see of it.

Here: refusals, usage readings and headers. Never here: the provider's state.
"""

from typing import Literal, NamedTuple, Protocol

Kind = Literal["cap", "requests", "tokens", "starts", "window", "overload"]
Cause = Literal["concurrency", "requests", "tokens", "starts"]


class Size(NamedTuple):
    """The size of one turn. A provider charges windows and rates with it."""

    tokens: float
    seconds: float


class Refusal(NamedTuple):
    """A refusal. All kinds except `overload` are 429s. `cause` is None where the message does not name it."""

    kind: Kind
    retry_after: float | None = None
    window: str | None = None
    resets_at: float | None = None
    cause: Cause | None = None


class Reading(NamedTuple):
    """The answer of a usage endpoint: the provider's own count, and its limit."""

    in_use: int
    limit: int


class RateHeaders(NamedTuple):
    """The rate headers of a response: what is left, and when each allowance is full again."""

    requests_remaining: int
    requests_full_at: float
    tokens_remaining: int
    tokens_full_at: float
    requests_limit: int
    tokens_limit: int


class WindowHeader(NamedTuple):
    """The header of one quota window: the used share, and the announced reset."""

    name: str
    used_ratio: float
    resets_at: float | None


class Readings(Protocol):
    """The readings of an informed day: a usage endpoint and response headers."""

    def usage(self, model: str, now: float) -> Reading: ...
    def rate_headers(self, now: float) -> RateHeaders | None: ...
    def window_headers(self, model: str, now: float) -> list[WindowHeader]: ...

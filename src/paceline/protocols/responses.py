"""The meaning of an HTTP response, and whether its request is sent again.

Here: the one place where that is decided, for the gateway and for both transports of `paceline.integrations`.
Never here: waiting or sending.

Header names are bytes in lower case.
"""

from collections.abc import Iterable, Sequence

from paceline.core.signals import (
    AuthFailed,
    BillingStop,
    Overloaded,
    PlatformLimit,
    QuotaClosed,
    RateLimited,
    Signal,
    Succeeded,
)
from paceline.detect import Observation, detect
from paceline.protocols.usage import ResponseReader

Headers = Iterable[tuple[bytes, bytes]]

LONGEST_ERROR = 65_536
"""Bytes of an error's body that are read. The reason is always near its beginning."""
_REFUSED_STATUSES = frozenset({429, 503, 529})
"""With these statuses the provider has not begun to process the request."""
_IDEMPOTENT_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
_IDEMPOTENCY_KEYS = frozenset({b"idempotency-key", b"x-idempotency-key"})


def signals_of(name: str, status: int, headers: Headers, body: bytes, *, seen_at: float) -> list[Signal]:
    """Return the signals in a response. `name` is the provider in `detect`. Of a success only headers are read."""
    if status < 400:
        headers = [(key, value) for key, value in headers if b"ratelimit" in key or key.startswith(b"x-codex-")]
        body = b""
        if not headers:
            return []
    texts = {key.decode("latin-1"): value.decode("latin-1") for key, value in headers}
    text = body[:LONGEST_ERROR].decode("utf-8", "replace")
    return detect(Observation(provider=name, channel="http", text=text, status=status, headers=texts, seen_at=seen_at))


def signals_at_end(
    name: str, status: int, headers: Headers, *, error: bytes, reader: ResponseReader | None, seen_at: float
) -> list[Signal]:
    """Return the signals of a complete response: the reason of a refusal, or a success and its tokens.

    `error` is the body of an error response; `reader` has read the body of a success.
    """
    if status >= 400:
        return signals_of(name, status, headers, error, seen_at=seen_at)
    broken = reader.error if reader is not None else None
    ended_by = [] if broken is None else signals_of(name, 500, headers, broken, seen_at=seen_at)
    return ended_by or [Succeeded(tokens=None if reader is None else reader.tokens)]


def signals_of_broken(name: str, status: int, headers: Headers, *, seen_at: float) -> list[Signal]:
    """Return the signals of a response whose body broke off. Only a refusal is certain without its body."""
    return signals_of(name, status, headers, b"", seen_at=seen_at) if status in _REFUSED_STATUSES else []


def with_pause(signals: Sequence[Signal]) -> list[Signal]:
    """Return the signals, with an `Overloaded` if none of them pauses: a retry without a pause is refused again."""
    is_paused = any(
        isinstance(signal, RateLimited | Overloaded | QuotaClosed)
        or (isinstance(signal, PlatformLimit) and bool(signal.retry_after))
        for signal in signals
    )
    return [*signals] if is_paused else [*signals, Overloaded()]


def should_retry(signals: Sequence[Signal], status: int, headers: Headers, *, now: float, deadline: float) -> bool:
    """Return whether to send the request of this response again, by the `deadline`.

    Retry only if the provider cannot have processed the request, if a retry can help, and if the provider names no
    time after the deadline.
    """
    not_before = earliest_retry(signals, now)
    if not_before is not None and not_before > deadline:
        return False
    if any(isinstance(signal, BillingStop | AuthFailed) for signal in signals):
        return False  # waiting fixes neither
    if any(name == b"x-should-retry" and value.strip().lower() == b"false" for name, value in headers):
        return False
    if status in _REFUSED_STATUSES:
        return True
    return 400 <= status < 500 and any(isinstance(signal, RateLimited | PlatformLimit) for signal in signals)


def is_idempotent(method: str, request_headers: Headers) -> bool:
    """Return whether a request without a response may be sent again: the provider may have processed it already."""
    return method.upper() in _IDEMPOTENT_METHODS or any(name in _IDEMPOTENCY_KEYS for name, _ in request_headers)


def earliest_retry(signals: Sequence[Signal], now: float) -> float | None:
    """Return the time before which a retry is certain to be refused, None if the provider names no time."""
    times = [_not_before(signal, now) for signal in signals]
    return max((at for at in times if at is not None), default=None)


def _not_before(signal: Signal, now: float) -> float | None:
    match signal:
        case QuotaClosed(resets_at=at):
            return at
        case RateLimited(retry_after=after) | Overloaded(retry_after=after) | PlatformLimit(retry_after=after):
            return None if after is None else now + after
    return None

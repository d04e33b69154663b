"""What an HTTP answer means, and whether its request may be sent again.

Here: the one place where that is decided, for every shell that carries requests. Never here: waiting or sending.

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
from paceline.protocols.usage import AnswerReader

Headers = Iterable[tuple[bytes, bytes]]

LONGEST_ERROR = 65_536
"""How much of an error's body is worth reading."""
_REFUSED_STATUSES = frozenset({429, 503, 529})
"""The provider says by the status alone that it has not begun."""
_IDEMPOTENT_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
_IDEMPOTENCY_KEYS = frozenset({b"idempotency-key", b"x-idempotency-key"})


def signals_of(name: str, status: int, headers: Headers, body: bytes, *, seen_at: float) -> list[Signal]:
    """The signals of an answer; `name` is the provider's in `detect`. Of a success only the headers are looked at."""
    if status < 400:
        headers = [(key, value) for key, value in headers if b"ratelimit" in key or key.startswith(b"x-codex-")]
        body = b""
        if not headers:
            return []
    texts = {key.decode("latin-1"): value.decode("latin-1") for key, value in headers}
    text = body[:LONGEST_ERROR].decode("utf-8", "replace")
    return detect(Observation(provider=name, channel="http", text=text, status=status, headers=texts, seen_at=seen_at))


def signals_at_end(
    name: str, status: int, headers: Headers, *, error: bytes, reader: AnswerReader | None, seen_at: float
) -> list[Signal]:
    """What an answer says once it is over: what it was refused for, or that it went well and how much it used.

    `error` is the body of an answer that is none; `reader` has read the body of one that is.
    """
    if status >= 400:
        return signals_of(name, status, headers, error, seen_at=seen_at)
    broken = reader.error if reader is not None else None
    ended_by = [] if broken is None else signals_of(name, 500, headers, broken, seen_at=seen_at)
    return ended_by or [Succeeded(tokens=None if reader is None else reader.tokens)]


def signals_of_broken(name: str, status: int, headers: Headers, *, seen_at: float) -> list[Signal]:
    """What an answer says whose body broke off: a refusal is one by its status. Nobody is called for half an error."""
    return signals_of(name, status, headers, b"", seen_at=seen_at) if status in _REFUSED_STATUSES else []


def with_pause(signals: Sequence[Signal]) -> list[Signal]:
    """The signals of a refusal that is to be sent again, with one that makes it wait: at once it is refused again."""
    is_paused = any(
        isinstance(signal, RateLimited | Overloaded | QuotaClosed)
        or (isinstance(signal, PlatformLimit) and bool(signal.retry_after))
        for signal in signals
    )
    return [*signals] if is_paused else [*signals, Overloaded()]


def may_send_again(
    method: str,
    request_headers: Headers,
    *,
    status: int | None,
    headers: Headers = (),
    signals: Sequence[Signal] = (),
) -> bool:
    """Whether sending the request once more cannot do its work twice, and may help.

    `status` is None where no answer came: the provider may have carried the request out.
    """
    if status is None:
        return _is_idempotent(method, request_headers)
    if any(isinstance(signal, BillingStop | AuthFailed) for signal in signals):
        return False  # waiting mends neither
    if any(name == b"x-should-retry" and value.strip().lower() == b"false" for name, value in headers):
        return False
    if status in _REFUSED_STATUSES:
        return True
    return 400 <= status < 500 and any(isinstance(signal, RateLimited | PlatformLimit) for signal in signals)


def _is_idempotent(method: str, request_headers: Headers) -> bool:
    """Whether doing it twice is doing it once: by its method, or because the provider is told to see to it."""
    return method.upper() in _IDEMPOTENT_METHODS or any(name in _IDEMPOTENCY_KEYS for name, _ in request_headers)


def earliest_retry(signals: Sequence[Signal], now: float) -> float | None:
    """Before this, sending again is sure to be refused; None where the provider named no time."""
    times = [_not_before(signal, now) for signal in signals]
    return max((at for at in times if at is not None), default=None)


def _not_before(signal: Signal, now: float) -> float | None:
    match signal:
        case QuotaClosed(resets_at=at):
            return at
        case RateLimited(retry_after=after) | Overloaded(retry_after=after) | PlatformLimit(retry_after=after):
            return None if after is None else now + after
    return None

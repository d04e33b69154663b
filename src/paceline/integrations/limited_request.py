"""One request that waits for a slot: what it asks for, how long it may wait, what its responses mean.

Here: everything that the blocking and the asyncio transport share. Never here: waiting or sending.
"""

import sys
from types import ModuleType
from typing import Any

import msgspec

from paceline.core.signals import Signal
from paceline.core.values.scopes import path_scopes
from paceline.core.values.validation import check_name, check_seconds
from paceline.core.values.verdicts import Deferred
from paceline.errors import InvalidInput, SlotTimeout
from paceline.protocols import (
    Family,
    OwnResponse,
    RequestReader,
    ResponseReader,
    detect_name,
    error_body,
    error_headers,
    family_of,
    login_refusal,
    model_in_path,
    presented_key,
    response_when_held,
    response_when_timed_out,
    scope_of,
    takes_slot,
)
from paceline.protocols.responses import should_retry, signals_at_end, signals_of, signals_of_broken, with_pause

Request = Any
"""A request of httpx or of httpx2: two libraries with the same interface."""
Response = Any
Header = tuple[bytes, bytes]

_LIBRARIES = ("httpx", "httpx2")


class TransportSettings(msgspec.Struct, frozen=True):
    """The account of a transport's requests and how they wait, validated when the transport is created."""

    provider: str
    account: str
    max_wait: float
    session: str | None
    priority: int


def transport_settings(
    account: str, provider: str | None, max_wait: float, session: str | None, priority: int
) -> TransportSettings:
    """Validate the arguments. `account` is `provider/account`, or the account alone if `provider` is given."""
    path = check_name(account, "account") if provider is None else f"{provider}/{account}"
    if len(path_scopes(path)) != 2:
        raise InvalidInput(
            f'account must be "provider/account", such as "anthropic/work-key", or an account with provider=;'
            f" got {account!r:.80}"
        )
    if type(priority) is not int:
        raise InvalidInput(f"priority must be a whole number; got {priority!r:.80}")
    if session is not None:
        check_name(session, "session")
    provider, name = path.split("/")
    return TransportSettings(provider, name, check_seconds(max_wait, "max_wait"), session, priority)


class HeldError(Exception):
    """The account is held until a person acts, so waiting is useless."""

    def __init__(self, response: OwnResponse) -> None:
        super().__init__(response.message)
        self.response = response


def raise_if_held(deferred: Deferred) -> None:
    """Raise `HeldError` when a request joins the queue of a held account."""
    if (response := response_when_held(deferred)) is not None:
        raise HeldError(response)


class LimitedRequest:
    """One request on its way. `now` is always the limiter's own time."""

    def __init__(self, settings: TransportSettings, request: Request, now: float) -> None:
        self.settings = settings
        self.library = library_of(request)
        self.since = now
        self.deadline = now + settings.max_wait
        self.path = request.url.path
        self.takes_slot = takes_slot(request.method, self.path)
        self.refused: Response | None = None
        """The last error response of the provider."""
        self._headers = lowered_headers(request.headers)
        self._target: bytes = request.url.raw_path
        self._family: Family = family_of(settings.provider, self.path)
        self._name = detect_name(settings.provider)
        body = self._body_of(request)
        self._can_repeat = body is not None
        reader = RequestReader()
        reader.feed(body or b"")
        if body is not None and reader.needs_whole:
            reader.read_whole(body)
        self.tokens = reader.tokens()
        self.scope = scope_of(settings.provider, settings.account, model_in_path(self.path) or reader.model)

    # -- before it is sent ---------------------------------------------------------------------------

    def login_refused(self) -> Response | None:
        """Return the response to a request with a subscription's login, which belongs to the vendor's own CLI."""
        key = presented_key(self._headers, self._target)
        message = None if key is None else login_refusal(key.value, self.settings.provider)
        return None if message is None else self.own_response(OwnResponse(403, "subscription", message))

    def seconds_left(self, now: float) -> float:
        return max(0.0, self.deadline - now)

    def timed_out(self, error: SlotTimeout, now: float) -> Response:
        """Return the response after the wait for a slot ran out: the provider's own refusal, if there was one."""
        if self.refused is not None:
            return self.refused
        return self.own_response(response_when_timed_out(str(error), error.deferred, now))

    # -- after ---------------------------------------------------------------------------------------

    def signals_at_head(self, response: Response, waited: float, now: float) -> list[Signal]:
        """Add Paceline's headers to a success, and return the signals in its head: the remaining budget."""
        response.headers["x-paceline-scope"] = self.scope
        response.headers["x-paceline-waited-ms"] = str(round(waited * 1000))
        return signals_of(self._name, response.status_code, lowered_headers(response.headers), b"", seen_at=now)

    def signals_of_broken(self, response: Response, now: float) -> list[Signal]:
        """Return the signals of an error whose status and headers came, but not its body."""
        return signals_of_broken(self._name, response.status_code, lowered_headers(response.headers), seen_at=now)

    def signals_at_end(
        self, status: int, headers: list[Header], reader: ResponseReader | None, now: float
    ) -> list[Signal]:
        """Return the signals of a success that was read to its end, or as far as the client wanted."""
        return signals_at_end(self._name, status, headers, error=b"", reader=reader, seen_at=now)

    def judge(self, response: Response, now: float) -> tuple[list[Signal], bool]:
        """Return the signals of an error response, and whether its request is to be sent again."""
        status, headers = response.status_code, lowered_headers(response.headers)
        signals = signals_of(self._name, status, headers, response.content, seen_at=now)
        is_retried = self._can_repeat and should_retry(signals, status, headers, now=now, deadline=self.deadline)
        self.refused = response
        return (with_pause(signals) if is_retried else signals), is_retried

    def with_body(self, response: Response, body: bytes) -> Response:
        """Return the response with its whole body, as it came."""
        kept = [header for header in response.headers.raw if header[0].lower() != b"transfer-encoding"]
        return self.library.Response(response.status_code, headers=kept, content=body, extensions=response.extensions)

    def _body_of(self, request: Request) -> bytes | None:
        """Return the body if it can be sent again, None if it is streamed."""
        try:
            body: bytes = request.content
        except self.library.RequestNotRead:
            return None
        return body

    def own_response(self, response: OwnResponse) -> Response:
        """Return a response in the provider's shape, so that its SDK raises the matching exception."""
        body = error_body(self._family, response.status, response.code, response.message)
        headers = error_headers(response.status, response.retry_after)
        return self.library.Response(response.status, headers=headers, content=body)


def library_of(request: Request) -> ModuleType:
    """Return httpx or httpx2, whichever made the request: its response must come from the same library."""
    for kind in type(request).__mro__:
        if (name := kind.__module__.partition(".")[0]) in _LIBRARIES:
            return sys.modules[name]
    raise InvalidInput(f"SlotTransport takes requests of httpx and httpx2; got {type(request)!r:.80}")


def lowered_headers(headers: Any) -> list[Header]:
    return [(name.lower(), value) for name, value in headers.raw]

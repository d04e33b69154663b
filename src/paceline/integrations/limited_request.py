"""One request on its way through the gate: what it asks for, how long it may wait, what its answers mean.

Here: all that the blocking and the asyncio transport have in common. Never here: waiting or sending.
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
    AnswerReader,
    CallReader,
    Family,
    OwnAnswer,
    answer_when_held,
    answer_when_out_of_time,
    detect_name,
    earliest_retry,
    error_body,
    error_headers,
    family_of,
    is_counted,
    login_refusal,
    may_send_again,
    model_in_path,
    presented_key,
    scope_of,
    signals_at_end,
    signals_of,
    signals_of_broken,
    with_pause,
)

Request = Any
"""A request or an answer of httpx or of httpx2: two libraries with one shape."""
Response = Any
Header = tuple[bytes, bytes]

_LIBRARIES = ("httpx", "httpx2")


class Place(msgspec.Struct, frozen=True):
    """Whose requests these are and how they wait; checked when the transport is made."""

    provider: str
    account: str
    max_wait: float
    session: str | None
    priority: int


def place_of(account: str, provider: str | None, max_wait: float, session: str | None, priority: int) -> Place:
    """`account` is `provider/account`, or the account alone with `provider` beside it."""
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
    return Place(provider, name, check_seconds(max_wait, "max_wait"), session, priority)


class HeldError(Exception):
    """The account waits for a person, and the request need not."""

    def __init__(self, answer: OwnAnswer) -> None:
        super().__init__(answer.message)
        self.answer = answer


def refuse_held(deferred: Deferred) -> None:
    """To be called when a request joins the line."""
    if (answer := answer_when_held(deferred)) is not None:
        raise HeldError(answer)


class Course:
    """The course of one request. `now` is always the limiter's own time."""

    def __init__(self, place: Place, request: Request, now: float) -> None:
        self.place = place
        self.library = library_of(request)
        self.since = now
        self.deadline = now + place.max_wait
        self.path = request.url.path
        self.is_counted = is_counted(request.method, self.path)
        self.refused: Response | None = None
        """The last answer of the provider that was not passed on."""
        self._method: str = request.method
        self._headers = lowered(request.headers)
        self._target: bytes = request.url.raw_path
        self._family: Family = family_of(place.provider, self.path)
        self._name = detect_name(place.provider)
        body = self._body_of(request)
        self._can_repeat = body is not None
        call = CallReader()
        call.feed(body or b"")
        self.tokens = call.tokens()
        self.scope = scope_of(place.provider, place.account, model_in_path(self.path) or call.model)

    # -- before it is sent ---------------------------------------------------------------------------

    def login_refused(self) -> Response | None:
        """The answer to a request with a subscription's login: it belongs to the vendor's own CLI."""
        key = presented_key(self._headers, self._target)
        sentence = None if key is None else login_refusal(key.value, self.place.provider)
        return None if sentence is None else self.own_answer(OwnAnswer(403, "subscription", sentence))

    def seconds_left(self, now: float) -> float:
        return max(0.0, self.deadline - now)

    def ran_out(self, error: SlotTimeout, now: float) -> Response:
        """The answer when the wait for a slot has run out: the provider's own refusal, where there was one."""
        if self.refused is not None:
            return self.refused
        return self.own_answer(answer_when_out_of_time(str(error), error.deferred, now))

    # -- after ---------------------------------------------------------------------------------------

    def at_head(self, response: Response, waited: float, now: float) -> list[Signal]:
        """What the head of a success says is left."""
        response.headers["x-paceline-scope"] = self.scope
        response.headers["x-paceline-waited-ms"] = str(round(waited * 1000))
        return signals_of(self._name, response.status_code, lowered(response.headers), b"", seen_at=now)

    def broken_off(self, response: Response, now: float) -> list[Signal]:
        """What an error says whose body did not come: its status and its headers did."""
        return signals_of_broken(self._name, response.status_code, lowered(response.headers), seen_at=now)

    def at_end(self, status: int, headers: list[Header], reader: AnswerReader | None, now: float) -> list[Signal]:
        """What a success says once it has been read to its end, or as far as was wanted."""
        return signals_at_end(self._name, status, headers, error=b"", reader=reader, seen_at=now)

    def judge(self, response: Response, now: float) -> tuple[list[Signal], bool]:
        """What an error says, and whether its request is to be sent again."""
        status, headers = response.status_code, lowered(response.headers)
        signals = signals_of(self._name, status, headers, response.content, seen_at=now)
        not_before = earliest_retry(signals, now)
        is_again = (
            self._can_repeat
            and (not_before is None or not_before <= self.deadline)
            and may_send_again(self._method, self._headers, status=status, headers=headers, signals=signals)
        )
        self.refused = response
        return (with_pause(signals) if is_again else signals), is_again

    def whole(self, response: Response, body: bytes) -> Response:
        """The answer with its body, as it came, in hand."""
        kept = [header for header in response.headers.raw if header[0].lower() != b"transfer-encoding"]
        return self.library.Response(response.status_code, headers=kept, content=body, extensions=response.extensions)

    def _body_of(self, request: Request) -> bytes | None:
        """The body, where it is at hand and can be sent again; None for one that is streamed."""
        try:
            body: bytes = request.content
        except self.library.RequestNotRead:
            return None
        return body

    def own_answer(self, answer: OwnAnswer) -> Response:
        """In the words of the provider, so that its SDK raises what it would raise for the provider's own."""
        body = error_body(self._family, answer.status, answer.code, answer.message)
        headers = error_headers(answer.status, answer.retry_after)
        return self.library.Response(answer.status, headers=headers, content=body)


def library_of(request: Request) -> ModuleType:
    """httpx or httpx2, whichever made the request: its answer must be of the same."""
    for kind in type(request).__mro__:
        if (name := kind.__module__.partition(".")[0]) in _LIBRARIES:
            return sys.modules[name]
    raise InvalidInput(f"SlotTransport carries requests of httpx and httpx2; got {type(request)!r:.80}")


def lowered(headers: Any) -> list[Header]:
    return [(name.lower(), value) for name, value in headers.raw]

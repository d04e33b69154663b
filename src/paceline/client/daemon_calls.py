"""The daemon over the wire: calls, answers as values, and what went wrong as errors of Paceline's own.

Never here: slots, or how long anybody waits.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from paceline.core.signals import KINDS, Signal
from paceline.core.values.scopes import ScopePattern
from paceline.core.values.verdicts import Reason
from paceline.errors import (
    CapacityError,
    DaemonError,
    DaemonUnreachable,
    InvalidInput,
    PacelineError,
    TicketConflict,
    UnknownName,
)

DEFAULT_URL = "http://127.0.0.1:7433"
URL_FILE = "url"
"""In the home while a daemon runs: where programs on this machine reach it."""
ANSWER_SECONDS = 10.0
UNAVAILABLE = (502, 503, 504)
CONFLICT = 409
CLOSED_TO_US = (401, 403, 421)
LOOPBACK = ("127.0.0.1", "localhost", "::1")
Type = TypeVar("Type")
Json = dict[str, Any]


class SlotAnswer(msgspec.Struct, frozen=True):
    id: str
    scope: str
    token: int
    expires_at: float


class DeferredAnswer(msgspec.Struct, frozen=True):
    reason: Reason
    scope: str
    detail: str
    retry_at: float | None
    position: int | None


class ProblemAnswer(msgspec.Struct, frozen=True):
    error: str
    detail: str = ""


class Wire:
    """The connections to one daemon."""

    def __init__(self, url: str | None, token: str | None) -> None:
        self.url = url or own_url(os.environ)
        self._token = token
        self._is_closed = False
        try:
            self._http = httpx.AsyncClient(
                base_url=self.url,
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
                trust_env=False,  # a proxy of the machine is none for the daemon beside us
            )
        except httpx.InvalidURL as error:
            raise InvalidInput(f"url {self.url!r:.80} is none: {error}") from None

    async def aclose(self) -> None:
        self._is_closed = True
        await self._http.aclose()

    async def send(
        self, method: str, path: str, body: Mapping[str, object] | None = None, *, within: float = ANSWER_SECONDS
    ) -> httpx.Response:
        """Any answer that says something about the call; `DaemonError` for all others."""
        if self._is_closed:
            raise CapacityError("the client is closed")
        self._token = self._token or own_token(self.url, os.environ)
        headers = {"authorization": f"Bearer {self._token}", "content-type": "application/json"}
        content = None if body is None else msgspec.json.encode(body)
        timeout = httpx.Timeout(ANSWER_SECONDS, read=within)
        try:
            answer = await self._http.request(method, path, content=content, headers=headers, timeout=timeout)
        except httpx.TransportError as error:
            if self._is_closed:
                raise CapacityError("the client was closed while this call waited") from None
            told = str(error) or type(error).__name__
            raise DaemonUnreachable(
                f"no daemon answers at {self.url} ({told}); start one with `paceline up`"
            ) from error
        if answer.status_code in UNAVAILABLE:
            raise DaemonUnreachable(f"the daemon at {self.url} cannot do it now: {problem_of(answer)}")
        if answer.status_code in CLOSED_TO_US or answer.status_code >= 500:
            raise refusal(answer)
        return answer


def own_url(environ: Mapping[str, str]) -> str:
    """PACELINE_URL, or where the daemon of the home says that it is."""
    if url := environ.get("PACELINE_URL"):
        return url
    try:
        return (_home(environ) / URL_FILE).read_text().strip() or DEFAULT_URL
    except (OSError, InvalidInput):  # none runs, or there is no home: who asks is told so
        return DEFAULT_URL


def own_token(url: str, environ: Mapping[str, str]) -> str:
    """PACELINE_TOKEN, or that of the home, which is for the daemon of this machine only."""
    if token := environ.get("PACELINE_TOKEN"):
        return token
    if httpx.URL(url).host not in LOOPBACK:
        raise InvalidInput(f"the token of the daemon at {url} is not known: give token=, or set PACELINE_TOKEN")
    path = _home(environ) / "token"
    try:
        return path.read_text().strip()
    except OSError as error:
        raise DaemonUnreachable(
            f"the daemon's token cannot be read from {path} ({error.strerror}): start a daemon with `paceline up`,"
            " or set PACELINE_TOKEN"
        ) from error


def _home(environ: Mapping[str, str]) -> Path:
    from paceline.settings.environment import home_folder  # only here: it is slow to import

    return home_folder(Path.cwd(), environ)


def scope_path(scope: str) -> str:
    """A scope or pattern as part of a path; its slashes may stay."""
    return quote(ScopePattern(scope).text)


def signal_body(signal: Signal) -> dict[str, object]:
    kind = next((kind for kind, each in KINDS.items() if type(signal) is each), None)
    if kind is None:
        raise InvalidInput(f"a signal of paceline.core.signals is wanted; got {signal!r:.80}")
    fields = {name: value for name, value in msgspec.structs.asdict(signal).items() if value is not None}
    fields.pop("ticket", None)
    return fields | {"kind": kind}


def problem_of(answer: httpx.Response) -> str:
    """What the daemon says is wrong."""
    try:
        problem = msgspec.json.decode(answer.content, type=ProblemAnswer)
    except msgspec.DecodeError:
        return f"{answer.status_code} without a word"
    return problem.detail or problem.error


def read(answer: httpx.Response, kind: type[Type]) -> Type:
    """The answer as a value, or the error that it tells of."""
    if not answer.is_success and answer.status_code != CONFLICT:
        raise refusal(answer)
    try:
        return msgspec.json.decode(answer.content, type=kind)
    except msgspec.DecodeError as error:
        raise DaemonError(f"{answer.url} answers, but not as a Paceline daemon does: {error}") from None


def refusal(answer: httpx.Response) -> PacelineError:
    detail = problem_of(answer)
    match answer.status_code:
        case 400:
            return InvalidInput(detail)
        case 404:
            return UnknownName(detail)
        case 422:
            return TicketConflict(detail)
    return DaemonError(f"{answer.url} refused ({answer.status_code}): {detail}")

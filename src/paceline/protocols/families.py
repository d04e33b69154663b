"""What differs between the protocols of LLM APIs: paths and their scope, the position of keys, the shape of errors.

Here: what follows from a provider's name and a path. The key that a client presents, the account's key in its place,
and which keys are the login of a subscription. Bodies and headers of error responses that Paceline sends itself, so
that a client's SDK raises the same exception as for the provider itself. Never here: which key is right, or when an
error is sent. Header names are bytes in lower case.
"""

import base64
import binascii
import math
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal
from urllib.parse import quote_from_bytes, unquote, unquote_to_bytes

import msgspec

from paceline.core.values.scopes import is_model_part
from paceline.core.values.tickets import Deferred

Family = Literal["anthropic", "openai", "gemini"]
"""A way to write keys, errors and usage. `openai` is Chat Completions, Responses and every API that copies them."""

UNNAMED_MODEL = "unnamed"
"""The model of requests that name none, so that a limit can include or exclude them."""

_FAMILY_OF_PROVIDER: dict[str, Family] = {
    "anthropic": "anthropic",
    "claude": "anthropic",
    "google": "gemini",
    "gemini": "gemini",
    "vertex": "gemini",
}
_NAME_IN_DETECT = {
    "anthropic": "anthropic-api",
    "claude": "anthropic-api",
    "openai": "openai-api",
    "google": "gemini-api",
    "gemini": "gemini-api",
    "azure": "azure-openai",
    "zai": "zai-api",
    "moonshot": "moonshot-api",
    "kimi": "moonshot-api",
}
# The last part of a path decides: one server may speak several protocols.
_ANTHROPIC_PATH = re.compile(r"/v\d/(?:messages(?:/count_tokens|/batches\b.*)?|complete)/?$")
_OPENAI_PATH = re.compile(r"/(?:chat/completions|completions|responses(?:/.*)?|embeddings|audio/\w+|images/\w+)/?$")
_GEMINI_PATH = re.compile(r"/(?:models|tunedModels)/[^/]+:\w+$")
_UNCOUNTED_PATH = re.compile(
    r"(?:/count_tokens|:countTokens|/input_tokens|/files|/uploads|/batches"
    r"|:batchGenerateContent|:asyncBatchEmbedContent)(?:/|$)"
)
_MODEL_IN_PATH = re.compile(r"/(?:models|tunedModels|deployments)/([^/:]+(?::[^/:]+)*?)(?::\w+$|/|$)")
_COLON = re.compile("%3a", re.IGNORECASE)
# What a provider bills by the call. Everything else of an API manages what others of the account have stored there.
_MODEL_CALL = re.compile(
    r"/(?:messages|complete|completions?|responses(?:/compact)?|chat|generate|infill|embeddings?|embed|rerank|score"
    r"|classify|pooling|moderations|ocr|images/(?:generations|edits|variations)"
    r"|audio/(?:speech|transcriptions|translations)|invoke|invoke-with-response-stream|converse|converse-stream"
    r"|(?:models|endpoints)/[^/]+:(?:generateContent|streamGenerateContent|embedContent|batchEmbedContents"
    r"|predict|rawPredict|streamRawPredict))/?$"
)
_TOKEN_COUNT = re.compile(r"(?:/count_tokens|:countTokens|/input_tokens|/tokenize)/?$")
_MODEL_LIST = re.compile(r"(?:/models(?:/(?!operations)[^/:]+){0,2}(?:/endpoints)?|/api/tags)/?$")
_STORED_THINGS = re.compile(
    r"/(?:threads|assistants|conversations|vector_stores|fine_tuning|fine-tunes|evals|containers|organizations?"
    r"|batches|files|uploads|jobs|realtime)(?:/|$)"
)
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._:@+~-]")
_LONGEST_MODEL = 120
"""Characters of a model in a scope. Real names are shorter; a client may send anything."""


def family_of(provider: str, path: str = "") -> Family:
    """Return the protocol of a request, from its path or else from its provider."""
    if _ANTHROPIC_PATH.search(path):
        return "anthropic"
    if _OPENAI_PATH.search(path):
        return "openai"
    if _GEMINI_PATH.search(_with_colons(path)):
        return "gemini"
    return _FAMILY_OF_PROVIDER.get(provider, "openai")


def takes_slot(method: str, path: str) -> bool:
    """Return whether a request makes a model work. Lists, token counts, files and batches need no slot."""
    return method.upper() == "POST" and _UNCOUNTED_PATH.search(_with_colons(path)) is None


def is_model_use(method: str, path: str) -> bool:
    """Return whether a request calls a model, counts tokens or lists models, and does nothing else."""
    path = _with_colons(path)
    if _STORED_THINGS.search(path) is not None:
        return False
    if method == "POST":
        return _MODEL_CALL.search(path) is not None or _TOKEN_COUNT.search(path) is not None
    return method in ("GET", "HEAD") and _MODEL_LIST.search(path) is not None


def home_family(provider: str) -> Family | None:
    """Return the native protocol of a provider, None if the provider is unknown."""
    return "openai" if provider == "openai" else _FAMILY_OF_PROVIDER.get(provider)


def detect_name(provider: str) -> str:
    """Return the name under which `detect` knows the HTTP API of this provider; else the name itself."""
    return _NAME_IN_DETECT.get(provider, provider)


def model_in_path(path: str) -> str | None:
    """Return the model in a URL, as Gemini (`/models/MODEL:generateContent`) and Azure write it, or None."""
    found = _MODEL_IN_PATH.search(_with_colons(path))
    return unquote(found[1]) if found is not None else None


@lru_cache(maxsize=4096)
def scope_of(provider: str, account: str, model: str | None) -> str:
    """Return the scope a request is counted in. Characters that a scope cannot have become dashes."""
    name = _NOT_IN_NAMES.sub("-", (model or "").rsplit("/", 1)[-1])[:_LONGEST_MODEL].lstrip("._:@+~-")
    return f"{provider}/{account}/{name if is_model_part(name) else UNNAMED_MODEL}"


def _with_colons(path: str) -> str:
    """Return the path as servers read it: they decode a colon before they look for the method after it."""
    return _COLON.sub(":", path)


# -- keys ------------------------------------------------------------------------------------------


Headers = Iterable[tuple[bytes, bytes]]
KeyPosition = Literal["x-api-key", "authorization", "x-goog-api-key", "api-key", "query"]

_HEADER_POSITIONS: dict[bytes, KeyPosition] = {
    b"x-api-key": "x-api-key",
    b"x-goog-api-key": "x-goog-api-key",
    b"api-key": "api-key",
    b"authorization": "authorization",
}
_BEARER = re.compile(rb"bearer[ \t]+(\S+)[ \t]*", re.I)
_QUERY_KEY = re.compile(rb"(?<=[?&])key=([^&#]*)")
_POSITION_OF_FAMILY: dict[Family, KeyPosition] = {
    "anthropic": "x-api-key",
    "openai": "authorization",
    "gemini": "x-goog-api-key",
}
_LOGIN_PREFIXES = (b"sk-ant-oat", b"sk-ant-ort", b"sk-ant-sid", b"gho_", b"ghu_", b"tid=")
_GOOGLE_LOGIN = b"ya29."
_CHATGPT_CLAIMS = (b"chatgpt", b"api.openai.com/auth")


class PresentedKey(msgspec.Struct, frozen=True):
    """A key as a client sent it."""

    value: bytes
    position: KeyPosition


def presented_keys(headers: Headers, target: bytes = b"") -> list[PresentedKey]:
    """Return the keys in the API-key positions of all protocols. `target` is the path with its query."""
    found = [key_in_header(name, value) for name, value in headers if name in _HEADER_POSITIONS]
    return [key for key in (*found, key_in_query(target)) if key is not None]


def key_in_header(name: bytes, value: bytes) -> PresentedKey | None:
    """Return the key in one header, which has the name of an API-key position."""
    if name == b"authorization":
        bearer = _BEARER.fullmatch(value)
        value = bearer[1] if bearer is not None else b""
    value = value.strip()
    return PresentedKey(value, _HEADER_POSITIONS[name]) if value else None


def key_in_query(target: bytes) -> PresentedKey | None:
    """Return the key in the query of a path."""
    in_query = _QUERY_KEY.search(target)
    value = unquote_to_bytes(in_query[1]) if in_query is not None else b""
    return PresentedKey(value, "query") if value else None


def key_position(provider: str, family: Family, presented: KeyPosition = "authorization") -> KeyPosition:
    """Return where the provider expects its key: by its protocol, or for unknown providers where the client put it."""
    if provider in ("azure", "azure-openai"):
        return "api-key"
    if home_family(provider) is not None or family == "openai":
        return _POSITION_OF_FAMILY[family]
    return presented


def with_key(
    headers: Headers, target: bytes, key: bytes, position: KeyPosition
) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Return headers and target with this key as the only one. An empty key leaves none."""
    kept = [(name, value) for name, value in headers if name not in _HEADER_POSITIONS]
    if not key:
        return kept, without_query_key(target)
    if position == "query":
        replaced, count = _QUERY_KEY.subn(b"key=" + quote_from_bytes(key).encode(), target, count=1)
        return kept, replaced if count else target
    value = b"Bearer " + key if position == "authorization" else key
    kept.append((position.encode(), value))
    return kept, without_query_key(target)


def without_query_key(target: bytes) -> bytes:
    """Return the target without `key=`, otherwise byte for byte the same."""
    if b"key=" not in target:
        return target
    path, mark, query = target.partition(b"?")
    kept = b"&".join(part for part in query.split(b"&") if not part.startswith(b"key="))
    return path + mark + kept if kept else path


def login_refusal(key: bytes, provider: str) -> str | None:
    """Return why this key is refused: it is the login of a subscription, not an API key. None if it is accepted."""
    if not _is_login(key, provider):
        return None
    return (
        "this is the login of a subscription, and the gateway takes API keys only: "
        "use the vendor's own CLI through `paceline run` or `paceline exec`"
    )


def _is_login(key: bytes, provider: str) -> bool:
    if key.startswith(_LOGIN_PREFIXES):
        return True
    if key.startswith(_GOOGLE_LOGIN):
        return provider != "vertex"  # Vertex service accounts sign in with it
    return key.startswith(b"eyJ") and key.count(b".") == 2 and (provider == "openai" or _is_chatgpt(key))


def _is_chatgpt(token: bytes) -> bool:
    payload = token.split(b".")[1]
    try:
        claims = base64.urlsafe_b64decode(payload + b"=" * (-len(payload) % 4))
    except (binascii.Error, ValueError):
        return False
    return any(word in claims for word in _CHATGPT_CLAIMS)


# -- errors in the shape of the provider -----------------------------------------------------------


DEFAULT_RETRY_SECONDS = 30.0
"""`Retry-After` for a client whose wait ran out when no better time is known. Most pauses are shorter."""
LONGEST_RETRY_SECONDS = 600.0
"""The longest `Retry-After` that is computed from the speed of a queue. By then that speed is another one."""
FIRST_SERVER_ERROR = 500

_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_OPENAI_TYPES = {
    401: "authentication_error",
    402: "insufficient_quota",
    403: "permission_error",
    429: "rate_limit_error",
}
_GEMINI_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class OwnError(Exception):
    """An error response that Paceline sends instead of the provider. `code` is Paceline's name for it."""

    def __init__(self, status: int, code: str, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry_after = retry_after


def response_when_held(deferred: Deferred) -> OwnError | None:
    """Return the response for a held account, which only a person can release. None if waiting may help."""
    return OwnError(403, "held", deferred.detail) if deferred.reason == "held" else None


def response_when_timed_out(
    message: str, deferred: Deferred | None, now: float, expected_wait: float | None = None
) -> OwnError:
    """Return the response after a wait for a slot ran out. `deferred` is the last reason for the wait.

    `expected_wait` is how many seconds the queue will take at its present speed, if that is known.
    """
    usual = DEFAULT_RETRY_SECONDS if expected_wait is None else min(expected_wait, LONGEST_RETRY_SECONDS)
    if deferred is None:
        return OwnError(429, "wait_ran_out", message, retry_after=usual)
    retry_after = usual if deferred.retry_at is None else deferred.retry_at - now
    position = "" if deferred.position is None else f"; position {deferred.position} in the queue"
    return OwnError(429, deferred.reason, f"{message} ({deferred.reason}{position})", retry_after=retry_after)


def error_body(family: Family, status: int, code: str, message: str) -> bytes:
    """Return the body of an error response. `code` is Paceline's name for the error; some shapes omit it."""
    match family:
        case "anthropic":
            kind = _ANTHROPIC_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
            body: dict[str, object] = {"type": "error", "error": {"type": kind, "message": message}}
        case "gemini":
            name = _GEMINI_STATUSES.get(status, "FAILED_PRECONDITION" if status < 500 else "INTERNAL")
            details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": code, "domain": "paceline"}]
            body = {"error": {"code": status, "message": message, "status": name, "details": details}}
        case "openai":
            kind = _OPENAI_TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
            body = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    return msgspec.json.encode(body)


def error_headers(status: int, retry_after: float | None = None) -> list[tuple[bytes, bytes]]:
    """Return the headers of an error response.

    SDKs are asked not to retry errors below 500: Paceline has waited as long as the client wanted, and a retry would
    only be a second wait in the same queue. An unreachable upstream or a stopping daemon (500 and above) may be back
    in a moment. There the SDKs retry as they would without Paceline.
    """
    headers = [(b"content-type", b"application/json")]
    if status < FIRST_SERVER_ERROR:
        headers.append((b"x-should-retry", b"false"))
    if retry_after is not None:
        headers.append((b"retry-after", str(max(1, math.ceil(retry_after))).encode()))
    return headers

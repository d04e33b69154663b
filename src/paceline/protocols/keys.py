"""The key in a request: its position, its replacement, and keys that are logins of a subscription.

Here: reading the key that a client presents, inserting the account's key, recognising a subscription's login.
Never here: which key is right, or whether a client may enter.

Header names are bytes in lower case.
"""

import base64
import binascii
import re
from collections.abc import Iterable
from typing import Literal
from urllib.parse import quote_from_bytes, unquote_to_bytes

import msgspec

from paceline.protocols.families import Family, home_family

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


def presented_key(headers: Headers, target: bytes = b"") -> PresentedKey | None:
    """Return the key in the API-key position of any protocol. `target` is the path with its query."""
    found: dict[KeyPosition, PresentedKey] = {}
    for name, value in headers:
        if name in _HEADER_POSITIONS and (key := key_in_header(name, value)) is not None:
            found.setdefault(key.position, key)
    for position in _HEADER_POSITIONS.values():
        if position in found:
            return found[position]
    return key_in_query(target)


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

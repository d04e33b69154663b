"""Bodies of requests: read within their bounds, and decoded strictly into a wire type. Nothing here knows a route."""

import re
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
from litestar import Request

from paceline.api.errors import Refused

SMALL_BYTES = 1 << 20
PLAN_BYTES = 64 << 20
Type = TypeVar("Type")
_AT = re.compile(r" - at `\$\.?(.*)`$")
_NAMED = re.compile(r"field `(.*)`$")


async def read_body(request: Request[Any, Any, Any], kind: type[Type]) -> Type:
    """The body as the type; what is wrong with it names the field."""
    check_media_type(request.scope["headers"])
    return decode_body(await request.body(), kind)


def decode_body(content: bytes, kind: type[Type]) -> Type:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        raise Refused(400, _told(str(error))) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Refused(400, "the body must be JSON, and this is none") from None


def check_media_type(headers: Iterable[tuple[bytes, bytes]]) -> None:
    named = next((value for name, value in headers if name == b"content-type"), b"")
    given = named.decode("latin-1").partition(";")[0].strip().lower()
    if given and given != "application/json" and not given.endswith("+json"):
        raise Refused(415, f"the body must be JSON: send the header Content-Type: application/json, not {given:.80}")


def _told(message: str) -> str:
    """`sessions: Expected `int`, got `str``."""
    at = _AT.search(message)
    if at is not None:
        return f"{at[1] or 'the body'}: {message[: at.start()]}"
    named = _NAMED.search(message)
    return f"{named[1]}: {message}" if named is not None else f"the body: {message}"

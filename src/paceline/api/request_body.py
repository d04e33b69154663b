"""Request bodies: read within their bounds and decoded strictly into a type. Never here: routes."""

import re
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
from litestar import Request

from paceline.api.errors import HttpError
from paceline.config_files.documents import did_you_mean

SMALL_BYTES = 1 << 20
"""Far more than any body but a plan needs."""
PLAN_BYTES = 64 << 20
"""A plan of a million short units fits."""
Type = TypeVar("Type")
_AT = re.compile(r" - at `\$\.?(.*)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_NAMED = re.compile(r"field `(.*)`$")


async def read_body(request: Request[Any, Any, Any], kind: type[Type]) -> Type:
    """Return the body as the type. An error names the wrong field."""
    check_media_type(request.scope["headers"])
    return decode_body(await request.body(), kind)


def decode_body(content: bytes, kind: type[Type]) -> Type:
    """Decode JSON into the type. An error names the wrong field."""
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        raise HttpError(400, _described(str(error), kind)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise HttpError(400, "the body is not valid JSON") from None


def check_media_type(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Refuse a body that is declared to be something other than JSON."""
    named = next((value for name, value in headers if name == b"content-type"), b"")
    given = named.decode("latin-1").partition(";")[0].strip().lower()
    if given and given != "application/json" and not given.endswith("+json"):
        raise HttpError(415, f"the body must be JSON: send the header Content-Type: application/json, not {given:.80}")


def _described(message: str, kind: object) -> str:
    """Put the name of the field in front: `sessions: Expected `int`, got `str``."""
    unknown = _UNKNOWN.fullmatch(message)
    if unknown is not None and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        known = [field.encode_name for field in msgspec.structs.fields(kind)]
        hint = did_you_mean(unknown[1], known)
        return (
            f"{unknown[1]:.80}: there is no such field{f'{hint} Known' if hint else '; known'} are {', '.join(known)}"
        )
    at = _AT.search(message)
    if at is not None:
        return f"{at[1] or 'the body'}: {message[: at.start()]}"
    named = _NAMED.search(message)
    return f"{named[1]}: {message}" if named is not None else f"the body: {message}"

"""Request bodies, read within their bounds and decoded strictly into a type, and names with slashes in paths.

Such a name (`/concurrency/limits/anthropic/max-1`) is folded into one part of the path before routing, so that routes
have plain parameters. A client may write the slashes as they are or as `%2F`; the server has unquoted the path in
either case. Never here: routes.
"""

import asyncio
import re
from collections.abc import Iterable
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote

import msgspec
from litestar import Request

from paceline.api.errors import HttpError
from paceline.settings.documents import did_you_mean

SMALL_BYTES = 1 << 20
"""Far more than any body but a plan needs."""
PLAN_BYTES = 64 << 20
"""A plan of a million short units fits."""
LARGE_BYTES = 256 * 1024
"""Bytes of a body that are decoded on the loop, within a few milliseconds. Larger ones must not block the engine."""
Type = TypeVar("Type")
_AT = re.compile(r" - at `\$\.?(.*)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_NAMED = re.compile(r"field `(.*)`$")


async def read_body(request: Request[Any, Any, Any], kind: type[Type]) -> Type:
    """Return the body as the type. An error names the wrong field."""
    check_media_type(request.scope["headers"])
    return await decode_body(await request.body(), kind)


async def read_optional(request: Request[Any, Any, Any], kind: type[Type]) -> Type:
    """Return the body as the type, whose defaults stand for a body that was left out."""
    return await read_body(request, kind) if await request.body() else kind()


async def decode_body(content: bytes, kind: type[Type]) -> Type:
    """Decode JSON into the type, a large body off the loop. An error names the wrong field."""
    if len(content) <= LARGE_BYTES:
        return _decoded(content, kind)
    return await asyncio.to_thread(_decoded, content, kind)


def _decoded(content: bytes, kind: type[Type]) -> Type:
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


SCOPE_PREFIXES: Final = (
    "/concurrency/limits/",
    "/concurrency/cooldown/",
    "/concurrency/rates/",
    "/concurrency/restore/",
)
UNIT_PREFIX: Final = "/v1/units/"
UNIT_VIEWS: Final = ("/why", "/log", "/output", "/diff")
UNIT_ACTIONS: Final = ("/retry", "/cancel", "/pause", "/resume", "/accept")


def fold_path(path: str, method: str) -> str:
    """Return the path with the name in it quoted into one part.

    A unit may be named `docs/log` or `docs/retry`: the end of a path is a view only behind a whole unit id, and an
    action only in a POST, which is nothing else for a unit.
    """
    for prefix in SCOPE_PREFIXES:
        if path.startswith(prefix) and len(path) > len(prefix):
            return prefix + quote(path[len(prefix) :], safe="")
    if path.startswith(UNIT_PREFIX) and len(path) > len(UNIT_PREFIX):
        name, tail = _split_ending(path[len(UNIT_PREFIX) :], method)
        return UNIT_PREFIX + quote(name, safe="") + tail
    return path


def _split_ending(name: str, method: str) -> tuple[str, str]:
    """Return the unit's name and the one ending behind it: the name itself may end like an action."""
    for ending in UNIT_ACTIONS if method == "POST" else UNIT_VIEWS:
        if name.endswith(ending) and (method == "POST" or "/" in name[: -len(ending)]):
            return name[: -len(ending)], ending
    return name, ""


def unfold(name: str) -> str:
    """Return the name of a folded part."""
    return unquote(name)

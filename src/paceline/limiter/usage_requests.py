"""Usage sources over HTTP. A failure or an unexpected answer means *unknown*."""

import functools
import math
import ssl
from collections.abc import Awaitable, Callable

import httpx

from paceline.core.signals import Usage

TIMEOUT_SECONDS = 5.0
"""How long a poll may take: longer than a slow provider needs, as short as the Governor waits for an answer."""


def openai_compatible_usage(
    base_url: str, key: str, *, client: httpx.AsyncClient | None = None
) -> Callable[[], Awaitable[Usage | None]]:
    """Return a source for `Limiter(usage={scope: ...})` that reads `GET {base_url}/usage` with a bearer key.

    It reads `usage.concurrent_sessions` and, where given, `limits.concurrency.limit` and
    `.hard_cap`. It never raises: it returns None for what it cannot read.
    """
    return usage_at(base_url.rstrip("/") + "/usage", key, client=client)


def usage_at(
    url: str, key: str | None, *, client: httpx.AsyncClient | None = None
) -> Callable[[], Awaitable[Usage | None]]:
    """Return a source that reads the full address of a `/usage` resource, with or without a key."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    trusted = _trusted()

    async def fetch(http: httpx.AsyncClient) -> Usage | None:
        try:
            answer = await http.get(url, headers=headers, timeout=TIMEOUT_SECONDS)
            return read_usage(answer.json()) if answer.status_code == httpx.codes.OK else None
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, RecursionError):
            return None

    async def usage() -> Usage | None:
        if client is not None:
            return await fetch(client)
        async with httpx.AsyncClient(trust_env=False, verify=trusted) as own:
            return await fetch(own)

    return usage


@functools.cache
def _trusted() -> ssl.SSLContext:
    """Load the certificates once: that takes longer than the rest of a poll, and blocks the loop."""
    return httpx.create_ssl_context(trust_env=False)


def read_usage(answer: object) -> Usage | None:
    """Return the reading in a `/usage` answer, or None if there is none."""
    sessions = _whole(_inside(answer, "usage", "concurrent_sessions"))
    if sessions is None:
        return None
    return Usage(
        concurrent_sessions=sessions,
        limit=_whole(_inside(answer, "limits", "concurrency", "limit")),
        hard_cap=_whole(_inside(answer, "limits", "concurrency", "hard_cap")),
        source="field",
    )


def _inside(value: object, *path: str) -> object:
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def _whole(value: object) -> int | None:
    """Return a count without its fraction, or None for text, bools, and negative or infinite numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        return None
    return int(value)

"""Usage sources: ask a provider how many sessions it counts. Any failure or odd shape is *unknown*."""

import math
from collections.abc import Awaitable, Callable

import httpx

from paceline.core.signals import Usage

TIMEOUT_SECONDS = 5.0


def openai_compatible_usage(
    base_url: str, key: str, *, client: httpx.AsyncClient | None = None
) -> Callable[[], Awaitable[Usage | None]]:
    """A source for `Limiter(usage={scope: ...})` that reads `GET {base_url}/usage` with a bearer key.

    It reads `usage.concurrent_sessions` and, where given, `limits.concurrency.limit` and
    `.hard_cap`. It never raises: what cannot be read is None.
    """
    return usage_at(base_url.rstrip("/") + "/usage", key, client=client)


def usage_at(
    url: str, key: str | None, *, client: httpx.AsyncClient | None = None
) -> Callable[[], Awaitable[Usage | None]]:
    """The same for the whole address of a `/usage` answer, with or without a key."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}

    async def fetch(http: httpx.AsyncClient) -> Usage | None:
        try:
            answer = await http.get(url, headers=headers, timeout=TIMEOUT_SECONDS)
            return read_usage(answer.json()) if answer.status_code == httpx.codes.OK else None
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, RecursionError):
            return None

    async def usage() -> Usage | None:
        if client is not None:
            return await fetch(client)
        async with httpx.AsyncClient(trust_env=False) as own:
            return await fetch(own)

    return usage


def read_usage(answer: object) -> Usage | None:
    """The reading in a `/usage` answer, or None where there is none."""
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
    """A count: fractions are cut; text, bool, negative or endless numbers are unknown."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        return None
    return int(value)

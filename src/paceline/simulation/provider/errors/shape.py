"""The template of an error, the numbers that it contains in every spelling of providers, and how they are filled in.

A template is plain data (strings, lists, dicts) with `{name}` in it. A string that consists only of `{name}` becomes
the value itself, so that a number stays a number in JSON.
"""

import math
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

CLAIMS = {"5h": "five_hour", "7d": "seven_day", "7d_opus": "seven_day_opus", "7d_sonnet": "seven_day_sonnet"}


class ErrorFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known when a request is refused."""

    now: float
    model: str
    retry_after: float = 3.0
    resets_at: float
    window: str = "5h"
    limit: int = 50
    in_use: int = 50


def spell(facts: ErrorFacts) -> dict[str, str | int]:
    """Return every name that a template may use, with its value."""
    resets = datetime.fromtimestamp(facts.resets_at, UTC)
    resets_in = max(0, math.ceil(facts.resets_at - facts.now))
    return {
        "model": facts.model,
        "limit": facts.limit,
        "in_use": facts.in_use,
        "window": facts.window,
        "claim": CLAIMS.get(facts.window, facts.window),
        "retry_after": math.ceil(facts.retry_after),
        "retry_after_ms": math.ceil(facts.retry_after * 1000),
        "retry_after_go": f"{facts.retry_after:g}s",
        "retry_at_iso": iso(facts.now + facts.retry_after),
        "resets_at": int(facts.resets_at),
        "resets_at_ms": int(facts.resets_at * 1000),
        "resets_in": resets_in,
        "resets_in_go": go_duration(resets_in),
        "resets_iso": iso(facts.resets_at),
        "resets_date": f"{resets:%Y-%m-%d}",
        "resets_clock": f"{resets:%Y-%m-%d %H:%M:%S}",
    }


def iso(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"


def go_duration(seconds: int) -> str:
    """Return a duration as Go prints it: `8h44m7s`."""
    hours, rest = divmod(seconds, 3600)
    minutes, left = divmod(rest, 60)
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if hours or minutes else "") + f"{left}s"


def fill(template: Any, values: dict[str, str | int]) -> Any:
    """Return the template with its names replaced, also in keys."""
    if isinstance(template, str):
        name = template[1:-1]
        return values[name] if template == f"{{{name}}}" else template.format_map(values)
    if isinstance(template, dict):
        return {fill(key, values): fill(value, values) for key, value in template.items()}
    if isinstance(template, list):
        return [fill(item, values) for item in template]
    return template


# -- templates ----------------------------------------------------------------------------------------

Kind = Literal["rate_limit", "quota_window", "platform_limit", "overloaded", "billing", "auth", "failed"]
Place = Literal["before", "midstream", "reset", "midstream_reset", "midstream_end"]


class ProviderError(msgspec.Struct, frozen=True, kw_only=True):
    """A refusal. `kind` is what a reader should detect, `place` where in the exchange it happens."""

    kind: Kind
    status: int = 200
    headers: dict[str, str] = {}
    body: dict[str, Any] = {}
    place: Place = "before"


def with_headers(error: ProviderError, headers: dict[str, str]) -> ProviderError:
    return msgspec.structs.replace(error, headers=error.headers | headers)


def midstream(error: ProviderError) -> ProviderError:
    """Return the same error, sent after half of the answer."""
    return msgspec.structs.replace(error, place="midstream")


RETRY_AFTER = {"retry-after": "{retry_after}"}
ENDINGS = {
    "rst": ProviderError(kind="failed", place="reset"),
    "midstream_rst": ProviderError(kind="failed", place="midstream_reset"),
    "midstream_end": ProviderError(kind="failed", place="midstream_end"),
}

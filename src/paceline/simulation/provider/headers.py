"""The response headers in which each protocol reports what is left of an account. Gemini has none."""

import math

from paceline.simulation.provider.capacity import AccountReading, RateReading, WindowReading
from paceline.simulation.provider.facts import CLAIMS, iso
from paceline.simulation.provider.protocol_module import ProtocolName

WARNING_RATIO = 0.9
_UNIFIED = "anthropic-ratelimit-unified"
_CODEX_SLOTS = ("primary", "secondary")


def reading_headers(protocol: ProtocolName, reading: AccountReading, now: float, *, refused: bool) -> dict[str, str]:
    """Return the headers of a response."""
    match protocol:
        case "anthropic":
            return _anthropic_rates(reading) | _unified(reading.windows, refused)
        case "openai-chat" | "openai-responses":
            return _openai_rates(reading, now) | _codex(reading.windows, now)
        case "gemini":
            return {}


def _anthropic_rates(reading: AccountReading) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, rate in (("requests", reading.requests), ("tokens", reading.tokens)):
        if rate is not None:
            headers[f"anthropic-ratelimit-{name}-limit"] = str(rate.limit)
            headers[f"anthropic-ratelimit-{name}-remaining"] = str(rate.remaining)
            headers[f"anthropic-ratelimit-{name}-reset"] = iso(rate.full_at)
    return headers


def _unified(windows: tuple[WindowReading, ...], refused: bool) -> dict[str, str]:
    if not windows:
        return {}
    tightest = max(windows, key=lambda window: window.used_ratio)
    headers = {
        f"{_UNIFIED}-status": _status(tightest, refused),
        f"{_UNIFIED}-reset": str(int(tightest.resets_at)),
        f"{_UNIFIED}-representative-claim": CLAIMS.get(tightest.name, tightest.name),
    }
    for window in windows:
        headers[f"{_UNIFIED}-{window.name}-status"] = _status(window, refused)
        headers[f"{_UNIFIED}-{window.name}-reset"] = str(int(window.resets_at))
        headers[f"{_UNIFIED}-{window.name}-utilization"] = f"{window.used_ratio:.2f}"
    return headers


def _status(window: WindowReading, refused: bool) -> str:
    """Return the status of a window. The request that spends it is still served, so its response only warns."""
    if refused and window.used_ratio >= 1.0:
        return "rejected"
    return "allowed_warning" if window.used_ratio >= WARNING_RATIO else "allowed"


def _openai_rates(reading: AccountReading, now: float) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, rate in (("requests", reading.requests), ("tokens", reading.tokens)):
        if rate is not None:
            headers[f"x-ratelimit-limit-{name}"] = str(rate.limit)
            headers[f"x-ratelimit-remaining-{name}"] = str(rate.remaining)
            headers[f"x-ratelimit-reset-{name}"] = _short_duration(rate, now)
    return headers


def _short_duration(rate: RateReading, now: float) -> str:
    """Return a duration as OpenAI spells it: `20ms`, `1.2s`, `6m0s`."""
    seconds = max(0.0, rate.full_at - now)
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    if seconds < 60:
        return f"{seconds:.3g}s"
    return f"{int(seconds // 60)}m{int(seconds % 60)}s"


def _codex(windows: tuple[WindowReading, ...], now: float) -> dict[str, str]:
    headers: dict[str, str] = {}
    for slot, window in zip(_CODEX_SLOTS, windows, strict=False):  # Codex has two windows
        headers[f"x-codex-{slot}-used-percent"] = f"{min(100.0, window.used_ratio * 100):.1f}"
        headers[f"x-codex-{slot}-window-minutes"] = str(int(window.seconds // 60))
        headers[f"x-codex-{slot}-reset-at"] = str(int(window.resets_at))
        headers[f"x-codex-{slot}-reset-after-seconds"] = str(max(0, int(window.resets_at - now)))
    return headers

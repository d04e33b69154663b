"""Signals as text for people: the facts of their fields, and nothing more."""

from zoneinfo import ZoneInfo

from paceline.cli.time_text import moment
from paceline.core.signals import (
    AuthFailed,
    BillingStop,
    Budget,
    Overloaded,
    PlatformLimit,
    QuotaClosed,
    RateLimited,
    Signal,
    Unreachable,
)

TITLES: dict[type[Signal], str] = {
    QuotaClosed: "Quota window spent",
    RateLimited: "Rate limited",
    Overloaded: "Provider overloaded",
    Unreachable: "Nobody answered",
    PlatformLimit: "Platform limit reached",
    BillingStop: "Billing stop",
    AuthFailed: "Login or key not accepted",
    Budget: "Budget reading",
}
ADVICE: dict[type[Signal], str] = {
    QuotaClosed: "parks the work until the reset, then one canary goes first",
    RateLimited: "pauses the scope, then resumes; repeated refusals lower its limit or its pace",
    Overloaded: "pauses with a growing backoff; limits stay unchanged",
    Unreachable: "waits 5 s to 5 min, then one session tries first; limits and attempts stay unchanged",
    PlatformLimit: "uses it as the limit of the scope and probes upward later",
    BillingStop: "holds the account until a person has fixed the cause",
    AuthFailed: "asks again after 60 s and 5 min, then holds the account until a person has fixed the cause",
    Budget: "slows down before the provider refuses",
}
SOURCES = {
    "field": "a structured field",
    "header": "a response header",
    "text": "a sentence",
    "backoff": "the client's own backoff",
}
REACHES = {"model": "this model only", "account": "the whole account", "provider": "the whole provider"}
WINDOWS = {"5h": "5 hours", "daily": "a day", "weekly": "a week", "monthly": "a month"}


def title_of(signal: Signal) -> str:
    return TITLES.get(type(signal), type(signal).__name__)


def rows_of(signal: Signal, *, seen_at: float, zone: ZoneInfo) -> list[tuple[str, str]]:
    """Return what is known, as names and values. Only a missing end is mentioned although it is unknown."""
    rows = [*_own_rows(signal, seen_at, zone)]
    if signal.reach is not None:
        rows.append(("reach", REACHES[signal.reach]))
    source = SOURCES.get(signal.source or "", "an unknown source")
    rows.append(("confidence", f"{signal.confidence:.0%}, read from {source}"))
    if type(signal) in ADVICE:
        rows.append(("Paceline", ADVICE[type(signal)]))
    return rows


def _own_rows(signal: Signal, seen_at: float, zone: ZoneInfo) -> list[tuple[str, str]]:
    match signal:
        case QuotaClosed():
            resets = "not stated; probed with backoff" if signal.resets_at is None else ""
            window = [("window", WINDOWS.get(signal.window, signal.window))] if signal.window else []
            return [*window, ("resets", resets or moment(signal.resets_at or 0.0, seen_at, zone))]
        case RateLimited():
            cause = [("cause", f"too many {signal.cause}")] if signal.cause in ("requests", "tokens", "starts") else []
            if signal.cause == "concurrency":
                cause = [("cause", "too many at once")]
            return [*cause, ("retry", _retry(signal.retry_after, seen_at, zone))]
        case Overloaded() | Unreachable():
            return [("retry", _retry(signal.retry_after, seen_at, zone))]
        case PlatformLimit():
            known = [("limit", signal.limit), ("in use", signal.in_use)]
            return [(name, str(value)) for name, value in known if value is not None]
        case BillingStop() | AuthFailed():
            return [("message", signal.detail)] if signal.detail else []
        case Budget():
            return _budget_rows(signal, seen_at, zone)
    return []


def _of_limit(left: int | None, limit: int | None) -> str | None:
    return None if left is None else str(left) if limit is None else f"{left} of {limit}"


def _budget_rows(signal: Budget, seen_at: float, zone: ZoneInfo) -> list[tuple[str, str]]:
    window = WINDOWS.get(signal.window or "", signal.window)
    counts = [
        ("requests left", _of_limit(signal.requests_remaining, signal.requests_limit)),
        ("tokens left", _of_limit(signal.tokens_remaining, signal.tokens_limit)),
        ("window", window),
    ]
    rows = [(name, str(value)) for name, value in counts if value is not None]
    if signal.used_ratio is not None:
        rows.append(("used", f"{signal.used_ratio:.0%}"))
    for name, at in (
        ("requests reset", signal.requests_reset_at),
        ("tokens reset", signal.tokens_reset_at),
        ("resets", signal.resets_at),
    ):
        if at is not None:
            rows.append((name, moment(at, seen_at, zone)))
    return rows


def _retry(retry_after: float | None, seen_at: float, zone: ZoneInfo) -> str:
    if retry_after is None:
        return "not stated"
    return moment(seen_at + retry_after, seen_at, zone)

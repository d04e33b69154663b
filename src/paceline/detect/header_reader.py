"""What HTTP says about limits: response headers of every provider, and the structured fields of bodies.

Here: `retry-after`, `anthropic-ratelimit-*` (plain and unified), `x-ratelimit-*`, `x-codex-*`,
`RateLimit`, and reset fields such as `resets_at` or `retryDelay`. Never here: sentences.
"""

import re
from collections.abc import Iterable, Mapping

import msgspec

from paceline.core.signals import Budget, Reach
from paceline.detect.parsing.json_objects import Pairs
from paceline.detect.parsing.reset_times import (
    Reset,
    epoch_seconds,
    finite,
    parse_duration,
    parse_instant,
    parse_retry_after,
)
from paceline.detect.parsing.text import decoded
from paceline.detect.providers.anthropic import WINDOWS
from paceline.detect.rules import Kind

Headers = dict[str, str]

HEADER_WORDS = frozenset(("ratelimit", "x-codex"))  # in the names of all headers that tell of a limit by themselves
UNIFIED = "anthropic-ratelimit-unified-"
_PROXY_PREFIXES = ("llm_provider-", "x-upstream-", "upstream-")
_HEADER_NAME = re.compile(
    r"(?:retry-after(?:-ms)?|x-retry-after|(?:llm_provider-)?anthropic-ratelimit-.+|x-codex-.+|(?:llm_provider-)?x-ratelimit-.+|ratelimit(?:-policy|-limit|-remaining|-reset)?)",
    re.I,
)
_RATELIMIT_ITEM = re.compile(r'"?(?P<name>[\w\- ]{0,60})"?(?P<parameters>(?:\s?;\s?\w{1,12}=[^;,]{1,40}){1,8})')
_MINUTES_OF_WINDOW = {300: "5h", 10080: "weekly", 1440: "daily", 43200: "monthly", 44640: "monthly"}


class HeaderReading(msgspec.Struct, frozen=True, kw_only=True):
    """What headers say: a kind where they decide it, a reset, and what is left where nothing was hit."""

    kind: Kind | None = None
    reset: Reset | None = None
    window: str | None = None
    reach: Reach | None = None
    budgets: tuple[Budget, ...] = ()
    rules: tuple[str, ...] = ()


NO_HEADERS = HeaderReading()


def header_names(headers: object) -> Headers:
    """Headers of any shape as text, names in lower case, proxies' prefixes removed."""
    items = headers.items() if isinstance(headers, Mapping) else headers if isinstance(headers, list | tuple) else ()
    found: Headers = {}
    for item in list(items)[:400]:
        if not isinstance(item, list | tuple) or len(item) != 2 or item[1] is None:
            continue
        name, value = decoded(item[0]).strip().lower(), item[1]
        for prefix in _PROXY_PREFIXES:
            name = name.removeprefix(prefix)
        found[name] = ", ".join(map(decoded, value)) if isinstance(value, list | tuple) else decoded(value).strip()
    return found


def headers_among(pairs: Iterable[tuple[str, str]]) -> Headers:
    """The rate-limit headers that stand in a body: proxies and CLIs put whole responses into their errors."""
    return header_names({key: value for key, value in pairs if _HEADER_NAME.fullmatch(key)})


def read_headers(headers: Headers, *, status: int | None, seen_at: float) -> HeaderReading:
    """The meaning of the headers of an answer with this status."""
    if not headers:
        return NO_HEADERS
    refused = status is None or status >= 400
    budgets = (*_rate_budgets(headers, seen_at), *_unified_budgets(headers), *_codex_budgets(headers, seen_at))
    reading = HeaderReading(budgets=budgets)
    if not refused:
        return reading
    for read in (_unified, _codex):
        if (decided := read(headers, status, seen_at)) is not None:
            return msgspec.structs.replace(decided, budgets=budgets)
    if (reset := _retry_after(headers, seen_at) or _exhausted_bucket(headers, seen_at)) is not None:
        return HeaderReading(reset=reset, budgets=budgets, rules=(reset.rule,))
    return reading


def _retry_after(headers: Headers, seen_at: float) -> Reset | None:
    if (milliseconds := finite(headers.get("retry-after-ms"))) is not None:
        return Reset(after=milliseconds / 1000, confidence=0.95, source="header", rule="header.retry-after-ms")
    for name in ("retry-after", "x-retry-after"):
        if name in headers and (reset := parse_retry_after(headers[name], seen_at=seen_at, rule=f"header.{name}")):
            return reset
    return None


# --- buckets: so many requests or tokens left, until then --------------------------------------


def _moment(value: str | None, seen_at: float) -> float | None:
    """A reset header as absolute time: RFC 3339, epoch, Go duration or bare seconds."""
    if value is None:
        return None
    number = finite(value)
    if number is not None and (epoch := epoch_seconds(number)) is not None:
        return epoch
    if (after := parse_duration(value)) is not None:
        return seen_at + after
    return parse_instant(value, seen_at=seen_at, tz="UTC")


def _buckets(headers: Headers, seen_at: float) -> dict[str, tuple[float | None, float | None]]:
    """Bucket name -> (remaining, reset as absolute time). A negative remaining means unknown."""
    buckets: dict[str, tuple[float | None, float | None]] = {}
    for name, value in headers.items():
        if name.startswith(UNIFIED):
            continue
        match = re.fullmatch(
            r"anthropic-ratelimit-([\w-]{1,40})-(remaining|reset)|(?:x-)?ratelimit-(remaining|reset)(?:-([\w-]{1,40}))?",
            name,
        )
        if match is None:
            continue
        bucket, what = (match[1], match[2]) if match[1] else (match[4] or "", match[3])
        remaining, reset = buckets.get(bucket, (None, None))
        if what == "remaining":
            remaining = finite(value)
        else:
            reset = _moment(value, seen_at)
        buckets[bucket] = (remaining, reset)
    for bucket, left, reset_at in _ratelimit_items(headers, seen_at):
        buckets.setdefault(bucket, (left, reset_at))
    return buckets


def _ratelimit_items(headers: Headers, seen_at: float) -> list[tuple[str, float | None, float | None]]:
    """`RateLimit: "default";r=0;t=48` of the IETF draft, or `limit=10, remaining=0, reset=48` of its older ones."""
    older = dict(re.findall(r"(limit|remaining|reset)=(\d{1,12})", headers.get("ratelimit", "")[:600]))
    if "reset" in older:
        return [("default", finite(older.get("remaining")), _moment(older["reset"], seen_at))]
    items = []
    for match in list(_RATELIMIT_ITEM.finditer(headers.get("ratelimit", "")[:600]))[:8]:
        parts = dict(re.findall(r"(\w{1,12})=([^;,\s]{1,40})", match["parameters"]))
        after = finite(parts.get("t"))
        name = match["name"].strip() or "default"
        items.append((name, finite(parts.get("r")), None if after is None else seen_at + after))
    return items


def _exhausted_bucket(headers: Headers, seen_at: float) -> Reset | None:
    buckets = _buckets(headers, seen_at)
    spent = [reset for left, reset in buckets.values() if left == 0 and reset is not None]
    if spent:
        return Reset(at=max(spent), confidence=0.9, source="header", rule="header.exhausted-bucket")
    silent = [reset for left, reset in buckets.values() if left is None and reset is not None]
    if silent and len(silent) == len(buckets):
        return Reset(at=max(silent), confidence=0.6, source="header", rule="header.bucket-reset")
    return None


def _rate_budgets(headers: Headers, seen_at: float) -> list[Budget]:
    """Budgets of requests and tokens: of several token buckets the emptiest one counts."""
    requests: tuple[float | None, float | None] = (None, None)
    tokens: tuple[float | None, float | None] = (None, None)
    for name, (left, reset) in _buckets(headers, seen_at).items():
        if left is None:
            continue
        if "token" in name:
            if tokens[0] is None or left < tokens[0]:
                tokens = (left, reset)
        elif requests[0] is None or left < requests[0]:
            requests = (left, reset)
    if requests[0] is None and tokens[0] is None:
        return []
    return [
        Budget(
            requests_remaining=None if requests[0] is None else int(requests[0]),
            requests_reset_at=requests[1],
            tokens_remaining=None if tokens[0] is None else int(tokens[0]),
            tokens_reset_at=tokens[1],
            source="header",
        )
    ]


# --- unified windows of Anthropic subscriptions ------------------------------------------------


def window_of(name: str) -> tuple[str | None, Reach]:
    """A provider's window name as ours, and whose it is: `7d_sonnet`, `seven_day_opus` are one model's."""
    name = name.lower()
    for known in sorted(WINDOWS, key=len, reverse=True):
        if name == known:
            return WINDOWS[known], "account"
        if name.startswith(f"{known}_"):
            return WINDOWS[known], "model"
    return None, "account"


def _unified_windows(headers: Headers) -> dict[str, Headers]:
    windows: dict[str, Headers] = {}
    for name, value in headers.items():
        match = re.fullmatch(rf"{UNIFIED}([\w]{{1,30}})-(status|reset|utilization)", name)
        if match and match[1] not in ("overage", "fallback", "slow"):
            windows.setdefault(match[1], {})[match[2]] = value
    return windows


def _unified(headers: Headers, status: int | None, seen_at: float) -> HeaderReading | None:
    windows = _unified_windows(headers)
    rejected = {name: window for name, window in windows.items() if window.get("status", "").lower() == "rejected"}
    overall = headers.get(f"{UNIFIED}status", "").lower()
    if not rejected and overall != "rejected":
        if headers.get(f"{UNIFIED}overage-disabled-reason") == "out_of_credits" and overall == "" and status == 429:
            return HeaderReading(kind="billing", rules=("header.unified-out-of-credits",))
        return None
    claim = headers.get(f"{UNIFIED}representative-claim", "")
    # Of several closed windows the one that opens last decides.
    latest = max(rejected, key=lambda name: finite(rejected[name].get("reset")) or 0.0, default=claim)
    window, reach = window_of(latest)
    reset = None
    at = finite(rejected.get(latest, {}).get("reset")) or finite(headers.get(f"{UNIFIED}reset"))
    if at is not None and (epoch := epoch_seconds(at)) is not None:
        reset = Reset(at=epoch, confidence=0.98, source="header", rule="header.unified-reset")
    elif at is None:
        reset = _retry_after(headers, seen_at)
    return HeaderReading(kind="quota", reset=reset, window=window, reach=reach, rules=("header.unified-rejected",))


def _unified_budgets(headers: Headers) -> list[Budget]:
    budgets = []
    for name, window in _unified_windows(headers).items():
        used, at = finite(window.get("utilization")), finite(window.get("reset"))
        if used is None and at is None:
            continue
        ours, reach = window_of(name)
        reset_at = None if at is None else epoch_seconds(at)
        budgets.append(Budget(used_ratio=used, window=ours, resets_at=reset_at, reach=reach, source="header"))
    return budgets


# --- Codex -------------------------------------------------------------------------------------


def _codex_windows(headers: Headers, seen_at: float) -> list[tuple[float | None, str | None, float | None, Reach]]:
    """(used fraction, window, reset, reach) of each `x-codex-*` limit. Primary is not always five hours."""
    found = []
    for name in headers:
        match = re.fullmatch(r"x-codex-((?:[a-z0-9]{1,30}-)?(?:primary|secondary))-used-percent", name)
        if match is None:
            continue
        prefix = f"x-codex-{match[1]}-"
        percent = finite(headers[name])
        minutes = finite(headers.get(f"{prefix}window-minutes"))
        at = finite(headers.get(f"{prefix}reset-at"))
        after = finite(headers.get(f"{prefix}reset-after-seconds"))
        reset = epoch_seconds(at) if at is not None else None if after is None else seen_at + after
        reach: Reach = "account" if match[1] in ("primary", "secondary") else "model"
        window = _MINUTES_OF_WINDOW.get(int(minutes)) if minutes is not None else None
        found.append((None if percent is None else percent / 100, window, reset, reach))
    return found


def _codex(headers: Headers, status: int | None, seen_at: float) -> HeaderReading | None:
    spent = [w for w in _codex_windows(headers, seen_at) if w[0] is not None and w[0] >= 1]
    if not spent or status not in (None, 429):
        return None
    _, window, at, reach = max(spent, key=lambda item: item[2] or 0.0)
    reset = None if at is None else Reset(at=at, confidence=0.95, source="header", rule="header.codex-reset")
    return HeaderReading(kind="quota", reset=reset, window=window, reach=reach, rules=("header.codex-spent",))


def _codex_budgets(headers: Headers, seen_at: float) -> list[Budget]:
    return [
        Budget(used_ratio=used, window=window, resets_at=reset, reach=reach, source="header")
        for used, window, reset, reach in _codex_windows(headers, seen_at)
    ]


# --- fields of bodies --------------------------------------------------------------------------

_AT = {"resetsat", "resetat", "quotaresettimestamp", "resettime", "nextresettime", "retryat", "resettimestamp", "reset"}
_SECONDS = {
    "resetsinseconds", "resetinseconds", "resetafterseconds", "retryafter", "retryafterseconds", "retrydelay",
    "quotaresetdelay", "resetafter", "resetsin", "retryinseconds",
}  # fmt: skip
_MILLISECONDS = {"retryafterms", "retrydelayms", "resetinms", "resetsinms"}


def field_reset(pairs: Pairs, *, seen_at: float, tz: str) -> Reset | None:
    """The reset that a body states in a field of its own: absolute before relative."""
    relative: Reset | None = None
    for key, value in pairs:
        name = key.lower().replace("_", "").replace("-", "")
        if name in _AT:
            at = _moment(value, seen_at) if name != "reset" else None
            if at is None and (number := finite(value)) is not None:
                at = epoch_seconds(number)
            if at is not None and at != seen_at:
                return Reset(at=at, source="field", rule=f"field.{key}")
        elif relative is None and name in _SECONDS and (after := parse_duration(value)) is not None:
            relative = Reset(after=after, source="field", rule=f"field.{key}")
        elif relative is None and name in _MILLISECONDS and (number := finite(value)) is not None:
            relative = Reset(after=number / 1000, source="field", rule=f"field.{key}")
    return relative


def field_status(pairs: Pairs) -> int | None:
    """The HTTP status that a body states: the first one that says something about capacity."""
    for key, value in pairs:
        if key.lower() in (
            "status",
            "statuscode",
            "status_code",
            "code",
            "httpstatuscode",
            "http_status",
            "error_status",
            "api_error_status",
        ):
            number = finite(value)
            if number in (401, 402, 423, 429, 503, 529):
                return int(number)
    return None

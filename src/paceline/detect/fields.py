"""Headers and fields of error bodies, in the forms that providers share: waits, moments, buckets, statuses.

Here: `Retry-After`, `RateLimit`, what is left in a bucket until when, and key-value pairs by their key. Never here:
whose headers these are (each provider names its own), or sentences.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from paceline.detect.json_objects import Pairs
from paceline.detect.observation import KIND_OF_STATUS
from paceline.detect.text import decode_text
from paceline.detect.times import Reset, epoch_seconds, parse_duration, parse_retry_after, to_number

Headers = dict[str, str]

MAX_HEADERS = 400
"""No real answer has more; the bound keeps the work on hostile input small."""
_PROXY_PREFIXES = ("llm_provider-", "x-upstream-", "upstream-")
_RATELIMIT_ITEM = re.compile(r'"?(?P<name>[\w\- ]{0,60})"?(?P<parameters>(?:\s?;\s?\w{1,12}=[^;,]{1,40}){1,8})')


class Bucket(NamedTuple):
    """What is left of a limit, and the reset as absolute time. None means unknown."""

    left: float | None = None
    reset: float | None = None
    limit: float | None = None


def normalize_headers(headers: object) -> Headers:
    """Return headers of any shape as text, with names in lower case and proxies' prefixes removed."""
    items = headers.items() if isinstance(headers, Mapping) else headers if isinstance(headers, list | tuple) else ()
    found: Headers = {}
    for item in list(items)[:MAX_HEADERS]:
        if not isinstance(item, list | tuple) or len(item) != 2 or item[1] is None:
            continue
        name, value = decode_text(item[0]).strip().lower(), item[1]
        for prefix in _PROXY_PREFIXES:
            name = name.removeprefix(prefix)
        is_list = isinstance(value, list | tuple)
        found[name] = ", ".join(map(decode_text, value)) if is_list else decode_text(value).strip()
    return found


def retry_after(headers: Headers, seen_at: float) -> Reset | None:
    """Return the wait that `retry-after` and its variants ask for."""
    if (milliseconds := to_number(headers.get("retry-after-ms"))) is not None:
        return Reset(after=milliseconds / 1000, confidence=0.95, source="header", rule="header.retry-after-ms")
    for name in ("retry-after", "x-retry-after"):
        if name in headers and (reset := parse_retry_after(headers[name], seen_at=seen_at, rule=f"header.{name}")):
            return reset
    return None


def parse_moment(value: str | None, seen_at: float) -> float | None:
    """Return a reset header as absolute time: RFC 3339, epoch, Go duration or bare seconds."""
    reset = None if value is None else parse_retry_after(value, seen_at=seen_at)
    return None if reset is None else reset.time(seen_at)


def read_buckets(headers: Headers, patterns: Iterable[re.Pattern[str]], seen_at: float) -> dict[str, Bucket]:
    """Return all buckets by name. A negative remaining is no number to `to_number`, so it means unknown."""
    buckets: dict[str, Bucket] = {}
    forms = tuple(patterns)
    for name, value in headers.items():
        match = next((found for form in forms if (found := form.fullmatch(name))), None)
        if match is None:
            continue
        bucket = buckets.get(name := match["bucket"] or "", Bucket())
        match match["what"]:
            case "remaining":
                buckets[name] = bucket._replace(left=to_number(value))
            case "limit":
                buckets[name] = bucket._replace(limit=to_number(value))
            case _:
                buckets[name] = bucket._replace(reset=parse_moment(value, seen_at))
    for name, bucket in _ratelimit_items(headers, seen_at):
        buckets.setdefault(name, bucket)
    return {name: bucket for name, bucket in buckets.items() if (bucket.left, bucket.reset) != (None, None)}


def _ratelimit_items(headers: Headers, seen_at: float) -> list[tuple[str, Bucket]]:
    """Read `RateLimit: "default";r=0;t=48` of the IETF draft, or `limit=10, remaining=0, reset=48` of older ones."""
    older = dict(re.findall(r"(limit|remaining|reset)=(\d{1,12})", headers.get("ratelimit", "")[:600]))
    if "reset" in older:
        left, limit = to_number(older.get("remaining")), to_number(older.get("limit"))
        return [("default", Bucket(left, parse_moment(older["reset"], seen_at), limit))]
    limits = {name: to_number(parts.get("q")) for name, parts in _structured_items(headers.get("ratelimit-policy", ""))}
    items = []
    for name, parts in _structured_items(headers.get("ratelimit", "")):
        after = to_number(parts.get("t"))
        reset = None if after is None else seen_at + after
        items.append((name, Bucket(to_number(parts.get("r")), reset, limits.get(name))))
    return items


def _structured_items(value: str) -> list[tuple[str, dict[str, str]]]:
    """Return the items of a structured header by name, each with its parameters."""
    return [
        (match["name"].strip() or "default", dict(re.findall(r"(\w{1,12})=([^;,\s]{1,40})", match["parameters"])))
        for match in list(_RATELIMIT_ITEM.finditer(value[:600]))[:8]
    ]


# Keys without `_` and `-`, in lower case.
_AT = {"resetsat", "resetat", "quotaresettimestamp", "resettime", "nextresettime", "retryat", "resettimestamp", "reset"}
_SECONDS = {
    "resetsinseconds", "resetinseconds", "resetafterseconds", "retryafter", "retryafterseconds", "retrydelay",
    "quotaresetdelay", "resetafter", "resetsin", "retryinseconds",
}  # fmt: skip
_MILLISECONDS = {"retryafterms", "retrydelayms", "resetinms", "resetsinms"}
_STATUS = {
    "status", "statuscode", "status_code", "code", "httpstatuscode", "http_status", "error_status", "api_error_status",
}  # fmt: skip


def field_reset(pairs: Pairs, *, seen_at: float) -> Reset | None:
    """Return the reset that a body states in a field of its own: absolute before relative."""
    relative: Reset | None = None
    for key, value in pairs:
        name = key.lower().replace("_", "").replace("-", "")
        if name in _AT:
            at = parse_moment(value, seen_at) if name != "reset" else None
            if at is None and (number := to_number(value)) is not None:
                at = epoch_seconds(number)
            if at is not None and at != seen_at:
                return Reset(at=at, source="field", rule=f"field.{key}")
        elif relative is None and name in _SECONDS and (after := parse_duration(value)) is not None:
            relative = Reset(after=after, source="field", rule=f"field.{key}")
        elif relative is None and name in _MILLISECONDS and (number := to_number(value)) is not None:
            relative = Reset(after=number / 1000, source="field", rule=f"field.{key}")
    return relative


def field_status(pairs: Pairs) -> int | None:
    """Return the HTTP status that a body states: the first one that means something by itself."""
    for key, value in pairs:
        if key.lower() in _STATUS and (number := to_number(value)) in KIND_OF_STATUS:
            return int(number or 0)
    return None

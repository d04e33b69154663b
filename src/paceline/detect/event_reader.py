"""The structured events of agent CLIs: which of them speak of limits, and where in them.

Here: what an event is (an error, a retry, a limit, or somebody's words), by its own fields. Never here:
reading sentences; what is found is handed to `reading.py` as a text with its fields.
"""

import re

import msgspec

from paceline.core.signals import Budget
from paceline.detect.header_reader import window_of
from paceline.detect.parsing.json_objects import Pairs, flattened
from paceline.detect.parsing.reset_times import Reset, epoch_seconds, finite
from paceline.detect.rules import Kind

Event = dict[str, object]


class Saying(msgspec.Struct, frozen=True, kw_only=True):
    """What an event says about capacity: either decided by its fields, or an error text to be read."""

    kind: Kind | None = None
    reset: Reset | None = None
    window: str | None = None
    model: bool = False
    budgets: tuple[Budget, ...] = ()
    text: str = ""
    pairs: Pairs = []
    status: int | None = None
    default: Kind | None = None
    rule: str = ""


SILENT: Saying | None = None

# Claude's and Qwen's names for what went wrong.
_ERROR_KINDS: dict[str, Kind] = {
    "rate_limit": "rate",
    "overloaded": "overloaded",
    "server_error": "overloaded",
    "billing_error": "billing",
    "authentication_failed": "auth",
}
_STATUS_KINDS: dict[int, Kind] = {
    401: "auth",
    402: "billing",
    423: "platform",
    429: "rate",
    503: "overloaded",
    529: "overloaded",
}

# Whose words these are: the model's, a tool's, the user's, or mere bookkeeping.
_PROSE_TYPES = re.compile(
    r"assistant|user|message|text|reasoning|thinking|tool\w*|item\.\w+|stream_event|content\w*|function\w*|response_item"
    r"|(?:assistant|user|tool|session|turn|thread|model|step|system|hook|agent|permission)[._/][\w.]*|step\w*|turn|init|system|summary|delta|file|patch",
    re.I,
)
_ERROR_TYPES = frozenset(
    ("error", "turn.failed", "response.failed", "response.incomplete", "session.error", "stream_error", "thread.error")
)  # fmt: skip
_OWN_ERROR = re.compile(r"\[?API Error\b", re.I)
_PROSE_HEAD = re.compile(
    r'\s{0,40}\{\s{0,8}"type"\s?:\s?"(?P<type>[\w.\-]{1,40})"|\s{0,40}"(?P<key>new_string|old_string|content|text|result|command|aggregated_output|stdout|input|description|thinking)"\s?:'
)


def is_cut_prose(text: str) -> bool:
    """Whether a piece of an event, too broken to be parsed, begins as somebody's words."""
    head = _PROSE_HEAD.match(text[:400])
    if head is None:
        return False
    return bool(head["key"]) or (head["type"] not in _ERROR_TYPES and bool(_PROSE_TYPES.fullmatch(head["type"])))


def is_event(document: Event) -> bool:
    """Whether a JSON object is an event of an agent CLI, rather than the body of an answer."""
    kind = document.get("type")
    return isinstance(kind, str) and (kind in _READERS or kind in _ERROR_TYPES or bool(_PROSE_TYPES.fullmatch(kind)))


def say(event: Event) -> Saying | None:
    """What an event says about capacity; None for all that is not the CLI's own error."""
    kind = event.get("type")
    if not isinstance(kind, str):
        return _error(event) if "error" in event else SILENT
    reader = _READERS.get(kind)
    if reader is not None:
        return reader(event)
    if kind in _ERROR_TYPES:
        return _error(event)
    if _PROSE_TYPES.fullmatch(kind):
        return SILENT
    return _error(event) if event.get("error") else SILENT


def _error(event: Event) -> Saying:
    pairs = flattened(event)
    text = "\n".join(f'{key}: "{value}"' for key, value in pairs if len(value) > 2 or value.isalnum())
    status = next(
        (
            int(n)
            for k, v in pairs
            if k.lower() in ("statuscode", "status_code", "status", "http_status") and (n := finite(v))
        ),
        None,
    )
    return Saying(text=text, pairs=pairs, status=status, rule=f"event.{event.get('type', 'error')}")


def _rate_limit_event(event: Event) -> Saying | None:
    info = event.get("rate_limit_info")
    if not isinstance(info, dict):
        return SILENT
    window, reach = window_of(str(info.get("rateLimitType", "")))
    number = finite(info.get("resetsAt"))
    at = None if number is None else epoch_seconds(number)
    if info.get("status") == "rejected":
        if at is None and not info.get("rateLimitType"):
            return SILENT  # a plain 429 that names no window: the words that follow say what it was
        reset = None if at is None else Reset(at=at, source="field", rule="field.resetsAt")
        return Saying(kind="quota", reset=reset, window=window, model=reach == "model", rule="claude.rate-limit-event")
    used = finite(info.get("utilization"))
    if used is None and at is None:
        return SILENT
    budget = Budget(used_ratio=used, window=window, resets_at=at, reach=reach, source="field")
    return Saying(budgets=(budget,), rule="claude.rate-limit-event")


def _system(event: Event) -> Saying | None:
    """`system/api_retry` (Claude), `system/retry` (Qwen): the first sign of back-pressure."""
    if event.get("subtype") not in ("api_retry", "retry"):
        return SILENT
    if isinstance(data := event.get("data"), dict):
        return _unnamed_retry(data)
    status = finite(event.get("error_status") or event.get("status") or event.get("status_code"))
    delay = finite(event.get("retry_delay_ms") or event.get("delay_ms"))
    error = event.get("error") or event.get("message") or ""
    kind = _STATUS_KINDS.get(int(status or 0)) or _ERROR_KINDS.get(str(error))
    if kind is None and status is not None and status >= 500:
        kind = "overloaded"
    if kind is None and not error:
        return SILENT
    reset = (
        None
        if delay is None
        else Reset(after=delay / 1000, confidence=0.6, source="backoff", rule="field.retry_delay_ms", own=True)
    )
    text = error if isinstance(error, str) else "\n".join(value for _, value in flattened(error))
    return Saying(
        kind=None if kind in ("rate", None) and " " in text else kind,
        default=kind,
        reset=reset,
        text=text,
        status=int(status) if status else None,
        rule="event.api-retry",
    )


def _unnamed_retry(data: Event) -> Saying | None:
    """Qwen 0.24 counts attempts and names the delay for throttling and overload alike, and says which on stderr."""
    delay = finite(data.get("delayMs"))
    if delay is None or finite(data.get("attempt")) is None:
        return SILENT
    reset = Reset(after=delay / 1000, confidence=0.4, source="backoff", rule="field.delayMs", own=True)
    return Saying(kind="rate", reset=reset, rule="event.retry")


def _result(event: Event) -> Saying | None:
    """The end of a turn. `subtype: success` may be an error, and `is_error: false` of Qwen as well."""
    if event.get("status") == "error":
        return _error({"type": "result", "error": event.get("error")}) if event.get("error") else SILENT
    text = event.get("result")
    text = text if isinstance(text, str) else ""
    if not event.get("is_error") and not _OWN_ERROR.match(text):
        return SILENT
    errors = event.get("errors") or event.get("error")
    if not text and errors:
        text = "\n".join(value for _, value in flattened(errors))
    status = finite(event.get("api_error_status"))
    default = _STATUS_KINDS.get(int(status or 0)) or ("overloaded" if status and status >= 500 else None)
    return Saying(
        text=text,
        pairs=flattened({"result": text}),
        status=int(status) if status else None,
        default=default,
        rule="event.result",
    )


def _assistant(event: Event) -> Saying | None:
    """An answer that the CLI made up itself to show an error; the model's own answers are prose."""
    message = event.get("message")
    message = message if isinstance(message, dict) else {}
    error = event.get("error")
    if not error and message.get("model") != "<synthetic>":
        return SILENT
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    text = "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))
    if not error and not _OWN_ERROR.match(text):
        return SILENT
    return Saying(
        text=text, pairs=flattened({"text": text}), default=_ERROR_KINDS.get(str(error)), rule="event.synthetic"
    )


def _item(event: Event) -> Saying | None:
    """Codex items: all but its own notes are the agent's work."""
    item = event.get("item")
    if not isinstance(item, dict) or item.get("type") != "error":
        return SILENT
    return Saying(text=str(item.get("message", "")), rule="event.item-error")


def _codex_rollout(event: Event) -> Saying | None:
    payload = event.get("payload")
    if not isinstance(payload, dict):
        return SILENT
    if payload.get("type") in ("error", "stream_error"):
        return _error(payload)
    limits = payload.get("rate_limits")
    if payload.get("type") != "token_count" or not isinstance(limits, dict):
        return SILENT
    budgets = tuple(budget for name in ("primary", "secondary") if (budget := _codex_budget(limits.get(name))))
    return Saying(budgets=budgets, rule="codex.rate-limits") if budgets else SILENT


def _codex_budget(limit: object) -> Budget | None:
    if not isinstance(limit, dict) or (used := finite(limit.get("used_percent"))) is None:
        return None
    minutes, at = finite(limit.get("window_minutes")), finite(limit.get("resets_at"))
    window = {300: "5h", 10080: "weekly"}.get(int(minutes or 0))
    return Budget(used_ratio=used / 100, window=window, resets_at=epoch_seconds(at) if at else None, source="field")


def _session_status(event: Event) -> Saying | None:
    """opencode's own status: `retry` carries the provider's message."""
    properties = event.get("properties")
    status = properties.get("status") if isinstance(properties, dict) else None
    if not isinstance(status, dict) or status.get("type") != "retry":
        return SILENT
    return Saying(text=str(status.get("message", "")), rule="event.session-retry")


def _turn_retry(event: Event) -> Saying | None:
    """Copilot's `assistant.turn_retry` and `model.call_failure`."""
    data = event.get("data")
    if not isinstance(data, dict):
        return SILENT
    status = finite(data.get("statusCode"))
    kind = _ERROR_KINDS.get(str(data.get("reason"))) or _STATUS_KINDS.get(int(status or 0))
    return Saying(kind=kind, rule=f"event.{event['type']}") if kind else SILENT


_READERS = {
    "rate_limit_event": _rate_limit_event,
    "system": _system,
    "result": _result,
    "assistant": _assistant,
    "item.completed": _item,
    "event_msg": _codex_rollout,
    "session.status": _session_status,
    "assistant.turn_retry": _turn_retry,
    "model.call_failure": _turn_retry,
}

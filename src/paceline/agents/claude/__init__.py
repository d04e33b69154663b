"""Anthropic: what Claude Code and the Anthropic API print.

Here: its sentences, window names, headers, events, and the stream format, which other CLIs have copied, with what it
shows of the agent's work. Never here: what a copy of the format adds; that is in the folder of the copy.
"""

import re
from collections.abc import Mapping, Sequence

import msgspec

from paceline.agents import dialect
from paceline.core.signals import Budget, Reach
from paceline.core.values.session_output import Tokens
from paceline.detect.fields import Headers, retry_after
from paceline.detect.json_objects import Event, count_at, flatten, items_of, member, number_at, sum_at, text_at
from paceline.detect.observation import KIND_OF_ERROR_NAME, Stage, kind_of_failure, kind_of_status
from paceline.detect.provider import LimitReading, Provider, Rule, rule
from paceline.detect.times import Reset, epoch_seconds, to_number


def _entries(event: Event) -> Sequence[dialect.TranscriptEntry]:
    content = member(event, "message", "content")
    kind = event.get("type")
    if kind == "assistant":
        if event.get("error") or text_at(event, "message", "model") == "<synthetic>":
            return _synthetic(content)
        return [entry for part in _parts(content) for entry in _spoken(part)]
    if kind == "user":
        results = [part for part in _parts(content) if member(part, "type") == "tool_result"]
        return [entry for part in results for entry in _result(part)]
    return ()


def _parts(content: object) -> list[object]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


def _synthetic(content: object) -> list[dialect.TranscriptEntry]:
    """Return the text of an answer that the CLI made up to show an error."""
    text = "\n".join(str(member(part, "text") or "") for part in _parts(content)).strip()
    return [dialect.notice(text, is_error=True)] if text else []


def _spoken(part: object) -> list[dialect.TranscriptEntry]:
    if member(part, "type") == "text":
        return dialect.said(text_at(part, "text"))
    if member(part, "type") in ("tool_use", "server_tool_use"):
        return [dialect.tool_call(text_at(part, "name"), member(part, "input"))]
    return []


def _result(part: object) -> list[dialect.TranscriptEntry]:
    return dialect.tool_result(
        dialect.text_of_content(member(part, "content")), is_error=member(part, "is_error") is True
    )


# --- sentences ---------------------------------------------------------------------------------

_EXTRA = r"(?:extra usage|usage credits)"

RULES: tuple[Rule, ...] = (
    # With a reset it is a window like any other; without one somebody has to pay.
    rule("claude.out-of-extra-usage", "billing", rf"you(?:'re| are) out of {_EXTRA}", unless=r"resets?\b"),
    rule("claude.extra-usage-required", "billing", rf"<2>{_EXTRA} (?:is|are) required"),
    # The window is spent, but the work continues, billed as overage: nothing to wait for.
    rule("claude.using-overage", "none", rf"now using {_EXTRA}", anywhere=True),
    rule(
        "claude.retry-spinner",
        "rate",
        r"retrying in \d{1,4} ?s(?:econds)?\W{1,6}attempt #?\d{1,3}(?:/\d{1,3})?",
        stage=Stage.SIGN,
    ),
)

# --- windows -----------------------------------------------------------------------------------

WINDOWS = {
    "five_hour": "5h",
    "5h": "5h",
    "seven_day": "weekly",
    "7d": "weekly",
    "one_day": "daily",
    "1d": "daily",
    "24h": "daily",
    "thirty_day": "monthly",
    "30d": "monthly",
    "monthly": "monthly",
}
"""Names of windows in `rateLimitType`, in unified headers and in status lines."""


def window_of(name: str) -> tuple[str | None, Reach]:
    """Return our name for a window, and its reach: `7d_sonnet` and `seven_day_opus` are one model's."""
    name = name.lower()
    for known in sorted(WINDOWS, key=len, reverse=True):
        if name == known:
            return WINDOWS[known], "account"
        if name.startswith(f"{known}_"):
            return WINDOWS[known], "model"
    return None, "account"


# --- headers -----------------------------------------------------------------------------------

UNIFIED = "anthropic-ratelimit-unified-"
"""Begins the headers of subscription windows."""
_NO_WINDOWS = frozenset({"overage", "fallback", "slow"})
"""Names beside those of windows."""
_MOST_WINDOWS = 16
"""Windows of one event that are read: five are known."""
LONGEST_WINDOW_NAME = 40
"""Characters. Real names have fewer than 20; the bound keeps what is stored small."""


def _unified_windows(headers: Headers) -> dict[str, Headers]:
    windows: dict[str, Headers] = {}
    for name, value in headers.items():
        match = re.fullmatch(rf"{UNIFIED}([\w]{{1,30}})-(status|reset|utilization)", name)
        if match and match[1] not in _NO_WINDOWS:
            windows.setdefault(match[1], {})[match[2]] = value
    return windows


def _decide_by_headers(headers: Headers, status: int | None, seen_at: float) -> LimitReading | None:
    windows = _unified_windows(headers)
    rejected = {name: window for name, window in windows.items() if window.get("status", "").lower() == "rejected"}
    overall = headers.get(f"{UNIFIED}status", "").lower()
    if not rejected and overall != "rejected":
        if headers.get(f"{UNIFIED}overage-disabled-reason") == "out_of_credits" and overall == "" and status == 429:
            return LimitReading(kind="billing", rule="header.unified-out-of-credits")
        return None
    claim = headers.get(f"{UNIFIED}representative-claim", "")
    # Of several closed windows the one that opens last decides.
    latest = max(rejected, key=lambda name: to_number(rejected[name].get("reset")) or 0.0, default=claim)
    window, reach = window_of(latest)
    reset = None
    at = to_number(rejected.get(latest, {}).get("reset")) or to_number(headers.get(f"{UNIFIED}reset"))
    if at is not None and (epoch := epoch_seconds(at)) is not None:
        reset = Reset(at=epoch, confidence=0.98, source="header", rule="header.unified-reset")
    elif at is None:
        reset = retry_after(headers, seen_at)
    return LimitReading(kind="quota", reset=reset, window=window, reach=reach, rule="header.unified-rejected")


def _header_budgets(headers: Headers, _: float) -> list[Budget]:
    budgets = []
    for name, window in _unified_windows(headers).items():
        used, at = to_number(window.get("utilization")), _epoch_at(window, "reset")
        ours, reach = window_of(name)
        if used is not None or to_number(window.get("reset")) is not None:
            budgets.append(Budget(used_ratio=used, window=ours, resets_at=at, reach=reach, source="header"))
    return budgets


# --- events about limits -----------------------------------------------------------------------

_OWN_ERROR = re.compile(r"\[?API Error\b", re.I)


def _unified_windows_in(info: Event) -> list[tuple[str, Budget, bool]]:
    """Return the windows that a rate limit event reports one by one (since 2.1.3xx): name, figures, whether spent."""
    found = []
    for name, window in items_of(info.get("unifiedWindows"))[:_MOST_WINDOWS]:
        if not isinstance(window, dict) or name in _NO_WINDOWS:
            continue
        name = name[:LONGEST_WINDOW_NAME]
        used, at = to_number(window.get("utilization")), _epoch_at(window, "resetsAt")
        is_spent = window.get("status") == "rejected" or (used is not None and used >= 1 and "status" not in window)
        ours, reach = window_of(name)
        budget = Budget(used_ratio=used, window=ours or name, resets_at=at, reach=reach, source="field")
        found.append((name, budget, is_spent))
    return found


def _epoch_at(holder: Mapping[str, object], name: str) -> float | None:
    number = to_number(holder.get(name))
    return None if number is None else epoch_seconds(number)


def _read_rate_limit_event(event: Event) -> LimitReading | None:
    info = event.get("rate_limit_info")
    if not isinstance(info, dict):
        return None
    windows = _unified_windows_in(info)
    stated = (budget for _, budget, _ in windows)
    budgets = tuple(each for each in stated if each.used_ratio is not None or each.resets_at is not None)
    if info.get("status") == "rejected":
        return _read_rejection(info, windows, budgets)
    window, reach = window_of(str(info.get("rateLimitType", "")))
    used, at = to_number(info.get("utilization")), _epoch_at(info, "resetsAt")
    if (used is not None or at is not None) and not any(known.window == window for known in budgets):
        budgets = (Budget(used_ratio=used, window=window, resets_at=at, reach=reach, source="field"), *budgets)
    return LimitReading(budgets=budgets, rule="claude.rate-limit-event") if budgets else None


def _read_rejection(
    info: Event, windows: list[tuple[str, Budget, bool]], budgets: tuple[Budget, ...]
) -> LimitReading | None:
    """Read a refusal. The CLI blames a window for every 429, so the windows' own figures decide where it has them."""
    named, at = str(info.get("rateLimitType") or ""), _epoch_at(info, "resetsAt")
    if _is_refused_in_open_windows(info):
        return LimitReading(kind="rate", cause="concurrency", budgets=budgets, rule="claude.open-windows")
    spent = {name: budget.resets_at for name, budget, is_spent in windows if is_spent}
    if spent:
        # Of several closed windows the one that opens last decides.
        named = max(spent, key=lambda name: spent[name] or 0.0)
        at = spent[named] or at
    elif at is None and not named:
        return None  # a plain 429 that names no window: the words that follow state what it was
    window, reach = window_of(named)
    return LimitReading(
        kind="quota",
        reset=None if at is None else Reset(at=at, source="field", rule="field.resetsAt"),
        window=window,
        reach=reach,
        budgets=budgets,
        rule="claude.rate-limit-event",
    )


def _is_refused_in_open_windows(info: Event) -> bool:
    """Return whether a refusal names a window that by its own figures is open: too many calls ran at once."""
    windows = {name: is_spent for name, _, is_spent in _unified_windows_in(info)}
    if info.get("status") != "rejected" or not windows or any(windows.values()):
        return False
    named = str(info.get("rateLimitType") or "")
    return not named or named in windows


def is_retry(event: Event) -> bool:
    """Return whether a `system` event announces a retry: `api_retry` here, `retry` in a copied format."""
    return event.get("subtype") in ("api_retry", "retry")


def _is_unanswered(event: Event) -> bool:
    """Return whether a retry follows a call without any answer: it names no status, and no cause."""
    return "error_status" in event and event["error_status"] is None and event.get("error") in (None, "", "unknown")


def _read_retry(event: Event) -> LimitReading | None:
    """Read `system/api_retry`, the first sign of back-pressure."""
    if not is_retry(event) or isinstance(event.get("data"), dict):
        return None
    status = to_number(event.get("error_status") or event.get("status") or event.get("status_code"))
    delay = to_number(event.get("retry_delay_ms") or event.get("delay_ms"))
    error = event.get("error") or event.get("message") or ""
    kind = kind_of_status(status) or KIND_OF_ERROR_NAME.get(str(error)) or kind_of_failure(status)
    if kind is None and _is_unanswered(event):
        # The first may be a single lost connection, which the CLI itself makes good.
        is_first = to_number(event.get("attempt")) == 1
        return None if is_first else LimitReading(kind="unreachable", rule="event.api-retry-unanswered")
    if kind is None and not error:
        return None
    reset = None
    if delay is not None:
        reset = Reset(after=delay / 1000, confidence=0.6, source="backoff", rule="field.retry_delay_ms", own=True)
    text = error if isinstance(error, str) else "\n".join(value for _, value in flatten(error))
    return LimitReading(
        kind=None if kind in ("rate", None) and " " in text else kind,
        default=kind,
        reset=reset,
        text=text,
        status=int(status) if status else None,
        rule="event.api-retry",
    )


def _read_result(event: Event) -> LimitReading | None:
    """Read the end of a turn. `subtype: success` may be an error."""
    return read_result_error(event) if event.get("is_error") and event.get("status") != "error" else None


def begins_as_error(text: str) -> bool:
    """Return whether the text of an answer begins as the CLI words an error of the API."""
    return bool(_OWN_ERROR.match(text))


def read_result_error(event: Event) -> LimitReading:
    """Read a `result` event that is known to be an error."""
    text = text_at(event, "result") or ""
    errors = event.get("errors") or event.get("error")
    if not text and errors:
        text = "\n".join(value for _, value in flatten(errors))
    status = to_number(event.get("api_error_status"))
    return LimitReading(
        text=text,
        pairs=flatten({"result": text}),
        status=int(status) if status else None,
        default=kind_of_failure(status),
        rule="event.result",
    )


def _read_assistant(event: Event) -> LimitReading | None:
    """Read an answer that the CLI made up to show an error. The model's own answers are prose."""
    message = event.get("message")
    message = message if isinstance(message, dict) else {}
    error = event.get("error")
    if not error and message.get("model") != "<synthetic>":
        return None
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    text = "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))
    if not error and not begins_as_error(text):
        return None
    default = KIND_OF_ERROR_NAME.get(str(error))
    return LimitReading(text=text, pairs=flatten({"text": text}), default=default, rule="event.synthetic")


# --- the stream format -------------------------------------------------------------------------

_CLOUD_MODEL = re.compile(r"arn:aws|(?:[a-z]{2,10}\.)?anthropic\.claude|claude-[\w.-]+@\d{8}")
"""Ids of Bedrock (`us.anthropic.claude-...`) and dated ids of Vertex (`claude-...@20250929`)."""
_SUBSCRIPTION_SOURCES = frozenset({"none", "oauth"})
_ERROR_AS_ANSWER = re.compile(r"\[API Error: ")


def _read_facts(event: Event) -> dialect.Facts:
    kind = event.get("type")
    session_id = text_at(event, "session_id")
    if kind == "system":
        return dialect.Facts(
            session_id=session_id,
            auth_mode=_auth_mode(text_at(event, "apiKeySource"), text_at(event, "model")),
            status=_retry_status(event) if is_retry(event) else None,
            is_retry=is_retry(event),
            is_unreachable=is_retry(event) and _is_unanswered(event),
            model=text_at(event, "model"),
        )
    if kind == "rate_limit_event":
        in_overage = member(event, "rate_limit_info", "isUsingOverage") is True
        info = event.get("rate_limit_info")
        return dialect.Facts(
            session_id=session_id,
            auth_mode="overage" if in_overage else None,
            is_window_open=_is_refused_in_open_windows(info) if isinstance(info, dict) else None,
        )
    if kind == "result":
        return dialect.Facts(
            session_id=session_id,
            turn_tokens=sum_at(event.get("usage"), "input_tokens", "cache_creation_input_tokens", "output_tokens"),
            run_tokens=_run_tokens(event.get("modelUsage")),
            usage=_usage(event),
            model_turns=count_at(event, "num_turns") or None,
            answer=text_at(event, "result") if (ending := _ending(event)).ok else None,
            ending=ending,
            error=None if ending.ok else _error_text(event),
            denials=_denials(event.get("permission_denials")),
            lists_denials=isinstance(event.get("permission_denials"), list),
        )
    return dialect.NO_FACTS


def _usage(event: Event) -> dialect.ReportedUsage | None:
    """Read the tokens of a result. `modelUsage` has those of sub-agents too; newer versions, which also name the
    canonical model in it, count the whole conversation there."""
    models = event.get("modelUsage")
    if isinstance(models, dict) and models:
        by_model = {
            str(text_at(each, "canonicalModel") or name): Tokens(
                input=count_at(each, "inputTokens"),
                output=count_at(each, "outputTokens"),
                cache_read=count_at(each, "cacheReadInputTokens"),
                cache_write=count_at(each, "cacheCreationInputTokens"),
            )
            for name, each in models.items()
        }
        is_whole = any(member(each, "canonicalModel") is not None for each in models.values())
        return dialect.ReportedUsage(by_model=by_model, reach="conversation" if is_whole else "run")
    usage = event.get("usage")
    return None if not isinstance(usage, dict) else dialect.ReportedUsage(by_model={"": message_tokens(usage)})


def message_tokens(usage: object) -> Tokens:
    """Return the tokens of a `usage` object."""
    return Tokens(
        input=count_at(usage, "input_tokens"),
        output=count_at(usage, "output_tokens"),
        cache_read=count_at(usage, "cache_read_input_tokens"),
        cache_write=count_at(usage, "cache_creation_input_tokens"),
    )


def _error_text(event: Event) -> str | None:
    """Return the words of a failed result: its text, its errors, or else the name of how it ended."""
    errors = event.get("errors")
    listed = errors[0] if isinstance(errors, list) and errors else None
    said = text_at(event, "result") or text_at(event, "error", "message") or text_at(event, "error")
    named = (text_at(event, "subtype") or "").replace("_", " ")
    return said or text_at({"error": listed}, "error") or text_at(listed, "message") or (named or None)


def _denials(listed: object) -> tuple[dialect.Denial, ...]:
    calls = [call for call in listed if isinstance(call, dict)] if isinstance(listed, list) else []
    return tuple(
        dialect.Denial(tool=text_at(call, "tool_name") or "", call=text_at(call, "tool_use_id") or "") for call in calls
    )


def _run_tokens(models: object) -> int | None:
    if not isinstance(models, dict) or not models:
        return None
    counts = [sum_at(model, "inputTokens", "cacheCreationInputTokens", "outputTokens") for model in models.values()]
    return sum(count for count in counts if count is not None)


def _auth_mode(source: str | None, model: str | None) -> dialect.AuthMode | None:
    """Return who pays. With a cloud account the source is `none` too, but the model has an id of that cloud.

    A cost says nothing: Claude Code computes one for a login as well.
    """
    if source is None:
        return None
    if model is not None and _CLOUD_MODEL.match(model):
        return "api_key"
    return "subscription" if source in _SUBSCRIPTION_SOURCES else "api_key"


def _retry_status(event: Event) -> int | None:
    """Return the status of a retry: it is in the event itself, in copies of the format in its `data`."""
    names = ("error_status", "status", "status_code", "statusCode", "http_status")
    for holder in (event, event.get("data")):
        for name in names:
            status = number_at(holder, name)
            if status is not None:
                return status
    return None


def _ending(event: Event) -> dialect.Ending:
    """Read how the turn ended. `subtype: success` is not believed beside `is_error`, nor `is_error: false` beside the
    text of an error, which a copy of the format prints."""
    text = text_at(event, "result") or text_at(event, "error", "message") or ""
    stopped = (text_at(event, "terminal_reason") or "").startswith("aborted")
    failed = bool(event.get("is_error")) or str(event.get("subtype")).startswith("error")
    return dialect.Ending(
        ok=not (failed or stopped or _ERROR_AS_ANSWER.match(text)),
        interrupted=stopped,
        status=number_at(event, "api_error_status") or dialect.status_in_text(text),
    )


FORMAT = dialect.Dialect(
    quiet=frozenset({"assistant", "user", "stream_event", "tool_call", "thinking"}),
    progress=frozenset({"assistant"}),
    news=frozenset({"system", "result", "rate_limit_event"}),
    marks=frozenset({"session_id", "uuid", "rate_limit_info", "is_error", "retry_delay_ms"}),
    read=_read_facts,
    entries=_entries,
    turns=dialect.TurnEvents(
        calls=frozenset({"assistant"}),
        call=(b'"type":"tool_use"', b'"type": "tool_use"'),
        results=frozenset({"user"}),
        result=(b'"type":"tool_result"', b'"type": "tool_result"'),
        speech=frozenset({"assistant"}),
    ),
)
ASSUMED_FORMAT = msgspec.structs.replace(FORMAT, ends_with_result=False)
"""For CLIs whose format is not known: most have copied this one, but their streams need not end with a result."""

PROVIDER = Provider(
    name="anthropic",
    rules=RULES,
    events={
        "rate_limit_event": _read_rate_limit_event,
        "system": _read_retry,
        "result": _read_result,
        "assistant": _read_assistant,
    },
    headers=r"(?:llm_provider-)?anthropic-ratelimit-.+",
    header_words=frozenset({"ratelimit"}),
    buckets=r"anthropic-ratelimit-(?!unified-)(?P<bucket>[\w-]{1,40})-(?P<what>remaining|reset|limit)",
    budgets=_header_budgets,
    decide=_decide_by_headers,
    model_limit=r"\b(?:opus|sonnet|haiku|fable)\b[^\n]{0,12} limit",
)
CLIS = (
    dialect.AgentCli(
        name="claude-code",
        dialect=FORMAT,
        stopped_answer="Execution error",
        notices=dialect.NoticeRules(
            untrusted=r"Ignoring \d{1,5} permissions\.\w{1,20} entr(?:y|ies)\b[^\n]{0,300}not been trusted",
        ),
    ),
)

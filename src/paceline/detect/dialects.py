"""What each agent CLI's events say besides limits: which session, how many tokens, who pays, how it ended.

Here: one dialect per CLI, as tables and one small reader each. Never here: limits (read_event knows
those), bytes, or the conclusion drawn from an ending (outcome.py).
"""

import re
from collections.abc import Callable
from typing import Literal

import msgspec

from paceline.detect.parsing.line_splitter import Event

AuthMode = Literal["subscription", "api_key", "overage"]


class MessageUsage(msgspec.Struct, gc=False):
    """Tokens of one model message. Cache reads are left out: they count towards no limit."""

    input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    output_tokens: int = 0

    @property
    def total(self) -> int:
        """All that the message used."""
        return self.input_tokens + self.cache_creation_input_tokens + self.output_tokens


class MessageHead(msgspec.Struct, gc=False):
    """The small part of a model message."""

    id: str = ""
    model: str = ""
    usage: MessageUsage | None = None


class ItemHead(msgspec.Struct, gc=False):
    """The small part of a codex item."""

    type: str = ""


class Head(msgspec.Struct, gc=False):
    """The few members that tell an event with news from one without; the decoder skips all others unread."""

    type: str = ""
    role: str = ""
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    item: ItemHead | None = None
    message: MessageHead | None = None


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How the CLI itself says that a turn ended."""

    ok: bool
    interrupted: bool = False
    status: int | None = None


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What one event says besides limits; None where it says nothing."""

    session_id: str | None = None
    auth_mode: AuthMode | None = None
    turn_tokens: int | None = None
    """What the turn that ended has used."""
    run_tokens: int | None = None
    """What the whole run has used so far; better than the sum of its turns, which leaves sub-agents out."""
    status: int | None = None
    is_retry: bool = False
    ending: Ending | None = None


NOTHING = Facts()


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """How to read one CLI's stream."""

    quiet: frozenset[str]
    """Event types that hold only prose, tools or bookkeeping: never decoded further."""
    progress: frozenset[str]
    """Those of them which show that the model answers: a limit met before is over."""
    news: frozenset[str]
    """Event types that matter besides."""
    marks: frozenset[str]
    """Members of which each event with news has one, and the JSON that an agent was asked to write has none."""
    read: Callable[[Event], Facts]
    ends_with_result: bool = True
    """Whether a healthy stream always closes with an event of its own, so that its absence means a stop."""
    fails_aloud: bool = False
    """Whether it always says so when it fails, so that an exit code alone means a stop."""
    streams_text: bool = False
    """Whether plain text is printed as it comes and closed with a line feed, so that its absence means a stop."""


def member(value: object, *path: str) -> object:
    """The member at a path of nested objects, or None."""
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def text_at(value: object, *path: str) -> str | None:
    """The text at a path, or None."""
    found = member(value, *path)
    return found if isinstance(found, str) and found else None


def number_at(value: object, *path: str) -> int | None:
    """The whole number at a path, or None."""
    found = member(value, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _sum_at(value: object, *names: str) -> int | None:
    if not isinstance(value, dict):
        return None
    found = [number for name in names if (number := number_at(value, name)) is not None]
    return sum(found) if found else None


_STATUS_IN_ERROR = re.compile(
    r"(?:API Error:?|failed with status|last status:|status code:?|\(HTTP) {0,2}(?:Request rejected )?\(?([45]\d\d)\b"
)
_RESUME_HINT = re.compile(r"Resume {1,12}copilot --resume=([\w-]{8,64})$")
_ERROR_AS_ANSWER = re.compile(r"\[API Error: ")
_RECONNECTING = re.compile(r"Reconnecting\.\.\. |.{0,2000}; retrying \d+/\d+ in ")


def status_in_text(text: str) -> int | None:
    """The HTTP status in a CLI's own error text, where it prints one."""
    found = _STATUS_IN_ERROR.search(text)
    return int(found[1]) if found else None


def session_in_text(text: str) -> str | None:
    """The session id that a CLI prints with the hint how to resume it."""
    found = _RESUME_HINT.match(text)
    return found[1] if found else None


# --- claude, qwen and those that took over their format -----------------------------------------------------

_SUBSCRIPTION_SOURCES = frozenset({"none", "oauth"})


def _read_claude(event: Event) -> Facts:
    kind = event.get("type")
    session_id = text_at(event, "session_id")
    if kind == "system":
        is_retry = event.get("subtype") in ("api_retry", "retry")
        return Facts(
            session_id=session_id,
            auth_mode=_claude_auth(text_at(event, "apiKeySource")),
            status=_claude_retry_status(event) if is_retry else None,
            is_retry=is_retry,
        )
    if kind == "rate_limit_event":
        in_overage = member(event, "rate_limit_info", "isUsingOverage") is True
        return Facts(session_id=session_id, auth_mode="overage" if in_overage else None)
    if kind == "result":
        return Facts(
            session_id=session_id,
            turn_tokens=_sum_at(event.get("usage"), "input_tokens", "cache_creation_input_tokens", "output_tokens"),
            run_tokens=_claude_run_tokens(event.get("modelUsage")),
            ending=_claude_ending(event),
        )
    return NOTHING


def _claude_run_tokens(models: object) -> int | None:
    if not isinstance(models, dict) or not models:
        return None
    counts = [_sum_at(model, "inputTokens", "cacheCreationInputTokens", "outputTokens") for model in models.values()]
    return sum(count for count in counts if count is not None)


def _claude_auth(source: str | None) -> AuthMode | None:
    if source is None:
        return None
    return "subscription" if source in _SUBSCRIPTION_SOURCES else "api_key"


def _claude_retry_status(event: Event) -> int | None:
    """claude has it in the event itself, qwen keeps what belongs to a system event in its `data`."""
    names = ("error_status", "status", "status_code", "statusCode", "http_status")
    for holder in (event, event.get("data")):
        for name in names:
            status = number_at(holder, name)
            if status is not None:
                return status
    return None


def _claude_ending(event: Event) -> Ending:
    """`subtype: success` means nothing beside `is_error`; qwen's `is_error: false` nothing beside its text."""
    text = text_at(event, "result") or text_at(event, "error", "message") or ""
    stopped = (text_at(event, "terminal_reason") or "").startswith("aborted")
    failed = bool(event.get("is_error")) or str(event.get("subtype")).startswith("error")
    return Ending(
        ok=not (failed or stopped or _ERROR_AS_ANSWER.match(text)),
        interrupted=stopped,
        status=number_at(event, "api_error_status") or status_in_text(text),
    )


# --- codex ---------------------------------------------------------------------------------------------------


def _read_codex(event: Event) -> Facts:
    kind = event.get("type")
    if kind == "thread.started":
        return Facts(session_id=text_at(event, "thread_id"))
    if kind == "turn.completed":
        tokens = _sum_at(event.get("usage"), "input_tokens", "output_tokens")
        return Facts(turn_tokens=tokens, ending=Ending(ok=True))
    if kind == "turn.failed":
        return Facts(ending=Ending(ok=False, status=_status_in_codex(text_at(event, "error", "message"))))
    if kind == "error":
        message = text_at(event, "message") or ""
        status = _status_in_codex(message)
        if _RECONNECTING.match(message):
            return Facts(is_retry=True, status=status)
        return Facts(ending=Ending(ok=False, status=status))
    return NOTHING


_CODEX_STATUS = re.compile(r"(?:last|unexpected) status:? ([1-5]\d\d)\b")


def _status_in_codex(message: str | None) -> int | None:
    found = _CODEX_STATUS.search(message or "")
    return int(found[1]) if found else None


# --- gemini --------------------------------------------------------------------------------------------------


def _read_gemini(event: Event) -> Facts:
    kind = event.get("type")
    session_id = text_at(event, "session_id")
    if kind == "init":
        return Facts(session_id=session_id)
    is_document = kind is None and ("response" in event or "error" in event)
    if kind != "result" and not is_document:
        return NOTHING
    error = event.get("error")
    return Facts(
        session_id=session_id,
        turn_tokens=_gemini_tokens(event.get("stats")),
        ending=Ending(
            ok=not error and event.get("status", "success") == "success",
            status=number_at(error, "code") or status_in_text(text_at(error, "message") or ""),
        ),
    )


def _gemini_tokens(stats: object) -> int | None:
    total = _sum_at(stats, "input_tokens", "output_tokens")
    models = member(stats, "models")
    if total is not None or not isinstance(models, dict):
        return total
    counts = [number_at(model, "tokens", "total") for model in models.values()]
    return sum(count for count in counts if count is not None)


# --- opencode ------------------------------------------------------------------------------------------------


def _read_opencode(event: Event) -> Facts:
    kind = event.get("type")
    session_id = text_at(event, "sessionID")
    if kind == "step_finish":
        reason = text_at(event, "part", "reason")
        return Facts(
            session_id=session_id,
            turn_tokens=_sum_at(member(event, "part", "tokens"), "input", "output", "reasoning"),
            ending=None if reason == "tool-calls" else Ending(ok=reason in ("stop", "end_turn")),
        )
    if kind == "error":
        stopped = text_at(event, "error", "name") == "MessageAbortedError"
        status = number_at(event, "error", "data", "statusCode")
        return Facts(session_id=session_id, ending=Ending(ok=False, interrupted=stopped, status=status))
    is_retry = kind == "session.status" and member(event, "properties", "status", "type") == "retry"
    return Facts(session_id=session_id, is_retry=is_retry)


# --- copilot -------------------------------------------------------------------------------------------------


def _read_copilot(event: Event) -> Facts:
    kind = event.get("type")
    if kind == "result":
        ok = event.get("exitCode") == 0
        return Facts(session_id=text_at(event, "sessionId"), ending=Ending(ok=ok))
    if kind == "abort":
        return Facts(ending=Ending(ok=False, interrupted=True))
    if kind in ("session.error", "model.call_failure"):
        return Facts(status=number_at(event, "data", "statusCode"), auth_mode=_copilot_auth(event))
    if kind == "model.call_final_result":
        return Facts(auth_mode=_copilot_auth(event))
    if kind == "session.start":
        return Facts(session_id=text_at(event, "data", "sessionId"))
    if kind == "assistant.usage":
        return Facts(turn_tokens=_sum_at(event.get("data"), "inputTokens", "outputTokens"))
    return Facts(is_retry=kind == "assistant.turn_retry")


def _copilot_auth(event: Event) -> AuthMode | None:
    """An own key (BYOK) is billed per token; without one it is the Copilot plan."""
    own_key = member(event, "data", "isByok")
    if own_key is None:
        return None
    return "api_key" if own_key else "subscription"


_CLAUDE = Dialect(
    quiet=frozenset({"assistant", "user", "stream_event", "tool_call", "thinking"}),
    progress=frozenset({"assistant"}),
    news=frozenset({"system", "result", "rate_limit_event"}),
    marks=frozenset({"session_id", "uuid", "rate_limit_info", "is_error", "retry_delay_ms"}),
    read=_read_claude,
)
_CODEX = Dialect(
    quiet=frozenset({"item.started", "item.updated", "item.completed", "turn.started"}),
    progress=frozenset({"item.started", "item.updated", "item.completed"}),
    news=frozenset({"thread.started", "turn.started", "turn.completed", "turn.failed", "error"}),
    marks=frozenset({"thread_id", "usage", "error", "message"}),
    read=_read_codex,
    fails_aloud=True,
)
_GEMINI = Dialect(
    quiet=frozenset({"message", "tool_use", "tool_result"}),
    progress=frozenset({"message", "tool_use"}),
    news=frozenset({"init", "result", "error"}),
    marks=frozenset({"timestamp", "session_id", "stats"}),
    read=_read_gemini,
    streams_text=True,
)
_OPENCODE = Dialect(
    quiet=frozenset({"text", "reasoning", "tool_use"}),
    progress=frozenset({"text", "reasoning", "tool_use"}),
    news=frozenset({"step_start", "step_finish", "error"}),
    marks=frozenset({"sessionID"}),
    read=_read_opencode,
)
_COPILOT = Dialect(
    quiet=frozenset(
        {
            "assistant.idle",
            "assistant.message",
            "assistant.message_delta",
            "assistant.message_start",
            "assistant.reasoning",
            "assistant.reasoning_delta",
            "assistant.streaming_delta",
            "assistant.turn_end",
            "assistant.turn_start",
            "model.call_finished",
            "model.call_start",
            "session.skills_loaded",
            "session.tools_updated",
            "tool.execution_complete",
            "tool.execution_partial_result",
            "tool.execution_start",
            "user.message",
        }
    ),
    progress=frozenset({"assistant.message", "assistant.message_delta", "tool.execution_start"}),
    news=frozenset(
        {
            "abort",
            "assistant.turn_retry",
            "assistant.usage",
            "model.call_failure",
            "model.call_final_result",
            "result",
            "session.error",
            "session.mcp_servers_loaded",
            "session.start",
        }
    ),
    marks=frozenset({"data", "sessionId"}),
    read=_read_copilot,
)
_UNKNOWN = Dialect(
    quiet=_CLAUDE.quiet,
    progress=_CLAUDE.progress,
    news=_CLAUDE.news,
    marks=_CLAUDE.marks,
    read=_read_claude,
    ends_with_result=False,
)

_DIALECTS = {
    "claude-code": _CLAUDE,
    "codex": _CODEX,
    "copilot-cli": _COPILOT,
    "cursor-agent": _CLAUDE,
    "gemini-cli": _GEMINI,
    "opencode": _OPENCODE,
    "qwen-code": _CLAUDE,
}
_TEXT_ONLY = frozenset({"aider", "amp", "antigravity-cli", "crush", "droid", "grok-cli", "kimi-cli", "openclaw"})


def is_known(provider: str) -> bool:
    """Whether this is an agent CLI whose stderr is its own words, and not just any command."""
    return provider in _DIALECTS or provider in _TEXT_ONLY


def is_own_event(dialect: Dialect, event: Event) -> bool:
    """Whether an object that stands outside a running stream is the CLI's own event, and not somebody's JSON."""
    kind = event.get("type")
    if kind is None:
        return dialect is _GEMINI and ("stats" in event or text_at(event, "error", "message") is not None)
    is_event = isinstance(kind, str) and (kind in dialect.news or kind in dialect.quiet)
    return is_event and not dialect.marks.isdisjoint(event)


def dialect_of(provider: str) -> Dialect:
    """The dialect of a CLI; one that is not known is read like the format most have copied."""
    return _DIALECTS.get(provider, _UNKNOWN)

"""GitHub Copilot CLI: its sentence, its event stream and its hint how to resume a conversation."""

import re
from collections.abc import Sequence

from paceline.agents import dialect
from paceline.core.values.session_output import Tokens
from paceline.detect.json_objects import Event, count_at, member, number_at, sum_at, text_at
from paceline.detect.observation import FIVE_MINUTES, KIND_OF_ERROR_NAME, Stage, kind_of_status
from paceline.detect.provider import LimitReading, Provider, Rule, rule
from paceline.detect.times import to_number


def _entries(event: Event) -> Sequence[dialect.TranscriptEntry]:
    """Read what the model said, a tool call, or its result. The pieces of a message are repeated by the whole one."""
    data = event.get("data")
    match event.get("type"):
        case "assistant.message":
            return dialect.said(text_at(data, "content"))
        case "tool.execution_start":
            return [dialect.tool_call(text_at(data, "toolName"), member(data, "arguments"))]
        case "tool.execution_complete":
            output = text_at(data, "error", "message") or text_at(data, "error") or text_at(data, "result", "content")
            return dialect.tool_result(output or "", is_error=member(data, "success") is False)
        case "session.info" if text_at(data, "infoType") != "model_retry":  # that one has an event of its own
            message = text_at(data, "message")
            return [dialect.notice(message)] if message else ()
    return ()


RULES: tuple[Rule, ...] = (
    rule(
        "copilot.restricted",
        "quota",
        r"rate limit that restricts the number of",
        anywhere=True,
        short_wait=FIVE_MINUTES,
    ),
    # It names the burst of one request, however long it is.
    rule(
        "copilot.request-limited",
        "rate",
        r"<3>your request was rate-limited",
        r"<3>votre requête a été limitée",
        stage=Stage.EXACT,
    ),
)


def _read_failed_call(event: Event) -> LimitReading | None:
    data = event.get("data")
    if not isinstance(data, dict):
        return None
    kind = KIND_OF_ERROR_NAME.get(str(data.get("reason"))) or kind_of_status(to_number(data.get("statusCode")))
    return LimitReading(kind=kind, rule=f"event.{event['type']}") if kind else None


def _read_facts(event: Event) -> dialect.Facts:
    kind = event.get("type")
    if kind == "result":
        ok = event.get("exitCode") == 0
        return dialect.Facts(session_id=text_at(event, "sessionId"), ending=dialect.Ending(ok=ok))
    if kind == "tool.execution_complete":
        return dialect.Facts(denials=_denials(event.get("data")))
    if kind == "abort":
        return dialect.Facts(ending=dialect.Ending(ok=False, interrupted=True))
    if kind in ("session.error", "model.call_failure"):
        said = text_at(event, "data", "message") or text_at(event, "data", "error")
        return dialect.Facts(status=number_at(event, "data", "statusCode"), auth_mode=_auth_mode(event), error=said)
    if kind == "model.call_final_result":
        return dialect.Facts(auth_mode=_auth_mode(event), model=text_at(event, "data", "model"), model_turns=1)
    if kind == "session.start":
        return dialect.Facts(session_id=text_at(event, "data", "sessionId"))
    if kind == "assistant.usage":
        data = event.get("data")
        return dialect.Facts(turn_tokens=sum_at(data, "inputTokens", "outputTokens"), usage=_usage(data))
    return dialect.Facts(is_retry=kind == "assistant.turn_retry")


def _usage(data: object) -> dialect.ReportedUsage:
    """Read the tokens of one call. The input includes what was cached, unless it is smaller than that."""
    cache_read, cache_write = count_at(data, "cacheReadTokens"), count_at(data, "cacheWriteTokens")
    sent = count_at(data, "inputTokens")
    cached = cache_read + cache_write
    tokens = Tokens(
        input=sent - cached if cached <= sent else sent,
        output=count_at(data, "outputTokens"),
        cache_read=cache_read,
        cache_write=cache_write,
    )
    return dialect.ReportedUsage(by_model={text_at(data, "model") or "": tokens}, is_request=True)


def _auth_mode(event: Event) -> dialect.AuthMode | None:
    """Return who pays: an own key (BYOK) is billed per token, without one it is the Copilot plan."""
    own_key = member(event, "data", "isByok")
    if own_key is None:
        return None
    return "api_key" if own_key else "subscription"


_DENIED = re.compile(
    r"could not request permission|[Pp]ermission (?:was )?denied by|denied by (?:the user|a rule|policy)"
)


def _denials(data: object) -> tuple[dialect.Denial, ...]:
    """Read a tool call that failed because nobody could be asked for permission."""
    said = text_at(data, "error", "message") or text_at(data, "error") or ""
    is_denied = text_at(data, "error", "code") in ("denied", "rejected") or bool(_DENIED.search(said))
    if member(data, "success") is True or not is_denied:
        return ()
    return (dialect.Denial(tool=text_at(data, "toolName") or "", call=text_at(data, "toolCallId") or ""),)


_QUIET = """
    assistant.idle assistant.message assistant.message_delta assistant.message_start assistant.reasoning
    assistant.reasoning_delta assistant.streaming_delta assistant.turn_end assistant.turn_start model.call_finished
    model.call_start session.info session.skills_loaded session.tools_updated tool.execution_complete
    tool.execution_partial_result tool.execution_start user.message"""
_NEWS = """
    abort assistant.turn_retry assistant.usage model.call_failure model.call_final_result result session.error
    session.mcp_servers_loaded session.start"""
FORMAT = dialect.Dialect(
    quiet=frozenset(_QUIET.split()),
    progress=frozenset({"assistant.message", "assistant.message_delta", "tool.execution_start"}),
    news=frozenset(_NEWS.split()),
    marks=frozenset({"data", "sessionId"}),
    read=_read_facts,
    entries=_entries,
    answers=dialect.AnswerEvents(types=frozenset({"assistant.message"}), path=("data", "content")),
    denial_marks=(b"request permission", b"denied", b'"rejected"'),
    turns=dialect.TurnEvents(
        calls=frozenset({"tool.execution_start"}),
        results=frozenset({"tool.execution_complete"}),
        speech=frozenset({"assistant.message"}),
    ),
)

PROVIDER = Provider(
    name="copilot",
    rules=RULES,
    events={"assistant.turn_retry": _read_failed_call, "model.call_failure": _read_failed_call},
    errors=frozenset({"session.error"}),
)
CLIS = (
    dialect.AgentCli(
        name="copilot-cli",
        dialect=FORMAT,
        notices=dialect.NoticeRules(resume=r"Resume {1,12}copilot --resume=([\w-]{8,64})$"),
    ),
)

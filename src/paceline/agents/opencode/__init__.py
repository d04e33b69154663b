"""opencode: its event stream, its session status, its log on stderr and its silent waits."""

import re
from collections.abc import Sequence

from paceline.agents import dialect
from paceline.core.values.session_output import Tokens
from paceline.detect.json_objects import Event, count_at, member, number_at, sum_at, text_at
from paceline.detect.provider import LimitReading, Provider


def _entries(event: Event) -> Sequence[dialect.TranscriptEntry]:
    part = event.get("part")
    if event.get("type") == "text":
        return dialect.said(text_at(part, "text"))
    if event.get("type") != "tool_use":
        return ()
    is_invalid = text_at(part, "tool") == "invalid"  # the model called a tool that it was not offered
    name = text_at(part, "state", "input", "tool") if is_invalid else text_at(part, "tool")
    call = dialect.tool_call(name, None if is_invalid else member(part, "state", "input"))
    output = text_at(part, "state", "error") or text_at(part, "state", "output") or ""
    return [call, *dialect.tool_result(output, is_error=is_invalid or text_at(part, "state", "status") == "error")]


def _read_session_status(event: Event) -> LimitReading | None:
    """Read the session's status: `retry` carries the provider's message."""
    properties = event.get("properties")
    status = properties.get("status") if isinstance(properties, dict) else None
    if not isinstance(status, dict) or status.get("type") != "retry":
        return None
    return LimitReading(text=str(status.get("message", "")), rule="event.session-retry")


def _read_facts(event: Event) -> dialect.Facts:
    kind = event.get("type")
    session_id = text_at(event, "sessionID")
    if kind == "step_finish":
        reason = text_at(event, "part", "reason")
        return dialect.Facts(
            session_id=session_id,
            turn_tokens=sum_at(member(event, "part", "tokens"), "input", "output", "reasoning"),
            usage=_usage(member(event, "part", "tokens")),
            model_turns=1,
            ending=None if reason == "tool-calls" else dialect.Ending(ok=reason in ("stop", "end_turn")),
        )
    if kind == "tool_use":
        return dialect.Facts(denials=_denials(event.get("part")))
    if kind == "error":
        stopped = text_at(event, "error", "name") == "MessageAbortedError"
        status = number_at(event, "error", "data", "statusCode")
        said = text_at(event, "error", "data", "message") or text_at(event, "error", "message")
        return dialect.Facts(
            session_id=session_id,
            ending=dialect.Ending(ok=False, interrupted=stopped, status=status),
            error=said or text_at(event, "error", "name") or text_at(event, "error"),
        )
    is_retry = kind == "session.status" and member(event, "properties", "status", "type") == "retry"
    return dialect.Facts(session_id=session_id, is_retry=is_retry)


def _usage(tokens: object) -> dialect.ReportedUsage | None:
    """Read the tokens of one step. The input is without what was cached; reasoning is priced as output."""
    if not isinstance(tokens, dict):
        return None
    step = Tokens(
        input=count_at(tokens, "input"),
        output=count_at(tokens, "output") + count_at(tokens, "reasoning"),
        cache_read=count_at(tokens, "cache", "read"),
        cache_write=count_at(tokens, "cache", "write"),
    )
    return dialect.ReportedUsage(by_model={"": step}, is_request=True)


_DENIED = re.compile(r"rejected permission to use|specified a rule which prevents you from using")


_HIDDEN = re.compile(
    r"tried to call unavailable tool '(bash|edit|write|apply_patch)'\. Available tools: ([\w, -]{0,2000})"
)
_EDITING = frozenset({"edit", "write", "apply_patch"})


def _hidden_tool(said: str) -> str | None:
    """Return the tool that the permissions hide from the model. Of the tools that edit, a model is offered one kind."""
    found = _HIDDEN.search(said)
    if found is None:
        return None
    offered = set(found[2].split(", "))
    return None if found[1] in _EDITING and offered & _EDITING else found[1]


def _denials(part: object) -> tuple[dialect.Denial, ...]:
    """Read a tool call that was rejected: nobody can be asked in a run without a terminal."""
    if (hidden := _hidden_tool(text_at(part, "state", "input", "error") or "")) is not None:
        return (dialect.Denial(tool=hidden, call=text_at(part, "callID") or ""),)
    if text_at(part, "state", "status") != "error" or not _DENIED.search(text_at(part, "state", "error") or ""):
        return ()
    return (dialect.Denial(tool=text_at(part, "tool") or "", call=text_at(part, "callID") or ""),)


_LOG_LINE = re.compile(r"timestamp=\S{1,40} level=[A-Z]{4,6} ")
_FAILED_CALL = re.compile(r'message="stream error"(.{0,600}?) error\.error="((?:[^"\\]|\\.){1,1400})')
_OTHER_MODEL = "small=true"
"""Titles of conversations are written by a smaller model, whose limits are its own."""
_ESCAPED = re.compile(r"\\(.)")


def _notice_in_log(line: str) -> str | None:
    """Return a notice, or the error of a failed call of the model that does the work, of a run with `--print-logs`.

    The log is the only place where it reports a call before it gives up. Its other entries are about servers of tools,
    plugins and the like.
    """
    if not _LOG_LINE.match(line):
        return line
    failed = _FAILED_CALL.search(line)
    if failed is None or _OTHER_MODEL in failed[1]:
        return None
    return _ESCAPED.sub(_unescaped, failed[2])


def _unescaped(found: re.Match[str]) -> str:
    return " " if found[1] in "nrt" else found[1]


FORMAT = dialect.Dialect(
    quiet=frozenset({"text", "reasoning", "tool_use"}),
    progress=frozenset({"text", "reasoning", "tool_use"}),
    news=frozenset({"step_start", "step_finish", "error"}),
    marks=frozenset({"sessionID"}),
    read=_read_facts,
    entries=_entries,
    answers=dialect.AnswerEvents(types=frozenset({"text"}), path=("part", "text")),
    denial_marks=(b"rejected permission", b"rule which prevents", b"unavailable tool"),
    # It prints a tool call once the tool is done. Only a step after which the model is asked again ends a turn here.
    turns=dialect.TurnEvents(results=frozenset({"step_finish"}), result=(b'"reason":"tool-calls"',)),
)

PROVIDER = Provider(name="opencode", events={"session.status": _read_session_status})
CLIS = (
    dialect.AgentCli(
        name="opencode",
        dialect=FORMAT,
        notices=dialect.NoticeRules(
            retry=r"^AI_APICallError: ",
            denied=r"permission requested: ([\w.-]{1,60})[^\n]{0,400}auto-rejecting",
        ),
        notice_in_log=_notice_in_log,
        # It gives up short waits within 80 s but sleeps through an hours-long Retry-After without an event.
        silent_wait="quota_window",
    ),
)

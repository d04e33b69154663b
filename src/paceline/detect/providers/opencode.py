"""opencode: its event stream, its session status and its silent waits."""

from paceline.detect.parsing.json_objects import Event, member, number_at, sum_at, text_at
from paceline.detect.provider import AgentCli, Dialect, EventReading, EventRules, Provider
from paceline.detect.run_facts import Ending, Facts


def _read_session_status(event: Event) -> EventReading | None:
    """Read the session's status: `retry` carries the provider's message."""
    properties = event.get("properties")
    status = properties.get("status") if isinstance(properties, dict) else None
    if not isinstance(status, dict) or status.get("type") != "retry":
        return None
    return EventReading(text=str(status.get("message", "")), rule="event.session-retry")


def _read_facts(event: Event) -> Facts:
    kind = event.get("type")
    session_id = text_at(event, "sessionID")
    if kind == "step_finish":
        reason = text_at(event, "part", "reason")
        return Facts(
            session_id=session_id,
            turn_tokens=sum_at(member(event, "part", "tokens"), "input", "output", "reasoning"),
            ending=None if reason == "tool-calls" else Ending(ok=reason in ("stop", "end_turn")),
        )
    if kind == "error":
        stopped = text_at(event, "error", "name") == "MessageAbortedError"
        status = number_at(event, "error", "data", "statusCode")
        return Facts(session_id=session_id, ending=Ending(ok=False, interrupted=stopped, status=status))
    is_retry = kind == "session.status" and member(event, "properties", "status", "type") == "retry"
    return Facts(session_id=session_id, is_retry=is_retry)


FORMAT = Dialect(
    quiet=frozenset({"text", "reasoning", "tool_use"}),
    progress=frozenset({"text", "reasoning", "tool_use"}),
    news=frozenset({"step_start", "step_finish", "error"}),
    marks=frozenset({"sessionID"}),
    read=_read_facts,
)

PROVIDER = Provider(
    name="opencode",
    events=EventRules(readers={"session.status": _read_session_status}),
    clis=(
        # It gives up short waits within 80 s but sleeps through an hours-long Retry-After without a word.
        AgentCli(name="opencode", dialect=FORMAT, silent_wait="quota_window"),
    ),
)

"""The format of GitHub Copilot CLI: whole messages, and tools that start and complete."""

from collections.abc import Sequence

from paceline.detect.parsing.json_objects import Event, member, text_at
from paceline.detect.transcripts.entry import TranscriptEntry, notice, said, tool_call, tool_result


def entries(event: Event) -> Sequence[TranscriptEntry]:
    """Read what the model said, a tool call, or its result. The pieces of a message are repeated by the whole one."""
    data = event.get("data")
    match event.get("type"):
        case "assistant.message":
            return said(text_at(data, "content"))
        case "tool.execution_start":
            return [tool_call(text_at(data, "toolName"), member(data, "arguments"))]
        case "tool.execution_complete":
            output = text_at(data, "error", "message") or text_at(data, "error") or text_at(data, "result", "content")
            return tool_result(output or "", is_error=member(data, "success") is False)
        case "session.info" if text_at(data, "infoType") != "model_retry":  # that one has an event of its own
            message = text_at(data, "message")
            return [notice(message)] if message else ()
    return ()

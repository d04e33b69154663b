"""The format of Gemini CLI: messages in pieces, tool calls and results."""

from collections.abc import Sequence

from paceline.detect.parsing.json_objects import Event, text_at
from paceline.detect.transcripts.entry import TranscriptEntry, said, tool_call, tool_result


def entries(event: Event) -> Sequence[TranscriptEntry]:
    """Read a piece of what the model said, a tool call, or its result."""
    match event.get("type"):
        case "message" if event.get("role") == "assistant":
            content = text_at(event, "content") or ""
            if event.get("delta") is True:
                return [TranscriptEntry(kind="said", text=content, is_piece=True)] if content else ()
            return said(content)
        case "tool_use":
            return [tool_call(text_at(event, "tool_name"), event.get("parameters"))]
        case "tool_result":
            output = text_at(event, "output") or text_at(event, "error", "message") or ""
            return tool_result(output, is_error=event.get("status") == "error")
    return ()

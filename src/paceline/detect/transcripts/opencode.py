"""The format of opencode: texts, and tools with their results in one event."""

from collections.abc import Sequence

from paceline.detect.parsing.json_objects import Event, member, text_at
from paceline.detect.transcripts.entry import TranscriptEntry, said, tool_call, tool_result


def entries(event: Event) -> Sequence[TranscriptEntry]:
    """Read what the model said, or a tool call with its result."""
    part = event.get("part")
    if event.get("type") == "text":
        return said(text_at(part, "text"))
    if event.get("type") != "tool_use":
        return ()
    is_invalid = text_at(part, "tool") == "invalid"  # the model called a tool that it was not offered
    name = text_at(part, "state", "input", "tool") if is_invalid else text_at(part, "tool")
    call = tool_call(name, None if is_invalid else member(part, "state", "input"))
    output = text_at(part, "state", "error") or text_at(part, "state", "output") or ""
    return [call, *tool_result(output, is_error=is_invalid or text_at(part, "state", "status") == "error")]

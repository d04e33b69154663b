"""The format of Claude Code, which Qwen Code and others have copied: messages with parts."""

from collections.abc import Sequence

from paceline.detect.parsing.json_objects import Event, member, text_at
from paceline.detect.transcripts.entry import TranscriptEntry, notice, said, text_of_content, tool_call, tool_result


def entries(event: Event) -> Sequence[TranscriptEntry]:
    """Read what the model said, the tools it called, and their results."""
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


def _synthetic(content: object) -> list[TranscriptEntry]:
    """Return the text of an answer that the CLI made up to show an error."""
    text = "\n".join(str(member(part, "text") or "") for part in _parts(content)).strip()
    return [notice(text, is_error=True)] if text else []


def _spoken(part: object) -> list[TranscriptEntry]:
    if member(part, "type") == "text":
        return said(text_at(part, "text"))
    if member(part, "type") in ("tool_use", "server_tool_use"):
        return [tool_call(text_at(part, "name"), member(part, "input"))]
    return []


def _result(part: object) -> list[TranscriptEntry]:
    return tool_result(text_of_content(member(part, "content")), is_error=member(part, "is_error") is True)

"""The format of Codex: items that start and complete."""

from collections.abc import Sequence

from paceline.detect.parsing.json_objects import Event, member, text_at
from paceline.detect.transcripts.entry import TranscriptEntry, notice, said, text_of_content, tool_call, tool_result

_SILENT = frozenset({"reasoning", "todo_list"})
_HALVES = frozenset({"command_execution", "mcp_tool_call"})
"""Items that are shown as a call when they start, and as a result when they complete."""


def entries(event: Event) -> Sequence[TranscriptEntry]:
    """Read an item: a message, a command, a changed file, a search or an error."""
    kind, item = event.get("type"), event.get("item")
    what = text_at(item, "type")
    if what is None or what in _SILENT or kind not in ("item.started", "item.completed"):
        return ()
    if kind == "item.started":
        return [_call(item, what)] if what in _HALVES else ()
    match what:
        case "agent_message":
            return said(text_at(item, "text"))
        case "error":
            message = text_at(item, "message")
            return [notice(message, is_error=True)] if message else ()
        case "command_execution" | "mcp_tool_call":
            return _result(item)
        case _:
            return [_call(item, what), *(_result(item) if member(item, "status") in _FAILED else ())]


_FAILED = ("failed", "declined")


def _call(item: object, what: str) -> TranscriptEntry:
    match what:
        case "command_execution":
            return tool_call("shell", text_at(item, "command"))
        case "mcp_tool_call":
            name = ".".join(filter(None, (text_at(item, "server"), text_at(item, "tool"))))
            return tool_call(name, member(item, "arguments"))
        case "file_change":
            changes = member(item, "changes")
            paths = [text_at(change, "path") for change in changes] if isinstance(changes, list) else []
            return tool_call("apply_patch", ", ".join(path for path in paths if path))
        case _:
            return tool_call(what, {name: value for name, value in _members(item) if name not in ("id", "type")})


def _members(item: object) -> list[tuple[str, object]]:
    return list(item.items()) if isinstance(item, dict) else []


def _result(item: object) -> list[TranscriptEntry]:
    output = text_at(item, "aggregated_output") or text_at(item, "error", "message")
    output = output or text_of_content(member(item, "result", "content"))
    exit_code = member(item, "exit_code")
    is_error = member(item, "status") in _FAILED or exit_code not in (0, None)
    if is_error and exit_code is not None and not output:
        output = f"exit code {exit_code}"
    return tool_result(output, is_error=is_error)

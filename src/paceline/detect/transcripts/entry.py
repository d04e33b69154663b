"""One entry of a transcript: something said, a tool call, its result, or a notice.

Here: the value, and how tool calls and results are shortened. Never here: bytes, terminals, or the events of one CLI.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from paceline.detect.parsing.json_objects import Event, member

EntryKind = Literal["said", "tool", "result", "notice", "plain"]
"""`plain` is a line that is no event of the CLI, as it was printed."""
RESULT_LINES = 8
"""Lines of a result that are shown: enough to recognise an error, and a listing does not bury what was said."""
LONGEST_LINE = 240
"""Characters of a tool's argument or of a line of its result: some lines of a terminal."""
_ARGUMENTS = (
    "command",
    "cmd",
    "script",
    "file_path",
    "filePath",
    "absolute_path",
    "notebook_path",
    "path",
    "pattern",
    "query",
    "url",
    "dir_path",
    "description",
    "prompt",
)
"""Members that name what a tool call is about, the most specific first."""
_CUT = "…"


class TranscriptEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry."""

    kind: EntryKind
    text: str
    is_error: bool = False
    is_piece: bool = False
    """Whether it is a part of something said, and the next piece continues it on the same line."""
    resets_at: float | None = None
    """When the limit ends that a notice is about."""


EntryReader = Callable[[Event], Sequence[TranscriptEntry]]
"""Returns what an event of one CLI shows of the agent's work; nothing for most events."""


def no_entries(_: Event) -> Sequence[TranscriptEntry]:
    """Return nothing, for a CLI whose events are not read."""
    return ()


def said(text: str | None) -> list[TranscriptEntry]:
    """Return something said, unless it is empty."""
    return [TranscriptEntry(kind="said", text=text.strip("\n"))] if text and text.strip() else []


def tool_call(name: str | None, arguments: object) -> TranscriptEntry:
    """Return a call of a tool with its most specific argument."""
    argument = arguments if isinstance(arguments, str) else _main_argument(arguments)
    line = " ".join(argument[: 2 * LONGEST_LINE].split())
    shown = f"{clipped(name or 'tool')} {clipped(line)}".rstrip()
    return TranscriptEntry(kind="tool", text=shown)


def tool_result(text: str, *, is_error: bool = False) -> list[TranscriptEntry]:
    """Return the first lines of a result. Nothing for an empty one, unless it is an error."""
    if not text.strip():
        return [TranscriptEntry(kind="result", text="failed", is_error=True)] if is_error else []
    return [TranscriptEntry(kind="result", text=first_lines(text), is_error=is_error)]


def notice(text: str, *, is_error: bool = False, resets_at: float | None = None) -> TranscriptEntry:
    """Return a notice with a bounded length."""
    return TranscriptEntry(kind="notice", text=first_lines(text), is_error=is_error, resets_at=resets_at)


def first_lines(text: str) -> str:
    """Return the first lines of a text, each with a bounded length."""
    lines = text.strip("\n").split("\n", RESULT_LINES)
    shown = [clipped(line.rstrip()) for line in lines[:RESULT_LINES]]
    if len(lines) > RESULT_LINES:
        left = lines[-1].count("\n") + 1
        shown.append(f"{_CUT} {left:,} more line{'' if left == 1 else 's'}")
    return "\n".join(shown)


def text_of_content(content: object) -> str:
    """Return the text of a content that is a text, or a list of parts of which some are texts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [member(part, "text") for part in parts]
    return "\n".join(text for text in texts if isinstance(text, str))


def clipped(line: str) -> str:
    """Return a line with a bounded length."""
    return line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 1] + _CUT


def _main_argument(arguments: object) -> str:
    """Return the argument that a person would name, or else the first text among them."""
    if not isinstance(arguments, dict):
        return ""
    named = [arguments[name] for name in _ARGUMENTS if name in arguments]
    for value in (*named, *arguments.values()):
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list) and value and all(isinstance(part, str) for part in value):
            return " ".join(value)
    return ""

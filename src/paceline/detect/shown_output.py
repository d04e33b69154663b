"""What a screen shows of others: files, searches and answers that an agent or a person read, and an agent's words.

Here: leaving out what stands below a command, a tool or an agent's bullet. Never here: what the rest means.
"""

import re

# A prompt with a command that prints what others wrote. What an agent CLI prints below its own command counts.
_COMMAND = re.compile(
    r"[ \t]{0,40}(?:[\w.@~/:()\[\]-]{1,60} ?){0,2}[$❯%] {1,2}(?:sudo )?(?:cat|bat|less|more|head|tail|rg|grep|egrep|ag"
    r"|ack|git|sed|awk|jq|curl|wget|find|diff|echo|printf|strings|nl|journalctl|kubectl|gh|pytest|npm|pnpm|yarn|cargo"
    r"|make|ls|tee|xxd|view|python\d?|node|ruby|php|go|java|docker|terraform|helm|ssh)\b"
)
_PROMPT = re.compile(r"[ \t]{0,40}(?:[\w.@~/:()\[\]-]{1,60} ?){0,2}[$❯%>](?: |$)")
_TOOL = re.compile(
    r"[ \t]{0,40}[⏺●•] ?(?!API|Error)[A-Z]\w{1,20}(?: [A-Z]\w{1,20})?\("
    r"|[ \t]{0,40}[⏺●] ?[\w.-]{1,60} - [\w.-]{1,60} \(MCP\)"
    r"|[ \t]{0,40}[⏺●•] (?:Ran|Explored|Searched|Read|Called|Edited|Added)\b"
)
_MARK = re.compile(r"[ \t]{0,40}[⏺●•■✕✗✻⚠╭]")
# What an agent says continues below its bullet. Where the bullet itself may be an error, so may be what is below it.
_SAID = re.compile(r"[ \t]{0,40}[⏺●•✦] ?(?=\w)")
_MAY_BE_OWN = re.compile(
    r"error|fail|limit|quota|usage|credit|balance|capacity|overload|rate|throttl|retry|reset|\b[45]\d\d\b|log ?in|key"
    r"|upgrade|plan|too many|demand|busy|unavailable|exhaust|exceed|billing|payment|限|额|繁忙|频",
    re.I,
)
_FENCE = re.compile(r"[ \t]{0,12}(?:```|~~~)")
_RESULT = re.compile(r"[ \t]{0,40}[⎿└]")
_SHOWS = re.compile(r"[$❯%⎿└⏺●•✦]|```|~~~")


def without_shown_output(text: str) -> str:
    """Return the text without what stands below a command, a tool or an agent's words, and between fences."""
    if not _SHOWS.search(text):
        return text
    lines = text.split("\n")
    return "\n".join(line for line, is_shown in zip(lines, _shown(lines), strict=True) if not is_shown)


def with_blanks_for_shown_output(rows: list[str]) -> list[str]:
    """Return the rows of a screen, and empty ones in the place of what it shows of others."""
    if not _SHOWS.search("\n".join(rows)):
        return rows
    return ["" if is_shown else row for row, is_shown in zip(rows, _shown(rows), strict=True)]


def _shown(lines: list[str]) -> list[bool]:
    """Return for each line whether it is something that is shown."""
    found = _fenced(lines)
    block: _Block | None = None
    for place, line in enumerate(lines):
        if found[place]:
            continue
        if block is not None and block.holds(line):
            found[place] = True
        else:
            block = _block_after(line)
    return found


def _fenced(lines: list[str]) -> list[bool]:
    """Return for each line whether it is a fence or between two. A single one has lost its partner."""
    found = [False] * len(lines)
    fences = [place for place, line in enumerate(lines) if _FENCE.match(line)]
    if len(fences) % 2 == 0:
        for first, last in zip(fences[::2], fences[1::2], strict=True):
            found[first : last + 1] = [True] * (last + 1 - first)
    return found


class _Block:
    """What stands below one command, one tool, or the first line of what an agent says."""

    def __init__(self, indent: int, *, is_tool: bool = False, is_said: bool = False) -> None:
        self._indent = indent
        self._is_tool = is_tool
        self._is_said = is_said
        self._results = 0

    def holds(self, line: str) -> bool:
        """Return whether the next line belongs to the block."""
        if not line.strip():
            return not self._is_tool
        indent = _indent(line)
        if self._is_said:
            return indent > self._indent and not _MARK.match(line) and not _RESULT.match(line)
        if self._is_tool:
            # A second result below one tool is the CLI's own: the tool had its say.
            self._results += bool(_RESULT.match(line))
            return indent > self._indent and self._results == 1
        if indent < self._indent or _PROMPT.match(line):
            return False
        return not (self._indent == 0 and _MARK.match(line))


def _block_after(line: str) -> _Block | None:
    if _COMMAND.match(line):
        return _Block(_indent(line))
    if _TOOL.match(line):
        return _Block(_indent(line), is_tool=True)
    return _Block(_indent(line), is_said=True) if _SAID.match(line) and not _MAY_BE_OWN.search(line) else None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())

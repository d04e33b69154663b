"""Output of commands that is shown on a screen: files, searches and answers that an agent or a person read.

Here: leaving out what stands below such a command. Never here: what the words that remain mean.
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
    r"[ \t]{0,40}[⏺●•] ?(?:Bash|Shell|Read|Grep|Search|Glob|Fetch|Web\w{0,12}|Update|Write|Edit)\("
    r"|[ \t]{0,40}• (?:Ran|Explored|Searched|Read|Called)\b"
)
_MARK = re.compile(r"[ \t]{0,40}[⏺●•■✕✗✻⚠╭]")
_RESULT = re.compile(r"[ \t]{0,40}[⎿└]")


def without_shown_output(text: str) -> str:
    """Return the text without what stands below a command or a tool that shows what others wrote."""
    if not any(mark in text for mark in "$❯%[⎿└]"):
        return text
    kept: list[str] = []
    block: _Block | None = None
    for line in text.split("\n"):
        if block is not None and block.holds(line):
            continue
        block = _block_after(line)
        kept.append(line)
    return "\n".join(kept)


class _Block:
    """What stands below one command or tool."""

    def __init__(self, indent: int, *, is_tool: bool) -> None:
        self._indent = indent
        self._is_tool = is_tool
        self._results = 0

    def holds(self, line: str) -> bool:
        """Return whether the next line belongs to the block."""
        if not line.strip():
            return not self._is_tool
        indent = _indent(line)
        if self._is_tool:
            # A second result below one tool is the CLI's own: the tool had its say.
            self._results += bool(_RESULT.match(line))
            return indent > self._indent and self._results == 1
        if indent < self._indent or _PROMPT.match(line):
            return False
        return not (self._indent == 0 and _MARK.match(line))


def _block_after(line: str) -> _Block | None:
    if _COMMAND.match(line):
        return _Block(_indent(line), is_tool=False)
    return _Block(_indent(line), is_tool=True) if _TOOL.match(line) else None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())

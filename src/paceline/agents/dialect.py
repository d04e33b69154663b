"""The dialect of an agent CLI: the form in which its module describes what it prints.

Here: the values that those modules fill in, the entries of a transcript, how tool calls and results are shortened for
people, and all CLIs as one value that the readers use. Never here: the name or the words of any CLI, and reading.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

from paceline.agents.stream.facts import Facts, Trouble
from paceline.agents.stream.flood import LineWords
from paceline.agents.stream.notices import STATUS_IN_ERROR, ErrorNotices, NoticePatterns, NoticeReader, NoticeRules
from paceline.detect.json_objects import Event, member
from paceline.detect.provider import ProviderSet

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


class AnswerEvents(msgspec.Struct, frozen=True, kw_only=True):
    """Which quiet events of a CLI hold what the model says."""

    types: frozenset[str]
    path: tuple[str, ...]
    """Where the text is in such an event."""
    item: str | None = None
    """The type of its item, where it has one."""
    ends: frozenset[str] = frozenset()
    """Types after which another message begins, for a CLI that prints a message in pieces."""


class TurnEvents(msgspec.Struct, frozen=True, kw_only=True):
    """How the stream of a CLI shows its tools at work."""

    calls: frozenset[str] = frozenset()
    """Event types in which the model calls tools."""
    call: tuple[bytes, ...] = ()
    """Bytes of which one is in such an event for each call. Without any the event is one call."""
    results: frozenset[str]
    """Event types which report that tools are done."""
    result: tuple[bytes, ...] = ()
    """Bytes of which one is in such an event for each tool. Without any the event reports one."""
    speech: frozenset[str] = frozenset()
    """Event types in which the model speaks. Tools that were called before are over, or continue in the background."""
    tool_items: frozenset[str] = frozenset()
    """The types of items that are tools, where events have items."""
    spoken_items: frozenset[str] = frozenset()


def _is_never_a_document(_: Event) -> bool:
    return False


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """How to read the event stream of one CLI."""

    quiet: frozenset[str]
    """Event types that hold only prose, tools or bookkeeping: never decoded further."""
    progress: frozenset[str]
    """Quiet types which show that the model answers: a limit met before is over."""
    news: frozenset[str]
    """The other event types that matter."""
    marks: frozenset[str]
    """Members of which each event with news has one, and JSON that an agent was asked to write has none."""
    read: Callable[[Event], Facts]
    entries: EntryReader = no_entries
    """Reads what an event shows of the agent's work, for the transcript."""
    denial_marks: tuple[bytes, ...] = ()
    """Bytes of which one is in each quiet event that reports a denied tool call. Those events are passed to `read`."""
    answers: AnswerEvents | None = None
    """Which quiet events hold what the model says. None: the event that ends a turn has its answer."""
    turns: TurnEvents | None = None
    """Which events show that the tools of a turn are done. None: the stream does not show it."""
    is_document: Callable[[Event], bool] = _is_never_a_document
    """Whether an object without a type is the CLI's own answer as one document."""
    ends_with_result: bool = True
    """Whether a healthy stream always closes with an event of its own, so that its absence means a stop."""
    fails_aloud: bool = False
    """Whether it always prints an error when it fails, so that an exit code alone means a stop."""
    streams_text: bool = False
    """Whether plain text is printed as it comes and closed with a line feed, so that its absence means a stop."""

    def is_own_event(self, event: Event) -> bool:
        """Return whether an object outside a running stream is the CLI's own event, and not an agent's JSON."""
        kind = event.get("type")
        if kind is None:
            return self.is_document(event)
        is_event = isinstance(kind, str) and (kind in self.news or kind in self.quiet)
        return is_event and not self.marks.isdisjoint(event)


class AgentCli(msgspec.Struct, frozen=True, kw_only=True):
    """One agent CLI, under the name that observations and agent profiles use for it."""

    name: str
    dialect: Dialect
    notices: NoticeRules = NoticeRules()
    stderr: Callable[[], NoticeReader] | None = None
    """Makes the reader of its stderr for one run. None: its stderr has notices like that of most CLIs."""
    stdout_notices: Callable[[], NoticeReader] | None = None
    """Makes the reader of notices in plain stdout, for a CLI that has nothing else."""
    silent_wait: Trouble | None = None
    """What a run was waiting for that printed nothing until its time limit."""
    silent_wait_when_cancelled: Trouble | None = None
    """The same, if it reported with `cancelled_line` that it was cancelled."""
    cancelled_line: str | None = None
    names_minutes: bool = False
    """Whether it cuts resets down to whole minutes, so that the window opens within the minute that it names."""
    is_unanswered: Callable[[str], bool] | None = None
    """Whether a line reports that nobody answered, for a command that may lose any connection. None: rules decide."""
    exit_status: Callable[[int], int | None] | None = None
    """Returns the HTTP status that an exit code stands for, where the CLI exits with one."""


class CliSet:
    """The known CLIs in their order, with the providers whose limits they print."""

    def __init__(self, clis: Iterable[AgentCli], *, unknown: AgentCli, limits: ProviderSet) -> None:
        self.limits = limits
        self._clis = {cli.name: cli for cli in clis}
        self._unknown = unknown
        rules = [cli.notices for cli in (*self._clis.values(), unknown)]
        self.notices = NoticePatterns(rules)
        patterns = (pattern for each in rules for pattern in each.all_patterns())
        self.line_words = LineWords(limits.hints, (*patterns, STATUS_IN_ERROR))

    def cli(self, name: str) -> AgentCli:
        """Return a CLI by its name. An unknown one is read like any command that may print the shared format."""
        return self._clis.get(name, self._unknown)

    def stderr_reader(self, cli: AgentCli) -> NoticeReader:
        """Return a new reader of a CLI's stderr."""
        if cli.stderr is not None:
            return cli.stderr()
        return ErrorNotices(self.notices.first_line, self.notices.last_line)

"""The dialect of an agent CLI: the form in which its module describes what it prints.

Here: the values that those modules fill in; what an event states beside limits (conversation, tokens, payer, retries,
how a turn ended); readers that gather the CLI's own notices line by line and drop what the agent or its tools printed;
the entries of a transcript, with tool calls and results shortened for people. Never here: the name or the words of
any CLI, or what a notice states about limits.
"""

import re
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from paceline.core.values.session_output import Tokens
from paceline.detect.json_objects import Event, member

# --- what events state beside limits, and what is known of the whole run ------------------------

MOST_ANSWER_BYTES = 16_384
"""What is kept of an answer: many pages of text, and small enough to store for each of 100,000 units."""
_ANSWER_CUT = " […]"
AuthMode = Literal["subscription", "api_key", "overage"]
Trouble = Literal["rate_limit", "quota_window", "overloaded", "billing", "auth", "unreachable"]
Outcome = Literal["success", "failed", "interrupted", Trouble, "denied"]
DenialCause = Literal["permission", "sandbox", "untrusted"]
"""What refused a tool call: the CLI's permission rules, a read-only sandbox, or a folder that was never trusted."""


class MessageUsage(Tokens, frozen=True, kw_only=True, gc=False):
    """Tokens of one model message, under the names that they have in it."""

    input: int = msgspec.field(default=0, name="input_tokens")
    output: int = msgspec.field(default=0, name="output_tokens")
    cache_read: int = msgspec.field(default=0, name="cache_read_input_tokens")
    cache_write: int = msgspec.field(default=0, name="cache_creation_input_tokens")


class MessageHead(msgspec.Struct, gc=False):
    """The small part of a model message."""

    id: str = ""
    model: str = ""
    usage: MessageUsage | None = None


class ItemHead(msgspec.Struct, gc=False):
    """The small part of an item: a piece of the agent's work, or an error."""

    type: str = ""


class Head(msgspec.Struct, gc=False):
    """The few members that separate an event with news from one without. The decoder skips all others unread."""

    type: str = ""
    role: str = ""
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    item: ItemHead | None = None
    message: MessageHead | None = None


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How a turn ended, according to the CLI itself."""

    ok: bool
    interrupted: bool = False
    status: int | None = None


class Denial(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call that the CLI did not let the agent make."""

    tool: str = ""
    cause: DenialCause = "permission"
    call: str = ""
    """The CLI's name for the call. A call that several events report counts once."""


class ReportedUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens as the CLI counts them, by model ('' where it names none)."""

    by_model: dict[str, Tokens]
    reach: Literal["turn", "run", "conversation"] = "turn"
    """What is counted: the turn that ended, the run so far, or the whole conversation, earlier runs included."""
    is_request: bool = False
    """Whether it is exactly one request of the agent, so that its input is the size of the conversation."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What one event, one notice or a whole channel states beside limits; None where it states nothing."""

    session_id: str | None = None
    auth_mode: AuthMode | None = None
    turn_tokens: int | None = None
    """Tokens of the turn that ended."""
    run_tokens: int | None = None
    """Tokens of the whole run so far. Better than the sum of its turns, which leaves sub-agents out."""
    usage: ReportedUsage | None = None
    model: str | None = None
    model_turns: int | None = None
    """How often the model was asked, in the turn that ended."""
    answer: str | None = None
    """What the agent said last."""
    status: int | None = None
    is_retry: bool = False
    ending: Ending | None = None
    is_unreachable: bool = False
    """Whether it reports that nobody answered."""
    is_window_open: bool | None = None
    """True: the provider refused a call although its windows are open. The CLI's sentence then blames one wrongly."""
    error: str | None = None
    """The CLI's own words for what went wrong."""
    denials: tuple[Denial, ...] = ()
    lists_denials: bool = False
    """Whether the event is the CLI's own list of all denials: an empty one means that there were none."""
    is_untrusted: bool = False
    """Whether it warns that the folder's permissions are ignored because nobody has trusted it."""


NO_FACTS = Facts()


class RunUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens by model ('' where the CLI names none). `is_conversation`: those of earlier runs of it are included."""

    by_model: dict[str, Tokens]
    is_conversation: bool = False


class Requests(msgspec.Struct, frozen=True, kw_only=True):
    """The first and the latest request of the agent itself, as its CLI counted them. Sub-agents do not count."""

    first: Tokens
    last: Tokens

    @property
    def context(self) -> int:
        """The size of the conversation: what the latest request sent, cached or not."""
        return self.last.sent

    @property
    def uncached_first(self) -> int:
        """What the first request sent that was in no cache: after a resume, the context that is paid again."""
        return self.first.input + self.first.cache_write


class RunConclusion(msgspec.Struct, frozen=True, kw_only=True):
    """What people are shown of a run, under the names of `StreamReader`."""

    outcome: Outcome | None = None
    session_id: str | None = None
    tokens: int | None = None
    auth_mode: AuthMode | None = None
    turns: int = 0
    denials: int = 0
    denial_reason: str | None = None
    failure_text: str | None = None


class RunSummary(RunConclusion, frozen=True, kw_only=True, omit_defaults=True):
    """The facts of `StreamReader`, under the same names."""

    usage: RunUsage | None = None
    requests: Requests | None = None
    model: str | None = None
    model_turns: int | None = None
    answer: str | None = None
    has_answered: bool = False
    turn_ends: int = 0
    retries: int = 0


def bounded_answer(text: str | None) -> str | None:
    """Return the text without space around it, cut to what is kept of an answer. None if nothing is left."""
    if not text:
        return None
    text = text.strip()
    encoded = text.encode("utf-8", "replace")
    if len(encoded) > MOST_ANSWER_BYTES:
        text = encoded[: MOST_ANSWER_BYTES - len(_ANSWER_CUT.encode())].decode("utf-8", "ignore") + _ANSWER_CUT
    return text or None


# --- notices in a text channel -----------------------------------------------------------------

NOTICE_LINES = 8
"""A notice that has not ended after so many lines is read as it is: a missed last line must not hide it."""
CLIP = 1536
"""Characters of a line that are read. The rest of a longer line is an agent's data and would only cost time."""

_NOTHING = re.compile(r"(?!)")
STACK_LINE = re.compile(r"\s+at ")
"""A frame of a stack trace."""
_DUMP_LINE = re.compile(rb"(?:[ \t]+[!-~]|[}\]])[\t\x20-\x7e]*")
_ERROR_MARK = re.compile(r"\W{0,4}(?:API Error|Error:|error:|ERROR)")
STATUS_IN_ERROR = (
    r"(?:API Error:?|failed with status|last status:|status code:?|\(HTTP) {0,2}(?:Request rejected )?\(?([45]\d\d)\b"
)
"""An HTTP status where CLIs print one in their own errors."""
_STATUS_IN_ERROR = re.compile(STATUS_IN_ERROR)


def begins_as_error(text: str) -> bool:
    """Return whether a text begins as CLIs word their errors."""
    return bool(_ERROR_MARK.match(text))


def status_in_text(text: str) -> int | None:
    """Return the HTTP status in a CLI's own error text, where it prints one."""
    found = _STATUS_IN_ERROR.search(text)
    return int(found[1]) if found else None


class NoticeReader:
    """Turns the lines of a text channel into notices of the CLI, each as one text. By itself it finds none."""

    reads_json = False
    """Whether JSON in the channel is the CLI's own."""
    reads_end_only = False
    """Whether only the last lines of the channel can be a notice."""
    frame: re.Pattern[str] = _NOTHING
    """Matches lines that change something although the reader is idle, whatever words and numbers they have."""

    @property
    def is_idle(self) -> bool:
        """Whether no notice is open, so that plain lines change nothing."""
        return True

    def leaves_out(self, line: bytes) -> bool:
        """Return whether this line certainly continues an open dump, so that it need not be added."""
        return False

    def pass_over(self) -> None:
        """Take note that plain lines were printed, which were not added."""

    def add(self, line: str) -> list[str]:
        """Return the notices that this line completed."""
        return []

    def flush(self, exit_code: int | None) -> list[str]:
        """Return the notices that only the end of the stream completes."""
        return []

    def facts(self) -> Facts:
        """Return what the channel has stated about the run as a whole."""
        return NO_FACTS


class NoticeRules(msgspec.Struct, frozen=True, kw_only=True):
    """How a CLI words its own notices. All fields are patterns, and they apply to every CLI."""

    retry: str = ""
    """Found in the announcement of a retry."""
    resume: str = ""
    """The hint how to resume a conversation; its one group is the session id."""
    first_line: str = ""
    """The first line of a notice that spans several."""
    last_line: str = ""
    """The last line of such a notice."""
    denied: str = ""
    """Found in the report of a denied tool call; a group of any name is the tool."""
    untrusted: str = ""
    """Found in the warning that the folder's permissions are ignored because nobody has trusted it."""


class ErrorNotices(NoticeReader):
    """The stderr of most CLIs: their own words, with notices over several lines and dumps of exceptions.

    A dump repeats in pieces what the notice above it states as a whole, and its pieces mislead.
    """

    reads_json = True
    frame = STACK_LINE

    def __init__(self, first_line: re.Pattern[str], last_line: re.Pattern[str], cli: "AgentCli") -> None:
        self._first_line = first_line
        self._last_line = last_line
        self._notice_in_log = cli.notice_in_log
        self._open: list[str] = []
        self._in_dump = False

    def add(self, line: str) -> list[str]:
        """Gather a notice from its first line to its last. Return those that are complete."""
        stated = line if self._notice_in_log is None else self._notice_in_log(line)
        if stated is None:
            return []
        line = stated[:CLIP]
        if self._in_dump:
            self._in_dump = line[:1] in (" ", "\t") or line.startswith(("}", "]"))
            if self._in_dump:
                return []
        if STACK_LINE.match(line):
            self._in_dump = True
            return self._close()
        if self._open and not self._first_line.match(line):
            self._open.append(line)
            return self._close() if len(self._open) >= NOTICE_LINES or self._last_line.match(line) else []
        notices = self._close()
        if not self._first_line.match(line):
            return [*notices, line] if line else notices
        self._open = [line]
        return [*notices, *self._close()] if self._last_line.match(line) else notices

    @property
    def is_idle(self) -> bool:
        """Whether neither a notice nor a dump is open."""
        return not self._open and not self._in_dump

    def leaves_out(self, line: bytes) -> bool:
        return self._in_dump and bool(_DUMP_LINE.fullmatch(line))

    def flush(self, exit_code: int | None) -> list[str]:
        return self._close()

    def _close(self) -> list[str]:
        notice, self._open = "\n".join(self._open), []
        return [notice] if notice else []


class LastLine(NoticeReader):
    """The stderr of an unknown command: its last line counts, and only if it failed."""

    reads_end_only = True

    def __init__(self) -> None:
        self._last = ""

    def add(self, line: str) -> list[str]:
        """Keep the line as the last one."""
        if line:
            self._last = line[:CLIP]
        return []

    def pass_over(self) -> None:
        """Forget the last line: another one followed."""
        self._last = ""

    def flush(self, exit_code: int | None) -> list[str]:
        return [self._last] if self._last and exit_code else []


# --- entries of a transcript -------------------------------------------------------------------

EntryKind = Literal["said", "tool", "result", "notice", "plain"]
"""`plain` is a line that is no event of the CLI, as it was printed."""
RESULT_LINES = 8
"""Lines of a result that are shown: enough to recognise an error, and a listing does not bury what was said."""
LONGEST_LINE = 240
"""Characters of a tool's argument or of a line of its result: some lines of a terminal."""
_ARGUMENTS = """
    command cmd script file_path filePath absolute_path notebook_path path pattern query url dir_path description
    prompt"""
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
    named = [arguments[name] for name in _ARGUMENTS.split() if name in arguments]
    for value in (*named, *arguments.values()):
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list) and value and all(isinstance(part, str) for part in value):
            return " ".join(value)
    return ""


# --- the form of a dialect ---------------------------------------------------------------------


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
    entries: EntryReader | None = None
    """Reads what an event shows of the agent's work, for the transcript. None: its events are not read."""
    denial_marks: tuple[bytes, ...] = ()
    """Bytes of which one is in each quiet event that reports a denied tool call. Those events are passed to `read`."""
    answers: AnswerEvents | None = None
    """Which quiet events hold what the model says. None: the event that ends a turn has its answer."""
    turns: TurnEvents | None = None
    """Which events show that the tools of a turn are done. None: the stream does not show it."""
    is_document: Callable[[Event], bool] | None = None
    """Whether an object without a type is the CLI's own answer as one document. None: it prints none."""
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
            return self.is_document is not None and self.is_document(event)
        is_event = isinstance(kind, str) and (kind in self.news or kind in self.quiet)
        return is_event and not self.marks.isdisjoint(event)


class AgentCli(msgspec.Struct, frozen=True, kw_only=True):
    """One agent CLI, under the name that observations and agent profiles use for it."""

    name: str
    dialect: Dialect
    notices: NoticeRules = NoticeRules()
    stderr: type[NoticeReader] | None = None
    """The reader of its stderr. None: its stderr has notices like that of most CLIs."""
    notice_in_log: Callable[[str], str | None] | None = None
    """Returns what a line of stderr states between lines of a log: of the log few things count, all else as it is."""
    stdout_notice: re.Pattern[str] | None = None
    """Matches the CLI's own notices between the agent's prose in plain stdout, for a CLI that has nothing else."""
    silent_wait: Trouble | None = None
    """What a run was waiting for that printed nothing until its time limit."""
    silent_wait_when_cancelled: Trouble | None = None
    """The same, if it reported with `cancelled_line` that it was cancelled."""
    cancelled_line: str | None = None
    stopped_answer: str | None = None
    """All that it prints as an answer when it is interrupted."""
    names_minutes: bool = False
    """Whether it cuts resets down to whole minutes, so that the window opens within the minute that it names."""
    is_unanswered: Callable[[str], bool] | None = None
    """Whether a line reports that nobody answered, for a command that may lose any connection. None: rules decide."""
    exit_status: Callable[[int], int | None] | None = None
    """Returns the HTTP status that an exit code stands for, where the CLI exits with one."""

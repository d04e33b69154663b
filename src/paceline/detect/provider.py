"""What a provider is to detection: one value that holds everything the provider and its tools print about limits.

Here: the types that each module of `providers/` fills in. Never here: the words of any provider, or the reading of
texts; `provider_set` combines the values and the readers use the combination.
"""

import re
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from paceline.core.signals import Budget, Cause, Reach
from paceline.detect.answer_text import AnswerEvents
from paceline.detect.kinds import Kind
from paceline.detect.parsing.headers import Headers
from paceline.detect.parsing.json_objects import Event, Pairs, flatten
from paceline.detect.parsing.reset_times import Reset, to_number
from paceline.detect.rules import Rule
from paceline.detect.run_facts import Facts, Transcript, Trouble
from paceline.detect.transcripts.entry import EntryReader, no_entries
from paceline.detect.turn_record import TurnEvents

_STATUS_KEYS = ("statuscode", "status_code", "status", "http_status")

# --- events ------------------------------------------------------------------------------------


class EventReading(msgspec.Struct, frozen=True, kw_only=True):
    """What an event states about capacity: either decided by its fields, or an error text to be read."""

    kind: Kind | None = None
    reset: Reset | None = None
    window: str | None = None
    cause: Cause | None = None
    is_for_model: bool = False
    budgets: tuple[Budget, ...] = ()
    text: str = ""
    pairs: Pairs = []
    status: int | None = None
    default: Kind | None = None
    """The kind if no rule matches the text."""
    rule: str = ""


def error_reading(event: Event) -> EventReading:
    """Return an event that is an error as a whole: all its text and fields are read."""
    pairs = flatten(event)
    text = "\n".join(f'{key}: "{value}"' for key, value in pairs if len(value) > 2 or value.isalnum())
    statuses = (int(number) for key, value in pairs if key.lower() in _STATUS_KEYS and (number := to_number(value)))
    return EventReading(text=text, pairs=pairs, status=next(statuses, None), rule=f"event.{event.get('type', 'error')}")


EventReader = Callable[[Event], EventReading | None]
"""Returns None for an event that is not the CLI's own error, or not in this provider's form."""


class EventRules(msgspec.Struct, frozen=True, kw_only=True):
    """The events of a provider that are about limits."""

    readers: Mapping[str, EventReader] = {}
    """Event type -> reader. Several providers may read one type: the first that returns a reading wins."""
    errors: frozenset[str] = frozenset()
    """Event types that are errors as a whole: all their text is read."""


# --- headers -----------------------------------------------------------------------------------


class HeaderReading(msgspec.Struct, frozen=True, kw_only=True):
    """What headers state: a kind where they decide it, a reset, and what is left where nothing was hit."""

    kind: Kind | None = None
    reset: Reset | None = None
    window: str | None = None
    reach: Reach | None = None
    budgets: tuple[Budget, ...] = ()
    rules: tuple[str, ...] = ()


class HeaderRules(msgspec.Struct, frozen=True, kw_only=True):
    """The headers of a provider that are about limits. Names are in lower case."""

    names: str = ""
    """Pattern of the names that are also read when a proxy or CLI puts them into the text of an error."""
    words: frozenset[str] = frozenset()
    """Words of which one is in each name that states a limit by itself."""
    buckets: str = ""
    """Pattern of headers that state how much is left (groups `bucket` and `what`: `remaining`, `reset`, `limit`)."""
    budgets: Callable[[Headers, float], list[Budget]] | None = None
    """Further budgets, from (headers, seen_at)."""
    decide: Callable[[Headers, int | None, float], HeaderReading | None] | None = None
    """The decision of a refused answer, from (headers, status, seen_at), or None."""


# --- text --------------------------------------------------------------------------------------


class NoticeReader(Protocol):
    """Turns the lines of a text channel into notices of the CLI, each as one text."""

    reads_json: bool
    """Whether JSON in the channel is the CLI's own."""
    reads_end_only: bool
    """Whether only the last lines of the channel can be a notice."""
    frame: re.Pattern[str]
    """Matches lines that change something although the reader is idle, whatever words and numbers they have."""

    @property
    def is_idle(self) -> bool:
        """Whether no notice is open, so that plain lines change nothing."""

    def leaves_out(self, line: bytes) -> bool:
        """Return whether this line certainly continues an open dump, so that it need not be added."""

    def pass_over(self) -> None:
        """Take note that plain lines were printed, which were not added."""

    def add(self, line: str) -> list[str]:
        """Return the notices that this line completed."""

    def flush(self, exit_code: int | None) -> list[str]:
        """Return the notices that only the end of the stream completes."""

    def transcript(self) -> Transcript:
        """Return what the channel has stated about the run."""


class NoticeRules(msgspec.Struct, frozen=True, kw_only=True):
    """How a provider's CLIs word their own notices. All fields are patterns, and they apply to every CLI."""

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

    def all_patterns(self) -> tuple[str, ...]:
        """Return the patterns that are searched in notices and lines."""
        return self.retry, self.resume, self.first_line, self.last_line, self.denied, self.untrusted

    stopped_answer: str = ""
    """All that is printed as an answer when the CLI is interrupted."""


class ZoneRule(msgspec.Struct, frozen=True, kw_only=True):
    """Times without a zone are in `zone`, for these providers or in texts that match."""

    zone: str
    providers: frozenset[str] = frozenset()
    pattern: re.Pattern[str]
    unless: re.Pattern[str]


# --- the output of an agent CLI ----------------------------------------------------------------


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


# --- everything --------------------------------------------------------------------------------


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one provider, its API and its agent CLIs print about limits."""

    name: str
    rules: tuple[Rule, ...] = ()
    events: EventRules = EventRules()
    headers: HeaderRules = HeaderRules()
    notices: NoticeRules = NoticeRules()
    zones: tuple[ZoneRule, ...] = ()
    clis: tuple[AgentCli, ...] = ()
    model_limit: str = ""
    """Pattern of words which show that a limit is that of one model."""

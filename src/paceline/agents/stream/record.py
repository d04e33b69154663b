"""The record of one run so far, and the one place where a piece of its output is read into it.

Here: what events and notices mean, whatever channel they came from; session, payer, tokens, retries, denied tool calls,
the last trouble and how it ended; what was reported, so that a limit that a retrying CLI meets again and again is
reported once; and the conclusion, what exit code, last event and last trouble add up to. Never here: bytes, the rules
of any provider, the habits of one CLI, or which pieces are the CLI's own; the channel readers decide that.
"""

import math
import re

import msgspec

from paceline.agents.dialect import (
    NO_FACTS,
    AgentCli,
    AuthMode,
    Denial,
    DenialCause,
    Ending,
    Facts,
    Head,
    MessageHead,
    Outcome,
    ReportedUsage,
    Requests,
    RunUsage,
    Trouble,
    begins_as_error,
    status_in_text,
)
from paceline.agents.known import CliSet
from paceline.agents.stream.flood import NoticeBudget
from paceline.agents.stream.lines import decode_json_event
from paceline.core.signals import (
    AuthFailed,
    BillingStop,
    Budget,
    Overloaded,
    PlatformLimit,
    QuotaClosed,
    RateLimited,
    Reach,
    Signal,
    Unreachable,
)
from paceline.core.values.tokens import Tokens
from paceline.detect.json_objects import Event
from paceline.detect.observation import Kind, kind_of_failure
from paceline.detect.observation_reader import read_event, read_line

# --- the conclusion ----------------------------------------------------------------------------

_TROUBLE_OF_SIGNAL: dict[type[Signal], Trouble] = {
    RateLimited: "rate_limit",
    PlatformLimit: "rate_limit",
    Overloaded: "overloaded",
    QuotaClosed: "quota_window",
    BillingStop: "billing",
    AuthFailed: "auth",
    Unreachable: "unreachable",
}
_TROUBLE_OF_KIND: dict[Kind, Trouble] = {
    "auth": "auth",
    "billing": "billing",
    "rate": "rate_limit",
    "overloaded": "overloaded",
}
"""Without `platform`: a run that ended with a bare 423 has not met a limit of the account."""
_FORBIDDEN = 403
"""A single 403 proves nothing, but a run that ended with one was refused: a person has to check the login."""
_MORE_CERTAIN = frozenset({"quota_window", "billing"})
"""After one of these, a bare 429 is the same refusal with less detail, and a lost connection does not undo it."""
_LESS_CERTAIN = frozenset({"rate_limit", "unreachable"})

_TIME_LIMIT_EXIT = 124
_SIGNAL_EXITS = frozenset({129, 130, 137, 143})


class FinishedRun(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the conclusion depends on."""

    cli: AgentCli
    exit_code: int | None
    ending: Ending | None
    trouble: Trouble | None
    """The last one met since the model last answered."""
    speaks_json: bool
    has_answered: bool
    """Whether anything of the agent's work was seen."""
    has_text: bool
    """Whether anything was printed for a person: plain stdout or a screen."""
    is_cut: bool
    """Whether plain text broke off inside its last line, where the CLI always ends it."""
    was_cancelled: bool
    is_denied: bool = False
    """Whether tool calls of the agent were denied."""


def trouble_of_signals(signals: list[Signal]) -> Trouble | None:
    """Return the trouble that the signals of one piece of output mean, the most certain one first."""
    found = [trouble for signal in signals if (trouble := _TROUBLE_OF_SIGNAL.get(type(signal)))]
    return next((trouble for trouble in found if trouble in _MORE_CERTAIN), found[0] if found else None)


def trouble_of_status(status: int | None) -> Trouble | None:
    """Return the trouble that the bare HTTP status of a failed call means."""
    if status == _FORBIDDEN:
        return "auth"
    kind = kind_of_failure(status)
    return None if kind is None else _TROUBLE_OF_KIND.get(kind)


def merge_trouble(before: Trouble | None, now: Trouble | None) -> Trouble | None:
    """Return the newer trouble, unless it only repeats the one before with less detail."""
    if now is None or (now in _LESS_CERTAIN and before in _MORE_CERTAIN):
        return before
    return now


def conclude(run: FinishedRun) -> Outcome:
    """Return the outcome of a run. Neither exit code 0 alone nor any single event proves success."""
    outcome = _conclude(run)
    if not run.is_denied:
        return outcome
    # Some CLIs end where a call is denied, without their closing event and with exit code 0.
    ended_there = outcome == "interrupted" and run.exit_code == 0 and run.ending is None
    return "denied" if outcome == "success" or ended_there else outcome


def _conclude(run: FinishedRun) -> Outcome:
    if run.ending is not None:
        return _conclude_ended(run, run.ending)
    if run.trouble is not None and not (run.exit_code == 0 and run.has_text):
        return run.trouble
    if run.exit_code is None or _was_signalled(run.exit_code):
        return "interrupted"
    if run.exit_code == _TIME_LIMIT_EXIT:
        return _conclude_timed_out(run)
    if run.exit_code == 0:
        return _conclude_quiet_exit(run)
    if run.speaks_json and run.cli.dialect.fails_aloud:
        return "interrupted"
    return trouble_of_status(_status_in_exit_code(run)) or "failed"


def _conclude_ended(run: FinishedRun, ending: Ending) -> Outcome:
    if ending.ok:
        if run.exit_code in (0, None):
            return "success"
        return "interrupted" if _was_signalled(run.exit_code) else run.trouble or "failed"
    if ending.interrupted:
        return "interrupted"
    return run.trouble or trouble_of_status(_status_in_exit_code(run)) or _without_cause(run)


def _without_cause(run: FinishedRun) -> Outcome:
    return "interrupted" if _was_signalled(run.exit_code) else "failed"


_CONVERSATION = r"(?:conversation|session|thread|rollout)s?\b"
_GONE = re.compile(
    rf"\bno (?:saved |stored |such )?{_CONVERSATION}(?: or task)?.{{0,20}}(?:\b(?:found|matched|exists?)\b|$)"
    rf"|\b{_CONVERSATION}.{{0,80}}\b(?:not found|(?:does not|doesn't|no longer) exist|could not be found)"
    r"|\binvalid session identifier\b",
    re.I,
)
"""What CLIs print that were to resume a conversation that they do not have. Read only of resumed runs without an
answer, where no task of the agent can say the same."""


def is_conversation_gone(failure_text: str | None) -> bool:
    """Return whether a run that was to resume a conversation, and never answered, failed because there is none."""
    return failure_text is not None and _GONE.search(failure_text) is not None


def was_stopped(exit_code: int | None) -> bool:
    """Return whether the process was stopped from outside: then its last line says nothing about the cause."""
    return exit_code is None or exit_code == _TIME_LIMIT_EXIT or _was_signalled(exit_code)


def _was_signalled(exit_code: int | None) -> bool:
    return exit_code is not None and (exit_code < 0 or exit_code in _SIGNAL_EXITS)


def _conclude_timed_out(run: FinishedRun) -> Outcome:
    if run.has_answered or run.has_text:
        return "failed"
    when_cancelled = run.cli.silent_wait_when_cancelled if run.was_cancelled else None
    return when_cancelled or run.cli.silent_wait or "failed"


def _conclude_quiet_exit(run: FinishedRun) -> Outcome:
    """Conclude from exit code 0. Several CLIs exit so when they are stopped: then their closing event is missing."""
    if run.speaks_json:
        return "interrupted" if run.cli.dialect.ends_with_result else "success"
    if run.is_cut:
        return "interrupted"
    return "success" if run.has_text or not run.cli.dialect.ends_with_result else "interrupted"


def _status_in_exit_code(run: FinishedRun) -> int | None:
    if run.cli.exit_status is None or run.exit_code is None:
        return None
    return run.cli.exit_status(run.exit_code)


# --- what was reported -------------------------------------------------------------------------

LONG_WAIT = 60.0
"""Seconds. A longer wait changes what becomes of a session, so it is reported even after a shorter one."""
A_GUESS = 0.5
"""A signal below this confidence counts only where nothing better is known."""
_SAME_RESET = 120.0
"""Seconds. Texts print resets in minutes, fields in seconds: within this they are the same reset."""
_WINDOWS_KEPT = 64
"""Windows remembered at a time: no account has a tenth of that."""
_PASSING = (RateLimited, Overloaded, PlatformLimit, AuthFailed, Unreachable)
_NAMED_CAUSE = (QuotaClosed, BillingStop)


class RepeatFilter:
    """The signals that were reported about one run."""

    def __init__(self) -> None:
        self._reported: dict[type[Signal], tuple[Signal, float]] = {}
        """Each with the time until which it needs no repeating."""
        self._budgets: dict[tuple[str | None, Reach | None], Budget] = {}

    def news(self, signals: list[Signal], *, seen_at: float) -> list[Signal]:
        """Return the signals that state something new."""
        return [signal for signal in signals if self._is_news(signal, seen_at)]

    def model_answered(self) -> None:
        """Forget limits that pass by themselves: the next one is a new incident."""
        for kind in _PASSING:
            self._reported.pop(kind, None)

    def _is_news(self, signal: Signal, seen_at: float) -> bool:
        if isinstance(signal, Budget):
            key = signal.window, signal.reach
            if len(self._budgets) >= _WINDOWS_KEPT:
                self._budgets.clear()
            before = self._budgets.get(key)
            self._budgets[key] = signal
            return signal != before
        if isinstance(signal, RateLimited) and self._has_better(signal, seen_at):
            return False
        reported, until = self._reported.get(type(signal), (signal, -math.inf))
        if seen_at < until and not _adds_detail(signal, reported):
            return False
        self._reported[type(signal)] = signal, _covered_until(signal, seen_at)
        return True

    def _has_better(self, signal: RateLimited, seen_at: float) -> bool:
        """Return whether a bare 429 repeats, with less detail, a spent window or missing credit that was reported."""
        better = (*_NAMED_CAUSE, *_PASSING) if signal.confidence < A_GUESS else _NAMED_CAUSE
        return any(kind in self._reported and seen_at < self._reported[kind][1] for kind in better)


def _covered_until(signal: Signal, seen_at: float) -> float:
    if isinstance(signal, QuotaClosed):
        return max(signal.resets_at or 0.0, seen_at + LONG_WAIT)
    if isinstance(signal, RateLimited | Overloaded):
        return seen_at + max(signal.retry_after or 0.0, LONG_WAIT)
    return seen_at + LONG_WAIT


def _adds_detail(signal: Signal, before: Signal) -> bool:
    if _both_known_and_differ(signal.reach, before.reach):
        return True
    if isinstance(signal, QuotaClosed) and isinstance(before, QuotaClosed):
        return _both_known_and_differ(signal.window, before.window) or _resets_differ(signal, before)
    if isinstance(signal, RateLimited | Overloaded) and isinstance(before, RateLimited | Overloaded):
        return _waits_longer(signal.retry_after, before.retry_after)
    if isinstance(signal, PlatformLimit) and isinstance(before, PlatformLimit):
        return _both_known_and_differ(signal.limit, before.limit)
    return False


def _both_known_and_differ(now: object, before: object) -> bool:
    return now is not None and before is not None and now != before


def _resets_differ(now: QuotaClosed, before: QuotaClosed) -> bool:
    if now.resets_at is None:
        return False
    return before.resets_at is None or abs(now.resets_at - before.resets_at) > _SAME_RESET


def _waits_longer(now: float | None, before: float | None) -> bool:
    if now is None:
        return False
    return before is None or now > LONG_WAIT >= before


# --- tokens ------------------------------------------------------------------------------------

_MESSAGES_COUNTED = 64
"""Messages whose usage is kept apart: it is repeated with each part, and parts of several messages may interleave."""


class TokenRecord:
    """The tokens of a run: those that the CLI counted, and those of messages since."""

    def __init__(self) -> None:
        self.requests: Requests | None = None
        self._reported: RunUsage | None = None
        self._messages: dict[str, MessageHead] = {}
        self._older: dict[str, Tokens] = {}
        self._older_total = 0

    @property
    def running_total(self) -> int:
        """Tokens of the messages since the CLI last counted, without cache reads."""
        if not self._messages:
            return self._older_total
        return self._older_total + sum(each.usage.total for each in self._messages.values() if each.usage is not None)

    @property
    def usage(self) -> RunUsage | None:
        """All that was counted, or None if nothing was."""
        if self._reported is None and not self._messages:
            return None
        by_model = {} if self._reported is None else dict(self._reported.by_model)
        for model, tokens in self._older.items():
            _add(by_model, model, tokens)
        for message in self._messages.values():
            if message.usage is not None:
                _add(by_model, message.model, message.usage.tokens)
        if not by_model:
            return None
        is_conversation = self._reported is not None and self._reported.is_conversation
        return RunUsage(by_model=by_model, is_conversation=is_conversation)

    def note_request(self, sent: Tokens) -> None:
        """Take one request of the agent. Further parts of its answer repeat it."""
        if sent.sent:
            first = sent if self.requests is None else self.requests.first
            self.requests = Requests(first=first, last=sent)

    def count_message(self, message: MessageHead) -> None:
        """Add the usage of a message, or of a further part of it."""
        usage = message.usage
        if usage is None:
            return
        counted = self._messages
        known = counted.get(message.id)
        if known is None and len(counted) == _MESSAGES_COUNTED:
            self._add_up(counted.pop(next(iter(counted))))
        if known is None or known.usage is None or usage.total >= known.usage.total:
            counted[message.id] = message

    def report(self, reported: ReportedUsage) -> None:
        """Take what the CLI itself counted. A turn that was broken off may count nothing although its messages did."""
        if reported.is_request:
            for tokens in reported.by_model.values():
                self.note_request(tokens)
        if reported.reach == "turn":
            turn = sum(_limited_total(tokens) for tokens in reported.by_model.values())
            if turn < self.running_total:
                self._take_over()
                return
            by_model = {} if self._reported is None else dict(self._reported.by_model)
            for model, tokens in reported.by_model.items():
                _add(by_model, model, tokens)
            self._replace(by_model, is_conversation=self._reported is not None and self._reported.is_conversation)
        else:
            self._replace(dict(reported.by_model), is_conversation=reported.reach == "conversation")

    def _take_over(self) -> None:
        usage = self.usage
        if usage is not None:
            self._replace(usage.by_model, is_conversation=usage.is_conversation)

    def _replace(self, by_model: dict[str, Tokens], *, is_conversation: bool) -> None:
        self._reported = RunUsage(by_model=by_model, is_conversation=is_conversation)
        self.forget_messages()

    def forget_messages(self) -> None:
        """Drop the messages up to here: the CLI has counted them itself."""
        self._messages.clear()
        self._older.clear()
        self._older_total = 0

    def _add_up(self, message: MessageHead) -> None:
        if message.usage is not None:
            _add(self._older, message.model, message.usage.tokens)
            self._older_total += message.usage.total


def _add(by_model: dict[str, Tokens], model: str, tokens: Tokens) -> None:
    by_model[model] = by_model.get(model, Tokens()).plus(tokens)


def _limited_total(tokens: Tokens) -> int:
    return tokens.input + tokens.cache_write + tokens.output


# --- denied calls ------------------------------------------------------------------------------

NAMED_TOOLS = 3
"""Tools named in the sentence: enough to recognise the cause, and still one line."""
_CALLS_KEPT = 4096
"""Calls remembered to count each once. A run that is denied more often is held anyway."""
_CAUSES: dict[DenialCause, str] = {
    "untrusted": "this folder was never trusted for the account",
    "sandbox": "the agent runs in a read-only sandbox",
    "permission": "the agent's permissions do not allow it",
}
_ADVICE: dict[DenialCause, str] = {
    "untrusted": 'set permissions = "edit" in the plan, or trust the folder',
    "sandbox": 'set permissions = "edit" in the plan',
    "permission": 'set permissions = "edit" or "full" in the plan, or allow the tool in the CLI\'s own settings',
}


class DenialRecord:
    """What was denied in one run."""

    def __init__(self) -> None:
        self.is_untrusted = False
        """Whether the CLI warned that it ignores permissions because the folder is not trusted."""
        self._is_listed = False
        self._events = 0
        self._notices = 0
        self._calls: set[str] = set()
        self._tools: dict[str, None] = {}
        self._noticed_tools: dict[str, None] = {}
        self._causes: set[DenialCause] = set()

    @property
    def count(self) -> int:
        """The number of denied calls. The warning alone counts as one where the CLI prints no list of denials."""
        return max(self._events, self._notices) or int(self.is_untrusted and not self._is_listed)

    @property
    def reason(self) -> str | None:
        """What was denied, why, and what to do about it; None if nothing was."""
        if not self.count:
            return None
        cause = self._cause()
        times = "once" if self.count == 1 else f"{self.count} times"
        return f"{self._what()} denied {times}: {_CAUSES[cause]}; {_ADVICE[cause]}"

    def add(self, denials: tuple[Denial, ...], *, is_list: bool) -> None:
        """Count the denials that one event reports."""
        self._is_listed |= is_list
        for denial in denials:
            if denial.call and denial.call in self._calls:
                continue
            if denial.call and len(self._calls) < _CALLS_KEPT:
                self._calls.add(denial.call)
            self._events += 1
            self._add_name(denial, self._tools)

    def add_notice(self, denial: Denial) -> None:
        """Count a denial that is reported as text. Some CLIs report each twice: as event and as text."""
        self._notices += 1
        self._add_name(denial, self._noticed_tools)

    def _add_name(self, denial: Denial, tools: dict[str, None]) -> None:
        self._causes.add(denial.cause)
        if denial.tool and len(tools) <= NAMED_TOOLS:
            tools[denial.tool] = None

    def _what(self) -> str:
        tools = list(self._tools or self._noticed_tools)
        if not tools:
            return "a tool was" if self.count == 1 else "tools were"
        named = ", ".join(tools[:NAMED_TOOLS])
        if len(tools) > NAMED_TOOLS:
            return f"{named} and other tools were"
        return f"{named} {'was' if len(tools) == 1 else 'were'}"

    def _cause(self) -> DenialCause:
        if self.is_untrusted:
            return "untrusted"
        return "sandbox" if "sandbox" in self._causes else "permission"


class RunRecord:
    """The memory of a stream reader."""

    def __init__(self) -> None:
        self.session_id: str | None = None
        self.auth_mode: AuthMode | None = None
        self.turns = 0
        self.ending: Ending | None = None
        self.trouble: Trouble | None = None
        self.has_answered = False
        self.error: str | None = None
        """The CLI's last own words for what went wrong since the model last answered."""
        self.denials = DenialRecord()
        self.usage = TokenRecord()
        self.model: str | None = None
        self.model_turns: int | None = None
        self.answer: str | None = None
        """What the agent said last, according to an event that ended a turn."""
        self._is_window_open = False
        self._retry_events = 0
        self._retry_notices = 0
        self._repeats = RepeatFilter()
        self._counted_tokens: int | None = None

    @property
    def tokens(self) -> int | None:
        """Input and output so far: of finished turns as the CLI counts them, of the running one from its messages."""
        running = self.usage.running_total
        if self._counted_tokens is None:
            return running or None
        return self._counted_tokens + running

    @property
    def retries(self) -> int:
        """Announced retries since the model last answered. Some CLIs announce each twice: as event and as text."""
        return max(self._retry_events, self._retry_notices)

    @property
    def in_trouble(self) -> bool:
        """Whether a limit or a retry was met since the model last answered."""
        return self.trouble is not None or self.retries > 0

    def model_answered(self) -> None:
        """Record that the model speaks or acts: what hindered it is over."""
        self.has_answered = True
        self.error = None
        self._is_window_open = False
        if self.in_trouble:
            self.trouble = None
            self._retry_events = self._retry_notices = 0
            self._repeats.model_answered()

    def count_retry_notice(self, is_retry: bool) -> None:
        """Count a notice that announces a retry."""
        self._retry_notices += is_retry

    def take(self, facts: Facts, signals: list[Signal], *, seen_at: float) -> list[Signal]:
        """Add what one event or notice states. Return the signals in it that are news."""
        self._take_facts(facts)
        if self._is_window_open:
            signals = [signal for signal in signals if not isinstance(signal, QuotaClosed)]
        self._take_ending(facts, signals)
        return self.news(signals, seen_at=seen_at)

    def news(self, signals: list[Signal], *, seen_at: float) -> list[Signal]:
        """Return the signals that have not been reported."""
        return self._repeats.news(signals, seen_at=seen_at)

    def _take_facts(self, facts: Facts) -> None:
        if facts.session_id is not None:
            self.session_id = facts.session_id
        if facts.auth_mode is not None and self.auth_mode != "overage":
            # Overage, once seen, stays: money was spent beyond the plan.
            self.auth_mode = facts.auth_mode
        self._take_work(facts)
        self._retry_events += facts.is_retry
        if facts.is_window_open is not None:
            self._is_window_open = facts.is_window_open
        if facts.error:
            self.error = facts.error
        if facts.denials or facts.lists_denials:
            self.denials.add(facts.denials, is_list=facts.lists_denials)

    def _take_work(self, facts: Facts) -> None:
        """Add tokens, model and answer. What the CLI itself counted replaces the count of messages up to here."""
        running = self.usage.running_total
        if facts.run_tokens is not None:
            self._counted_tokens = facts.run_tokens
        elif facts.turn_tokens is not None:
            # A turn that was broken off may count nothing although its messages did.
            self._counted_tokens = (self._counted_tokens or 0) + max(facts.turn_tokens, running)
        if facts.usage is not None:
            self.usage.report(facts.usage)
        elif facts.run_tokens is not None or facts.turn_tokens is not None:
            self.usage.forget_messages()
        self.model = facts.model or self.model
        self.answer = facts.answer or self.answer
        if facts.model_turns is not None:
            self.model_turns = (self.model_turns or 0) + facts.model_turns

    def _take_ending(self, facts: Facts, signals: list[Signal]) -> None:
        if facts.ending is not None:
            self.ending = facts.ending
            if facts.ending.ok:
                self.turns += 1
                self.model_answered()
                return
        status = facts.ending.status if facts.ending is not None else facts.status
        found = trouble_of_signals(signals) or trouble_of_status(status)
        if found is None and facts.is_unreachable:
            found = "unreachable"
        is_guess = bool(signals) and all(signal.confidence < A_GUESS for signal in signals)
        if self.trouble is None or not is_guess:
            self.trouble = merge_trouble(self.trouble, found)


def shows_answer(head: Head) -> bool:
    """Return whether an event of an answer type has one: echoes of the prompt and empty replies have none."""
    if head.role == "user":
        return False
    usage = head.message.usage if head.message is not None else None
    return usage is None or usage.output_tokens > 0


MINUTE = 60.0


_READINGS_KEPT = 64
"""Notices whose reading is kept while the same chunk is read: a flood repeats fewer."""


class _NoticeReading(msgspec.Struct, frozen=True, kw_only=True):
    """What one notice states."""

    facts: Facts
    signals: list[Signal]
    is_retry: bool
    denial: Denial | None
    is_untrusted: bool


class OutputInterpreter:
    """Reads events and notices of one run into its record, and collects the signals that are news."""

    def __init__(self, provider: str, *, tz: str, clis: CliSet) -> None:
        self.record = RunRecord()
        self.clis = clis
        self.cli = clis.cli(provider)
        self.dialect = self.cli.dialect
        self.closely_read = 0
        """The number of notices that were read closely: the measure of the work."""
        self._seen_at = 0.0
        self._budget = NoticeBudget()
        self._readings: dict[str, _NoticeReading] = {}
        self._provider = provider
        self._tz = tz
        self._news: list[Signal] = []

    @property
    def seen_at(self) -> float:
        """When the current chunk was seen; the caller sets it."""
        return self._seen_at

    @seen_at.setter
    def seen_at(self, seen_at: float) -> None:
        if seen_at != self._seen_at:
            self._readings.clear()  # resets are read relative to it
            self._budget.add_time(seen_at - self._seen_at)
        self._seen_at = seen_at

    def take_news(self) -> list[Signal]:
        """Return the signals since the last call that state something new."""
        news, self._news = self._news, []
        return news

    def add_event(self, event: Event) -> None:
        """Record what an event of the CLI states."""
        self._add(self.dialect.read(event), self._signals_of_event(event))

    def add_printed_event(self, event: Event, printed: str) -> None:
        """Record what an event on a text channel states. In a flood only its facts count, as with notices."""
        if self._budget.allows(printed, event):
            self.closely_read += 1
            self.add_event(event)
        else:
            self._add(self.dialect.read(event), [])

    def add_denials(self, line: bytes) -> None:
        """Record the denied tool calls that an event of the agent's work reports. Nothing else in it counts."""
        event = decode_json_event(line)
        denials = self.dialect.read(event).denials if event is not None else ()
        if denials:
            self.record.denials.add(denials, is_list=False)

    def add_notice(self, notice: str, *, channel: str) -> None:
        """Record what a notice of the CLI states. One that was just read is not read again."""
        reading = self._readings.get(notice)
        if reading is None:
            if not self._budget.allows(notice):
                return
            reading = self._read_notice(notice, channel)
            if len(self._readings) >= _READINGS_KEPT:
                self._readings.clear()
            self._readings[notice] = reading
        self._take_notice(reading)

    @property
    def is_flooded(self) -> bool:
        """Whether this block had so many notices that only its last ones are still read."""
        return self._budget.is_spent

    def end_block(self) -> None:
        """Read the last notices of a flood, which there was no time to read as they came."""
        for kept in self._budget.end_block():
            if isinstance(kept, str):
                self._take_notice(self._read_notice(kept, "stderr"))
            else:
                self.closely_read += 1
                self._add(NO_FACTS, self._signals_of_event(kept))

    def _read_notice(self, notice: str, channel: str) -> _NoticeReading:
        self.closely_read += 1
        facts = Facts(session_id=self.clis.session_in(notice), status=status_in_text(notice))
        signals = self._signals_of_text(notice, channel)
        now = [signal for signal in signals if not isinstance(signal, Unreachable)]
        return _NoticeReading(
            facts=msgspec.structs.replace(facts, is_unreachable=len(now) < len(signals)),
            signals=now,
            is_retry=bool(self.clis.retry.search(notice)),
            denial=(denial := self.clis.denial_in(notice)),
            is_untrusted=denial is None and bool(self.clis.untrusted.search(notice)),
        )

    def _take_notice(self, reading: _NoticeReading) -> None:
        record = self.record
        record.count_retry_notice(reading.is_retry)
        if reading.denial is not None:
            record.denials.add_notice(reading.denial)
        record.denials.is_untrusted |= reading.is_untrusted
        self._add(reading.facts, reading.signals)
        if reading.is_retry and reading.facts.is_unreachable and record.retries > 1:
            # It repeats its call to the model, so this is no tool's connection, and no single lost one.
            self.report_unreachable()

    def add_final_error(self, error: str, event: Event | None, *, interrupted: bool) -> None:
        """Record the error that ended a run which printed plain text. `event` is the error if it is one object."""
        channel = "stdout-json" if error.startswith("{") else "stdout"
        ending = Ending(ok=False, interrupted=interrupted, status=status_in_text(error))
        facts = Facts(ending=ending, error=error if event is not None or begins_as_error(error) else None)
        if event is not None:
            self._add(facts, self._signals_of_event(event))
        else:
            self._add_text(facts, error, channel)

    def add_interruption(self) -> None:
        """Record that the CLI reported to be stopped."""
        self._add(Facts(ending=Ending(ok=False, interrupted=True)), [])

    def report_unreachable(self) -> None:
        """Report that nobody answered, now that the run has ended with it, unless an event has reported it."""
        self._news += self.record.news([Unreachable(source="text")], seen_at=self.seen_at)

    def _add_text(self, facts: Facts, text: str, channel: str) -> None:
        """Record a text. Tools and servers of tools lose connections too, so what it means shows when the run ends."""
        signals = self._signals_of_text(text, channel)
        now = [signal for signal in signals if not isinstance(signal, Unreachable)]
        if len(now) < len(signals):
            facts = msgspec.structs.replace(facts, is_unreachable=True)
        self._add(facts, now)

    def _add(self, facts: Facts, signals: list[Signal]) -> None:
        if self.cli.names_minutes:
            signals = [_at_end_of_minute(signal) for signal in signals]
        self._news += self.record.take(facts, signals, seen_at=self.seen_at)

    def _signals_of_event(self, event: Event) -> list[Signal]:
        return read_event(self._provider, event, seen_at=self.seen_at, tz=self._tz, providers=self.clis.limits)

    def _signals_of_text(self, text: str, channel: str) -> list[Signal]:
        signals = read_line(
            self._provider, text, channel=channel, seen_at=self.seen_at, tz=self._tz, providers=self.clis.limits
        )
        if (is_unanswered := self.cli.is_unanswered) is not None:
            signals = [signal for signal in signals if not isinstance(signal, Unreachable)]
            signals += [Unreachable(source="text")] if not signals and is_unanswered(text) else []
        return signals


def _at_end_of_minute(signal: Signal) -> Signal:
    """Return a reset that was cut down to its minute as the end of that minute, so that nobody comes too early."""
    if not isinstance(signal, QuotaClosed) or signal.source != "text" or signal.resets_at is None:
        return signal
    return msgspec.structs.replace(signal, resets_at=signal.resets_at + MINUTE)

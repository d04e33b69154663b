"""The record of one run so far, and the one place where a piece of its output is read into it.

Here: what events and notices mean, whatever channel they came from; session, payer, tokens, retries, denied tool calls,
the last trouble and how it ended; what was reported, so that a limit that a retrying CLI meets again and again is
reported once; and the conclusion, what exit code, last event and last trouble add up to. Never here: bytes, the rules
of any provider, the habits of one CLI, or which pieces are the CLI's own; the channel readers decide that.
"""

import math
import re
from collections.abc import Iterable
from itertools import chain

import msgspec

from paceline.agents.dialect import (
    NO_FACTS,
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
from paceline.core.values.session_output import Tokens
from paceline.detect.json_objects import Event
from paceline.detect.observation import Kind, kind_of_failure
from paceline.detect.observation_reader import read_event, read_line

# --- trouble -----------------------------------------------------------------------------------

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
    """Return whether a signal states more than the one of its type before: another scope, window or end."""
    pairs = ((getattr(signal, name, None), getattr(before, name, None)) for name in ("reach", "window", "limit"))
    if any(now is not None and then is not None and now != then for now, then in pairs):
        return True
    if isinstance(signal, QuotaClosed) and isinstance(before, QuotaClosed):
        return _resets_differ(signal, before)
    if isinstance(signal, RateLimited | Overloaded) and isinstance(before, RateLimited | Overloaded):
        return _waits_longer(signal.retry_after, before.retry_after)
    return False


def _resets_differ(now: QuotaClosed, before: QuotaClosed) -> bool:
    now_at, before_at = now.resets_at, before.resets_at
    return now_at is not None and (before_at is None or abs(now_at - before_at) > _SAME_RESET)


def _waits_longer(now: float | None, before: float | None) -> bool:
    return now is not None and (before is None or now > LONG_WAIT >= before)


# --- tokens ------------------------------------------------------------------------------------

_MESSAGES_COUNTED = 64
"""Messages whose usage is kept apart: it is repeated with each part, and parts of several messages may interleave."""


class TokenRecord:
    """The tokens of a run: those that the CLI counted, and those of messages since."""

    def __init__(self) -> None:
        self._first_request: Tokens | None = None
        self._last_request = Tokens()
        self._reported = RunUsage(by_model={})
        self._messages: dict[str, tuple[str, Tokens]] = {}
        """The model and the usage of each message."""
        self._older: dict[str, Tokens] = {}

    @property
    def running_total(self) -> int:
        """Tokens of the messages since the CLI last counted, without cache reads."""
        if not self._messages:
            return 0
        return _limited_total(self._older.values()) + _limited_total(usage for _, usage in self._messages.values())

    @property
    def usage(self) -> RunUsage | None:
        """All that was counted, or None if nothing was."""
        by_model = _sums(self._reported.by_model, self._since())
        return RunUsage(by_model=by_model, is_conversation=self._reported.is_conversation) if by_model else None

    @property
    def requests(self) -> Requests | None:
        none = Tokens()
        first, last = self._first_request, self._last_request
        return None if first is None else Requests(first=none.plus(first), last=none.plus(last))

    def note_request(self, sent: Tokens) -> None:
        """Take one request of the agent. Further parts of its answer repeat it."""
        if sent.sent:
            self._first_request = self._first_request or sent
            self._last_request = sent

    def count_message(self, message: MessageHead) -> None:
        """Add the usage of a message, or of a further part of it."""
        usage = message.usage
        if usage is None:
            return
        known = self._messages.get(message.id)
        if known is None and len(self._messages) == _MESSAGES_COUNTED:
            model, oldest = self._messages.pop(next(iter(self._messages)))
            self._older = _sums(self._older, {model: oldest})
        if known is None or _limited_total([usage]) >= _limited_total([known[1]]):
            self._messages[message.id] = message.model, usage

    def report(self, reported: ReportedUsage) -> None:
        """Take what the CLI itself counted. A turn that was broken off may count nothing although its messages did."""
        if reported.is_request:
            for tokens in reported.by_model.values():
                self.note_request(tokens)
        if reported.reach == "turn":
            is_broken_off = _limited_total(reported.by_model.values()) < self.running_total
            counted = self._since() if is_broken_off else reported.by_model
            by_model = _sums(self._reported.by_model, counted)
            self._reported = RunUsage(by_model=by_model, is_conversation=self._reported.is_conversation)
        else:
            self._reported = RunUsage(by_model=reported.by_model, is_conversation=reported.reach == "conversation")
        self.forget_messages()

    def forget_messages(self) -> None:
        """Drop the messages up to here: the CLI has counted them itself."""
        self._messages.clear()
        self._older = {}

    def _since(self) -> dict[str, Tokens]:
        """Return the tokens of the messages since the CLI last counted."""
        return _sums(self._older, *({model: usage} for model, usage in self._messages.values()))


def _sums(*counts: dict[str, Tokens]) -> dict[str, Tokens]:
    by_model: dict[str, Tokens] = {}
    for model, tokens in chain.from_iterable(each.items() for each in counts):
        by_model[model] = by_model.get(model, Tokens()).plus(tokens)
    return by_model


def _limited_total(counts: Iterable[Tokens]) -> int:
    """Return all tokens but cache reads, which count towards no limit."""
    return sum(tokens.input + tokens.cache_write + tokens.output for tokens in counts)


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

    def add_notice(self, denials: tuple[Denial, ...]) -> None:
        """Count a denial that is reported as text. Some CLIs report each twice: as event and as text."""
        for denial in denials:
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


MINUTE = 60.0
_READINGS_KEPT = 64
"""Notices whose reading is kept while the same chunk is read: a flood repeats fewer."""
_Reading = tuple[Facts, list[Signal]]


class RunRecord:
    """What is known of one run, read from its events and notices. It collects the signals that are news."""

    def __init__(self, provider: str, *, tz: str, clis: CliSet) -> None:
        self.clis = clis
        self.cli = clis.cli(provider)
        self.dialect = self.cli.dialect
        self.session_id: str | None = None
        """The CLI's own name for the conversation, with which it can be resumed."""
        self.auth_mode: AuthMode | None = None
        """Who pays: the subscription, an API key, or overage beyond the plan."""
        self.turns = 0
        """The number of completed turns."""
        self.ending: Ending | None = None
        self.trouble: Trouble | None = None
        """The last one met since the model last answered."""
        self.has_answered = False
        """Whether the model has spoken or acted: then there is a conversation to resume."""
        self.speaks_json = False
        """Whether the CLI printed events or a document of its own."""
        self.has_text = False
        """Whether anything was printed for a person: plain stdout or a screen. Known when the run has ended."""
        self.is_cut = False
        """Whether plain text broke off inside its last line, where the CLI always ends it."""
        self.was_cancelled = False
        """Whether the CLI reported that it was cancelled."""
        self.error: str | None = None
        """The CLI's last own words for what went wrong since the model last answered."""
        self.denied = DenialRecord()
        self.counts = TokenRecord()
        self.model: str | None = None
        self.final_answer: str | None = None
        """What the agent said last, according to an event that ended a turn."""
        self.printed_tokens: int | None = None
        """The tokens of the run where its CLI prints them as text."""
        self.closely_read = 0
        """The number of notices that were read closely: the measure of the work."""
        self._is_window_open = False
        self._retry_events = 0
        self._retry_notices = 0
        self._repeats = RepeatFilter()
        self._counted_tokens: int | None = None
        self._model_turns: int | None = None
        self.seen_at = 0.0
        self._budget = NoticeBudget()
        self._readings: dict[str, _Reading] = {}
        self._provider = provider
        self._tz = tz
        self._news: list[Signal] = []

    @property
    def tokens(self) -> int | None:
        """Input and output so far: of finished turns as the CLI counts them, of the running one from its messages."""
        running = self.counts.running_total
        if self._counted_tokens is None:
            return running or self.printed_tokens
        return self._counted_tokens + running

    @property
    def usage(self) -> RunUsage | None:
        """The same by kind and model, with cache reads. Some CLIs count the whole conversation."""
        return self.counts.usage

    @property
    def requests(self) -> Requests | None:
        """The first and the latest request of the agent, where its CLI counts them one by one."""
        return self.counts.requests

    @property
    def model_turns(self) -> int | None:
        """How often the model was asked, as the CLI counts it, else the number of completed turns. None: unknown."""
        return self._model_turns or self.turns or None

    @property
    def denials(self) -> int:
        """The number of tool calls that the CLI denied the agent."""
        return self.denied.count

    @property
    def denial_reason(self) -> str | None:
        """What was denied and what to do about it, in one sentence. None if nothing was."""
        return self.denied.reason

    @property
    def retries(self) -> int:
        """Announced retries since the model last answered. Some CLIs announce each twice: as event and as text."""
        return max(self._retry_events, self._retry_notices)

    @property
    def is_flooded(self) -> bool:
        """Whether this block had so many notices that only its last ones are still read."""
        return self._budget.is_spent

    def begin_chunk(self, seen_at: float) -> None:
        """Take the time at which what follows was seen."""
        if seen_at != self.seen_at:
            self._readings.clear()  # resets are read relative to it
            self._budget.add_time(seen_at - self.seen_at)
        self.seen_at = seen_at

    def take_news(self) -> list[Signal]:
        """Return the signals since the last call that state something new."""
        news, self._news = self._news, []
        return news

    # --- events --------------------------------------------------------------------------------

    def add_event(self, event: Event) -> None:
        """Record what an event of the CLI states."""
        self._take(self.dialect.read(event), self._signals_of_event(event))

    def add_printed_event(self, event: Event, printed: str) -> None:
        """Record what an event on a text channel states. In a flood only its facts count, as with notices."""
        if self._budget.allows(printed, event):
            self.closely_read += 1
            self.add_event(event)
        else:
            self._take(self.dialect.read(event), [])

    def add_denials(self, line: bytes) -> None:
        """Record the denied tool calls that an event of the agent's work reports. Nothing else in it counts."""
        event = decode_json_event(line)
        if event is not None:
            self.denied.add(self.dialect.read(event).denials, is_list=False)

    def model_answered(self) -> None:
        """Record that the model speaks or acts: what hindered it is over."""
        self.has_answered = True
        self.error = None
        self._is_window_open = False
        if self.trouble is not None or self.retries > 0:
            self.trouble = None
            self._retry_events = self._retry_notices = 0
            self._repeats.model_answered()

    # --- texts ---------------------------------------------------------------------------------

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
        self._take_notice(*reading)

    def end_block(self) -> None:
        """Read the last notices of a flood, which there was no time to read as they came."""
        for kept in self._budget.end_block():
            if isinstance(kept, str):
                self._take_notice(*self._read_notice(kept, "stderr"))
            else:
                self.closely_read += 1
                self._take(NO_FACTS, self._signals_of_event(kept))

    def add_final_error(self, error: str, event: Event | None, *, interrupted: bool) -> None:
        """Record the error that ended a run which printed plain text. `event` is the error if it is one object."""
        ending = Ending(ok=False, interrupted=interrupted, status=status_in_text(error))
        facts = Facts(ending=ending, error=error if event is not None or begins_as_error(error) else None)
        if event is not None:
            self._take(facts, self._signals_of_event(event))
        else:
            self._take(*self._read_text(facts, error, "stdout-json" if error.startswith("{") else "stdout"))

    def add_interruption(self) -> None:
        """Record that the CLI reported to be stopped."""
        self._take(Facts(ending=Ending(ok=False, interrupted=True)), [])

    def report_unreachable(self) -> None:
        """Report that nobody answered, now that the run has ended with it, unless an event has reported it."""
        self._report([Unreachable(source="text")])

    def _read_notice(self, notice: str, channel: str) -> _Reading:
        self.closely_read += 1
        denial = self.clis.denial_in(notice)
        facts = Facts(
            session_id=self.clis.session_in(notice),
            status=status_in_text(notice),
            is_retry=bool(self.clis.patterns["retry"].search(notice)),
            denials=() if denial is None else (denial,),
            is_untrusted=denial is None and bool(self.clis.patterns["untrusted"].search(notice)),
        )
        return self._read_text(facts, notice, channel)

    def _take_notice(self, facts: Facts, signals: list[Signal]) -> None:
        self._take(facts, signals, is_notice=True)
        if facts.is_retry and facts.is_unreachable and self.retries > 1:
            # It repeats its call to the model, so this is no tool's connection, and no single lost one.
            self.report_unreachable()

    def _read_text(self, facts: Facts, text: str, channel: str) -> _Reading:
        """Read a text beside its facts. Tools lose connections too, so what that means shows when the run ends."""
        signals = read_line(
            self._provider, text, channel=channel, seen_at=self.seen_at, tz=self._tz, providers=self.clis.limits
        )
        now = [signal for signal in signals if not isinstance(signal, Unreachable)]
        is_unreachable = len(now) < len(signals)
        if (is_unanswered := self.cli.is_unanswered) is not None:
            is_unreachable = not now and is_unanswered(text)
        return msgspec.structs.replace(facts, is_unreachable=is_unreachable), now

    def _signals_of_event(self, event: Event) -> list[Signal]:
        return read_event(self._provider, event, seen_at=self.seen_at, tz=self._tz, providers=self.clis.limits)

    # --- what they state -----------------------------------------------------------------------

    def _take(self, facts: Facts, signals: list[Signal], *, is_notice: bool = False) -> None:
        """Add what one event or notice states, and report the signals in it that are news."""
        if self.cli.names_minutes:
            signals = [_at_end_of_minute(signal) for signal in signals]
        self._take_facts(facts, is_notice=is_notice)
        if self._is_window_open:
            signals = [signal for signal in signals if not isinstance(signal, QuotaClosed)]
        self._take_ending(facts, signals)
        self._report(signals)

    def _report(self, signals: list[Signal]) -> None:
        self._news += self._repeats.news(signals, seen_at=self.seen_at)

    def _take_facts(self, facts: Facts, *, is_notice: bool) -> None:
        if facts.session_id is not None:
            self.session_id = facts.session_id
        if facts.auth_mode is not None and self.auth_mode != "overage":
            # Overage, once seen, stays: money was spent beyond the plan.
            self.auth_mode = facts.auth_mode
        self._take_work(facts)
        if is_notice:
            self._retry_notices += facts.is_retry
        else:
            self._retry_events += facts.is_retry
        if facts.is_window_open is not None:
            self._is_window_open = facts.is_window_open
        if facts.error:
            self.error = facts.error
        self.denied.is_untrusted |= facts.is_untrusted
        if is_notice:
            self.denied.add_notice(facts.denials)
        else:
            self.denied.add(facts.denials, is_list=facts.lists_denials)

    def _take_work(self, facts: Facts) -> None:
        """Add tokens, model and answer. What the CLI itself counted replaces the count of messages up to here."""
        running = self.counts.running_total
        if facts.run_tokens is not None:
            self._counted_tokens = facts.run_tokens
        elif facts.turn_tokens is not None:
            # A turn that was broken off may count nothing although its messages did.
            self._counted_tokens = (self._counted_tokens or 0) + max(facts.turn_tokens, running)
        if facts.usage is not None:
            self.counts.report(facts.usage)
        elif facts.run_tokens is not None or facts.turn_tokens is not None:
            self.counts.forget_messages()
        self.model = facts.model or self.model
        self.final_answer = facts.answer or self.final_answer
        if facts.model_turns is not None:
            self._model_turns = (self._model_turns or 0) + facts.model_turns

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
    return usage is None or usage.output > 0


def _at_end_of_minute(signal: Signal) -> Signal:
    """Return a reset that was cut down to its minute as the end of that minute, so that nobody comes too early."""
    if not isinstance(signal, QuotaClosed) or signal.source != "text" or signal.resets_at is None:
        return signal
    return msgspec.structs.replace(signal, resets_at=signal.resets_at + MINUTE)


# --- the conclusion ----------------------------------------------------------------------------

_TIME_LIMIT_EXIT = 124
_SIGNAL_EXITS = frozenset({129, 130, 137, 143})


def conclude(run: RunRecord, exit_code: int | None) -> Outcome:
    """Return the outcome of a run. Neither exit code 0 alone nor any single event proves success."""
    outcome = _conclude(run, exit_code)
    if not run.denials:
        return outcome
    # Some CLIs end where a call is denied, without their closing event and with exit code 0.
    ended_there = outcome == "interrupted" and exit_code == 0 and run.ending is None
    return "denied" if outcome == "success" or ended_there else outcome


def _conclude(run: RunRecord, exit_code: int | None) -> Outcome:
    if run.ending is not None:
        return _conclude_ended(run, exit_code, run.ending)
    if run.trouble is not None and not (exit_code == 0 and run.has_text):
        return run.trouble
    if exit_code is None or _was_signalled(exit_code):
        return "interrupted"
    if exit_code == _TIME_LIMIT_EXIT:
        return _conclude_timed_out(run)
    if exit_code == 0:
        return _conclude_quiet_exit(run)
    if run.speaks_json and run.cli.dialect.fails_aloud:
        return "interrupted"
    return _trouble_of_exit(run, exit_code) or "failed"


def _conclude_ended(run: RunRecord, exit_code: int | None, ending: Ending) -> Outcome:
    was_signalled = _was_signalled(exit_code)
    if ending.ok:
        if exit_code in (0, None):
            return "success"
        return "interrupted" if was_signalled else run.trouble or "failed"
    if ending.interrupted:
        return "interrupted"
    return run.trouble or _trouble_of_exit(run, exit_code) or ("interrupted" if was_signalled else "failed")


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


def _conclude_timed_out(run: RunRecord) -> Outcome:
    if run.has_answered or run.has_text:
        return "failed"
    when_cancelled = run.cli.silent_wait_when_cancelled if run.was_cancelled else None
    return when_cancelled or run.cli.silent_wait or "failed"


def _conclude_quiet_exit(run: RunRecord) -> Outcome:
    """Conclude from exit code 0. Several CLIs exit so when they are stopped: then their closing event is missing."""
    if run.speaks_json:
        return "interrupted" if run.cli.dialect.ends_with_result else "success"
    if run.is_cut:
        return "interrupted"
    return "success" if run.has_text or not run.cli.dialect.ends_with_result else "interrupted"


def _trouble_of_exit(run: RunRecord, exit_code: int | None) -> Trouble | None:
    if run.cli.exit_status is None or exit_code is None:
        return None
    return trouble_of_status(run.cli.exit_status(exit_code))

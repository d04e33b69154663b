"""The record of one run so far: session, tokens, payer, turns, retries, the last trouble and how it ended.

Here: values that events add to. Never here: bytes, text or the rules of any provider.
"""

from paceline.core.signals import QuotaClosed, Signal
from paceline.detect.denials import DenialRecord
from paceline.detect.repeat_filter import A_GUESS, RepeatFilter
from paceline.detect.run_facts import AuthMode, Ending, Facts, Head, Trouble
from paceline.detect.run_outcome import merge_trouble, trouble_of_signals, trouble_of_status
from paceline.detect.run_usage import TokenRecord


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

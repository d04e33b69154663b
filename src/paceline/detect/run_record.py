"""The record of one run so far: session, tokens, payer, turns, retries, the last trouble and how it ended.

Here: values that events add to. Never here: bytes, text or the rules of any provider.
"""

from paceline.core.signals import QuotaClosed, Signal
from paceline.detect.denials import DenialRecord
from paceline.detect.repeat_filter import A_GUESS, RepeatFilter
from paceline.detect.run_facts import AuthMode, Ending, Facts, Head, MessageHead, Trouble
from paceline.detect.run_outcome import merge_trouble, trouble_of_signals, trouble_of_status

_MESSAGES_COUNTED = 64
"""Messages whose usage is kept apart: it is repeated with each part, and parts of several messages may interleave."""


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
        self._is_window_open = False
        self._retry_events = 0
        self._retry_notices = 0
        self._repeats = RepeatFilter()
        self._counted_tokens: int | None = None
        self._message_tokens: dict[str, int] = {}
        self._older_message_tokens = 0

    @property
    def tokens(self) -> int | None:
        """Input and output so far: of finished turns as the CLI counts them, of the running one from its messages."""
        if self._counted_tokens is None:
            return self._running_tokens or None
        return self._counted_tokens + self._running_tokens

    @property
    def _running_tokens(self) -> int:
        return self._older_message_tokens + sum(self._message_tokens.values())

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

    def count_message(self, message: MessageHead) -> None:
        """Add the usage of a message, or of a further part of it."""
        if message.usage is None:
            return
        counted = self._message_tokens
        if message.id not in counted and len(counted) == _MESSAGES_COUNTED:
            self._older_message_tokens += counted.pop(next(iter(counted)))
        counted[message.id] = max(message.usage.total, counted.get(message.id, 0))

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
        if facts.run_tokens is not None:
            self._replace_token_count(facts.run_tokens)
        elif facts.turn_tokens is not None:
            # A turn that was broken off may count nothing although its messages did.
            turn = max(facts.turn_tokens, self._running_tokens)
            self._replace_token_count((self._counted_tokens or 0) + turn)
        self._retry_events += facts.is_retry
        if facts.is_window_open is not None:
            self._is_window_open = facts.is_window_open
        if facts.error:
            self.error = facts.error
        if facts.denials or facts.lists_denials:
            self.denials.add(facts.denials, is_list=facts.lists_denials)

    def _replace_token_count(self, tokens: int) -> None:
        """Replace the count of all messages up to here by what the CLI itself counted."""
        self._counted_tokens = tokens
        self._message_tokens.clear()
        self._older_message_tokens = 0

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

"""What the pieces of one run's output mean: events and notices in, facts for the record and news out.

Here: the one place where a piece is read and recorded, whatever channel it came from. Never here: bytes, or which
pieces are the CLI's own; the channel readers decide that.
"""

import msgspec

from paceline.core.signals import QuotaClosed, Signal, Unreachable
from paceline.detect.notices import begins_as_error, status_in_text
from paceline.detect.observation_reader import read_event, read_line
from paceline.detect.parsing.json_objects import Event
from paceline.detect.parsing.line_splitter import decode_json_event
from paceline.detect.provider_set import ProviderSet
from paceline.detect.run_facts import Ending, Facts
from paceline.detect.run_record import RunRecord

MINUTE = 60.0


class OutputInterpreter:
    """Reads events and notices of one run into its record, and collects the signals that are news."""

    def __init__(self, provider: str, *, tz: str, providers: ProviderSet) -> None:
        self.record = RunRecord()
        self.providers = providers
        self.cli = providers.cli(provider)
        self.dialect = self.cli.dialect
        self.seen_at = 0.0
        """When the current chunk was seen; the caller sets it."""
        self._provider = provider
        self._tz = tz
        self._news: list[Signal] = []

    def take_news(self) -> list[Signal]:
        """Return the signals since the last call that state something new."""
        news, self._news = self._news, []
        return news

    def add_event(self, event: Event) -> None:
        """Record what an event of the CLI states."""
        self._add(self.dialect.read(event), self._signals_of_event(event))

    def add_denials(self, line: bytes) -> None:
        """Record the denied tool calls that an event of the agent's work reports. Nothing else in it counts."""
        event = decode_json_event(line)
        denials = self.dialect.read(event).denials if event is not None else ()
        if denials:
            self.record.denials.add(denials, is_list=False)

    def add_notice(self, notice: str, *, channel: str) -> None:
        """Record what a notice of the CLI states. It may announce a retry."""
        self.record.count_retry_notice(bool(self.providers.retry_notice.search(notice)))
        if (denial := self.providers.denial_in(notice)) is not None:
            self.record.denials.add_notice(denial)
        elif self.providers.untrusted.search(notice):
            self.record.denials.is_untrusted = True
        facts = Facts(session_id=self.providers.session_in(notice), status=status_in_text(notice))
        self._add_text(facts, notice, channel)

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
        return read_event(self._provider, event, seen_at=self.seen_at, tz=self._tz, providers=self.providers)

    def _signals_of_text(self, text: str, channel: str) -> list[Signal]:
        signals = read_line(
            self._provider, text, channel=channel, seen_at=self.seen_at, tz=self._tz, providers=self.providers
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

"""What the pieces of one run's output mean: events and notices in, facts for the record and news out.

Here: the one place where a piece is read and recorded, whatever channel it came from. Never here: bytes, or which
pieces are the CLI's own; the channel readers decide that.
"""

import msgspec

from paceline.core.signals import QuotaClosed, Signal, Unreachable
from paceline.detect.notice_budget import NoticeBudget
from paceline.detect.notices import begins_as_error, status_in_text
from paceline.detect.observation_reader import read_event, read_line
from paceline.detect.parsing.json_objects import Event
from paceline.detect.parsing.line_splitter import decode_json_event
from paceline.detect.provider_set import ProviderSet
from paceline.detect.run_facts import NO_FACTS, Denial, Ending, Facts
from paceline.detect.run_record import RunRecord

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

    def __init__(self, provider: str, *, tz: str, providers: ProviderSet) -> None:
        self.record = RunRecord()
        self.providers = providers
        self.cli = providers.cli(provider)
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
        facts = Facts(session_id=self.providers.notices.session_in(notice), status=status_in_text(notice))
        signals = self._signals_of_text(notice, channel)
        now = [signal for signal in signals if not isinstance(signal, Unreachable)]
        return _NoticeReading(
            facts=msgspec.structs.replace(facts, is_unreachable=len(now) < len(signals)),
            signals=now,
            is_retry=bool(self.providers.notices.retry.search(notice)),
            denial=(denial := self.providers.notices.denial_in(notice)),
            is_untrusted=denial is None and bool(self.providers.notices.untrusted.search(notice)),
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

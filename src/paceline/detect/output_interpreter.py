"""What the pieces of one run's output mean: events and notices in, facts for the record and news out.

Here: the one place where a piece is read and recorded, whatever channel it came from. Never here: bytes, or which
pieces are the CLI's own; the channel readers decide that.
"""

from paceline.core.signals import Signal
from paceline.detect.notices import status_in_text
from paceline.detect.observation_reader import read_event, read_line
from paceline.detect.parsing.json_objects import Event
from paceline.detect.provider_set import ProviderSet
from paceline.detect.run_facts import Ending, Facts
from paceline.detect.run_record import RunRecord


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

    def add_notice(self, notice: str, *, channel: str) -> None:
        """Record what a notice of the CLI states. It may announce a retry."""
        self.record.count_retry_notice(bool(self.providers.retry_notice.search(notice)))
        facts = Facts(session_id=self.providers.session_in(notice), status=status_in_text(notice))
        self._add(facts, self._signals_of_text(notice, channel))

    def add_final_error(self, error: str, event: Event | None, *, interrupted: bool) -> None:
        """Record the error that ended a run which printed plain text. `event` is the error if it is one object."""
        channel = "stdout-json" if error.startswith("{") else "stdout"
        signals = self._signals_of_event(event) if event is not None else self._signals_of_text(error, channel)
        ending = Ending(ok=False, interrupted=interrupted, status=status_in_text(error))
        self._add(Facts(ending=ending), signals)

    def add_interruption(self) -> None:
        """Record that the CLI reported to be stopped."""
        self._add(Facts(ending=Ending(ok=False, interrupted=True)), [])

    def _add(self, facts: Facts, signals: list[Signal]) -> None:
        self._news += self.record.take(facts, signals, seen_at=self.seen_at)

    def _signals_of_event(self, event: Event) -> list[Signal]:
        return read_event(self._provider, event, seen_at=self.seen_at, tz=self._tz, providers=self.providers)

    def _signals_of_text(self, text: str, channel: str) -> list[Signal]:
        return read_line(
            self._provider, text, channel=channel, seen_at=self.seen_at, tz=self._tz, providers=self.providers
        )

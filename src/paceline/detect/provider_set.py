"""The known providers as one value that the readers iterate over.

Here: combining tables and patterns of all providers once. Never here: the name or the words of any provider.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property

from paceline.detect.notices import ErrorNotices
from paceline.detect.parsing.json_objects import Event
from paceline.detect.prefilter import shortest
from paceline.detect.provider import AgentCli, EventReader, EventReading, NoticeReader, Provider
from paceline.detect.run_facts import Denial


class ProviderSet:
    """Providers in their order: it decides between rules of one stage, and between readers of one event type."""

    def __init__(self, providers: Iterable[Provider], *, unknown_cli: AgentCli) -> None:
        self.providers = tuple(providers)
        self.rules = tuple(
            sorted((rule for provider in self.providers for rule in provider.rules), key=lambda rule: rule.stage)
        )
        self.headers = tuple(provider.headers for provider in self.providers)
        self.error_events = frozenset[str]().union(*(provider.events.errors for provider in self.providers))
        self._event_readers: dict[str, list[EventReader]] = defaultdict(list)
        for provider in self.providers:
            for kind, reader in provider.events.readers.items():
                self._event_readers[kind].append(reader)
        self._clis = {cli.name: cli for provider in self.providers for cli in provider.clis}
        self._unknown_cli = unknown_cli

    # --- texts ---------------------------------------------------------------------------------

    @cached_property
    def _words(self) -> tuple[str, ...]:
        words = (headers.words for headers in self.headers)
        return shortest(frozenset[str]().union(*words, *(rule.needs for rule in self.rules)))

    def has_hint(self, text: str) -> bool:
        """Return whether any rule can match the text: each rule needs at least one of its words."""
        low = text.casefold()
        return any(word in low for word in self._words)

    @cached_property
    def model_limit(self) -> re.Pattern[str]:
        """Words which show that a limit is that of one model."""
        return _any_of((provider.model_limit for provider in self.providers), re.I)

    def zone_of(self, provider: str, text: str, *, default: str) -> str:
        """Return the zone of times without a zone in a text of this provider."""
        for rule in (rule for known in self.providers for rule in known.zones):
            if (provider in rule.providers or rule.pattern.search(text)) and not rule.unless.search(text):
                return rule.zone
        return default

    # --- headers -------------------------------------------------------------------------------

    @cached_property
    def header_name(self) -> re.Pattern[str]:
        """Names of headers that are also read from the text of an error."""
        return _any_of((headers.names for headers in self.headers), re.I)

    @cached_property
    def buckets(self) -> tuple[re.Pattern[str], ...]:
        """Patterns of the headers that state how much is left."""
        return tuple(re.compile(headers.buckets) for headers in self.headers if headers.buckets)

    # --- events --------------------------------------------------------------------------------

    def has_reader(self, kind: str) -> bool:
        """Return whether a provider reads events of this type by their fields."""
        return kind in self._event_readers

    def read_event(self, kind: str, event: Event) -> EventReading | None:
        """Return the first reading of an event among the providers that read its type."""
        for reader in self._event_readers[kind]:
            if (reading := reader(event)) is not None:
                return reading
        return None

    # --- agent CLIs ----------------------------------------------------------------------------

    def cli(self, name: str) -> AgentCli:
        """Return a CLI by its name. An unknown one is read like any command that may print the shared format."""
        return self._clis.get(name, self._unknown_cli)

    def stderr_reader(self, cli: AgentCli) -> NoticeReader:
        """Return a new reader of a CLI's stderr."""
        if cli.stderr is not None:
            return cli.stderr()
        return ErrorNotices(self._first_line, self._last_line)

    @cached_property
    def _first_line(self) -> re.Pattern[str]:
        return _any_of(provider.notices.first_line for provider in self.providers)

    @cached_property
    def _last_line(self) -> re.Pattern[str]:
        return _any_of(provider.notices.last_line for provider in self.providers)

    @cached_property
    def retry_notice(self) -> re.Pattern[str]:
        """Found in the announcement of a retry."""
        return _any_of(provider.notices.retry for provider in self.providers)

    @cached_property
    def _denied(self) -> re.Pattern[str]:
        return _any_of(provider.notices.denied for provider in self.providers)

    @cached_property
    def untrusted(self) -> re.Pattern[str]:
        """Found in the warning that a folder's permissions are ignored."""
        return _any_of(provider.notices.untrusted for provider in self.providers)

    def denial_in(self, notice: str) -> Denial | None:
        """Return the denied tool call that a notice reports."""
        found = self._denied.search(notice)
        if found is None:
            return None
        return Denial(tool=next((tool for tool in found.groups() if tool), ""))

    @cached_property
    def _resume_hint(self) -> re.Pattern[str]:
        return _any_of(provider.notices.resume for provider in self.providers)

    def session_in(self, notice: str) -> str | None:
        """Return the session id in a hint how to resume a conversation."""
        found = self._resume_hint.match(notice)
        return found[found.lastindex] if found and found.lastindex else None

    @cached_property
    def stopped_answers(self) -> frozenset[str]:
        """Each is all that some CLI prints as an answer when it is interrupted."""
        answers = (provider.notices.stopped_answer for provider in self.providers)
        return frozenset(filter(None, answers))


def _any_of(sources: Iterable[str], flags: int = 0) -> re.Pattern[str]:
    """Return a pattern that matches what any of the sources matches; without sources it matches nothing."""
    return re.compile("|".join(f"(?:{source})" for source in sources if source) or r"(?!)", flags)

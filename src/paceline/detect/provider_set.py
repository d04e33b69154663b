"""The known providers as one value that the readers iterate over.

Here: combining tables and patterns of all providers once. Never here: the name or the words of any provider.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property

from paceline.detect.grammar.statements import GRAMMAR, Grammar
from paceline.detect.hint_words import HintWords
from paceline.detect.notice_patterns import NoticePatterns, any_of
from paceline.detect.notices import ErrorNotices
from paceline.detect.parsing.json_objects import Event
from paceline.detect.provider import AgentCli, EventReader, EventReading, NoticeReader, Provider
from paceline.detect.rules import RuleTable, pattern


class ProviderSet:
    """Providers in their order: it decides between rules of one stage, and between readers of one event type."""

    def __init__(self, providers: Iterable[Provider], *, unknown_cli: AgentCli, grammar: Grammar = GRAMMAR) -> None:
        self.providers = tuple(providers)
        self.rules = tuple(
            sorted((rule for provider in self.providers for rule in provider.rules), key=lambda rule: rule.stage)
        )
        self.rule_table = RuleTable(self.rules)
        self.notices = NoticePatterns(provider.notices for provider in self.providers)
        self.grammar = grammar
        self.words = HintWords(self.rules, self.providers, grammar.branches)
        self.headers = tuple(provider.headers for provider in self.providers)
        self.error_events = frozenset[str]().union(*(provider.events.errors for provider in self.providers))
        self._event_readers: dict[str, list[EventReader]] = defaultdict(list)
        for provider in self.providers:
            for kind, reader in provider.events.readers.items():
                self._event_readers[kind].append(reader)
        self._clis = {cli.name: cli for provider in self.providers for cli in provider.clis}
        self._unknown_cli = unknown_cli

    # --- texts ---------------------------------------------------------------------------------

    def has_hint(self, text: str) -> bool:
        """Return whether any rule can match the text: each rule needs at least one of its words."""
        return self.words.has_hint(text)

    def compile_rules(self) -> None:
        """Compile the patterns of all rules, which is otherwise done when each is first needed."""
        for rule in self.rules:
            for source in filter(None, (rule.strict, rule.loose, rule.unless)):
                pattern(source)

    @cached_property
    def model_limit(self) -> re.Pattern[str]:
        """Words which show that a limit is that of one model."""
        return any_of((provider.model_limit for provider in self.providers), re.I)

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
        return any_of((headers.names for headers in self.headers), re.I)

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
        return ErrorNotices(self.notices.first_line, self.notices.last_line)

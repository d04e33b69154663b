"""What a provider is to detection: one value that holds everything the provider and its tools print about limits.

Here: the types that the module of each provider fills in, and all providers as one value that the readers use. Never
here: the name or the words of any provider, or the reading of texts.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

import msgspec

from paceline.core.signals import Budget, Cause, Reach
from paceline.detect.fields import Headers
from paceline.detect.grammar.statements import GRAMMAR, Grammar
from paceline.detect.json_objects import Event, Pairs, flatten
from paceline.detect.observation import Kind
from paceline.detect.prefilter import HintWords
from paceline.detect.rules import Rule, RuleTable, any_of, pattern
from paceline.detect.times import Reset, to_number

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


# --- zones -------------------------------------------------------------------------------------


class ZoneRule(msgspec.Struct, frozen=True, kw_only=True):
    """Times without a zone are in `zone`, for these providers or in texts that match."""

    zone: str
    providers: frozenset[str] = frozenset()
    pattern: re.Pattern[str]
    unless: re.Pattern[str]


# --- everything --------------------------------------------------------------------------------


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one provider, its API and its agent CLI print about limits."""

    name: str
    rules: tuple[Rule, ...] = ()
    events: EventRules = EventRules()
    headers: HeaderRules = HeaderRules()
    zones: tuple[ZoneRule, ...] = ()
    model_limit: str = ""
    """Pattern of words which show that a limit is that of one model."""


class ProviderSet:
    """Providers in their order: it decides between rules of one stage, and between readers of one event type."""

    def __init__(self, providers: Iterable[Provider], *, grammar: Grammar = GRAMMAR) -> None:
        self.providers = tuple(providers)
        self.rules = tuple(
            sorted((rule for provider in self.providers for rule in provider.rules), key=lambda rule: rule.stage)
        )
        self.rule_table = RuleTable(self.rules)
        self.grammar = grammar
        self.hints = HintWords(
            (
                *(branch for rule in self.rules for branch in rule.branches),
                *grammar.branches,
                *((words,) for provider in self.providers if (words := provider.headers.words)),
            )
        )
        self.headers = tuple(provider.headers for provider in self.providers)
        self.error_events = frozenset[str]().union(*(provider.events.errors for provider in self.providers))
        self._event_readers: dict[str, list[EventReader]] = defaultdict(list)
        for provider in self.providers:
            for kind, reader in provider.events.readers.items():
                self._event_readers[kind].append(reader)

    # --- texts ---------------------------------------------------------------------------------

    def has_hint(self, text: str) -> bool:
        """Return whether any rule can match the text: each rule needs at least one of its words."""
        return self.hints.has_hint(text)

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

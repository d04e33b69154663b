"""What a provider is to detection: everything that it and its tools print about limits, as one value.

Here: the types that the module of each provider fills in, the choice of the rule that wins, and all providers as one
value that the readers use. Never here: the name or the words of any provider, or the reading of texts.

A rule is the core of a sentence, or an error code. Read strictly (what a CLI printed, possibly beside an agent's
words) the core must be a sentence of its own. Read loosely (the body of an error) it may be anywhere. Rules are tried
stage by stage, since texts name several things at once: "buy credits or wait" names money and time, and the window
decides.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cache, cached_property
from itertools import chain, islice
from typing import Any

import msgspec

from paceline.core.signals import Budget, Cause, Reach
from paceline.detect.fields import Headers
from paceline.detect.grammar import GRAMMAR, Grammar
from paceline.detect.json_objects import Event, Pairs, flatten
from paceline.detect.observation import STAGE_OF, Kind, Meaning
from paceline.detect.prefilter import Branch, needed_branches, telling_words, word_finder
from paceline.detect.times import Reset, to_number

# --- rules -------------------------------------------------------------------------------------

NO_LOGIN = "auth.missing"
"""The rule for what a CLI prints when nobody has logged in, without asking its provider."""
MAX_PLACES = 40
"""Matches of a core whose surroundings are read. The bound keeps the time linear."""
BEFORE, AFTER = 400, 80
"""Characters around a core in which the rest of its sentence may be."""


class Rule(Meaning, frozen=True, kw_only=True):
    """One way in which a provider states one kind of limit.

    `body_only`: words so plain that they count only where all of the text is an error's own.
    `branches`: the words that each of its alternatives needs.
    `unless`: the core does not count where this is found in the same text.
    `strict`, `loose` and `unless` are sources for `pattern`: most runs need few of them.
    """

    strict: str
    loose: str
    branches: tuple[Branch, ...]
    body_only: bool = False
    unless: str | None = None
    not_for: frozenset[str] = frozenset()


@cache
def pattern(source: str) -> re.Pattern[str]:
    """Compile a pattern of a rule when it is first needed: all of them together take as long as the CLI's start."""
    return re.compile(source, re.I | re.M)


def any_of(sources: Iterable[str], flags: int = 0) -> re.Pattern[str]:
    """Return a pattern that matches what any of the sources matches; without sources it matches nothing."""
    return re.compile("|".join(f"(?:{source})" for source in sources if source) or r"(?!)", flags)


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """Words with a meaning, of a rule or of the grammar, the sentence around them, and its line before them."""

    rule: Meaning
    sentence: str
    head: str = ""


# Where a sentence may begin: at a line's start, behind a status, a sign, or as the value of a key.
_LEFT = (
    r"""(?:^|\b[45]\d{2}\s{1,3}|(?-i:ERROR|WARN|WARNING|FATAL)\]?\s{1,3}|[.!?;·>)\]}]\s{1,3}|:\s{0,3}|\s[-–—]\s|[(\[]|[:=({\[,]\s{0,8}b?["']"""
    r"""|\b(?:error|message|msg|err|reason)(?:\.\w{1,20})?=["']?)"""
)
_RIGHT = (
    r"""(?=\s{0,3}(?:$|[.,;:!?)"'}\]·|(\[<\-–—/]"""
    r"""|(?:for|on|in|at|please|try|resets?|and|or|but|with|by|while|again|to|before|until|as|of|set)\b|\d))"""
)


# "<4>" in a core allows up to four words before it. None of them may be one of these, which show that somebody
# thinks, plans or describes a change.
_PROSE = (
    r"when|if|once|after|until|unless|whether|how|why|because|so|i|i'm|i'll|i've|we|we'll|let|let's|add|added|adds|fix|fixed|fixes"
    r"|handle|handles|handled|should|could|will|can|say|says|said|docs|tests?|retries|returns?|returned|returning|e\.g\.|like|about|not|never|avoid"
    r"|improves?|reverts?|shows?|reported|supports?|prevent|ensure|detect|check|catch|implement|configure|simulate|mock|throws?|raises?|example|case|cases|means?|indicates?|suggests?"
)
_OPENING = re.compile(r"(?:[45]\d\d|error)\b", re.I)  # before the words themselves, but part of the match
_LEAD = re.compile(r"<(\d{1,2})>")


def _with_lead(core: str) -> str:
    return _LEAD.sub(rf"(?:(?!(?:{_PROSE})(?![\\w']))[^\\s|]{{1,40}} ){{0,\1}}?", core)


def _with_spaces(core: str) -> str:
    return core.replace(" ?", r"\s{0,3}").replace(" ", r"\s{1,3}")


def rule(
    name: str,
    kind: Kind,
    *cores: str,
    anywhere: bool = False,
    open_end: bool = False,
    unless: str | None = None,
    **fields: Any,
) -> Rule:
    """Make a rule from the cores of its sentences. A space in a core is any white space, also a line break.

    `anywhere`: the words are so particular that they count in any place. `open_end`: the sentence may continue after
    the core. The other options are fields of `Rule`; `stage` is otherwise that of the kind.
    """
    core = "|".join(cores)
    led, bare = (_with_spaces(text) for text in (_with_lead(core), _LEAD.sub("", core)))
    right = "" if open_end else _RIGHT
    fields.setdefault("stage", STAGE_OF[kind])
    return Rule(
        name=name,
        kind=kind,
        strict=bare if anywhere else f"{_LEFT}(?:{led}){right}",
        loose=bare,
        branches=needed_branches(bare.casefold()),
        unless=_with_spaces(unless) if unless else None,
        **fields,
    )


def _has_all_words(present: frozenset[str], candidate: Rule) -> bool:
    """Return whether a text with these words has one of each part of some alternative of the rule."""
    return any(not any(map(present.isdisjoint, branch)) for branch in candidate.branches)


def _match_strictly(candidate: Rule, text: str) -> re.Match[str] | None:
    """Match a rule as a sentence of its own. Only the text around its core is read, which keeps the time linear."""
    for core in islice(pattern(candidate.loose).finditer(text), MAX_PLACES):
        start, end = max(0, core.start() - BEFORE), core.end() + AFTER
        if found := pattern(candidate.strict).search(text, start, end):
            return found
    return None


def sentence_around(text: str, start: int, end: int) -> str:
    """Return the match with the text around it on its lines."""
    left = text.rfind("\n", 0, start) + 1
    right = text.find("\n", end)
    return text[max(left, start - 200) : right if 0 <= right < end + 300 else end + 300]


_STATUS_KEYS = ("statuscode", "status_code", "status", "http_status")

# --- events ------------------------------------------------------------------------------------


class LimitReading(msgspec.Struct, frozen=True, kw_only=True):
    """What an event or the headers of an answer state about capacity: decided by fields, or an error text to read."""

    kind: Kind | None = None
    reset: Reset | None = None
    window: str | None = None
    reach: Reach | None = None
    cause: Cause | None = None
    budgets: tuple[Budget, ...] = ()
    text: str = ""
    pairs: Pairs = []
    status: int | None = None
    default: Kind | None = None
    """The kind if no rule matches the text."""
    rule: str = ""


def error_reading(event: Event) -> LimitReading:
    """Return an event that is an error as a whole: all its text and fields are read."""
    pairs = flatten(event)
    text = "\n".join(f'{key}: "{value}"' for key, value in pairs if len(value) > 2 or value.isalnum())
    statuses = (int(number) for key, value in pairs if key.lower() in _STATUS_KEYS and (number := to_number(value)))
    return LimitReading(text=text, pairs=pairs, status=next(statuses, None), rule=f"event.{event.get('type', 'error')}")


EventReader = Callable[[Event], LimitReading | None]
"""Returns None for an event that is not the CLI's own error, or not in this provider's form."""


class ZoneRule(msgspec.Struct, frozen=True, kw_only=True):
    """Times without a zone are in `zone`, for these providers or in texts that match."""

    zone: str
    providers: frozenset[str] = frozenset()
    pattern: re.Pattern[str]
    unless: re.Pattern[str]


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one provider, its API and its agent CLI print about limits. Headers are in lower case."""

    name: str
    rules: tuple[Rule, ...] = ()
    events: Mapping[str, EventReader] = {}
    """Event type -> reader. Several providers may read one type: the first that returns a reading wins."""
    errors: frozenset[str] = frozenset()
    """Event types that are errors as a whole: all their text is read."""
    headers: str = ""
    """Pattern of the headers that are also read when a proxy or CLI puts them into the text of an error."""
    header_words: frozenset[str] = frozenset()
    """Words of which one is in each header that states a limit by itself."""
    buckets: str = ""
    """Pattern of headers that state how much is left (groups `bucket` and `what`: `remaining`, `reset`, `limit`)."""
    budgets: Callable[[Headers, float], list[Budget]] | None = None
    """Further budgets, from (headers, seen_at)."""
    decide: Callable[[Headers, int | None, float], LimitReading | None] | None = None
    """The decision of a refused answer, from (headers, status, seen_at), or None."""
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
        self._words_of = [(rule, frozenset[str]().union(*chain(*rule.branches))) for rule in self.rules]
        self._rule_words = frozenset[str]().union(*(words for _, words in self._words_of))
        self.grammar = grammar
        self.error_events = frozenset[str]().union(*(provider.errors for provider in self.providers))
        self._event_readers: dict[str, list[EventReader]] = defaultdict(list)
        for provider in self.providers:
            for kind, reader in provider.events.items():
                self._event_readers[kind].append(reader)

    # --- texts ---------------------------------------------------------------------------------

    def has_hint(self, text: str) -> bool:
        """Return whether any rule can match the text: each rule needs at least one of its words."""
        return bool(self._hint_finder.search(text.casefold()))

    @cached_property
    def hint_words(self) -> tuple[str, ...]:
        """Words in lower case, of which one is in every text that means something."""
        of_rules = (branch for rule in self.rules for branch in rule.branches)
        of_headers = ((words,) for provider in self.providers if (words := provider.header_words))
        return telling_words((*of_rules, *self.grammar.branches, *of_headers))

    @cached_property
    def _hint_finder(self) -> re.Pattern[str]:
        return word_finder(self.hint_words)

    def first_match(self, text: str, *, provider: str, loose: bool) -> Match | None:
        """Return the first rule, in order of stages, that matches the text."""
        low = text.casefold()
        present = frozenset(filter(low.__contains__, self._rule_words))
        for candidate, words in self._words_of:
            if words.isdisjoint(present) or not _has_all_words(present, candidate):
                continue
            if provider in candidate.not_for or (candidate.body_only and not loose):
                continue
            found = pattern(candidate.loose).search(text) if loose else _match_strictly(candidate, text)
            if found and not (candidate.unless and pattern(candidate.unless).search(text)):
                opening = _OPENING.match(text, found.start())
                head = text[text.rfind("\n", 0, found.start()) + 1 : opening.end() if opening else found.start()]
                return Match(rule=candidate, sentence=sentence_around(text, found.start(), found.end()), head=head)
        return None

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

    @cached_property
    def header_name(self) -> re.Pattern[str]:
        """Names of headers that are also read from the text of an error."""
        return any_of((provider.headers for provider in self.providers), re.I)

    @cached_property
    def buckets(self) -> tuple[re.Pattern[str], ...]:
        """Patterns of the headers that state how much is left."""
        return tuple(re.compile(provider.buckets) for provider in self.providers if provider.buckets)

    # --- events --------------------------------------------------------------------------------

    def has_reader(self, kind: str) -> bool:
        """Return whether a provider reads events of this type by their fields."""
        return kind in self._event_readers

    def read_event(self, kind: str, event: Event) -> LimitReading | None:
        """Return the first reading of an event among the providers that read its type."""
        for reader in self._event_readers[kind]:
            if (reading := reader(event)) is not None:
                return reading
        return None

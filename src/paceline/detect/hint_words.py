"""The words of which one is in every text that means something, over all providers.

Here: the cheap tests before texts and lines are read. Never here: what a text means.
"""

import re
from collections.abc import Iterable
from functools import cached_property

from paceline.detect.notices import STATUS_IN_ERROR
from paceline.detect.parsing.squeezed_text import spellings, squeezed
from paceline.detect.prefilter import Branch, needed_branches, shortest, telling_words, word_finder
from paceline.detect.provider import Provider
from paceline.detect.rules import Rule


class HintWords:
    """Words that are derived from the rules and patterns of all providers when they are first needed."""

    def __init__(self, rules: Iterable[Rule], providers: Iterable[Provider], branches: Iterable[Branch]) -> None:
        self._rules = tuple(rules)
        self._branches = tuple(branches)
        self._providers = tuple(providers)

    def has_hint(self, text: str) -> bool:
        """Return whether any rule can match the text: each rule needs at least one of its words."""
        return bool(self._finder_of_rules.search(text.casefold()))

    def may_be_notice(self, text: str) -> bool:
        """Return whether a line can be part of a notice that means anything: for a rule, or for its own pattern."""
        low = text.casefold()
        return any(finder.search(low) for finder in self.finders(low))

    def finders(self, text: str) -> tuple[re.Pattern[str], ...]:
        """Return the patterns that find the lines of a text, in lower case, that can be part of a notice."""
        return (self._finder_of_ascii,) if text.isascii() else (self._finder_of_ascii, self._finder_of_others)

    @cached_property
    def squeezed_finder(self) -> re.Pattern[str]:
        """The pattern that finds the same lines where nothing but letters and digits is left of them."""
        return word_finder(squeezed(word) for word in (*self._of_lines, *self._not_ascii))

    @cached_property
    def numbers(self) -> tuple[bytes, ...]:
        """The words with digits: lines that differ in them differ in meaning."""
        return tuple(word.encode() for word in self._of_lines if any(map(str.isdigit, word)))

    @cached_property
    def _finder_of_rules(self) -> re.Pattern[str]:
        return word_finder(self._of_rules)

    @cached_property
    def _finder_of_ascii(self) -> re.Pattern[str]:
        return word_finder(self._of_lines)

    @cached_property
    def _finder_of_others(self) -> re.Pattern[str]:
        ways = (way for word in (*self._of_lines, *self._not_ascii) for way in spellings(word))
        return word_finder(way for way in ways if not way.isascii())

    @cached_property
    def _of_rules(self) -> tuple[str, ...]:
        headers = ((words,) for provider in self._providers if (words := provider.headers.words))
        return telling_words([*(branch for rule in self._rules for branch in rule.branches), *self._branches, *headers])

    @cached_property
    def _of_notices(self) -> tuple[str, ...]:
        patterns = [pattern for provider in self._providers for pattern in provider.notices.all_patterns() if pattern]
        branches = (branch for pattern in patterns for branch in needed_branches(pattern.casefold()))
        return telling_words([*branches, *needed_branches(STATUS_IN_ERROR.casefold())])

    @cached_property
    def _of_lines(self) -> tuple[str, ...]:
        return shortest(frozenset(word for word in (*self._of_rules, *self._of_notices) if word.isascii()))

    @cached_property
    def _not_ascii(self) -> tuple[str, ...]:
        return tuple(word for word in self._of_rules if not word.isascii())

"""The words of which one is in every text that means something, over all providers.

Here: the cheap tests before texts and lines are read. Never here: what a text means.
"""

from collections.abc import Iterable
from functools import cached_property

from paceline.detect.notices import STATUS_IN_ERROR
from paceline.detect.prefilter import needed_branches, shortest, telling_words
from paceline.detect.provider import Provider
from paceline.detect.rules import Rule


class HintWords:
    """Words that are derived from the rules and patterns of all providers when they are first needed."""

    def __init__(self, rules: Iterable[Rule], providers: Iterable[Provider]) -> None:
        self._rules = tuple(rules)
        self._providers = tuple(providers)

    def has_hint(self, text: str) -> bool:
        """Return whether any rule can match the text: each rule needs at least one of its words."""
        return any(map(text.casefold().__contains__, self._of_rules))

    def may_be_notice(self, text: str) -> bool:
        """Return whether a line can be part of a notice that means anything: for a rule, or for its own pattern."""
        words = self._of_lines if text.isascii() else (*self._of_lines, *self._not_ascii)
        return any(map(text.casefold().__contains__, words))  # the fastest form: most lines of stderr are tested

    @cached_property
    def numbers(self) -> tuple[str, ...]:
        """The words with digits: lines that differ in them differ in meaning."""
        return tuple(word for word in self._of_lines if any(map(str.isdigit, word)))

    @cached_property
    def _of_rules(self) -> tuple[str, ...]:
        headers = ((words,) for provider in self._providers if (words := provider.headers.words))
        return telling_words([*(branch for rule in self._rules for branch in rule.branches), *headers])

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
